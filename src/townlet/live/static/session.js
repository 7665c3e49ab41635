/** What a person asks for, as messages: the one place that knows which order the server wants them in. */

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./connection.js').Connection} Connection
 */

const USUAL = 5; // steps a second that the server begins with
const AIR = 12; // steps a second of training as all see it
const ROWS = 64;

export class Session {
  /** @param {Store} store @param {Connection} connection */
  constructor(store, connection) {
    this.store = store;
    this.connection = connection;
    this.before = USUAL; // the chosen speed, while that of training is shown
    /** Whether the shown life is at its end. */
    this.ended = () => false;
    /** Who plays on the server's side, to ask only for what differs. */
    this.cast = { checkpoint: 'latest', epsilon: 0, compare: /** @type {string | null} */ (null) };
  }

  /** The server knows nothing of us (a new connection, another run). */
  forget() {
    this.cast = { checkpoint: 'latest', epsilon: 0, compare: null };
    this.store.set({ preview: false });
  }

  /** @param {object} message */
  send(message) {
    this.connection.send(message);
  }

  /** Show the chosen run from the chosen source. @param {number | null} [recording] */
  subscribe(recording = null) {
    const { run, source, alone } = this.store.known;
    if (!run) return;
    const speed = alone ? this.before : this.store.known.speed;
    this.store.set({ playing: true, alone: false, speed });
    this.send({ type: 'subscribe', run, source, rows: ROWS });
    if (source === 'checkpoint') this.recast();
    if (source === 'recording' && recording !== null) this.send({ type: 'select', recording });
    if (source !== 'training' && speed !== USUAL) this.send({ type: 'set_speed', speed });
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
    this.store.set({ source, ...(source === 'checkpoint' ? {} : { compare: null, side: 0 }) });
    if (source !== 'checkpoint') this.cast.compare = null;
    this.subscribe(recording);
  }

  /** Whoever touches the controls of training goes on alone. */
  touched() {
    const { source, alone, speed } = this.store.known;
    if (source !== 'training' || alone) return;
    this.before = speed;
    this.store.set({ alone: true, speed: AIR });
  }

  toggle() {
    // A kept life that has come to its end plays again from its beginning.
    const over = this.store.known.source === 'recording' && this.ended();
    if (over) this.seek(0);
    const playing = over || !this.store.known.playing;
    this.touched();
    this.store.set({ playing });
    this.send({ type: playing ? 'play' : 'pause' });
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
    this.before = speed;
    this.store.set({ speed });
    this.send({ type: 'set_speed', speed });
  }

  reset() {
    if (this.store.known.source === 'training') this.subscribe();
    else if (this.store.known.source === 'recording') this.seek(0);
    else this.send({ type: 'reset' });
    if (!this.store.known.playing) {
      this.store.set({ playing: true });
      this.send({ type: 'play' });
    }
  }

  /** @param {string} checkpoint */
  checkpoint(checkpoint) {
    this.store.set({ checkpoint });
    this.recast();
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

  /** @param {number} row */
  row(row) {
    this.touched();
    this.send({ type: 'select', row });
  }

  /** @param {string} text @param {number} number @param {boolean} preview */
  world(text, number, preview) {
    if (preview) this.store.set({ source: 'checkpoint', playing: true });
    this.send({ type: 'edit_world', text, number, preview });
  }
}
