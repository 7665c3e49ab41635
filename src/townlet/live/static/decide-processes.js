/** The "Processes" panel: all processes of a service that stores in a database. */

import { formatDuration } from './decide-charts.js';
import { byId, el, setText } from './dom.js';
import { formatCount, formatNumber } from './format.js';

/**
 * @typedef {import('./decide-types.js').Stats} Stats
 * @typedef {import('./decide-types.js').Process} Process
 */

const SILENT = 5; // seconds without a report after which a process is marked
const COLUMNS = /** @type {const} */ ({
  name: 'process', role: 'role', leader: 'learner', version: 'version served', rate: 'decisions/s', lag: 'lag', seen: 'last report',
});

export class ProcessesPanel {
  constructor() {
    const head = el('tr', {}, ...Object.entries(COLUMNS).map(([key, text]) => el('th', { scope: 'col', 'data-column': key, text })));
    this.body = el('tbody');
    byId('processes-body').append(el('div', { class: 'scroll-table' }, el('table', {}, el('thead', {}, head), this.body)));
    /** @type {Map<string, Record<string, HTMLTableCellElement>>} */
    this.rows = new Map();
  }

  /** @param {Stats} stats */
  show({ processes }) {
    byId('processes').hidden = !processes.length;
    setText(byId('processes-note'), processes.length ? processes.length === 1 ? '1 process' : `${formatCount(processes.length)} processes` : '');
    const ids = new Set(processes.map(({ id }) => id));
    for (const id of this.rows.keys()) if (!ids.has(id)) this.remove(id);
    for (const one of processes) {
      const cells = this.rows.get(one.id) ?? this.add(one.id);
      for (const [key, text] of Object.entries(rowTexts(one))) setText(cells[key], text);
      const row = /** @type {HTMLElement} */ (cells.name.parentElement);
      row.dataset.leader = String(one.learns);
      row.dataset.silent = String(one.seen_seconds_ago > SILENT);
      cells.name.title = one.host;
    }
  }

  /** @param {string} id */
  add(id) {
    const cells = Object.fromEntries(Object.keys(COLUMNS).map((key) => [key, el('td', { 'data-column': key })]));
    this.rows.set(id, cells);
    this.body.append(el('tr', { 'data-process': id }, ...Object.values(cells)));
    return cells;
  }

  /** @param {string} id */
  remove(id) {
    this.rows.get(id)?.name.parentElement?.remove();
    this.rows.delete(id);
  }
}

/** @param {Process} one @returns {Record<keyof typeof COLUMNS, string>} */
function rowTexts({ id, role, learns, version, per_second: rate, lag_ms: delay, lag_events: events, seen_seconds_ago: seen }) {
  let lag = delay === null ? '–' : `${formatNumber(delay, 2)} ms`;
  if (events !== null) lag = events ? `${formatCount(events)} events, ${lag}` : 'none';
  return {
    name: id, role, leader: learns ? 'leader' : role === 'decide' ? '–' : 'standby', version: version ? String(version) : 'none',
    rate: formatNumber(rate, 2), lag, seen: seen < 2 ? 'now' : `${formatDuration(seen)} ago`,
  };
}
