/** States in which there is nothing to see, told as what they are. */

import { byId, make, write } from './dom.js';
import { colourOf, placeSign } from './icons.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./session.js').Session} Session
 */

const FIRST = 'train town-l0'; // its agent learns to live within seconds

/** No runs, not connected yet, or the server gone. @param {Store} store @param {() => void} hurry */
export function showBlank(store, hurry) {
  const blank = byId('blank');
  const banner = byId('banner');
  let slow = false;
  setTimeout(() => { slow = true; show(); }, 1200); // what comes at once needs no sign
  const show = () => {
    const { link, runs, about, program } = store.known;
    const phase = about ? 'ready' : runs && !runs.length && link !== 'away' ? 'empty' : link === 'away' ? 'away' : 'connecting';
    document.body.dataset.phase = phase;
    banner.hidden = !(link === 'away' && about);
    write(byId('banner-text'), `The server has ended or does not answer. Start it again with “${program} live”: the page goes on by itself. What you see is the last that came.`);
    blank.hidden = phase === 'ready' || (phase === 'connecting' && !slow);
    const key = phase === 'connecting' ? `${phase} ${runs?.length}` : `${phase} ${program}`;
    if (blank.dataset.key === key) return; // whoever reads it or listens to it is not disturbed
    blank.dataset.key = key;
    if (phase === 'empty') blank.replaceChildren(street(), ...emptiness(program));
    else if (phase === 'away') blank.replaceChildren(street(), ...absence(hurry, program));
    else if (phase === 'connecting') {
      blank.replaceChildren(street(), make('h2', { text: 'On the way to town' }), make('p', { text: runs?.length ? 'Opening the run …' : 'Connecting …' }));
    }
  };
  store.on(['link', 'runs', 'about', 'program'], show);
}

/** The house of this page between places of a town. */
export function street() {
  const [left, right] = [['Park', 'Job', 'Bed'], ['HomeMeal', 'Gym', 'CoffeeShop']].map((places) => places.map((name) => {
    const badge = make('span', { class: 'badge' }, placeSign(name, 24));
    badge.style.background = colourOf(name);
    return badge;
  }));
  return make('div', { class: 'street', 'aria-hidden': 'true' }, ...left, make('img', { src: 'static/icons/townlet.svg', width: 88, height: 88, alt: '' }), ...right);
}

/** There are no runs yet. @param {string} program */
function emptiness(program) {
  const copy = make('button', { type: 'button', text: 'Copy' });
  copy.addEventListener('click', async () => {
    // A browser that refuses leaves the text to be marked by hand.
    await navigator.clipboard?.writeText(`${program} ${FIRST}`).then(() => { copy.textContent = 'Copied'; }, () => {});
  });
  return [
    make('h2', { text: 'Nobody lives here yet' }),
    make('p', { text: 'Train an agent in a terminal, in the folder in which you started this page:' }),
    make('div', { class: 'command' }, make('code', { text: `${program} ${FIRST}` }), copy),
    make('p', { class: 'waiting quiet' }, make('span', { class: 'pulse' }), 'Its town opens here by itself as soon as it begins.'),
  ];
}

/** @param {() => void} hurry @param {string} program */
function absence(hurry, program) {
  const again = make('button', { type: 'button', class: 'primary', text: 'Try now' });
  again.addEventListener('click', hurry);
  return [
    make('h2', { text: 'The server is away' }),
    make('p', { text: `Start it again with “${program} live”; this page comes back by itself.` }),
    again,
  ];
}

/**
 * On the town itself: why nothing moves.
 * @param {Store} store @param {Session} session @param {import('./town.js').Town} town
 */
export function showHint(store, session, town) {
  const show = () => {
    const { source, status, about, link } = store.known;
    const { over } = town.playback;
    const empty = town.playback.target < 0;
    let words = '';
    /** @type {[string, import('./types.js').Source] | null} */
    let offer = null;
    if (about && empty && source === 'training' && status) {
      if (status.state === 'running') words = 'Waiting for a life in training to end. It is shown from its first step.';
      else { words = `This run is ${status.state}: nothing is trained now.`; offer = ['Let a checkpoint play', 'checkpoint']; }
    } else if (about && over && source === 'training' && status && status.state !== 'running') {
      words = `Training is ${status.state}. This was the last life that it showed.`;
      offer = ['Let the checkpoint play', 'checkpoint'];
    } else if (about && empty && link === 'open' && source === 'recording' && !about.recordings.length) {
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
