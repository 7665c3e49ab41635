/** What a person asks for, as messages: the one place that knows which order the server wants them in. */

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./connection.js').Connection} Connection
 */

const USUAL = 5; // steps a second that the server begins with
const ROWS = 64;

export const WATCHED = 4; // rows of training whose lives are told whole

export class Session {
  /** @param {Store} store @param {Connection} connection */
  constructor(store, connection) {
    this.store = store;
    this.connection = connection;
    /** Whether the shown life is at its end. */
    this.ended = () => false;
    /** Who plays on the server's side, to ask only for what differs. */
    this.cast = { checkpoint: 'latest', epsilon: 0, compare: /** @type {string | null} */ (null) };
  }

  /** The server knows nothing of us (a new connection, another run), and tells all its checkpoints anew. */
  forget() {
    this.cast = { checkpoint: 'latest', epsilon: 0, compare: null };
    this.store.set({ checkpoints: [] });
  }

  /** @param {object} message */
  send(message) {
    this.connection.send(message);
  }

  /** Show the chosen run from the chosen source, in the run's own world. */
  subscribe() {
    const { run, source, speed, preview, about, recording } = this.store.known;
    if (!run) return;
    if (preview) this.store.set({ preview: false, world: about?.world ?? null });
    this.store.set({ playing: true, alone: false, row: null, pace: source === 'training' ? 'live' : 'own' });
    this.send({ type: 'subscribe', run, source, rows: ROWS });
    if (source === 'checkpoint') this.recast();
    if (source === 'recording' && recording !== null) this.send({ type: 'select', recording });
    if ((source === 'checkpoint' || source === 'recording') && speed !== USUAL) this.send({ type: 'set_speed', speed });
  }

  /** Bring the players on the server's side to what is chosen here. */
  recast() {
    const { checkpoint, epsilon, compare } = this.store.known;
    if (checkpoint !== this.cast.checkpoint || epsilon !== this.cast.epsilon) {
      this.send({ type: 'load_checkpoint', checkpoint, epsilon });
    }
    if (compare !== this.cast.compare) this.send({ type: 'compare', checkpoint: compare });
    this.cast = { checkpoint, epsilon, compare };
  }

  /** @param {import('./types.js').Source} source @param {number | null} [recording] */
  source(source, recording = null) {
    this.store.set({ source, recording, ...(source === 'checkpoint' ? {} : { compare: null, side: 0 }) });
    this.subscribe();
  }

  /** Whoever touches the controls of training goes on alone, at the pace it had. */
  touched() {
    if (this.store.known.source === 'training') this.store.set({ alone: true });
  }

  toggle() {
    const { source, row, playing } = this.store.known;
    // A life that nothing follows plays again from its beginning.
    const over = (source === 'recording' || row !== null) && this.ended();
    if (over) this.seek(0);
    this.touched();
    this.store.set({ playing: over || !playing });
    this.send({ type: this.store.known.playing ? 'play' : 'pause' });
  }

  /** @param {number} by */
  step(by) {
    this.touched();
    this.store.set({ playing: false });
    this.send({ type: 'step', by });
  }

  /** @param {number} moment */
  seek(moment) {
    this.touched();
    this.send({ type: 'seek', moment: Math.max(0, Math.round(moment)) });
  }

  /** @param {number} speed */
  speed(speed) {
    this.touched();
    this.store.set({ speed, pace: 'own' });
    this.send({ type: 'set_speed', speed });
  }

  reset() {
    if (this.store.known.source === 'recording') this.seek(0);
    else {
      this.touched();
      this.send({ type: 'reset' });
    }
    if (!this.store.known.playing) {
      this.store.set({ playing: true });
      this.send({ type: 'play' });
    }
  }

  /** @param {string} checkpoint */
  checkpoint(checkpoint) {
    this.store.set({ checkpoint });
    if (this.store.known.source === 'checkpoint') this.recast();
  }

  /** @param {number} epsilon */
  epsilon(epsilon) {
    this.store.set({ epsilon });
    this.recast();
  }

  /** @param {string | null} compare */
  compare(compare) {
    this.store.set({ compare, side: 0 });
    if (this.store.known.source !== 'checkpoint') this.source('checkpoint');
    else this.recast();
  }

  /** The latest life of a row of training; null: whatever ends next. @param {number | null} row */
  row(row) {
    if (row === null || this.store.known.source !== 'training') this.source('training');
    if (row === null) return;
    this.store.set({ row, alone: true, playing: true, pace: 'own' });
    this.send({ type: 'select', row });
    if (this.store.known.speed !== USUAL) this.send({ type: 'set_speed', speed: this.store.known.speed });
  }

  /** @param {string} text @param {number} number @param {boolean} preview */
  world(text, number, preview) {
    this.send({ type: 'edit_world', text, number, preview });
  }

  /** The server has begun to play a world from the editor. @param {import('./types.js').World} world */
  preview(world) {
    this.store.set({ source: 'checkpoint', world, preview: true, playing: true, alone: false, row: null, pace: 'own' });
    this.recast();
    this.send({ type: 'set_speed', speed: this.store.known.speed });
    this.send({ type: 'play' });
  }
}
