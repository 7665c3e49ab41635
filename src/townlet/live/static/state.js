/** What the page knows, in one place: panels listen to the keys they draw. */

/**
 * @typedef {object} Known
 * @property {'connecting' | 'open' | 'away'} link
 * @property {import('./types.js').RunLine[] | null} runs
 * @property {string | null} run
 * @property {import('./types.js').About | null} about
 * @property {import('./types.js').World | null} world that is drawn: the run's own, or one from the editor
 * @property {boolean} preview a world from the editor is on show
 * @property {import('./types.js').Maps | null} maps of all of training
 * @property {import('./types.js').RunStatus | null} status
 * @property {import('./types.js').Source} source
 * @property {boolean} playing
 * @property {boolean} alone the controls were touched while training was shown, so it goes on for this viewer alone
 * @property {'live' | 'own'} pace training has one of its own until a person touches the speed
 * @property {number} speed that a person chose, in steps a second
 * @property {number | null} row of training that a person chose
 * @property {number | null} recording that a person chose; null: the newest
 * @property {string} checkpoint
 * @property {number} epsilon
 * @property {string | null} compare
 * @property {number} side whose agent is shown in the panel
 * @property {import('./types.js').Checkpoint[]} checkpoints
 * @property {Map<string, Map<number, number>>} series
 * @property {Record<string, any>[]} evaluations
 * @property {import('./types.js').Alert[]} alerts
 * @property {Map<number, import('./types.js').StageChange>} stages the last change of each row
 * @property {import('./types.js').Lived[]} lived the last lives of training, as they ended
 * @property {{who: string, end: import('./types.js').EpisodeEnd}[]} ends
 * @property {import('./types.js').Wall | null} wall
 * @property {import('./types.js').Checked | null} checked
 * @property {boolean} trying the agent should play in the editor's world, and there is no answer yet
 * @property {import('./types.js').Refusal | null} refusal of that wish
 * @property {'watch' | 'world'} view
 * @property {import('./overlay.js').Overlay} overlay on the town
 * @property {string} theme
 * @property {string} program what to type for `townlet` where the server was started
 */

/** @returns {Known} */
export function nothingKnown() {
  return {
    link: 'connecting', runs: null, run: null, about: null, world: null, preview: false, maps: null, status: null,
    source: 'checkpoint', playing: true, alone: false, pace: 'own', speed: 5, row: null, recording: null,
    checkpoint: 'latest', epsilon: 0, compare: null, side: 0, checkpoints: [], series: new Map(), evaluations: [], alerts: [],
    stages: new Map(), lived: [], ends: [], wall: null, checked: null, trying: false,
    refusal: null, view: 'watch', overlay: 'none', theme: 'light', program: 'townlet',
  };
}

const AIR = 12; // steps a second of training as all see it
const LONG = 15; // seconds that one such life takes at most

/**
 * How fast a life goes by.
 * @param {Known} known @param {import('./types.js').EpisodeStart | null} start of that life
 */
export function stepsASecond(known, start) {
  return known.pace === 'own' ? known.speed : Math.max(AIR, (start?.length ?? 0) / LONG);
}

export class Store {
  /** @param {Known} known */
  constructor(known) {
    this.known = known;
    /** @type {Map<string, Set<() => void>>} */
    this.listeners = new Map();
  }

  /** Change some keys; whoever listens to one of them is called once. @param {Partial<Known>} change */
  set(change) {
    Object.assign(this.known, change);
    this.tell(/** @type {(keyof Known)[]} */ (Object.keys(change)));
  }

  /** These keys changed inside. @param {(keyof Known)[]} keys */
  tell(keys) {
    /** @type {Set<() => void>} */
    const called = new Set();
    for (const key of keys) for (const listener of this.listeners.get(key) ?? []) called.add(listener);
    for (const listener of called) listener();
  }

  /** @param {(keyof Known)[]} keys @param {() => void} listener */
  on(keys, listener) {
    for (const key of keys) {
      if (!this.listeners.has(key)) this.listeners.set(key, new Set());
      this.listeners.get(key)?.add(listener);
    }
  }
}
