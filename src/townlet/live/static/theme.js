/** Light or dark: as the system says, until a person chooses. */

import { byId } from './dom.js';
import { sign } from './icons.js';

const KEY = 'townlet-theme';
const ORDER = ['system', 'light', 'dark'];

/** @param {{set: (change: {theme: string}) => void}} store */
export function followTheme(store) {
  const button = byId('theme-button');
  const system = matchMedia('(prefers-color-scheme: dark)');
  let choice = kept();

  const apply = () => {
    const theme = choice === 'system' ? (system.matches ? 'dark' : 'light') : choice;
    document.documentElement.dataset.theme = theme;
    button.replaceChildren(sign(choice === 'system' ? 'auto' : choice === 'dark' ? 'moon' : 'sun'));
    const words = `Theme: ${choice === 'system' ? 'as the system' : choice}`;
    button.title = words;
    button.setAttribute('aria-label', `${words}. Change it`);
    store.set({ theme });
  };
  system.addEventListener('change', apply);
  button.addEventListener('click', () => {
    choice = ORDER[(ORDER.indexOf(choice) + 1) % ORDER.length];
    // The first click should be seen to change something.
    if (choice === (system.matches ? 'dark' : 'light')) choice = ORDER[(ORDER.indexOf(choice) + 1) % ORDER.length];
    try { localStorage.setItem(KEY, choice); } catch { /* a browser that keeps nothing still has themes */ }
    apply();
  });
  apply();
}

function kept() {
  try {
    const found = localStorage.getItem(KEY) ?? 'system';
    return ORDER.includes(found) ? found : 'system';
  } catch {
    return 'system';
  }
}
