/** Which view and which side: buttons that only choose, and show what is chosen. */

import { byId, write } from './dom.js';
import { sign } from './icons.js';
import { kindOf } from './kinds.js';

/** @param {import('./state.js').Store} store */
export function showChoices(store) {
  for (const place of /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('[data-glyph]'))) {
    place.replaceChildren(sign(place.dataset.glyph ?? '', 16));
  }
  const views = /** @type {NodeListOf<HTMLElement>} */ (document.querySelectorAll('[data-view-button]'));
  for (const button of views) {
    button.addEventListener('click', () => store.set({ view: button.dataset.viewButton === 'world' ? 'world' : 'watch' }));
  }
  const sides = /** @type {HTMLElement[]} */ ([...byId('side-choice').children]);
  for (const button of sides) button.addEventListener('click', () => store.set({ side: Number(button.dataset.side) }));
  store.on(['view'], () => {
    document.body.dataset.view = store.known.view;
    for (const button of views) button.setAttribute('aria-pressed', String(button.dataset.viewButton === store.known.view));
  });
  store.on(['about'], () => {
    document.body.dataset.kind = kindOf(store.known);
    const skip = /** @type {HTMLAnchorElement} */ (document.querySelector('.skip'));
    skip.hash = kindOf(store.known) === 'gym' ? '#episode' : '#town';
    write(skip, kindOf(store.known) === 'gym' ? 'To the episode' : 'To the town');
  });
  store.on(['compare', 'side'], () => {
    byId('side-choice').hidden = store.known.compare === null;
    for (const button of sides) button.setAttribute('aria-pressed', String(Number(button.dataset.side) === store.known.side));
  });
}
