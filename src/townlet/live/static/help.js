/** Explanations of the panels, and the help dialog with keyboard shortcuts. */

import { makeClosable } from './dialog.js';
import { byId, el } from './dom.js';
import { runKind } from './format.js';

/** Title and text by panel; `NAME gym` overrides them for Gymnasium runs. */
/** @type {Record<string, [string, string]>} */
const TEXTS = {
  town: ['Town', 'One agent lives in this town. In each step it moves to a neighboring cell, uses the place on its cell, or waits. Crossed-out places are closed at this hour. The line behind the agent is its path. While the agent uses a place for several steps, a ring around it fills up.'],
  agent: ['Agent', 'Meters fall a little in every step, and places refill them, mostly for money. The agent dies when a meter marked as lethal is empty. The others do not kill it themselves, but most of them drain other meters while they are low. Below is what the agent made of each action before it chose: how likely it is, or how much less the agent expects of it than of the best one. Click an action, or a place in the town, to ask why it does not do that: many copies of the town are then played with that choice, and the answer says how many of them live for another 100 steps. Rewards drive learning: the milestone reward pays for every 10 and 100 steps survived and penalizes death; the potential reward is positive when meters rise and negative when they fall.'],
  story: ['Story', 'What happened in this life, found in its steps by fixed rules: the first use of each place, the first time without money, dangers and rescues, milestones, and how it ends. The speaker at the top turns on a sound for each event.'],
  tournament: ['All agents', 'Every agent of this folder plays in this town with the same seeds and four times the step limit. The bar is the mean lifetime with its 95% interval: if two intervals overlap, the agents may be equally good.'],
  learning: ['Learning', 'The curve averages recent training episodes; the round marks are evaluations without exploration on unseen episodes. The dashed line is a random agent: learning starts where the curve leaves it. For value-based agents the loss measures the error of the estimates; ε or entropy measures exploration. With a curriculum, every parallel town has its own stage and advances when its agent survives long enough; the reason for each change is listed.'],
  world: ['World', 'Drag places on the map, add others from the palette, and change what they cost and do; the text beside the map is the same world as a YAML file, and you can edit that instead. While you edit, scripted agents play in it to find out whether an agent can live there. “Try it with this agent” lets the trained agent play in your version, in which it was not trained; with new places or meters it cannot, so train a new agent. Saving writes a new file to the folder worlds/ and never overwrites an existing one.'],
  'rows-overview': ['Parallel towns', 'The agent learns in many parallel towns at once. Each square shows one of them now; the dot is the agent, colored by its lowest lethal meter. Training runs much faster than you can watch, so dots jump. The framed town is shown large above; the small number in a square is its curriculum stage, if there is one.'],
  episodes: ['How episodes ended', 'Each small bar is a training episode that just ended in one of the parallel towns: taller is longer, and green reached the step limit. Click a bar, or a button below the bars, to watch the latest episode of that town. Below are the causes of death over all of training and in the last evaluation, and the episodes you watched: which meter was empty and what drained it.'],
  transitions: ['From place to place', 'An arrow from one place to another means that agents used the second right after the first; wider arrows are more frequent over all of training. Larger places were used more. A successful routine shows as a few wide arrows: sleep, eat, work, repeat.'],
  'learning gym': ['Learning', 'The curve is the return of recent training episodes; the round marks are evaluations with the current weights on separate episodes. The gray dashed line is a random agent, the dotted line the return at which Gymnasium considers the environment solved, and the green dashed line a goal of the recipe’s own. For value-based agents the loss measures the error of the estimates; ε or entropy measures exploration.'],
  'episodes gym': ['How episodes ended', 'Over all of training and in the last evaluation: the fraction of episodes that the environment terminated (for success or failure alike), and of those truncated at the step limit.'],
  episode: ['Episode', 'A checkpoint plays one episode in a separate environment; the run is not affected. Choose the checkpoint and the seed. Greedy takes the action with the highest probability or value; sampled draws from the probabilities. Play it, step through it, or scrub. Image observations are shown below as the network receives them.'],
  step: ['This step', 'The value or probability of each action before the agent took the framed one, and the result. Value is the expected discounted return from here; advantage is how much better the step was than expected. For values, bars span the range from the lowest to the highest; for probabilities, a full bar is 100%. With stacked frames, a sparkline shows each number over the frames, within its range in this episode.'],
  'step-table': ['Steps', 'One row per step: observation, action, reward and return. Click a row to show its step. Hover over a column heading for its meaning and for how the advantage is computed. The download button below the episode saves the table as CSV.'],
  affordances: ['Places', 'Places are what an agent can use; the research literature calls them affordances. The panel lists what one complete use of each changes and costs, how many steps it takes and when it is available. No single affordance is best: what fills one meter often drains another, and money has to be earned.'],
};

