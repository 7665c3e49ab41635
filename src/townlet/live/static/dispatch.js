/** Dispatches server messages to the store and the playbacks. */

import { latestPolicy } from './agent-choice.js';
import { stateSentence } from './format.js';
import { announce, toast } from './notifications.js';

/**
 * @typedef {import('./types.js').ServerMessage} ServerMessage
 * @typedef {import('./state.js').Store} Store
 */

const MAX_TRAINING_EPISODES = 30; // shown as bars
const MAX_EPISODE_ENDS = 40; // ends of watched episodes that are kept
const MAX_ALERTS = 100;

/** @param {{run: string}} message @param {Store} store */
const isOtherRun = (message, store) => message.run !== store.state.run;

export class Dispatcher {
  /**
   * @param {Store} store
   * @param {import('./session.js').Session} session
   * @param {import('./runs-controller.js').RunsController} runs
   * @param {import('./playback.js').Playback[]} playbacks
   */
  constructor(store, session, runs, playbacks) {
    this.store = store;
    this.session = session;
    this.runs = runs;
    this.playbacks = playbacks;
    this.onChange = () => {}; // called when the panels must be updated
    this.onHello = /** @type {(hello: import('./types.js').Hello) => void} */ (() => {});
  }

  /** @param {ServerMessage} message */
  dispatch(message) {
    const { store, playbacks } = this;
    if ('run' in message && message.type !== 'hello' && isOtherRun(message, store)) return undefined;
    switch (message.type) {
      case 'hello': return this.onHello(message);
      case 'run_status': return this.onRunStatus(message);
      case 'episode_start': this.session.onEpisodeStart(message.side); playbacks[message.side].begin(message); return this.onChange();
      case 'frame': return playbacks[message.side].addFrame(message);
      case 'episode_end': return this.onEpisodeEnd(message);
      case 'rows_overview': return store.set({ rowsOverview: message });
      case 'training_episode': return store.set({ trainingEpisodes: [...store.state.trainingEpisodes, message].slice(-MAX_TRAINING_EPISODES) });
      case 'metrics': return this.onMetrics(message);
      case 'stage_change': store.state.stages.set(message.row, message); return store.notify(['stages']);
      case 'alert': return this.onAlert(message);
      case 'checkpoint': return this.onCheckpoint(message);
      case 'world_checked': return this.onWorldChecked(message);
      case 'world_verdict': return store.set({ worldVerdict: message });
      case 'answer': return this.onAnswer(message);
      case 'error': return this.onError(message);
    }
  }

  /** @param {import('./types.js').RunStatus} status */
  onRunStatus(status) {
    const before = this.store.state.status;
    this.store.set({ status });
    if (before && before.state !== status.state) this.runs.onStateChange(stateSentence(status.state));
  }

  /** @param {import('./types.js').EpisodeEnd} end */
  onEpisodeEnd(end) {
    const playback = this.playbacks[end.side];
    if (!playback.setEnd(end)) return;
    this.onChange();
    const { episodeEnds, source, detached } = this.store.state;
    if (episodeEnds.some((one) => one.end.episode === end.episode)) return;
    episodeEnds.push({ label: playback.start?.label ?? '', end });
    if (episodeEnds.length > MAX_EPISODE_ENDS) episodeEnds.shift();
    this.store.notify(['episodeEnds']);
    // Episodes of training end too often to announce to screen readers.
    if (source !== 'training' || detached) announce(end.certificate[0] ?? `The episode ended after ${end.length} steps.`);
  }

  /** @param {import('./types.js').Metrics} metrics */
  onMetrics(metrics) {
    const { series, evaluations } = this.store.state;
    for (const [name, points] of Object.entries(metrics.series)) {
      const curve = series.get(name) ?? new Map();
      for (const [x, y] of points) curve.set(x, y);
      series.set(name, curve);
    }
    // Updates may repeat what the history contained.
    const known = new Set(evaluations.map((one) => `${one.env_steps} ${one.policy}`));
    for (const one of metrics.evaluations) if (!known.has(`${one.env_steps} ${one.policy}`)) evaluations.push(one);
    this.store.notify(['series', 'evaluations']);
  }

  /** @param {import('./types.js').Alert} alert */
  onAlert(alert) {
    const { alerts } = this.store.state;
    if (alerts.some((one) => one.env_steps === alert.env_steps && one.name === alert.name)) return;
    alerts.push(alert);
    if (alerts.length > MAX_ALERTS) alerts.shift();
    this.store.notify(['alerts']);
  }

  /** @param {import('./types.js').Checkpoint} saved */
  onCheckpoint(saved) {
    const { checkpoints, agents } = this.store.state;
    const others = checkpoints.filter((one) => one.name !== saved.name && !saved.removed.includes(one.name));
    const kept = saved.best ? others.map((one) => ({ ...one, best: false })) : others;
    this.store.set({ checkpoints: [...kept, saved] });
    // A checkpoint that was removed can no longer play.
    const isGone = (/** @type {import('./types.js').AgentChoice} */ agent) => agent.kind === 'policy' && !agent.run && saved.removed.includes(agent.checkpoint);
    if (agents.some(isGone)) this.session.setAgents(agents.map((agent) => (isGone(agent) ? latestPolicy() : agent)));
  }

  /** @param {import('./types.js').WorldChecked} checked */
  onWorldChecked(checked) {
    this.store.set({ worldChecked: checked, previewPending: false });
    if (checked.world) this.session.showPreview(checked.world);
  }

  /** @param {import('./types.js').Answer} answer */
  onAnswer(answer) {
    if (answer.number === this.session.questions) this.store.set({ answer, asking: false });
  }

  /** @param {import('./types.js').ErrorMessage} error */
  onError(error) {
    this.session.onRefused();
    this.store.set({ asking: false, refused: error });
    if (this.store.state.previewPending) this.store.set({ previewError: error, previewPending: false });
    else toast(error.what, error.fix);
  }
}
