/** State of the page: panels subscribe to the keys they draw. */

import { latestPolicy } from './agent-choice.js';

/**
 * @typedef {object} AppState
 * @property {'connecting' | 'open' | 'away'} link
 * @property {boolean} expired the server no longer accepts the token of this page
 * @property {import('./types.js').RunSummary[] | null} runs
 * @property {string | null} run
 * @property {boolean} opening a run is being opened
 * @property {import('./types.js').RunInfo | null} about
 * @property {import('./types.js').World | null} world on screen: the run's, or an edited one
 * @property {boolean} preview an edited world is on screen
 * @property {import('./types.js').Maps | null} maps of all of training
 * @property {import('./types.js').RunStatus | null} status
 * @property {import('./types.js').Source} source
 * @property {boolean} playing
 * @property {boolean} detached the controls were used while following training
 * @property {'live' | 'own'} pace live: the speed of the shared playback; own: `speed`
 * @property {number} speed chosen speed in steps per second
 * @property {number | null} row chosen row of training
 * @property {number | null} recording chosen recording; null: the newest
 * @property {import('./types.js').AgentChoice[]} agents who plays: one, or two side by side
 * @property {number} side shown in the agent panel
 * @property {import('./types.js').Checkpoint[]} checkpoints
 * @property {Map<string, Map<number, number>>} series
 * @property {Record<string, any>[]} evaluations
 * @property {import('./types.js').Alert[]} alerts
 * @property {Map<number, import('./types.js').StageChange>} stages last change of each row
 * @property {import('./types.js').TrainingEpisode[]} trainingEpisodes latest episodes of training
 * @property {{label: string, end: import('./types.js').EpisodeEnd} []} episodeEnds
 * @property {import('./types.js').RowsOverview | null} rowsOverview
 * @property {import('./types.js').WorldChecked | null} worldChecked
 * @property {boolean} previewPending a preview was requested and not answered yet
 * @property {import('./types.js').ErrorMessage | null} previewError answer to a refused preview
 * @property {import('./types.js').WorldVerdict | null} worldVerdict
 * @property {import('./types.js').ErrorMessage | null} refused the last error
 * @property {import('./types.js').Answer | null} answer to the last question
 * @property {boolean} asking a question was sent and not answered yet
 * @property {boolean} sound
 * @property {boolean} operator whether this link may change things
 * @property {'watch' | 'world'} view
 * @property {import('./overlay.js').Overlay} overlay on the town
 * @property {string} theme
 * @property {string} program command that starts townlet
 */

/** @returns {AppState} */
export function initialState() {
  return {
    link: 'connecting', expired: false, runs: null, run: null, opening: false, about: null, world: null, preview: false, maps: null, status: null,
    source: 'checkpoint', playing: true, detached: false, pace: 'own', speed: 5, row: null, recording: null,
    agents: [latestPolicy()], side: 0, checkpoints: [], series: new Map(), evaluations: [], alerts: [],
    stages: new Map(), trainingEpisodes: [], episodeEnds: [], rowsOverview: null, worldChecked: null, previewPending: false,
    previewError: null, worldVerdict: null, refused: null, answer: null, asking: false, sound: false, operator: true, view: 'watch', overlay: 'none', theme: 'light', program: 'townlet',
  };
}

const TRAINING_SPEED = 12; // steps per second of the shared playback
const MAX_EPISODE_SECONDS = 15; // longer episodes of the shared playback are sped up

/**
 * Playback speed in steps per second.
 * @param {AppState} state @param {import('./types.js').EpisodeStart | null} start of the episode
 */
export function playbackSpeed(state, start) {
  return state.pace === 'own' ? state.speed : Math.max(TRAINING_SPEED, (start?.length ?? 0) / MAX_EPISODE_SECONDS);
}

export class Store {
  /** @param {AppState} state */
  constructor(state) {
    this.state = state;
    /** @type {Map<string, Set<() => void>>} */
    this.listeners = new Map();
  }

  /** Change keys and notify their listeners once. @param {Partial<AppState>} change */
  set(change) {
    Object.assign(this.state, change);
    this.notify(/** @type {(keyof AppState)[]} */ (Object.keys(change)));
  }

  /** Notify listeners of keys that were mutated. @param {(keyof AppState)[]} keys */
  notify(keys) {
    /** @type {Set<() => void>} */
    const called = new Set();
    for (const key of keys) for (const listener of this.listeners.get(key) ?? []) called.add(listener);
    for (const listener of called) listener();
  }

  /** @param {(keyof AppState)[]} keys @param {() => void} listener */
  on(keys, listener) {
    for (const key of keys) {
      if (!this.listeners.has(key)) this.listeners.set(key, new Set());
      this.listeners.get(key)?.add(listener);
    }
  }
}
