/** What the server says goes into the store and the playbacks; each kind of message has its place. */

import { stateInWords } from './format.js';
import { announce, toast } from './notices.js';

/**
 * @typedef {import('./types.js').FromServer} FromServer
 * @typedef {import('./state.js').Store} Store
 */

const LIVED = 30; // lives of training that stay in sight
const ENDS = 40; // ends of shown lives
const ALERTS = 100;

/** @param {{run: string}} message @param {Store} store */
const foreign = (message, store) => message.run !== store.known.run;

export class Hearing {
  /**
   * @param {Store} store
   * @param {import('./session.js').Session} session
   * @param {import('./visit.js').Visit} visit
   * @param {import('./playback.js').Playback[]} playbacks
   */
  constructor(store, session, visit, playbacks) {
    this.store = store;
    this.session = session;
    this.visit = visit;
    this.playbacks = playbacks;
    this.changed = () => {}; // what is shown beside the canvas is no longer true
    this.greeted = /** @type {(hello: import('./types.js').Hello) => void} */ (() => {});
  }

  /** @param {FromServer} message */
  hear(message) {
    const { store, playbacks } = this;
    if ('run' in message && message.type !== 'hello' && foreign(message, store)) return undefined;
    switch (message.type) {
      case 'hello': return this.greeted(message);
      case 'run_status': return this.stands(message);
      case 'episode_start': playbacks[message.side].begin(message); return this.changed();
      case 'frame': return playbacks[message.side].take(message);
      case 'episode_end': return this.ended(message);
      case 'wall': return store.set({ wall: message });
      case 'lived': return store.set({ lived: [...store.known.lived, message].slice(-LIVED) });
      case 'metrics': return this.measured(message);
      case 'stage_change': store.known.stages.set(message.row, message); return store.tell(['stages']);
      case 'alert': return this.alerted(message);
      case 'checkpoint': return this.saved(message);
      case 'checked': return this.checked(message);
      case 'error': return this.refused(message);
    }
  }

  /** @param {import('./types.js').RunStatus} status */
  stands(status) {
    const before = this.store.known.status;
    this.store.set({ status });
    if (before && before.state !== status.state) this.visit.turned(`The run is ${stateInWords(status.state)} now.`);
  }

  /** @param {import('./types.js').EpisodeEnd} end */
  ended(end) {
    const playback = this.playbacks[end.side];
    if (!playback.finish(end)) return;
    this.changed();
    const { ends, source, alone } = this.store.known;
    if (ends.some((one) => one.end.episode === end.episode)) return;
    ends.push({ who: playback.start?.who ?? '', end });
    if (ends.length > ENDS) ends.shift();
    this.store.tell(['ends']);
    // Lives of training end all the time: who listens would hear of nothing else.
    if (source !== 'training' || alone) announce(end.certificate[0] ?? `A life ended after ${end.length} steps.`);
  }

  /** @param {import('./types.js').Metrics} metrics */
  measured(metrics) {
    const { series, evaluations } = this.store.known;
    for (const [name, points] of Object.entries(metrics.series)) {
      const known = series.get(name) ?? new Map();
      for (const [x, y] of points) known.set(x, y);
      series.set(name, known);
    }
    // What is told twice counts once: the whole comes first, and news may repeat it.
    const tested = new Set(evaluations.map((one) => `${one.env_steps} ${one.policy}`));
    for (const one of metrics.evaluations) if (!tested.has(`${one.env_steps} ${one.policy}`)) evaluations.push(one);
    this.store.tell(['series', 'evaluations']);
  }

  /** @param {import('./types.js').Alert} alert */
  alerted(alert) {
    const { alerts } = this.store.known;
    if (alerts.some((one) => one.env_steps === alert.env_steps && one.name === alert.name)) return;
    alerts.push(alert);
    if (alerts.length > ALERTS) alerts.shift();
    this.store.tell(['alerts']);
  }

  /** @param {import('./types.js').Checkpoint} saved */
  saved(saved) {
    const { checkpoints, checkpoint, compare } = this.store.known;
    const others = checkpoints.filter((one) => one.name !== saved.name && !saved.gone.includes(one.name));
    const kept = saved.best ? others.map((one) => ({ ...one, best: false })) : others;
    this.store.set({ checkpoints: [...kept, saved] });
    if (saved.gone.includes(checkpoint)) this.session.checkpoint('latest');
    if (compare !== null && saved.gone.includes(compare)) this.session.compare(null);
  }

  /** @param {import('./types.js').Checked} checked */
  checked(checked) {
    this.store.set({ checked, trying: false });
    if (checked.world) this.session.preview(checked.world);
  }

  /** @param {import('./types.js').Refusal} refusal */
  refused(refusal) {
    if (this.store.known.trying) this.store.set({ refusal, trying: false });
    else toast(refusal.what, refusal.fix);
  }
}
