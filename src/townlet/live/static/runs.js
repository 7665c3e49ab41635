/** The header: which run, how it stands, how far it is. */

import { byId, make, svg, write } from './dom.js';
import { compact, count, figure, stateInWords } from './format.js';
import { wordsOf } from './kinds.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./types.js').RunLine} RunLine
 */

/** Best first; runs that were never tested last. @param {RunLine[]} runs */
export const ranked = (runs) => [...runs].sort((a, b) => (b.best ?? -Infinity) - (a.best ?? -Infinity));

/** Scores over time, as a small line. @param {number[]} scores */
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
export function showRuns(store, choose) {
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
    // News of the runs come at any moment; whoever is choosing by keyboard stays where they are.
    const active = /** @type {HTMLElement | null} */ (document.activeElement);
    const held = active && list.contains(active) ? active.dataset.run : undefined;
    list.replaceChildren(...ranked(store.known.runs ?? []).map((line) => {
      const chosen = line.name === store.known.run;
      const option = make('button', { type: 'button', role: 'option', 'aria-selected': String(chosen), class: 'run-line' },
        make('span', { class: 'run-line-name' },
          make('strong', { text: line.recipe || line.name }),
          make('small', { text: line.problem || `${compact(line.env_steps)} steps · ${line.name}` })),
        sparkline(line.scores ?? []),
        make('span', { class: 'run-line-score', text: line.best === null ? 'not tested' : `best ${figure(line.best)}` }),
        make('span', { class: 'state', 'data-state': line.state, text: stateInWords(line.state) }));
      option.dataset.run = line.name;
      option.addEventListener('click', () => { show(false); button.focus(); choose(line.name); });
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
    const line = store.known.runs?.find((one) => one.name === store.known.run);
    write(byId('run-name'), line?.recipe || store.known.run || 'no run');
    button.title = store.known.run ?? '';
    fill();
  });
  store.on(['status', 'series', 'link'], () => showStatus(store));
}

/** @param {Store} store */
function showStatus(store) {
  const { status, series, link } = store.known;
  const state = byId('run-state');
  write(state, link === 'away' ? 'offline' : status ? stateInWords(status.state) : 'connecting');
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
  const parts = [`${compact(status.env_steps)}${status.budget ? ` of ${compact(status.budget)}` : ''} steps`];
  if (status.state === 'running' && speed) parts.push(`${compact(speed)}/s`);
  else if (status.episodes) parts.push(`${count(status.episodes)} ${wordsOf(store.known).episodes}`);
  write(byId('progress-text'), parts.join(' · '));
}
