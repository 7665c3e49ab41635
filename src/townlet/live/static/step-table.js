/** The step table: virtualized, only visible rows are in the DOM. */

import { el } from './dom.js';
import { formatNumber, formatPercent } from './format.js';

/** @typedef {import('./gym-episode.js').GymEpisode} GymEpisode */

const ROW_HEIGHT = 27; // pixels
const OVERSCAN = 6; // rows above and below the visible ones
const OUTPUT_HEADS = { values: 'Q', means: 'mean', stds: '±', probabilities: 'p' };

/**
 * @typedef {object} Column
 * @property {string} head
 * @property {string} title
 * @property {(episode: GymEpisode, at: number) => string} text
 * @property {(episode: GymEpisode, at: number) => number} [share] filled fraction of the cell
 * @property {(episode: GymEpisode, at: number) => boolean} [strong]
 */

export class StepTable {
  /** @param {(timestep: number) => void} onSelect called with the timestep of a chosen row */
  constructor(onSelect) {
    this.onSelect = onSelect;
    this.head = el('thead');
    this.body = el('tbody');
    this.table = el('table', { class: 'step-table', 'aria-label': 'Steps of this episode' }, this.head, this.body);
    this.box = el('div', { class: 'step-table-box', tabindex: 0, role: 'group', 'aria-label': 'Steps; use the up and down keys' }, this.table);
    /** @type {Column[]} */
    this.columns = [];
    /** @type {GymEpisode | null} */
    this.episode = null;
    this.at = 0;
    this.drawn = '';
    this.box.addEventListener('scroll', () => this.draw());
    new ResizeObserver(() => this.draw()).observe(this.box);
    this.body.addEventListener('click', (event) => {
      // While an episode plays, the row under the pointer may be replaced during the click, which then targets the body.
      const row = document.elementFromPoint(event.clientX, event.clientY)?.closest('tr')?.dataset.step;
      if (row) this.onSelect(Number(row));
    });
    this.box.addEventListener('keydown', (event) => {
      const by = new Map([['ArrowDown', 1], ['ArrowUp', -1], ['PageDown', 10], ['PageUp', -10]]).get(event.key);
      if (!by) return;
      event.preventDefault();
      this.onSelect(this.at + by);
    });
  }

  /** @param {GymEpisode} episode @param {number} at current timestep */
  show(episode, at) {
    const fresh = episode !== this.episode || this.columns.length !== 6 + episode.outputKinds.length * (episode.about?.actions.length ?? 0) + (episode.about?.columns.length ?? 0);
    const moved = at !== this.at || fresh;
    this.episode = episode;
    this.at = at;
    if (fresh) this.prepare(episode);
    if (moved) this.follow();
    this.draw();
  }

  /** @param {GymEpisode} episode */
  prepare(episode) {
    this.columns = columnsFor(episode);
    this.head.replaceChildren(el('tr', {}, ...this.columns.map(({ head, title }) => el('th', { scope: 'col', title, text: head }))));
    this.drawn = '';
  }

  /** Scroll to the current row. */
  follow() {
    const top = this.at * ROW_HEIGHT, room = this.box.clientHeight - ROW_HEIGHT;
    const { scrollTop } = this.box;
    if (top < scrollTop || top + ROW_HEIGHT > scrollTop + room) this.box.scrollTop = Math.max(0, top - room / 2);
  }

  draw() {
    const { episode, box } = this;
    if (!episode || !episode.about) return;
    const first = Math.max(0, Math.floor(box.scrollTop / ROW_HEIGHT) - OVERSCAN);
    const last = Math.min(episode.known - 1, Math.ceil((box.scrollTop + box.clientHeight) / ROW_HEIGHT) + OVERSCAN);
    const key = [episode.path, first, last, episode.known, episode.over, this.at].join();
    if (key === this.drawn) return;
    this.drawn = key;
    const rows = [];
    for (let at = first; at <= last; at += 1) rows.push(this.row(episode, at));
    this.body.replaceChildren(spacer(first * ROW_HEIGHT), ...rows, spacer((episode.known - 1 - last) * ROW_HEIGHT));
    this.table.setAttribute('aria-rowcount', String(episode.known + 1));
  }

  /** @param {GymEpisode} episode @param {number} at */
  row(episode, at) {
    return el('tr', { 'data-step': at, 'aria-rowindex': at + 2, 'aria-current': at === this.at ? 'true' : null },
      ...this.columns.map(({ text, share, strong }) => {
        const cell = el('td', { text: text(episode, at), class: strong?.(episode, at) ? 'strong' : null });
        if (share) cell.style.setProperty('--share', `${Math.round(share(episode, at) * 100)}%`);
        return cell;
      }));
  }
}

/** @param {number} height */
function spacer(height) {
  const row = el('tr', { class: 'spacer', 'aria-hidden': 'true' }, el('td'));
  row.style.height = `${Math.max(0, height)}px`;
  return row;
}

/** @param {number | null | undefined} value */
const formatValue = (value) => (value === undefined ? '' : value === null ? '–' : formatNumber(value, 4));

/** @param {GymEpisode} episode @returns {Column[]} */
function columnsFor(episode) {
  const about = /** @type {NonNullable<GymEpisode['about']>} */ (episode.about);
  const asPercent = episode.outputKinds[0] === 'probabilities';
  const outputs = episode.outputKinds.flatMap((name) => about.actions.map((action, k) => outputColumn(name, action, k, asPercent)));
  return [
    { head: 'step', title: 'Step number; click a row to show it', text: (_, at) => String(at) },
    { head: 'action', title: 'Action taken', text: (f, at) => f.actionText(at) ?? (f.over ? 'end' : '…'), strong: () => true },
    ...outputs,
    { head: 'reward', title: 'Reward of this step from the environment', text: (f, at) => formatValue(f.rewards[at]) },
    { head: 'return', title: 'Sum of rewards up to this step', text: (f, at) => formatValue(f.returns[at]) },
    { head: 'value', title: 'Expected discounted return from here', text: (f, at) => formatValue(f.values[at]) },
    { head: 'advantage', title: `How much better this step was than expected. ${about.advantage}`, text: (f, at) => formatValue(f.advantages[at]) },
    ...about.columns.map((name, k) => ({ head: name, title: `Observation ${name}`, text: (/** @type {GymEpisode} */ f, /** @type {number} */ at) => formatValue(f.obs[at]?.[k]) })),
  ];
}

/** @param {string} name @param {string} action @param {number} k @param {boolean} asPercent @returns {Column} */
function outputColumn(name, action, k, asPercent) {
  const head = OUTPUT_HEADS[/** @type {'values'} */ (name)] ?? name;
  const titles = { values: `Value of ${action}: expected return if it is taken`, means: `Mean of ${action}`, stds: `Standard deviation of ${action}`, probabilities: `Probability of ${action}` };
  /** @param {GymEpisode} f @param {number} at */
  const value = (f, at) => f.outputs[name]?.[at]?.[k];
  return {
    head: `${head} ${action}`, title: titles[/** @type {'values'} */ (name)] ?? head,
    text: (f, at) => (asPercent && typeof value(f, at) === 'number' ? formatPercent(/** @type {number} */ (value(f, at))) : formatValue(value(f, at))),
    share: asPercent ? (f, at) => value(f, at) ?? 0 : undefined,
    strong: (f, at) => Boolean(f.about?.discrete) && f.actions[at]?.[0] === k,
  };
}
