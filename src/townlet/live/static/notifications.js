/** Toasts, and announcements to screen readers. */

import { byId, el } from './dom.js';

const TOAST_MS = 7000; // milliseconds

/** Show a message for a few seconds. @param {string} what @param {string} [fix] */
export function toast(what, fix = '') {
  const box = byId('toasts');
  for (const other of box.children) if (other.firstChild?.textContent === what) other.remove();
  const close = el('button', { type: 'button', 'aria-label': 'Close', text: '×' });
  const one = el('div', { class: 'toast' }, el('strong', { text: what.charAt(0).toUpperCase() + what.slice(1) }), fix ? el('span', { text: fix }) : null, close);
  close.addEventListener('click', () => one.remove());
  box.append(one);
  while (box.children.length > 3) box.firstElementChild?.remove();
  setTimeout(() => one.remove(), TOAST_MS);
}

/** Announce to screen readers. @param {string} text */
export function announce(text) {
  byId('announcer').textContent = text;
}