const KEYS = [
  ['Space', 'play or pause'], ['← →', 'one step back or forward'], ['Shift ← →', 'ten steps'], ['R', 'new episode'],
  ['← ↑ → ↓ Enter W', 'move, use and wait, while you play yourself'],
  ['V', 'overlay on the town: visits, transitions, novelty'], ['P', 'presentation mode'], ['?', 'this help'],
];

/** @param {import('./state.js').Store} store */
export function initExplanations(store) {
  for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll('[data-explain]'))) {
    const name = button.dataset.explain ?? '';
    const setNote = makePopover(button, name);
    const update = () => setNote(...(TEXTS[`${name} ${runKind(store.state)}`] ?? TEXTS[name]));
    store.on(['about'], update);
    update();
  }
}

/** A popover opened by a button. @param {HTMLButtonElement} button @param {string} name @returns {(title: string, text: string) => void} sets its content */
export function makePopover(button, name) {
  const title = el('h3'), text = el('p');
  const note = el('div', { class: 'note', popover: 'auto', id: `note-${name}` }, title, text);
  button.title = 'What is this?';
  button.setAttribute('popovertarget', note.id);
  button.after(note);
  note.addEventListener('toggle', (event) => {
    if (/** @type {ToggleEvent} */ (event).newState !== 'open') return;
    const at = button.getBoundingClientRect();
    note.style.left = `${Math.max(8, Math.min(innerWidth - note.offsetWidth - 8, at.right - note.offsetWidth))}px`;
    note.style.top = `${Math.min(innerHeight - note.offsetHeight - 8, at.bottom + 6)}px`;
  });
  return (heading, content) => {
    [title.textContent, text.textContent] = [heading, content];
    button.setAttribute('aria-label', `What is this? ${heading}`);
  };
}

/** Build the help dialog. @returns {() => void} a function that opens it */
export function initHelp() {
  const dialog = /** @type {HTMLDialogElement} */ (byId('help'));
  makeClosable(dialog);
  dialog.append(
    el('h2', { id: 'help-title', text: 'About this page' }),
    el('p', { text: 'An agent starts in a small town without any knowledge. By trial and error it learns what keeps it alive: sleep, food, work and company. A neural network learns from every step which actions lead to survival. This page shows the agent, its decisions and its learning progress.' }),
    el('p', { text: 'Agents for Gymnasium environments are trained in the same way, to maximize the return. For such a run the page rolls out episodes of any checkpoint and shows every step.' }),
    el('p', { text: 'Below the town, choose what to watch: training, an agent that plays, or recordings. The slider takes an agent back to any time of its training; another one, the planner, or you yourself can play beside it. Under World you can build a town and train an agent in it.' }),
    el('h3', { text: 'Keyboard' }),
    el('dl', { class: 'keys' }, ...KEYS.flatMap(([key, what]) => [el('dt', {}, el('kbd', { text: key })), el('dd', { text: what })])),
  );
  const open = () => { if (!dialog.open) dialog.showModal(); };
  byId('help-button').addEventListener('click', open);
  return open;
}
