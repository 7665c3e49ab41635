/** Placeholders: connecting, no runs, server offline, and hints on an empty town. */

import { byId, copyButton, el, setText } from './dom.js';
import { stateSentence } from './format.js';
import { announce } from './notifications.js';
import { affordanceColor, affordanceIcon } from './icons.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./session.js').Session} Session
 */

const CONNECTED_MS = 4000; // for which the page says that it is connected again
const FIRST_COMMAND = 'train town-l0'; // learns within seconds

/**
 * Full-page placeholder and the offline banner.
 * @param {Store} store @param {() => void} reconnect
 * @param {(view: 'watch' | 'world') => void} openShipped opens the shipped agent in a view
 */
export function showEmptyState(store, reconnect, openShipped) {
  const box = byId('empty');
  const banner = byId('banner');
  let slow = false, wasAway = false, again = 0;
  setTimeout(() => { slow = true; show(); }, 1200); // avoid a flash on fast connections
  const show = () => {
    const { link, runs, about, opening, program, expired } = store.state;
    let phase = 'connecting';
    if (about) phase = 'ready';
    else if (link === 'away') phase = 'away';
    else if (link === 'open' && runs && !opening && runs.every((run) => run.shipped)) phase = 'empty';
    document.body.dataset.phase = phase;
    if (link === 'away') {
      clearTimeout(again);
      wasAway = true;
      banner.hidden = !about;
      setText(byId('banner-text'), expired ? `The server was started again with a new link. Open the link that it printed.`
        : `The server has stopped or does not answer. Reconnecting … (To start it again: ${program} live)`);
    } else if (wasAway && link === 'open') {
      wasAway = false;
      setText(byId('banner-text'), 'Connected again, with the same agents and speed.');
      announce('Connected again.');
      again = setTimeout(() => { banner.hidden = true; }, CONNECTED_MS);
    }
    banner.dataset.link = link;
    box.hidden = phase === 'ready' || (phase === 'connecting' && !slow);
    const key = phase === 'connecting' ? `${phase} ${runs?.length}` : `${phase} ${program} ${expired}`;
    if (box.dataset.key === key) return; // unchanged: do not interrupt readers or screen readers
    box.dataset.key = key;
    if (phase === 'empty') box.replaceChildren(illustration(), ...noRuns(program, openShipped));
    else if (phase === 'away') box.replaceChildren(illustration(), ...serverOffline(reconnect, program, expired));
    else if (phase === 'connecting') {
      box.replaceChildren(illustration(), el('h2', { text: 'Connecting' }), el('p', { text: runs?.length ? 'Opening the run …' : 'Waiting for the server …' }));
    }
  };
  store.on(['link', 'expired', 'runs', 'about', 'opening', 'program'], show);
}

/** The logo between affordance icons. */
export function illustration() {
  const [left, right] = [['🌳', '💼', '🛏'], ['🍲', '🏋', '☕']].map((icons) => icons.map((icon) => {
    const place = { name: '', icon };
    const badge = el('span', { class: 'badge' }, affordanceIcon(place, 24));
    badge.style.background = affordanceColor(place);
    return badge;
  }));
  return el('div', { class: 'illustration', 'aria-hidden': 'true' }, ...left, el('img', { src: 'static/icons/townlet.svg', width: 88, height: 88, alt: '' }), ...right);
}

/** No runs yet. @param {string} program @param {(view: 'watch' | 'world') => void} openShipped */
function noRuns(program, openShipped) {
  const command = el('code', { text: `${program} ${FIRST_COMMAND}` });
  const build = el('button', { type: 'button', class: 'primary', text: 'Build a world' });
  const watch = el('button', { type: 'button', text: 'Watch a trained agent' });
  build.addEventListener('click', () => openShipped('world'));
  watch.addEventListener('click', () => openShipped('watch'));
  return [
    el('h2', { text: 'No runs yet' }),
    el('p', { text: 'Change the town to your liking and train an agent in it, or watch the one that comes with Townlet.' }),
    el('div', { class: 'buttons' }, build, watch),
    el('p', { text: 'Or train an agent in a terminal, in the folder where you started the server:' }),
    el('div', { class: 'command' }, command, copyButton(command)),
    el('p', { class: 'waiting muted' }, el('span', { class: 'pulse' }), 'Its town opens here automatically when training starts.'),
  ];
}

/** @param {() => void} reconnect @param {string} program @param {boolean} expired */
function serverOffline(reconnect, program, expired) {
  const again = el('button', { type: 'button', class: 'primary', text: 'Try now' });
  again.addEventListener('click', reconnect);
  return [
    el('h2', { text: expired ? 'The link of this page is no longer valid' : 'The server is offline' }),
    el('p', { text: expired ? 'The server was started again with a new link. Open the link that it printed.' : `Start it again with “${program} live”; this page reconnects automatically.` }),
    again,
  ];
}

/**
 * Hint on the town that explains why nothing moves.
 * @param {Store} store @param {Session} session @param {import('./town-view.js').TownView} town
 */
export function showTownHint(store, session, town) {
  const show = () => {
    const { source, status, about, link } = store.state;
    const { over } = town.playback;
    const empty = town.playback.lastAge < 0;
    let message = '';
    /** @type {[string, import('./types.js').Source] | null} */
    let offer = null;
    if (about && empty && source === 'training' && status) {
      if (status.state === 'running') message = 'Waiting for the first episode. It is shown from its first step once it has ended.';
      else { message = `${stateSentence(status.state)} It is not training now.`; offer = ['Play a checkpoint', 'checkpoint']; }
    } else if (about && over && source === 'training' && status && status.state !== 'running') {
      message = `${stateSentence(status.state)} This was its last episode.`;
      offer = ['Play a checkpoint', 'checkpoint'];
    } else if (about && empty && link === 'open' && source === 'recording' && !about.recordings.length) {
      message = 'This run has no recordings yet.';
      offer = ['Play a checkpoint', 'checkpoint'];
    }
    if (town.hint.dataset.key === message) return;
    town.hint.dataset.key = message;
    town.hint.hidden = !message;
    town.hint.replaceChildren(el('p', { text: message }));
    if (offer) {
      const [text, next] = offer;
      const button = el('button', { type: 'button', class: 'primary', text });
      button.addEventListener('click', () => session.setSource(next));
      town.hint.append(button);
    }
  };
  store.on(['source', 'status', 'about'], () => setTimeout(show, 400));
  setInterval(show, 500);
}
