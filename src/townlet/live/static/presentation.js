/** Presentation mode for a room, and the QR code with which others join. */

import { request } from './api.js';
import { makeClosable } from './dialog.js';
import { byId, el } from './dom.js';

/** @param {import('./state.js').Store} store */
export function initPresentation(store) {
  const button = byId('present-button');
  const present = (/** @type {boolean} */ on) => {
    document.body.toggleAttribute('data-present', on);
    button.setAttribute('aria-pressed', String(on));
    store.set({ view: 'watch' }); // also draws the town in its new size
  };
  const toggle = async () => {
    const on = !document.body.hasAttribute('data-present');
    present(on);
    if (on) await document.documentElement.requestFullscreen?.().catch(() => {}); // refused in frames
    else if (document.fullscreenElement) await document.exitFullscreen();
  };
  button.addEventListener('click', () => void toggle());
  document.addEventListener('fullscreenchange', () => { if (!document.fullscreenElement) present(false); });
  return toggle;
}

/** The dialog with link and QR code for viewers. */
export function initJoin() {
  const dialog = /** @type {HTMLDialogElement} */ (byId('join'));
  const body = el('div', { class: 'join-body' });
  makeClosable(dialog);
  dialog.append(el('h2', { id: 'join-title', text: 'Watch along' }), body);
  byId('join-button').addEventListener('click', async () => {
    const { link, local } = await request('api/join').catch(() => ({ link: null, local: false }));
    const parts = link ? [
      el('img', { src: 'api/join.svg', alt: 'QR code of the link for viewers', width: 320, height: 320 }),
      el('p', { class: 'join-link' }, el('a', { href: link, text: link })),
      el('p', { text: 'Everyone who opens this link watches with controls of their own. Viewers cannot save, train or start tournaments.' }),
      local ? el('p', { class: 'warning', text: 'The server accepts only this machine. To let other devices join, start it with “townlet live --host 0.0.0.0”.' }) : null,
    ] : [el('p', { text: 'This server runs without tokens, so there is no separate link for viewers.' })];
    body.replaceChildren(...parts.filter((part) => part !== null));
    dialog.showModal();
  });
}
