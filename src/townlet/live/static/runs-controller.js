/** Loads and opens runs over HTTP, and draws the run list and run status in the header. */

import { latestPolicy } from './agent-choice.js';
import { ApiError, request } from './api.js';
import { byId, el, setText, svg } from './dom.js';
import { formatCompact, formatCount, formatNumber, labelsFor, runTitle, stateLabel } from './format.js';
import { announce, toast } from './notifications.js';
import { parseMoment } from './share.js';
import { initialState } from './state.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./session.js').Session} Session
 */

const POLL_RUNS = 15000; // milliseconds
const POLL_RUNS_EMPTY = 2500; // while no run is open
const POLL_MAPS = 10000; // while a run is training

export class RunsController {
  /** @param {Store} store @param {Session} session @param {() => void} onClear called before another run opens */
  constructor(store, session, onClear) {
    this.store = store;
    this.session = session;
    this.onClear = onClear;
    /** @type {import('./share.js').Moment | null} */
    this.moment = parseMoment(location.hash); // what the address asks for; null once it was opened
    /** @type {string | null} */
    this.serverRun = null; // run that the server was started for, if any
    this.connected = false; // hello received
    this.requests = 0; // number of runs requested so far, to ignore late responses
    addEventListener('hashchange', () => { // a link was pasted into the address bar
      this.moment = parseMoment(location.hash);
      if (this.moment.run) void this.open(this.moment.run);
    });
    setInterval(() => {
      // Maps of a finished run do not change, but may not have loaded yet.
      if (!document.hidden && (store.state.status?.state === 'running' || !store.state.maps)) void this.loadMaps();
    }, POLL_MAPS);
    this.schedulePoll();
  }

  /** Poll the list of runs, more often while no run is open. */
  schedulePoll() {
    setTimeout(async () => {
      if (!document.hidden) await this.loadRuns();
      this.schedulePoll();
    }, this.store.state.about ? POLL_RUNS : POLL_RUNS_EMPTY);
  }

  /** Load the list of runs, and open the first one. */
  async loadRuns() {
    if (this.store.state.link === 'away') return;
    const runs = await request('api/runs').catch(() => null);
    if (!runs) return; // the banner already reports it
    // The open run was removed, or the server restarted with other runs.
    const lost = this.store.state.run && !runs.some((/** @type {{name: string}} */ summary) => summary.name === this.store.state.run);
    this.store.set(lost ? { runs, run: null, about: null, world: null, status: null } : { runs });
    if (!this.store.state.run && this.connected) await this.openFirst(runs);
  }

  /** Open the linked run, the one that the server was started for, a running one, or the newest. @param {import('./types.js').RunSummary[]} runs */
  async openFirst(runs) {
    const training = runs.filter((summary) => summary.state === 'running').map((summary) => summary.name);
    const others = runs.filter((summary) => summary.state !== 'damaged' && !summary.shipped).map((summary) => summary.name); // newest first
    const candidates = [this.moment?.run ?? null, this.serverRun, ...training, ...others].filter((name) => runs.some((summary) => summary.name === name));
    for (const name of new Set(candidates)) {
      // A run that just started may not be readable yet; the next poll retries.
      if (name && await this.open(name, true)) return;
    }
  }

  /** Open the agent that comes with Townlet. */
  async openShipped() {
    const shipped = this.store.state.runs?.find((run) => run.shipped);
    if (shipped) await this.open(shipped.name);
  }

