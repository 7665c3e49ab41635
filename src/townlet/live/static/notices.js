/** What is said once: to everybody for a while, or to those who listen. */

import { byId, make } from './dom.js';

const STAYS = 7000; // milliseconds

/** Something was refused or failed. @param {string} what @param {string} [fix] */
export function toast(what, fix = '') {
  const box = byId('toasts');
  for (const other of box.children) if (other.firstChild?.textContent === what) other.remove();
  const close = make('button', { type: 'button', 'aria-label': 'Close', text: '×' });
  const one = make('div', { class: 'toast' }, make('strong', { text: what.charAt(0).toUpperCase() + what.slice(1) }), fix ? make('span', { text: fix }) : null, close);
  close.addEventListener('click', () => one.remove());
  box.append(one);
  while (box.children.length > 3) box.firstElementChild?.remove();
  setTimeout(() => one.remove(), STAYS);
}

/** For people who listen instead of look. @param {string} words */
export function announce(words) {
  byId('announcer').textContent = words;
}
