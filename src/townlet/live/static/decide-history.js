/** The "Versions" and "Recent decisions" panels: promotion history, stored versions and single decisions. */

import { actionName } from './decide-actions.js';
import { formatDuration, formatTime } from './decide-charts.js';
import { byId, el, setText, svg } from './dom.js';
import { formatCount, formatPercent, formatSigned, humanize, plural } from './format.js';

/**
 * @typedef {import('./decide-types.js').Stats} Stats
 * @typedef {import('./decide-types.js').HistoryEntry} HistoryEntry
 * @typedef {import('./decide-types.js').Estimate} Estimate
 */

const WIDE = 96, HIGH = 16; // pixels of an interval

/** @type {Record<string, string>} */
const WORDS = { promote: 'promoted', roll_back: 'restored by a rollback', pin: 'pinned', unpin: 'unpinned', hold: 'held', refuse: 'refused', noted: 'not applied' };
/** Changes that concern no version. @type {Record<string, string>} */
const SWITCHED = { gate_only: 'The gate decides alone', gate_and_network: 'The network decides again' };

export class VersionsPanel {
  constructor() {
    this.list = el('ul', { class: 'history', id: 'history' });
    this.rows = el('tbody');
    this.summary = el('summary');
    const head = el('tr', {}, ...['version', 'step', 'parent', 'created', 'weights hash'].map((text) => el('th', { text, scope: 'col' })));
    const wide = matchMedia('(min-width: 1251px)').matches; // wide screens have space for the table
    this.stored = el('details', { open: wide }, this.summary, el('div', { class: 'scroll-table' }, el('table', {}, el('thead', {}, head), this.rows)));
    byId('versions-body').append(this.list, this.stored);
  }

  /** @param {Stats} stats */
  show({ versions, service }) {
    const { serving, pinned, before } = versions;
    setText(byId('versions-note'), [serving === null ? 'none serving' : `${serving} serving`, pinned !== null ? 'pinned' : '', before !== null ? `previously ${before}` : ''].filter(Boolean).join(', '));
    const newest = [...versions.history].reverse();
    const scale = Math.max(0.01, ...newest.map(({ estimate }) => maxExtent(estimate)));
    const key = newest.map((one) => `${one.at} ${one.times}`).join();
    if (this.list.dataset.key !== key) {
      this.list.dataset.key = key;
      this.list.replaceChildren(...newest.map((one) => historyItem(one, scale, service.now)));
    }
    const stored = versions.versions.length, damaged = Object.keys(versions.damaged).length;
    setText(this.summary, `${plural(stored, 'version')} stored${damaged ? `, ${formatCount(damaged)} damaged` : ''}`);
    const made = `${versions.versions.map((one) => one.version).join()} ${serving} ${pinned}`;
    if (!this.stored.open || this.rows.dataset.key === made) return;
    this.rows.dataset.key = made;
    this.rows.replaceChildren(...[...versions.versions].reverse().map((one) => el('tr', { 'data-serves': one.version === serving },
      el('td', { text: `${one.version}${one.version === pinned ? ', pinned' : one.version === serving ? ', serving' : ''}` }),
      el('td', { text: formatCount(one.step) }), el('td', { text: one.parent === null ? '–' : String(one.parent) }),
      el('td', { text: formatTime(one.time) }), el('td', {}, el('code', { text: one.digest.slice(0, 8) })))));
  }
}

/** @param {HistoryEntry} entry @param {number} scale @param {number} now */
function historyItem({ verdict, first, last, times, at, reason, estimate }, scale, now) {
  const about = SWITCHED[verdict] ?? `${first === last ? last : `${first} to ${last}`} ${WORDS[verdict] ?? verdict}`;
  return el('li', { 'data-verdict': verdict },
    el('strong', { text: about }),
    el('small', { text: times > 1 ? `${formatCount(times)} times, last at ${formatTime(at)}` : formatTime(at), title: `${formatDuration(now - at)} ago` }),
    interval(estimate, scale), el('span', { class: 'history-reason', text: reason }));
}

/** @param {Estimate | null} estimate */
const maxExtent = (estimate) => Math.max(...[estimate?.value, estimate?.low, estimate?.high].map((value) => Math.abs(value ?? 0)));

