/** Toasts, and announcements to screen readers. */

import { byId, el } from './dom.js';
import { sentence } from './format.js';

const TOAST_MS = 7000; // milliseconds

/** Show a message for a few seconds. @param {string} what @param {string} [fix] */
export function toast(what, fix = '') {
  const box = byId('toasts'), text = sentence(what);
  for (const other of box.children) if (other.firstChild?.textContent === text) other.remove();
  const close = el('button', { type: 'button', 'aria-label': 'Close', title: 'Close', text: '×' });
  const one = el('div', { class: 'toast' }, el('strong', { text }), fix ? el('span', { text: sentence(fix) }) : null, close);
  close.addEventListener('click', () => one.remove());
  box.append(one);
  while (box.children.length > 3) box.firstElementChild?.remove();
  setTimeout(() => one.remove(), TOAST_MS);
}

/** Announce to screen readers. @param {string} text */
export function announce(text) {
  byId('announcer').textContent = text;
}
