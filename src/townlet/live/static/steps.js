/** A row for each step: only those in sight are in the page, however long an episode is. */

import { make } from './dom.js';
import { figure, percent } from './format.js';

/** @typedef {import('./film.js').Film} Film */

const HIGH = 27; // pixels of one row
const MORE = 6; // rows above and below those in sight
const HEADS = { values: 'Q', means: 'mean', deviations: '±', probabilities: 'p' };

/**
 * @typedef {object} Column
 * @property {string} head
 * @property {string} title
 * @property {(film: Film, at: number) => string} text
 * @property {(film: Film, at: number) => number} [share] of the cell that is filled
 * @property {(film: Film, at: number) => boolean} [strong]
 */

export class StepTable {
  /** @param {(moment: number) => void} go */
  constructor(go) {
    this.go = go;
    this.head = make('thead');
    this.body = make('tbody');
    this.table = make('table', { class: 'steps-table', 'aria-label': 'Steps of this episode' }, this.head, this.body);
    this.box = make('div', { class: 'steps-box', tabindex: 0, role: 'group', 'aria-label': 'Steps; up and down go through them' }, this.table);
    /** @type {Column[]} */
    this.columns = [];
    /** @type {Film | null} */
    this.film = null;
    this.at = 0;
    this.drawn = '';
    this.box.addEventListener('scroll', () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.box);
    this.body.addEventListener('click', (event) => {
      const row = /** @type {HTMLElement} */ (event.target).closest('tr')?.dataset.step;
      if (row) this.go(Number(row));
    });
    this.box.addEventListener('keydown', (event) => {
      const by = event.key === 'ArrowDown' ? 1 : event.key === 'ArrowUp' ? -1 : event.key === 'PageDown' ? 10 : event.key === 'PageUp' ? -10 : 0;
      if (!by) return;
      event.preventDefault();
      this.go(this.at + by);
    });
  }

  /** @param {Film} film @param {number} at the moment that is shown */
  show(film, at) {
    const fresh = film !== this.film || this.columns.length !== 6 + film.outputsAre.length * (film.about?.actions.length ?? 0) + (film.about?.components.length ?? 0);
    const moved = at !== this.at || fresh;
    this.film = film;
    this.at = at;
    if (fresh) this.prepare(film);
    if (moved) this.follow();
    this.draw();
  }

  /** @param {Film} film */
  prepare(film) {
    this.columns = columnsOf(film);
    this.head.replaceChildren(make('tr', {}, ...this.columns.map(({ head, title }) => make('th', { scope: 'col', title, text: head }))));
    this.drawn = '';
  }

  /** Bring the row of the shown moment into sight. */
  follow() {
    const top = this.at * HIGH, room = this.box.clientHeight - HIGH;
    const { scrollTop } = this.box;
    if (top < scrollTop || top + HIGH > scrollTop + room) this.box.scrollTop = Math.max(0, top - room / 2);
  }

  draw() {
    const { film, box } = this;
    if (!film || !film.about) return;
    const first = Math.max(0, Math.floor(box.scrollTop / HIGH) - MORE);
    const last = Math.min(film.known - 1, Math.ceil((box.scrollTop + box.clientHeight) / HIGH) + MORE);
    const key = [film.path, first, last, film.known, film.over, this.at].join();
    if (key === this.drawn) return;
    this.drawn = key;
    const rows = [];
    for (let at = first; at <= last; at += 1) rows.push(this.row(film, at));
    this.body.replaceChildren(spacer(first * HIGH), ...rows, spacer((film.known - 1 - last) * HIGH));
    this.table.setAttribute('aria-rowcount', String(film.known + 1));
  }

  /** @param {Film} film @param {number} at */
  row(film, at) {
    return make('tr', { 'data-step': at, 'aria-rowindex': at + 2, 'aria-current': at === this.at ? 'true' : null },
      ...this.columns.map(({ text, share, strong }) => {
        const cell = make('td', { text: text(film, at), class: strong?.(film, at) ? 'strong' : null });
        if (share) cell.style.setProperty('--share', `${Math.round(share(film, at) * 100)}%`);
        return cell;
      }));
  }
}

/** @param {number} height */
function spacer(height) {
  const row = make('tr', { class: 'spacer', 'aria-hidden': 'true' }, make('td'));
  row.style.height = `${Math.max(0, height)}px`;
  return row;
}

/** @param {number | null | undefined} value */
const told = (value) => (value === undefined ? '' : value === null ? '–' : figure(value, 4));

/** @param {Film} film @returns {Column[]} */
function columnsOf(film) {
  const about = /** @type {NonNullable<Film['about']>} */ (film.about);
  const likely = film.outputsAre[0] === 'probabilities';
  const outputs = film.outputsAre.flatMap((name) => about.actions.map((action, k) => output(name, action, k, likely)));
  return [
    { head: 'step', title: 'Steps made before; click a row to see its moment', text: (_, at) => String(at) },
    { head: 'action', title: 'What was done here', text: (f, at) => f.did(at) ?? (f.over ? 'end' : '…'), strong: () => true },
    ...outputs,
    { head: 'reward', title: 'What this step paid: the environment’s own reward', text: (f, at) => told(f.rewards[at]) },
    { head: 'return', title: 'All rewards up to this step', text: (f, at) => told(f.returns[at]) },
    { head: 'value', title: 'What the agent expected to win from here on, discounted', text: (f, at) => told(f.values[at]) },
    { head: 'advantage', title: `How much better this step went than expected. ${about.advantage}`, text: (f, at) => told(f.advantages[at]) },
    ...about.components.map((name, k) => ({ head: name, title: `Observation ${name}, as the agent sees it`, text: (/** @type {Film} */ f, /** @type {number} */ at) => told(f.obs[at]?.[k]) })),
  ];
}

/** @param {string} name @param {string} action @param {number} k @param {boolean} likely @returns {Column} */
function output(name, action, k, likely) {
  const head = HEADS[/** @type {'values'} */ (name)] ?? name;
  const titles = { values: `Value of ${action}: what is won from here on if it is done`, means: `Mean of ${action}`, deviations: `Standard deviation of ${action}`, probabilities: `Probability of ${action}` };
  /** @param {Film} f @param {number} at */
  const value = (f, at) => f.outputs[name]?.[at]?.[k];
  return {
    head: `${head} ${action}`, title: titles[/** @type {'values'} */ (name)] ?? head,
    text: (f, at) => (likely && typeof value(f, at) === 'number' ? percent(/** @type {number} */ (value(f, at))) : told(value(f, at))),
    share: likely ? (f, at) => value(f, at) ?? 0 : undefined,
    strong: (f, at) => f.about?.chosen === 'one' && f.actions[at]?.[0] === k,
  };
}