/** Estimated gain over the previous version with its interval; the tick marks zero. @param {Estimate | null} estimate @param {number} scale */
function interval(estimate, scale) {
  if (!estimate || estimate.value === null) return null;
  /** @param {number} value */
  const x = (value) => (WIDE / 2 + (value / scale) * (WIDE / 2 - 5)).toFixed(1);
  const label = `${formatSigned(estimate.value, 3)}${estimate.low !== null && estimate.high !== null ? ` (${formatSigned(estimate.low, 3)} to ${formatSigned(estimate.high, 3)})` : ''} reward per decision`;
  const picture = svg('svg', { viewBox: `0 0 ${WIDE} ${HIGH}`, width: WIDE, height: HIGH, class: 'interval', role: 'img', 'aria-label': `Estimated gain ${label}` },
    svg('path', { d: `M${WIDE / 2} 2V${HIGH - 2}`, class: 'zero' }));
  if (estimate.low !== null && estimate.high !== null) picture.append(svg('path', { d: `M${x(estimate.low)} ${HIGH / 2}H${x(estimate.high)}`, class: 'span' }));
  picture.append(svg('circle', { cx: x(estimate.value), cy: HIGH / 2, r: 3.2 }));
  const box = el('span', { class: 'interval-box', title: label });
  box.append(picture);
  return box;
}

/**
 * @typedef {import('./decide-types.js').Decision} Decision
 */

const SHOWN = 14;
const COLUMNS = /** @type {const} */ ({
  number: 'no.', territory: 'territory', action: 'decision', gate: 'gate', reason: 'reason', confidence: 'confidence', expected: 'expected', actual: 'actual', version: 'version', age: 'age',
});

export class RecentPanel {
  constructor() {
    const head = el('tr', {}, ...Object.entries(COLUMNS).map(([key, text]) => el('th', { scope: 'col', 'data-column': key, text })));
    this.body = el('tbody');
    this.none = el('p', { class: 'muted', text: 'No decisions since the service started.' });
    this.table = el('table', { class: 'recent' }, el('thead', {}, head), this.body);
    /** @type {Record<string, HTMLTableCellElement>[]} */
    this.rows = [];
    byId('recent-body').append(this.none, this.table);
  }

  /** @param {Stats} stats */
  show({ decisions, service }) {
    const recent = decisions.recent.slice(-SHOWN).reverse();
    this.none.hidden = recent.length > 0;
    this.table.hidden = !recent.length;
    setText(byId('recent-note'), recent.length ? 'newest first' : '');
    while (this.rows.length < recent.length) this.add();
    recent.forEach((one, k) => {
      const cells = this.rows[k];
      const texts = rowTexts(one, actionName(one.action, decisions.actions), service.now);
      for (const [key, text] of Object.entries(texts)) setText(cells[key], text);
      /** @type {HTMLElement} */ (this.body.children[k]).dataset.send = String(one.send);
      cells.actual.dataset.direction = !one.actual ? '' : one.actual < 0 ? 'down' : 'up';
      cells.territory.title = one.territory;
      cells.action.title = texts.action;
      cells.gate.title = humanize(one.reason);
    });
    [...this.body.children].forEach((row, k) => { /** @type {HTMLElement} */ (row).hidden = k >= recent.length; });
  }

  add() {
    const cells = Object.fromEntries(Object.keys(COLUMNS).map((key) => [key, el('td', { 'data-column': key })]));
    this.rows.push(cells);
    this.body.append(el('tr', {}, ...Object.values(cells)));
  }
}

/** @param {Decision} one @param {string} action @param {number} now @returns {Record<keyof typeof COLUMNS, string>} */
function rowTexts(one, action, now) {
  return {
    number: formatCount(one.number), territory: one.territory, action, gate: one.send ? 'sent' : 'withheld', reason: humanize(one.reason),
    confidence: one.confidence > 0 && one.confidence < 0.01 ? '<1%' : formatPercent(one.confidence), expected: one.expected === null ? 'none' : formatSigned(one.expected),
    actual: one.actual !== null ? formatSigned(one.actual) : one.send ? '…' : '–', version: one.version ? String(one.version) : 'gate',
    age: formatDuration(now - one.at),
  };
}
