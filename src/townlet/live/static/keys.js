/** The keyboard: the few keys that every player of moving things has. */

import { nextOverlay } from './overlay.js';

/**
 * @param {import('./state.js').Store} store
 * @param {() => {toggle: () => void, step: (by: number) => void, reset: () => void}} player who plays what is shown now
 * @param {() => void} openHelp
 */
export function listenToKeys(store, player, openHelp) {
  document.addEventListener('keydown', (event) => {
    const target = /** @type {HTMLElement} */ (event.target);
    if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.closest('input, select, textarea, dialog, [role=listbox]')) return;
    // On a button the space bar presses that button, as everywhere.
    if (event.key === ' ' && target.closest('button, summary, a')) return;
    const steps = event.shiftKey ? 10 : 1;
    if (event.key === '?') openHelp();
    else if (!store.known.about) return;
    else if (event.key === ' ') player().toggle();
    else if (event.key === 'ArrowRight') player().step(steps);
    else if (event.key === 'ArrowLeft') player().step(-steps);
    else if (event.key === 'r' || event.key === 'R') player().reset();
    else if ((event.key === 'v' || event.key === 'V') && store.known.world) nextOverlay(store);
    else return;
    event.preventDefault();
  });
}
