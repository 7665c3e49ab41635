/** Which run is looked at, and all that is asked about it over HTTP. */

import { ask, Refused } from './ask.js';
import { announce, toast } from './notices.js';
import { ranked } from './runs.js';
import { nothingKnown } from './state.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./session.js').Session} Session
 */

const LOOK = 15000; // milliseconds between two looks at the list of runs
const EMPTY = 2500; // the same while nothing is shown
const MAPS = 10000; // milliseconds between two looks at the maps of a run that trains

export class Visit {
  /** @param {Store} store @param {Session} session @param {() => void} cleared what was on show is forgotten */
  constructor(store, session, cleared) {
    this.store = store;
    this.session = session;
    this.cleared = cleared;
    this.linked = new URLSearchParams(location.hash.slice(1)).get('run');
    /** @type {string | null} */
    this.given = null; // the run that the server was started for
    this.greeted = false; // the server has said hello, so it hears what is asked
    this.asked = 0; // counts choices, so that a late answer about another run is dropped
    setInterval(() => {
      // Maps of a run that stands still do not change, but they may not have come yet.
      if (!document.hidden && (store.known.status?.state === 'running' || !store.known.maps)) void this.map();
    }, MAPS);
    this.again();
  }

  /** Look at the list of runs from time to time; often, while there is nothing to see. */
  again() {
    setTimeout(async () => {
      if (!document.hidden) await this.look();
      this.again();
    }, this.store.known.about ? LOOK : EMPTY);
  }

  /** The list of runs, and the first one to show. */
  async look() {
    if (this.store.known.link === 'away') return;
    const runs = await ask('api/runs').catch(() => null);
    if (!runs) return; // the banner says already that nobody answers
    // A run that was removed, or a server that was started for other ones: begin again.
    const lost = this.store.known.run && !runs.some((/** @type {{name: string}} */ line) => line.name === this.store.known.run);
    this.store.set(lost ? { runs, run: null, about: null, world: null, status: null } : { runs });
    if (!this.store.known.run && this.greeted) await this.first(runs);
  }

  /** The first run to show: the one of the link, one that trains, the one the server was started for, the best. @param {import('./types.js').RunLine[]} runs */
  async first(runs) {
    const training = runs.filter((line) => line.state === 'running').map((line) => line.name);
    const others = ranked(runs).filter((line) => line.state !== 'damaged').map((line) => line.name);
    const wished = [this.linked, ...training, this.given, ...others].filter((name) => runs.some((line) => line.name === name));
    for (const name of new Set(wished)) {
      // A run that has just begun may not be readable yet: the next look tries again, so nobody has to hear of it.
      if (name && await this.choose(name, true)) return;
    }
  }

  /** Another run, if it can be read: then everything that was known of the last one is forgotten. @param {string} run @param {boolean} [quietly] @returns {Promise<boolean>} */
  async choose(run, quietly = false) {
    this.asked += 1;
    const question = this.asked;
    /** @type {import('./types.js').About} */
    let about;
    try {
      about = await ask(`api/runs/${encodeURIComponent(run)}`);
    } catch (error) {
      if (!quietly) toast(`${run} cannot be shown: ${error instanceof Error ? error.message : error}`, error instanceof Refused ? error.fix : '');
      return false;
    }
    if (question !== this.asked) return true;
    const { runs, theme, view, overlay, link, speed } = this.store.known;
    const line = runs?.find((one) => one.name === run);
    const source = about.kind === 'gym' ? 'none' : line?.state === 'running' ? 'training' : line?.checkpoints ? 'checkpoint' : about.recordings.length ? 'recording' : 'training';
    this.cleared();
    this.store.set({ ...nothingKnown(), runs, theme, view: about.kind === 'gym' ? 'watch' : view, overlay, link, speed, run, about, world: about.world ?? null, source });
    history.replaceState(null, '', `#run=${encodeURIComponent(run)}`);
    this.session.forget();
    this.session.subscribe();
    void this.map();
    return true;
  }

  /** The run stands differently now. @param {string} words */
  turned(words) {
    announce(words);
    void this.look();
    void this.map();
    void this.kept();
  }

  /** Lives that were kept meanwhile. */
  async kept() {
    const { run, about } = this.store.known;
    if (!run || !about) return;
    const found = await ask(`api/runs/${encodeURIComponent(run)}`).catch(() => null);
    if (!found || this.store.known.about !== about) return;
    about.recordings = found.recordings;
    this.store.tell(['checkpoints']);
  }

  /** Where agents were in all of training, and what they died of. */
  async map() {
    const { run } = this.store.known;
    if (!run || this.store.known.link === 'away') return;
    const maps = await ask(`api/runs/${encodeURIComponent(run)}/maps`).catch(() => null);
    if (maps && run === this.store.known.run) this.store.set({ maps });
  }
}
