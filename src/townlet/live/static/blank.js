/** States in which there is nothing to see, told as what they are. */

import { byId, make, write } from './dom.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./session.js').Session} Session
 */

/** No runs, not connected yet, or the server gone. @param {Store} store @param {() => void} hurry */
export function showBlank(store, hurry) {
  const blank = byId('blank');
  const banner = byId('banner');
  let slow = false;
  setTimeout(() => { slow = true; show(); }, 1200); // what comes at once needs no sign
  const show = () => {
    const { link, runs, about, run } = store.known;
    const phase = about ? 'ready' : runs && !runs.length && link !== 'away' ? 'empty' : 'connecting';
    document.body.dataset.phase = phase;
    banner.hidden = !(link === 'away' && (about || slow));
    write(byId('banner-text'), about
      ? 'The server does not answer. What you see is the last that came; the page tries again by itself.'
      : 'The server does not answer. The page tries again by itself.');
    blank.hidden = phase === 'ready' || (phase === 'connecting' && !slow);
    if (phase === 'empty') {
      blank.replaceChildren(make('img', { src: 'static/icons/townlet.svg', width: 72, height: 72, alt: '' }),
        make('h2', { text: 'Nobody lives here yet' }),
        make('p', { text: 'Train an agent, and this page shows it by itself:' }),
        make('pre', {}, make('code', { text: 'townlet train town-l0:dqn' })),
        make('p', { class: 'quiet', text: 'The first success takes seconds.' }));
    } else if (phase === 'connecting') {
      const again = make('button', { type: 'button', class: 'primary', text: 'Try now' });
      again.addEventListener('click', hurry);
      blank.replaceChildren(make('img', { src: 'static/icons/townlet.svg', width: 72, height: 72, alt: '' }),
        make('h2', { text: link === 'away' ? 'The server is away' : 'On the way to town' }),
        make('p', { text: link === 'away' ? 'Start it again with “townlet live”; this page comes back by itself.' : run ? 'Opening the run …' : 'Connecting …' }),
        ...(link === 'away' ? [again] : []));
    }
  };
  store.on(['link', 'runs', 'about'], show);
}

/**
 * On the town itself: why nothing moves.
 * @param {Store} store @param {Session} session @param {import('./town.js').Town} town
 */
export function showHint(store, session, town) {
  const show = () => {
    const { source, status, about } = store.known;
    const { over } = town.playback;
    const empty = town.playback.target < 0;
    let words = '';
    /** @type {[string, import('./types.js').Source] | null} */
    let offer = null;
    if (about && empty && source === 'training' && status) {
      if (status.state === 'training') words = 'Waiting for a life in training to end. It is shown from its first step.';
      else { words = `This run is ${status.state}: nothing is trained now.`; offer = ['Let a checkpoint play', 'checkpoint']; }
    } else if (about && over && source === 'training' && status && status.state !== 'training') {
      words = `Training is ${status.state}. This was the last life that it showed.`;
      offer = ['Let the checkpoint play', 'checkpoint'];
    } else if (about && empty && source === 'recording' && !about.recordings.length) {
      words = 'This run has kept no lives yet.';
      offer = ['Let a checkpoint play', 'checkpoint'];
    }
    const key = words;
    if (town.hint.dataset.key === key) return;
    town.hint.dataset.key = key;
    town.hint.hidden = !words;
    town.hint.replaceChildren(make('p', { text: words }));
    if (offer) {
      const [text, next] = offer;
      const button = make('button', { type: 'button', class: 'primary', text });
      button.addEventListener('click', () => session.source(next));
      town.hint.append(button);
    }
  };
  store.on(['source', 'status', 'about'], () => setTimeout(show, 400));
  setInterval(show, 500);
}
