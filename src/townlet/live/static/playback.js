/** One side's life as it is shown: its moments as they came, and where between two of them the eye is. */

/** @typedef {import('./types.js').Moment} Moment */

const TURN = 0.22; // seconds until what came is shown: a little more than the time between two frames
const KEPT = 20000; // moments of one life

export class Playback {
  constructor() {
    /** @type {import('./types.js').EpisodeStart | null} */
    this.start = null;
    /** @type {import('./types.js').EpisodeEnd | null} */
    this.end = null;
    /** @type {Map<number, Moment>} */
    this.moments = new Map();
    /** @type {Map<number, number>} */
    this.visits = new Map();
    this.first = 0; // age of the life's first moment: a long life is kept without its beginning
    this.head = 0; // age that is shown, with a part of the next
    this.target = -1; // age that came last
    this.rate = 0;
    this.sent = 0;
  }

  /** @param {import('./types.js').EpisodeStart} start */
  begin(start) {
    this.start = start;
    this.end = null;
    this.moments = new Map();
    this.visits = new Map();
    this.first = 0;
    this.head = 0;
    this.target = -1;
    this.rate = 0;
    this.sent = 0;
  }

  /** @param {import('./types.js').Frame} frame */
  take(frame) {
    if (!this.start || frame.episode !== this.start.episode) return;
    frame.age.forEach((age, k) => {
      if (this.moments.size > KEPT) return;
      if (!this.moments.has(age)) this.visits.set(frame.cell[k], (this.visits.get(frame.cell[k]) ?? 0) + 1);
      if (frame.action[k] === null) this.first = age;
      this.moments.set(age, {
        age, cell: frame.cell[k], hour: frame.hour[k], progress: frame.progress[k], using: frame.using[k],
        meters: frame.meters[k], action: frame.action[k], outputs: frame.outputs[k], mask: frame.mask[k],
        reward: frame.reward[k], components: frame.components[k], why: frame.why[k],
      });
    });
    // A single moment may be overtaken by a longer frame: it is kept, but does not turn the clock back.
    if (frame.sent < this.sent) return;
    this.sent = frame.sent;
    const last = frame.age[frame.age.length - 1];
    const far = last - this.head;
    this.target = last;
    if (last < this.head || frame.age.length > 50 || far > 60 || this.moments.size === 1) {
      this.head = last;
      this.rate = 0;
    } else {
      this.rate = far / TURN;
    }
    if (this.end && last < this.end.length) this.end = null;
  }

  /** @param {import('./types.js').EpisodeEnd} end */
  finish(end) {
    if (!this.start || end.episode !== this.start.episode) return false;
    this.end = end;
    if (this.start.length !== null) this.first = Math.max(0, end.length - this.start.length);
    return true;
  }

  /** So many seconds went by; whether anything moved. @param {number} seconds */
  advance(seconds) {
    if (this.target < 0 || this.head >= this.target) return false;
    this.head = Math.min(this.target, this.head + this.rate * seconds);
    return true;
  }

  /** Without movement between moments: for people who asked for none. */
  jump() {
    if (this.target >= 0) this.head = this.target;
  }

  /** The moment that is shown, or the nearest one before it that came. @returns {Moment | null} */
  moment() {
    return this.near(Math.floor(this.head + 1e-6));
  }

  /** @param {number} age @returns {Moment | null} */
  near(age) {
    for (let back = 0; back < 70; back += 1) {
      const found = this.moments.get(age - back);
      if (found) return found;
    }
    return this.moments.values().next().value ?? null;
  }

  /** The moment that the movement goes to, and how far it has come. @returns {{next: Moment | null, part: number}} */
  coming() {
    const whole = Math.floor(this.head + 1e-6);
    return { next: this.moments.get(whole + 1) ?? null, part: Math.max(0, this.head - whole) };
  }

  /** The last moments up to the one shown, oldest first. @param {number} many @returns {Moment[]} */
  lately(many) {
    const now = Math.floor(this.head + 1e-6);
    /** @type {Moment[]} */
    const found = [];
    for (let age = now - many + 1; age <= now; age += 1) {
      const moment = this.moments.get(age);
      if (moment) found.push(moment);
    }
    return found;
  }

  /** Whether its end is what is seen now. */
  get over() {
    return this.end !== null && this.head >= this.target;
  }

  /** All moments that came, in order. */
  all() {
    return [...this.moments.values()].sort((a, b) => a.age - b.age);
  }
}
