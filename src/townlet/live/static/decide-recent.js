/** The last decisions one by one: where, what, whether the gate let it pass, and what came of it. */

import { actionName } from './decide-actions.js';
import { lasting } from './decide-time.js';
import { byId, make, write } from './dom.js';
import { count, percent, signed, spaced } from './format.js';

/**
 * @typedef {import('./decide-types.js').Stats} Stats
 * @typedef {import('./decide-types.js').Decision} Decision
 */

const SHOWN = 14;
const COLUMNS = /** @type {const} */ ({
  number: 'no.', territory: 'territory', action: 'decision', gate: 'gate', reason: 'since', confidence: 'sure', expected: 'expected', actual: 'actual', version: 'version', age: 'age',
});

export class RecentPanel {
  constructor() {
    const head = make('tr', {}, ...Object.entries(COLUMNS).map(([key, text]) => make('th', { scope: 'col', 'data-column': key, text })));
    this.body = make('tbody');
    this.none = make('p', { class: 'quiet', text: 'Nothing was decided since the service began.' });
    this.table = make('table', { class: 'recent' }, make('thead', {}, head), this.body);
    /** @type {Record<string, HTMLTableCellElement>[]} */
    this.rows = [];
    byId('recent-body').append(this.none, this.table);
  }

  /** @param {Stats} stats */
  show({ decisions, service }) {
    const recent = decisions.recent.slice(-SHOWN).reverse();
    this.none.hidden = recent.length > 0;
    this.table.hidden = !recent.length;
    write(byId('recent-note'), recent.length ? 'the newest first' : '');
    while (this.rows.length < recent.length) this.add();
    recent.forEach((one, k) => {
      const cells = this.rows[k];
      const told = inWords(one, actionName(one.action, decisions.actions), service.now);
      for (const [key, text] of Object.entries(told)) write(cells[key], text);
      /** @type {HTMLElement} */ (this.body.children[k]).dataset.send = String(one.send);
      cells.actual.dataset.way = !one.actual ? '' : one.actual < 0 ? 'down' : 'up';
      cells.territory.title = one.territory;
      cells.action.title = told.action;
      cells.gate.title = spaced(one.reason);
    });
    [...this.body.children].forEach((row, k) => { /** @type {HTMLElement} */ (row).hidden = k >= recent.length; });
  }

  add() {
    const cells = Object.fromEntries(Object.keys(COLUMNS).map((key) => [key, make('td', { 'data-column': key })]));
    this.rows.push(cells);
    this.body.append(make('tr', {}, ...Object.values(cells)));
  }
}

/** @param {Decision} one @param {string} action @param {number} now @returns {Record<keyof typeof COLUMNS, string>} */
function inWords(one, action, now) {
  return {
    number: count(one.number), territory: one.territory, action, gate: one.send ? 'sent' : 'waits', reason: spaced(one.reason),
    confidence: one.confidence > 0 && one.confidence < 0.01 ? '<1%' : percent(one.confidence), expected: one.expected === null ? 'none' : signed(one.expected),
    actual: one.actual !== null ? signed(one.actual) : one.send ? '…' : '–', version: one.version ? String(one.version) : 'gate',
    age: lasting(now - one.at),
  };
}
