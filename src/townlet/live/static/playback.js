/** The episode of one side: received timesteps and the animated position between them. */

/** @typedef {import('./types.js').Timestep} Timestep */

const CATCH_UP_SECONDS = 0.22; // to reach the last timestep received; slightly longer than the interval between frames
const MAX_TIMESTEPS = 20000; // per episode

export class Playback {
  constructor() {
    /** @type {import('./types.js').EpisodeStart | null} */
    this.start = null;
    /** @type {import('./types.js').EpisodeEnd | null} */
    this.end = null;
    this.knownEnd = this.end; // kept while an earlier step is on screen
    /** @type {Map<number, Timestep>} */
    this.timesteps = new Map();
    /** @type {Map<number, number>} */
    this.visits = new Map();
    this.firstAge = 0; // age at the first timestep; recordings of long episodes lack their beginning
    this.position = 0; // age on screen, including the animated fraction of the next
    this.lastAge = -1; // last age received
    this.catchUpRate = 0; // timesteps per second
    this.sent = 0; // server time of the latest frame
  }

  /** @param {import('./types.js').EpisodeStart} start */
  begin(start) {
    this.start = start;
    this.end = this.knownEnd = null;
    this.timesteps = new Map();
    this.visits = new Map();
    this.firstAge = 0;
    this.position = 0;
    this.lastAge = -1;
    this.catchUpRate = 0;
    this.sent = 0;
  }

  /** @param {import('./types.js').Frame} frame */
  addFrame(frame) {
    if (!this.start || frame.episode !== this.start.episode) return;
    frame.age.forEach((age, k) => {
      if (this.timesteps.size > MAX_TIMESTEPS) return;
      if (!this.timesteps.has(age)) this.visits.set(frame.cell[k], (this.visits.get(frame.cell[k]) ?? 0) + 1);
      if (frame.action[k] === null) this.firstAge = age;
      this.timesteps.set(age, {
        age, cell: frame.cell[k], hour: frame.hour[k], progress: frame.progress[k], using: frame.using[k],
        meters: frame.meters[k], action: frame.action[k], outputs: frame.outputs[k], mask: frame.mask[k],
        reward: frame.reward[k], components: frame.components[k], why: frame.why[k], events: frame.events[k],
      });
    });
    // Frames may arrive out of order: keep the data, but do not move back.
    if (frame.sent < this.sent) return;
    this.sent = frame.sent;
    const last = frame.age[frame.age.length - 1];
    const distance = last - this.position;
    this.lastAge = last;
    if (last < this.position || frame.age.length > 50 || distance > 60 || this.timesteps.size === 1) {
      this.position = last;
      this.catchUpRate = 0;
    } else {
      this.catchUpRate = distance / CATCH_UP_SECONDS;
    }
    if (this.end && last < this.end.length) this.end = null;
  }

  /** @param {import('./types.js').EpisodeEnd} end */
  setEnd(end) {
    if (!this.start || end.episode !== this.start.episode) return false;
    this.end = this.knownEnd = end;
    if (this.start.length !== null) this.firstAge = Math.max(0, end.length - this.start.length);
    return true;
  }

  /** Advance by `seconds`; returns whether anything moved. @param {number} seconds */
  advance(seconds) {
    if (this.lastAge < 0 || this.position >= this.lastAge) return false;
    this.position = Math.min(this.lastAge, this.position + this.catchUpRate * seconds);
    return true;
  }

  /** Skip animation (reduced motion). */
  skipAnimation() {
    if (this.lastAge >= 0) this.position = this.lastAge;
  }

  /** The timestep on screen, or the nearest one received before it. @returns {Timestep | null} */
  current() {
    return this.nearest(Math.floor(this.position + 1e-6));
  }

  /** @param {number} age @returns {Timestep | null} */
  nearest(age) {
    for (let back = 0; back < 70; back += 1) {
      const found = this.timesteps.get(age - back);
      if (found) return found;
    }
    return this.timesteps.values().next().value ?? null;
  }

  /** The next timestep and the animated fraction towards it. @returns {{next: Timestep | null, part: number}} */
  upcoming() {
    const base = Math.floor(this.position + 1e-6);
    return { next: this.timesteps.get(base + 1) ?? null, part: Math.max(0, this.position - base) };
  }

  /** The latest timesteps up to the one on screen, oldest first. @param {number} count @returns {Timestep[]} */
  recent(count) {
    const now = Math.floor(this.position + 1e-6);
    /** @type {Timestep[]} */
    const found = [];
    for (let age = now - count + 1; age <= now; age += 1) {
      const timestep = this.timesteps.get(age);
      if (timestep) found.push(timestep);
    }
    return found;
  }

  /** What happened up to an age, in sentences. @param {number} age @returns {string[]} */
  eventsUntil(age) {
    return this.all().flatMap((timestep) => (timestep.age <= age && timestep.events) || []);
  }

  /** Whether the end is on screen. */
  get over() {
    return this.end !== null && this.position >= this.lastAge;
  }

  /** Whether the agent's death is on screen. */
  get died() {
    return this.over && this.end?.cause !== 'time';
  }

  /** All received timesteps, as a playback of its own that later messages do not change. */
  copy() {
    const timesteps = new Map(this.timesteps), lastAge = Math.max(-1, ...timesteps.keys());
    return Object.assign(new Playback(), this, { timesteps, visits: new Map(this.visits), end: this.knownEnd, lastAge });
  }

  /** All received timesteps, in order. */
  all() {
    return [...this.timesteps.values()].sort((a, b) => a.age - b.age);
  }
}
