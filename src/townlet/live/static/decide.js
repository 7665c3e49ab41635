/** Entry point of the decision dashboard: each stats message updates every panel. */

import { Connection, request } from './api.js';
import { ActionsPanel } from './decide-actions.js';
import { ControlPanel } from './decide-control.js';
import { EvidencePanel } from './decide-evidence.js';
import { ProcessesPanel } from './decide-processes.js';
import { BufferPanel, GatePanel, TrainingPanel } from './decide-training.js';
import { ServiceStatus } from './decide-status.js';
import { RecentPanel, VersionsPanel } from './decide-history.js';
import { RewardPanel } from './decide-reward.js';
import { makePopover } from './help.js';
import { initTheme } from './theme.js';

/**
 * @typedef {import('./decide-types.js').Stats} Stats
 * @typedef {import('./decide-types.js').Panel} Panel
 */

/** @type {Record<string, [string, string]>} */
const TEXTS = {
  control: ['Control', 'One version of the network decides, and the gate either sends its action or withholds it; no action is taken if it is withheld. You can pin a version, roll back to the previous one, or disable the network (gate only, the kill switch). Every change takes effect with the next observation, survives a restart, is recorded with your reason, and needs a confirmation. Latency is measured from an observation to its answer, including the time to write the log to disk.'],
  actions: ['Decisions', 'Decisions sent to games recently; those that the gate did not send are not counted. A trained policy prefers some actions; a collapsed one uses only one. Confidence is the probability of the most likely action (in hive: of the most likely chunk), so a wide spread of actions means low confidence.'],
  reward: ['Expected and actual reward', 'Actual reward is the measured outcome of a sent decision: a click, or the change between two observations of a territory. Expected reward is the estimate of the gate, a fixed heuristic that is not trained. The two have different scales and may differ permanently; only the actual one shows whether learning helps. The headline compares the mean of the first 500 outcomes with that of the last 500; differences within noise do not count. If only the expected curve rises, the policy optimizes the estimate of the gate and not the actual reward. Each dot is one outcome; those above the dashed line were better than expected.'],
  training: ['Training', 'The trainer samples a batch of decisions with outcomes, takes a gradient step, and saves a version; the newest version need not be the one that serves. Steps are counted over the lifetime of the service; evaluated versions are counted since its last start. Each experience is used a limited number of times, so training waits when no new outcomes arrive. Entropy measures how random the policy is: 1 is uniform, 0 deterministic; a fall toward 0 is a collapse.'],
  evidence: ['Evidence', 'What recent decisions earned, compared with what a policy that does not learn would have earned. The estimate is doubly robust if the policy predicts rewards: predictions for all decisions, corrected with the rewards of those in which both agree. Otherwise it is made from the latter alone (SNIPS). Decisions that are pending do not count yet; if only successes are reported, the others count once they expire. Influence is the mean change of an action\'s predicted reward, relative to the other actions, if a namespace is replaced by that of another recent event or, for namespaces of actions (“action.…”), of another action. Everything here is updated with every 20th version.'],
  gate: ['Gate', 'A fixed heuristic that is not trained. It estimates the reward of each decision from the components below and sends or withholds the action, however confident the network is. Agreement compares past decisions with the gate as configured now: with unchanged settings it is 100%.'],
  buffer: ['Experience', 'Every decision has one of four states: joined with its outcome, pending, expired without an outcome, or not executed. By default, the policy learns from joined decisions and from those that the game reported as failed. About a tenth of all decisions are held out and never trained on; the newest of these are used to evaluate new versions.'],
  versions: ['Versions', 'Before a version serves, it is compared with the serving one on held-out decisions. The dot is the estimated gain in reward per decision, the line is its confidence interval, and the tick in the middle marks zero. A version is promoted, held until more data is available, or refused, with the reason given.'],
  processes: ['Processes', 'All processes that share the database. One learner leads: it trains and promotes versions; the others are standbys. The lag of the leader is how many stored events it has not applied yet, and the age of the oldest; the lag of any other process is the time from the last change of the serving version until it served that version. A process that has not reported for a minute is no longer listed.'],
  recent: ['Recent decisions', 'Expected is the estimate of the gate. Actual is the measured outcome, shown as “…” while it is pending. A territory is one stream of observations, such as a game session; the game chooses its name.'],
};

const serviceStatus = new ServiceStatus(() => connection.reconnectNow());
/** @type {Panel[]} */
const panels = [new ControlPanel(), new ActionsPanel(), new RewardPanel(), new TrainingPanel(), new EvidencePanel(), new GatePanel(), new BufferPanel(), new VersionsPanel(), new RecentPanel(), new ProcessesPanel()];
/** @type {Stats | null} */
let latest = null;

/** Update all panels, except in a hidden tab. */
function draw() {
  if (!latest || document.hidden) return;
  for (const panel of panels) panel.show(latest);
}

/** @type {Connection<Stats>} */
const connection = new Connection((stats) => {
  if (stats.type !== 'stats') return;
  latest = stats;
  serviceStatus.show(stats);
  draw();
}, (link, attempt) => {
  serviceStatus.onConnectionChange(link, attempt);
  if (link === 'open') request('api/decide/me').then(({ role }) => document.body.toggleAttribute('data-viewer', role === 'viewer'), () => {});
}, 'ws/stats', 'api/decide/me');

initTheme({ set: () => { for (const panel of panels) panel.redraw?.(); draw(); } });
for (const button of /** @type {NodeListOf<HTMLButtonElement>} */ (document.querySelectorAll('[data-explain]'))) {
  const name = button.dataset.explain ?? '';
  makePopover(button, name)(...TEXTS[name]);
}
document.addEventListener('visibilitychange', draw);
connection.open();