  /** Open a run if it can be read, and reset all state of the previous one. @param {string} run @param {boolean} [quietly] @returns {Promise<boolean>} */
  async open(run, quietly = false) {
    this.requests += 1;
    const requestId = this.requests;
    this.store.set({ opening: true });
    /** @type {import('./types.js').RunInfo} */
    let about;
    try {
      about = await request(`api/runs/${encodeURIComponent(run)}`);
    } catch (error) {
      this.store.set({ opening: false });
      if (!quietly) toast(`${run} cannot be shown: ${error instanceof Error ? error.message : error}`, error instanceof ApiError ? error.fix : '');
      return false;
    }
    if (requestId !== this.requests) return true; // another run was requested meanwhile
    const { runs, theme, view, overlay, link, expired, speed, sound, operator, program } = this.store.state;
    const summary = runs?.find((one) => one.name === run);
    const source = initialSource(about, summary);
    const agents = [{ ...latestPolicy(), checkpoint: summary?.state === 'running' ? 'latest' : 'best' }];
    this.onClear();
    this.store.set({ ...initialState(), runs, theme, view: about.kind === 'gym' ? 'watch' : view, overlay, link, expired, speed, sound, operator, program, run, about, world: about.world ?? null, source, agents });
    history.replaceState(null, '', `#run=${encodeURIComponent(run)}`);
    this.session.resetServerState();
    this.session.subscribe();
    if (this.moment?.run === run) this.session.openMoment(this.moment);
    this.moment = null;
    void this.loadMaps();
    return true;
  }

  /** React to a new state of the run. @param {string} announcement */
  onStateChange(announcement) {
    announce(announcement);
    void this.loadRuns();
    void this.loadMaps();
    void this.reloadRecordings();
  }

  /** Load recordings that were added since the run was opened. */
  async reloadRecordings() {
    const { run, about } = this.store.state;
    if (!run || !about) return;
    const found = await request(`api/runs/${encodeURIComponent(run)}`).catch(() => null);
    if (!found || this.store.state.about !== about) return;
    about.recordings = found.recordings;
    this.store.notify(['checkpoints']);
  }

  /** Load visit maps and causes of ends of episodes over all of training. */
  async loadMaps() {
    const { run } = this.store.state;
    if (!run || this.store.state.link === 'away') return;
    const maps = await request(`api/runs/${encodeURIComponent(run)}/maps`).catch(() => null);
    if (maps && run === this.store.state.run) this.store.set({ maps });
  }
}

/**
 * @typedef {import('./types.js').RunSummary} RunSummary
 */

/** What to show first of a run. @param {import('./types.js').RunInfo} about @param {RunSummary | undefined} summary @returns {import('./types.js').Source} */
function initialSource(about, summary) {
  if (about.kind === 'gym') return 'none';
  if (summary?.state === 'running') return 'training';
  if (summary?.checkpoints) return 'checkpoint';
  return about.recordings.length ? 'recording' : 'training';
}

/** Best score first; unevaluated runs and shipped agents last. @param {RunSummary[]} runs */
export const bestFirst = (runs) => [...runs].sort((a, b) => Number(a.shipped) - Number(b.shipped) || (b.best ?? -Infinity) - (a.best ?? -Infinity));

/** Sparkline of scores. @param {number[]} scores */
function sparkline(scores) {
  const width = 72, height = 22;
  const low = Math.min(...scores), high = Math.max(...scores);
  const at = scores.map((score, k) => {
    const x = 2 + (k / Math.max(1, scores.length - 1)) * (width - 4);
    return [x, height - 3 - ((score - low) / (high - low || 1)) * (height - 6)];
  });
  const box = svg('svg', { viewBox: `0 0 ${width} ${height}`, width, height, class: 'spark', 'aria-hidden': 'true' });
  if (at.length > 1) box.append(svg('polyline', { points: at.map((p) => p.map((v) => v.toFixed(1)).join()).join(' ') }));
  if (at.length) box.append(svg('circle', { cx: at[at.length - 1][0], cy: at[at.length - 1][1], r: 2.2 }));
  return box;
}

