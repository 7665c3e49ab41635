/** Short explanations for people who see such a page for the first time, and the help with its keys. */

import { byId, make } from './dom.js';
import { kindOf } from './kinds.js';

/** By panel; where it differs for runs that are no towns, those have their own after the panel's name. */
/** @type {Record<string, [string, string]>} */
const TEXTS = {
  town: ['Town', 'One agent lives here. In each step it moves to a neighbouring tile, uses the place it stands on, or waits. Crossed-out places are closed at this hour. The line behind the agent is where it came from; a ring around it fills while a visit takes several steps.'],
  agent: ['Agent', 'Meters fall a little in every step, and places fill them again, mostly for money. If a survival meter is empty, the agent dies. Modifiers do not kill, but when they are low they pull survival meters down. Below them you see what the agent thought of each action before it chose, and which rewards the step brought. Bars compare the actions with each other, so that small differences can be seen; the numbers tell how small. Rewards are what learning goes by: a milestone pays for round ages and punishes death, the potential pays when needs are filled and takes when they fall. A whole life of falling needs may well add up to less than nothing.'],
  learning: ['Learning', 'Every point is an average over recent lives in training; the round marks are tests without exploration, on lives the agent has not seen. The dashed line is what a random agent reaches: learning begins where the curve leaves it. Loss says how far the estimates were off; ε or entropy says how much is still tried out. With a curriculum every row of training has a stage of its own, and moves on when it lives long enough there; the reason of each change is listed.'],
  world: ['World', 'A world is a text: a map, meters, places, prices and hours. Change it and mistakes are shown at once with their line. “Try it with this agent” lets the trained agent live in your version; it was not trained there, so see what it makes of it. Saving writes a new file next to the server, and never changes one that is there.'],
  wall: ['Towns in training', 'The agent learns in many towns at the same time. Each square is one of them at this moment; the dot is the agent, and its colour says how full its lowest deadly meter is. Training goes much faster than anyone can watch, so dots jump. The framed one is shown large above; the small number is the stage of its curriculum, where there is one.'],
  lives: ['How lives ended', 'The small bars are lives of training as they end: the higher, the longer; green ones reached the limit of the world. A button shows the latest life of a row. Below, causes are counted over all of training and in the last test, and each line is a life that was shown here, with what was empty at its end and what had pulled it down.'],
  ways: ['Ways between places', 'An arrow from one place to another says that agents used the second right after the first; the wider, the more often in all of training. The larger a place, the more it was used. A routine that works shows as a few wide arrows: sleep, eat, work, and again.'],
  'learning gym': ['Learning', 'The curve is what recent episodes of training won; the round marks are tests with the current weights, on episodes of their own. The dashed line is what a random agent wins, the dotted one where the environment counts as solved. Loss says how far the estimates were off; ε or entropy says how much is still tried out.'],
  'lives gym': ['How episodes ended', 'Over all of training and in the last test: the share of episodes that the environment itself brought to an end, won or lost, and of those that reached the limit of steps.'],
  episode: ['Episode', 'A saved agent plays one episode for you, in an environment of its own: the run is not touched. Choose the checkpoint and the seed; greedy takes the likeliest action, drawn lets chance decide as in training. Play it, step through it, or scrub. Where the agent sees pictures, they are shown below as they reach its network.'],
  step: ['This step', 'What the agent thought of each action before it took the framed one, and what came of it. Value is what it expected to win from here on, discounted; advantage is how much better the step went than that. Bars of values compare actions with each other; the numbers tell how small the differences are.'],
  steps: ['Steps', 'One row for each moment: what was seen, what was done and what it brought. A click on a row shows its moment. The heads of the columns say what they are and how advantage is worked out. The button with the arrow under the episode saves all of it as a table (CSV).'],
  places: ['Places', 'What one whole visit changes, what it costs, how many steps it takes and when it is open. There is no best place: what fills one meter often drains another, and money has to be earned somewhere.'],
};

const KEYS = [
  ['Space', 'play or pause'], ['← →', 'one step back or forward'], ['Shift ← →', 'ten steps'], ['R', 'another life or episode'],
  ['V', 'what is painted on the town: visits, ways, and novelty where the agent is curious'], ['?', 'this help'],
];

/** @param {import('./state.js').Store} store */
export function explainPanels(store) {
  for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll('[data-explain]'))) {
    const name = button.dataset.explain ?? '';
    const tell = makeNote(button, name);
    const choose = () => tell(...(TEXTS[`${name} ${kindOf(store.known)}`] ?? TEXTS[name]));
    store.on(['about'], choose);
    choose();
  }
}

/** A note that a button opens. @param {HTMLButtonElement} button @param {string} name @returns {(title: string, text: string) => void} writes it */
export function makeNote(button, name) {
  const title = make('h3'), text = make('p');
  const note = make('div', { class: 'note', popover: 'auto', id: `note-${name}` }, title, text);
  button.title = 'What is this?';
  button.setAttribute('popovertarget', note.id);
  button.after(note);
  note.addEventListener('toggle', (event) => {
    if (/** @type {ToggleEvent} */ (event).newState !== 'open') return;
    const at = button.getBoundingClientRect();
    note.style.left = `${Math.max(8, Math.min(innerWidth - note.offsetWidth - 8, at.right - note.offsetWidth))}px`;
    note.style.top = `${Math.min(innerHeight - note.offsetHeight - 8, at.bottom + 6)}px`;
  });
  return (heading, words) => {
    [title.textContent, text.textContent] = [heading, words];
    button.setAttribute('aria-label', `What is this? ${heading}`);
  };
}

/** @returns {() => void} opens it */
export function prepareHelp() {
  const dialog = /** @type {HTMLDialogElement} */ (byId('help'));
  const close = make('button', { type: 'button', class: 'primary', text: 'Close' });
  dialog.append(
    make('h2', { id: 'help-title', text: 'What happens here' }),
    make('p', { text: 'An agent is put into a small town and told nothing. It has to find out, by trying, what keeps it alive: sleep, food, work, other people. A neural network learns from every step which action is worth what. This page shows the agent, what it thinks, and how its learning goes.' }),
    make('p', { text: 'Other environments are learned in the same way, for the highest return instead of the longest life. Of such a run the page rolls out episodes of any checkpoint, with a row for each step.' }),
    make('p', { text: 'Choose at the bottom of the town what to watch: training as it happens, a saved checkpoint that plays for you, or lives that the run has kept. Put two checkpoints side by side to see what was learned between them. Under World you can change the town itself and see what the agent makes of it.' }),
    make('h3', { text: 'Keyboard' }),
    make('dl', { class: 'keys' }, ...KEYS.flatMap(([key, what]) => [make('dt', {}, make('kbd', { text: key })), make('dd', { text: what })])),
    close,
  );
  close.addEventListener('click', () => dialog.close());
  dialog.addEventListener('click', (event) => { if (event.target === dialog) dialog.close(); });
  const open = () => { if (!dialog.open) dialog.showModal(); };
  byId('help-button').addEventListener('click', open);
  return open;
}
