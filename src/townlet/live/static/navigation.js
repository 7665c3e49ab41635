/** Keyboard shortcuts, and the buttons that choose view and side. */

import { byId, setText } from './dom.js';
import { runKind } from './format.js';
import { icon } from './icons.js';
import { nextOverlay } from './overlay.js';

/**
 * @param {import('./state.js').Store} store
 * @param {() => {toggle: () => void, step: (by: number) => void, reset: () => void}} player the active player
 * @param {() => void} openHelp @param {() => void} togglePresentation
 */
export function bindShortcuts(store, player, openHelp, togglePresentation) {
  document.addEventListener('keydown', (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.closest('input, select, textarea, dialog, [role=listbox]')) return;
    // On a button, space presses it.
    if (event.key === ' ' && target.closest('button, summary, a')) return;
    const steps = event.shiftKey ? 10 : 1;
    if (event.key === '?') openHelp();
    else if (!store.state.about || store.state.link === 'away') return;
    else if (event.key === ' ') player().toggle();
    else if (event.key === 'ArrowRight') player().step(steps);
    else if (event.key === 'ArrowLeft') player().step(-steps);
    else if (event.key === 'p' || event.key === 'P') togglePresentation();
    else if (event.key === 'r' || event.key === 'R') player().reset();
    else if ((event.key === 'v' || event.key === 'V') && store.state.world) nextOverlay(store);
    else return;
    event.preventDefault();
  });
}

/** @param {import('./state.js').Store} store */
export function initViewButtons(store) {
  for (const place of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('[data-glyph]'))) {
    place.replaceChildren(icon(place.dataset.glyph ?? '', 16));
  }
  const views = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('[data-view-button]'));
  for (const button of views) {
    button.addEventListener('click', () => store.set({ view: button.dataset.viewButton === 'world' ? 'world' : 'watch' }));
  }
  const sides = /** @type {HTMLElement[]} */ ([...byId('side-choice').children]);
  for (const button of sides) button.addEventListener('click', () => store.set({ side: Number(button.dataset.side) }));
  store.on(['view'], () => {
    if (document.body.dataset.view !== store.state.view) scrollTo(0, 0);
    document.body.dataset.view = store.state.view;
    for (const button of views) button.setAttribute('aria-pressed', String(button.dataset.viewButton === store.state.view));
  });
  store.on(['about'], () => {
    document.body.dataset.kind = runKind(store.state);
    const skip = /** @type {HTMLAnchorElement} */ (document.querySelector('.skip'));
    skip.hash = runKind(store.state) === 'gym' ? '#episode' : '#town';
    setText(skip, runKind(store.state) === 'gym' ? 'Skip to the episode' : 'Skip to the town');
  });
  store.on(['agents', 'side'], () => {
    byId('side-choice').hidden = store.state.agents.length === 1;
    for (const button of sides) button.setAttribute('aria-pressed', String(Number(button.dataset.side) === store.state.side));
  });
}
