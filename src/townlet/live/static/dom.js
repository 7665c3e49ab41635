/** DOM helpers. */

/**
 * Create an element: `el('p', {class: 'note', text: '…'}, child, …)`.
 * @template {keyof HTMLElementTagNameMap} K
 * @param {K} tag
 * @param {Record<string, string | number | boolean | null | undefined>} [attributes] `text` is its content
 * @param {...(Node | string | null)} children
 * @returns {HTMLElementTagNameMap[K]}
 */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name === 'text') element.textContent = String(value);
    else element.setAttribute(name, value === true ? '' : String(value));
  }
  for (const child of children) if (child !== null) element.append(child);
  return element;
}

/** A button that copies a command; where the browser forbids that, it selects the text instead. @param {HTMLElement} command */
export function copyButton(command) {
  const button = el('button', { type: 'button', text: 'Copy' });
  button.addEventListener('click', async () => {
    const copied = navigator.clipboard?.writeText(command.textContent ?? '') ?? Promise.reject(new Error('not available'));
    await copied.then(() => setText(button, 'Copied'), () => getSelection()?.selectAllChildren(command));
  });
  return button;
}

/**
 * The element with this id; throws if it is missing.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element '${id}'`);
  return found;
}

const SVG = 'http://www.w3.org/2000/svg';

/**
 * @param {string} tag
 * @param {Record<string, string | number>} attributes
 * @param {...Node} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  const element = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, String(value));
  element.append(...children);
  return /** @type {SVGElement} */ (element);
}

/** Pixels of a canvas per CSS pixel, with the zoom of presentation mode. @param {Element} canvas */
export function pixelRatio(canvas) {
  const zoom = /** @type {{currentCSSZoom?: number}} */ (canvas).currentCSSZoom ?? 1;
  return Math.min(3, (devicePixelRatio || 1) * zoom);
}

/** Set a text only if it differs, to avoid layout. @param {Element} element @param {string} text */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}