/** @param {Store} store @param {(run: string) => void} choose */
export function initRunList(store, choose) {
  const button = byId('run-button');
  const list = byId('run-list');

  /** @param {boolean} open */
  const show = (open) => {
    list.hidden = !open;
    button.setAttribute('aria-expanded', String(open));
    if (!open) return;
    /** @type {HTMLElement | null} */ (list.querySelector('[aria-selected=true]') ?? list.querySelector('button'))?.focus();
  };
  const fill = () => {
    // The list is refreshed at any time: keep keyboard focus.
    const active = /** @type {HTMLElement | null} */ (document.activeElement);
    const held = active && list.contains(active) ? active.dataset.run : undefined;
    list.replaceChildren(...bestFirst(store.state.runs ?? []).map((summary) => {
      const chosen = summary.name === store.state.run;
      const option = el('button', { type: 'button', role: 'option', 'aria-selected': String(chosen), class: 'run-option' },
        el('span', { class: 'run-option-name' },
          el('strong', { text: runTitle(summary) }),
          el('small', { text: summary.problem || `${formatCompact(summary.env_steps)} steps · ${summary.state === 'published' ? summary.recipe : summary.name}` })),
        sparkline(summary.scores ?? []),
        el('span', { class: 'run-option-score', text: summary.best === null ? 'not evaluated' : `best ${formatNumber(summary.best)}` }),
        el('span', { class: 'status', 'data-state': summary.state, text: stateLabel(summary.state) }));
      option.dataset.run = summary.name;
      option.addEventListener('click', () => { show(false); button.focus(); choose(summary.name); });
      return option;
    }));
    if (held) /** @type {HTMLElement | null} */ (list.querySelector(`[data-run="${CSS.escape(held)}"]`))?.focus();
  };
  button.addEventListener('click', () => show(list.hidden === true));
  document.addEventListener('click', (event) => {
    const target = /** @type {Node} */ (event.target);
    if (!list.hidden && !list.contains(target) && !button.contains(target)) show(false);
  });
  list.addEventListener('keydown', (event) => {
    const lines = /** @type {HTMLElement[]} */ ([...list.querySelectorAll('button')]);
    const at = lines.indexOf(/** @type {HTMLElement} */ (document.activeElement));
    if (event.key === 'Escape') { show(false); button.focus(); }
    else if (event.key === 'ArrowDown') lines[Math.min(lines.length - 1, at + 1)]?.focus();
    else if (event.key === 'ArrowUp') lines[Math.max(0, at - 1)]?.focus();
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
  store.on(['runs', 'run'], () => {
    const summary = store.state.runs?.find((one) => one.name === store.state.run);
    setText(byId('run-name'), summary ? runTitle(summary) : store.state.run || 'no run');
    button.title = store.state.run ?? '';
    fill();
  });
  store.on(['status', 'series', 'link'], () => showStatus(store));
}

/** @param {Store} store */
function showStatus(store) {
  const { status, series, link } = store.state;
  const state = byId('run-state');
  setText(state, link === 'away' ? 'offline' : status ? stateLabel(status.state) : 'connecting');
  state.dataset.state = link === 'away' ? 'away' : status?.state ?? 'none';
  const box = byId('progress-box');
  box.hidden = !status;
  if (!status) return;
  const share = status.budget ? Math.min(1, status.env_steps / status.budget) : status.state === 'finished' ? 1 : 0;
  const bar = byId('progress');
  bar.setAttribute('aria-valuenow', String(Math.round(share * 100)));
  /** @type {HTMLElement} */ (bar.firstElementChild).style.width = `${share * 100}%`;
  bar.classList.toggle('running', status.state === 'running');
  const speed = [...(series.get('steps_per_second')?.values() ?? [])].at(-1);
  const parts = [`${formatCompact(status.env_steps)}${status.budget ? ` of ${formatCompact(status.budget)}` : ''} steps`];
  if (status.state === 'running' && speed) parts.push(`${formatCompact(speed)}/s`);
  else if (status.episodes) parts.push(`${formatCount(status.episodes)} episodes`);
  setText(byId('progress-text'), parts.join(' · '));
}
