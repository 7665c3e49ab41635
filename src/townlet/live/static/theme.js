/** Light and dark theme: the system's until the user chooses one. */

import { byId } from './dom.js';
import { icon } from './icons.js';

const KEY = 'townlet-theme';
const ORDER = ['system', 'light', 'dark'];

/** @param {{set: (change: {theme: string}) => void}} store */
export function initTheme(store) {
  const button = byId('theme-button');
  const system = matchMedia('(prefers-color-scheme: dark)');
  let choice = savedTheme();

  const apply = () => {
    const theme = choice === 'system' ? (system.matches ? 'dark' : 'light') : choice;
    document.documentElement.dataset.theme = theme;
    button.replaceChildren(icon(choice === 'system' ? 'auto' : choice === 'dark' ? 'moon' : 'sun'));
    const label = `Theme: ${choice}`;
    button.title = label;
    button.setAttribute('aria-label', `${label}. Change it`);
    store.set({ theme });
  };
  system.addEventListener('change', apply);
  button.addEventListener('click', () => {
    choice = ORDER[(ORDER.indexOf(choice) + 1) % ORDER.length];
    // the first click must have a visible effect
    if (choice === (system.matches ? 'dark' : 'light')) choice = ORDER[(ORDER.indexOf(choice) + 1) % ORDER.length];
    try { localStorage.setItem(KEY, choice); } catch { /* storage disabled */ }
    apply();
  });
  apply();
}

function savedTheme() {
  try {
    const found = localStorage.getItem(KEY) ?? 'system';
    return ORDER.includes(found) ? found : 'system';
  } catch {
    return 'system';
  }
}
