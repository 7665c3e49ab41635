/** User commands as messages to the server. */

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./api.js').Connection} Connection
 */

const DEFAULT_SPEED = 5; // steps per second; the server's default
const OVERVIEW_ROWS = 64;

export const RECORDED_ROWS = 4; // rows of training whose episodes are recorded

export class Session {
  /** @param {Store} store @param {Connection} connection */
  constructor(store, connection) {
    this.store = store;
    this.connection = connection;
    /** Whether the end of the episode is on screen. */
    this.atEnd = () => false;
    /** Policies that the server plays now, to send only changes. */
    this.serverPolicies = { checkpoint: 'latest', epsilon: 0, compare: /** @type {string | null} */ (null) };
  }

  /** A new connection or another run: the server is in its initial state and sends all checkpoints again. */
  resetServerState() {
    this.serverPolicies = { checkpoint: 'latest', epsilon: 0, compare: null };
    this.store.set({ checkpoints: [] });
  }

  /** @param {object} message */
  send(message) {
    this.connection.send(message);
  }

  /** Subscribe to the chosen run and source. */
  subscribe() {
    const { run, source, speed, preview, about, recording } = this.store.state;
    if (!run) return;
    if (preview) this.store.set({ preview: false, world: about?.world ?? null });
    this.store.set({ playing: true, detached: false, row: null, pace: source === 'training' ? 'live' : 'own' });
    this.send({ type: 'subscribe', run, source, rows: OVERVIEW_ROWS });
    if (source === 'checkpoint') this.syncPolicies();
    if (source === 'recording' && recording !== null) this.send({ type: 'select', recording });
    if ((source === 'checkpoint' || source === 'recording') && speed !== DEFAULT_SPEED) this.send({ type: 'set_speed', speed });
  }

  /** Send changed policy choices. */
  syncPolicies() {
    const { checkpoint, epsilon, compare } = this.store.state;
    if (checkpoint !== this.serverPolicies.checkpoint || epsilon !== this.serverPolicies.epsilon) {
      this.send({ type: 'load_checkpoint', checkpoint, epsilon });
    }
    if (compare !== this.serverPolicies.compare) this.send({ type: 'compare', checkpoint: compare });
    this.serverPolicies = { checkpoint, epsilon, compare };
  }

  /** @param {import('./types.js').Source} source @param {number | null} [recording] */
  setSource(source, recording = null) {
    this.store.set({ source, recording, ...(source === 'checkpoint' ? {} : { compare: null, side: 0 }) });
    this.subscribe();
  }

  /** Using the controls detaches this viewer from the shared playback of training. */
  detach() {
    if (this.store.state.source === 'training') this.store.set({ detached: true });
  }

  toggle() {
    const { source, row, playing } = this.store.state;
    // At the end of a single episode, play it again.
    const over = (source === 'recording' || row !== null) && this.atEnd();
    if (over) this.seek(0);
    this.detach();
    this.store.set({ playing: over || !playing });
    this.send({ type: this.store.state.playing ? 'play' : 'pause' });
  }

  /** @param {number} by */
  step(by) {
    this.detach();
    this.store.set({ playing: false });
    this.send({ type: 'step', by });
  }

  /** @param {number} timestep */
  seek(timestep) {
    this.detach();
    this.send({ type: 'seek', timestep: Math.max(0, Math.round(timestep)) });
  }

  /** @param {number} speed */
  setSpeed(speed) {
    this.detach();
    this.store.set({ speed, pace: 'own' });
    this.send({ type: 'set_speed', speed });
  }

  reset() {
    if (this.store.state.source === 'recording') this.seek(0);
    else {
      this.detach();
      this.send({ type: 'reset' });
    }
    if (!this.store.state.playing) {
      this.store.set({ playing: true });
      this.send({ type: 'play' });
    }
  }

  /** @param {string} checkpoint */
  setCheckpoint(checkpoint) {
    this.store.set({ checkpoint });
    if (this.store.state.source === 'checkpoint') this.syncPolicies();
  }

  /** @param {number} epsilon */
  setEpsilon(epsilon) {
    this.store.set({ epsilon });
    this.syncPolicies();
  }

  /** @param {string | null} compare */
  setCompare(compare) {
    this.store.set({ compare, side: 0 });
    if (this.store.state.source !== 'checkpoint') this.setSource('checkpoint');
    else this.syncPolicies();
  }

  /** Show the latest episode of a training row; null: follow all rows. @param {number | null} row */
  selectRow(row) {
    if (row === null || this.store.state.source !== 'training') this.setSource('training');
    if (row === null) return;
    this.store.set({ row, detached: true, playing: true, pace: 'own' });
    this.send({ type: 'select', row });
    if (this.store.state.speed !== DEFAULT_SPEED) this.send({ type: 'set_speed', speed: this.store.state.speed });
  }

  /** @param {string} text @param {number} number @param {boolean} preview */
  checkWorld(text, number, preview) {
    this.send({ type: 'edit_world', text, number, preview });
  }

  /** The server now plays an edited world. @param {import('./types.js').World} world */
  showPreview(world) {
    this.store.set({ source: 'checkpoint', world, preview: true, playing: true, detached: false, row: null, pace: 'own' });
    this.syncPolicies();
    this.send({ type: 'set_speed', speed: this.store.state.speed });
    this.send({ type: 'play' });
  }
}
