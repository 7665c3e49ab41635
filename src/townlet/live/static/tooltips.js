/** Tooltips with the full text, for texts that are cut off. */

const CUT = '.run-name, .run-option :is(strong, small), .progress-text, .subtitle, .action-name, .reward > span, .slider-text, .stage-bar small, .row-buttons span, .town-caption, select';

/** The full text of an element that does not fit, or ''. @param {HTMLElement} element */
function hiddenText(element) {
  if (element instanceof HTMLSelectElement) return element.selectedOptions[0]?.text ?? '';
  return element.scrollWidth > element.clientWidth + 1 ? element.textContent ?? '' : '';
}

/** Give every text under the pointer its tooltip, if it is cut off. */
export function initTooltips() {
  document.addEventListener('pointerover', (event) => {
    const element = /** @type {HTMLElement | null} */ (/** @type {Element} */ (event.target).closest(CUT));
    if (!element || (element.title && element.dataset.cut === undefined)) return; // it has one of its own
    element.title = element.dataset.cut = hiddenText(element);
  });
}
