/** The button that turns sounds on and off; off by default. */

import { byId } from './dom.js';
import { icon } from './icons.js';

/** @param {import('./state.js').Store} store */
export function initSoundButton(store) {
  const button = byId('sound-button');
  const show = () => {
    const { sound } = store.state;
    button.replaceChildren(icon(sound ? 'speaker' : 'mute', 16));
    button.setAttribute('aria-pressed', String(sound));
    button.title = sound ? 'Turn sounds off' : 'Turn sounds on';
  };
  button.addEventListener('click', () => store.set({ sound: !store.state.sound }));
  store.on(['sound'], show);
  show();
}
