/** Three sentences for people who see the page for the first time. */

import { byId, el } from './dom.js';

const SEEN = 'townlet-intro-seen';

/** @param {import('./state.js').Store} store @param {() => void} openHelp */
export function initIntro(store, openHelp) {
  const box = byId('intro');
  const close = el('button', { type: 'button', class: 'icon-button', 'aria-label': 'Close the introduction', title: 'Close the introduction', text: '×' });
  const more = el('button', { type: 'button', class: 'link', text: 'More about this page' });
  box.replaceChildren(
    el('p', {},
      'The figure on the map lives in a small town: to stay alive it has to sleep, eat and earn money. ',
      'It was given no rules; it learned what to do by trial and error, over thousands of lives. ',
      'Watch it, click a place to ask why it does not go there, let others play in its town, or build a town of your own under “World”. ', more),
    close,
  );
  more.addEventListener('click', openHelp);
  close.addEventListener('click', () => {
    box.hidden = true;
    try { localStorage.setItem(SEEN, '1'); } catch { /* storage disabled */ }
  });
  let seen = false;
  try { seen = localStorage.getItem(SEEN) !== null; } catch { /* storage disabled */ }
  store.on(['about', 'view'], () => { box.hidden = seen || box.dataset.closed === '1' || store.state.about?.kind !== 'town' || store.state.view !== 'watch'; });
  close.addEventListener('click', () => { box.dataset.closed = '1'; });
}
