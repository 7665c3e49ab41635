/** Dialogs of the page. */

import { el } from './dom.js';

/** Add a button that closes a dialog, always in its corner; a click beside it closes it, too. @param {HTMLDialogElement} dialog */
export function makeClosable(dialog) {
  const close = el('button', { type: 'button', class: 'icon-button dialog-close', 'aria-label': 'Close', title: 'Close', text: '×' });
  close.addEventListener('click', () => dialog.close());
  dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });
  dialog.prepend(close);
}
