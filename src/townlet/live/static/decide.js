/** The dashboard of the decision service: what it tells every second goes to every panel. */

import { ask } from './ask.js';
import { Connection } from './connection.js';
import { ActionsPanel } from './decide-actions.js';
import { Control } from './decide-control.js';
import { BufferPanel, GatePanel, TrainingPanel } from './decide-learning.js';
import { Presence } from './decide-presence.js';
import { RecentPanel } from './decide-recent.js';
import { RewardPanel } from './decide-reward.js';
import { VersionsPanel } from './decide-versions.js';
import { makeNote } from './explain.js';
import { followTheme } from './theme.js';

/**
 * @typedef {import('./decide-types.js').Stats} Stats
 * @typedef {import('./decide-types.js').Panel} Panel
 */

/** @type {Record<string, [string, string]>} */
const TEXTS = {
  control: ['Who decides', 'One whole version of the network decides, and the gate approves or not. Here you can hold a version (pin), go back to the one before, or take the decision away from every network (gate only, the kill switch). All of it takes effect with the next observation, stays over a restart, is kept in the history with your reason, and asks once more before it happens. Latency is measured from an observation to its answer, with the time that the log needs to reach the disk.'],
  actions: ['Decisions', 'What was sent to games lately; what the gate held back is not counted here. A policy that has learned something prefers some actions; one that has collapsed knows only one. Confidence is the probability of the likeliest action, so a wide spread of actions goes with little confidence.'],
  reward: ['Expected and actual reward', 'Actual reward is what really came of a decision that was sent: whether somebody clicked, or how the next observation of the territory differs from the one before. Expected reward is what the gate, a rule of thumb that nobody trains, estimated before it was sent. They are not measured with the same yardstick, so they may differ for ever: only the actual one says whether learning helps. The sentence above compares the mean of the first 500 outcomes ever, when little was learned, with that of the last 500. A difference smaller than chance makes is none. If only the expected curve rises, decisions please the gate and not the game. Each dot is one outcome; those above the dashed line went better than expected.'],
  training: ['Training', 'The trainer draws a batch of decisions with outcomes, takes a step, and publishes a version; the newest need not be the one that serves. Steps count over the whole life of the service, what was judged since its last start. It never uses an experience more often than it is allowed to, so it waits when games are silent. Entropy says how undecided the policy is: 1 is chance, 0 is always the same; a fall towards 0 is a collapse.'],
  gate: ['Gate', 'A rule of thumb that nobody trains. It estimates each decision from the parts below and lets it pass or not; no confidence of the network overrides it. Agreement compares what was decided with what the gate as it is configured now would say of the same moment: with unchanged settings it is 100%.'],
  buffer: ['Experience', 'Every decision is in one of four places, at every moment: its outcome is known, is awaited, never came in time, or there is none since nothing was carried out. What is completed can be learned from; about a tenth of all decisions, waits as well, is held out: the newest of them judge new versions and are never learned from.'],
  versions: ['Versions', 'Before a version serves, it is compared with the one that does on decisions that nobody learned from. The dot is the estimated gain of reward for each decision, the line its interval, the mark in the middle no difference. It is promoted, held until more is known, or refused; the reason is told as it was given.'],
  recent: ['Last decisions', 'Expected is what the gate thought, actual what came of it, … while that is awaited. Territories are what games call themselves.'],
};

const presence = new Presence(() => connection.hurry());
/** @type {Panel[]} */
const panels = [new Control(), new ActionsPanel(), new RewardPanel(), new TrainingPanel(), new GatePanel(), new BufferPanel(), new VersionsPanel(), new RecentPanel()];
/** @type {Stats | null} */
let latest = null;

/** A tab that nobody sees draws nothing, and everything once it is looked at. */
function draw() {
  if (!latest || document.hidden) return;
  for (const panel of panels) panel.show(latest);
}

/** @type {Connection<Stats>} */
const connection = new Connection((stats) => {
  if (stats.type !== 'stats') return;
  latest = stats;
  presence.show(stats);
  draw();
}, (link, attempt) => {
  presence.changed(link, attempt);
  if (link === 'open') ask('api/decide/me').then(({ role }) => document.body.toggleAttribute('data-viewer', role === 'viewer'), () => {});
}, 'ws/stats', 'api/decide/me');

followTheme({ set: () => { for (const panel of panels) panel.recolour?.(); draw(); } });
for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll('[data-explain]'))) {
  const name = button.dataset.explain ?? '';
  makeNote(button, name)(...TEXTS[name]);
}
document.addEventListener('visibilitychange', draw);
connection.open();
