/** Which version served when and why: what was decided about each, by the judge or by an operator. */

import { clockTime, lasting } from './decide-time.js';
import { byId, make, svg, write } from './dom.js';
import { count, many, signed } from './format.js';

/**
 * @typedef {import('./decide-types.js').Stats} Stats
 * @typedef {import('./decide-types.js').Chapter} Chapter
 * @typedef {import('./decide-types.js').Estimate} Estimate
 */

const WIDE = 96, HIGH = 16; // of an interval

/** @type {Record<string, string>} */
const WORDS = { promote: 'promoted', roll_back: 'rolled back', pin: 'pinned', unpin: 'unpinned', hold: 'held', refuse: 'refused', noted: 'noted only' };
/** What says nothing of a version. @type {Record<string, string>} */
const SWITCHED = { gate_only: 'The gate decides alone', gate_and_network: 'The network decides again' };

export class VersionsPanel {
  constructor() {
    this.list = make('ul', { class: 'history', id: 'history' });
    this.rows = make('tbody');
    this.summary = make('summary');
    const head = make('tr', {}, ...['version', 'step', 'from', 'made at', 'weights'].map((text) => make('th', { text, scope: 'col' })));
    const wide = matchMedia('(min-width: 1251px)').matches; // then there is room for it beside the last decisions
    this.kept = make('details', { open: wide }, this.summary, make('div', { class: 'ways-table' }, make('table', {}, make('thead', {}, head), this.rows)));
    byId('versions-body').append(this.list, this.kept);
  }

  /** @param {Stats} stats */
  show({ versions, service }) {
    const { serving, pinned, before } = versions;
    write(byId('versions-note'), [serving === null ? 'none serves' : `${serving} serves`, pinned !== null ? 'pinned' : '', before !== null ? `${before} before` : ''].filter(Boolean).join(', '));
    const newest = [...versions.chapters].reverse();
    const scale = Math.max(0.01, ...newest.map(({ estimate }) => widest(estimate)));
    const key = newest.map((one) => `${one.at} ${one.times}`).join();
    if (this.list.dataset.key !== key) {
      this.list.dataset.key = key;
      this.list.replaceChildren(...newest.map((one) => line(one, scale, service.now)));
    }
    const kept = versions.versions.length, damaged = Object.keys(versions.damaged).length;
    write(this.summary, `${many(kept, 'version')} ${kept === 1 ? 'is' : 'are'} kept${damaged ? `, ${count(damaged)} damaged` : ''}`);
    const made = `${versions.versions.map((one) => one.version).join()} ${serving} ${pinned}`;
    if (!this.kept.open || this.rows.dataset.key === made) return;
    this.rows.dataset.key = made;
    this.rows.replaceChildren(...[...versions.versions].reverse().map((one) => make('tr', { 'data-serves': one.version === serving },
      make('td', { text: `${one.version}${one.version === pinned ? ', pinned' : one.version === serving ? ', serves' : ''}` }),
      make('td', { text: count(one.step) }), make('td', { text: one.parent === null ? '–' : String(one.parent) }),
      make('td', { text: clockTime(one.time) }), make('td', {}, make('code', { text: one.digest.slice(0, 8) })))));
  }
}

/** @param {Chapter} chapter @param {number} scale @param {number} now */
function line({ verdict, first, last, times, at, reason, estimate }, scale, now) {
  const about = SWITCHED[verdict] ?? `${first === last ? last : `${first} to ${last}`} ${WORDS[verdict] ?? verdict}`;
  return make('li', { 'data-verdict': verdict },
    make('strong', { text: about }),
    make('small', { text: times > 1 ? `${count(times)} times, last at ${clockTime(at)}` : clockTime(at), title: `${lasting(now - at)} ago` }),
    interval(estimate, scale), make('span', { class: 'why-text', text: reason }));
}

/** @param {Estimate | null} estimate */
const widest = (estimate) => Math.max(...[estimate?.value, estimate?.low, estimate?.high].map((value) => Math.abs(value ?? 0)));

/** The estimated gain over the version before, with its interval; the small mark is no difference. @param {Estimate | null} estimate @param {number} scale */
function interval(estimate, scale) {
  if (!estimate || estimate.value === null) return null;
  /** @param {number} value */
  const x = (value) => (WIDE / 2 + (value / scale) * (WIDE / 2 - 5)).toFixed(1);
  const words = `${signed(estimate.value, 3)}${estimate.low !== null && estimate.high !== null ? ` (${signed(estimate.low, 3)} to ${signed(estimate.high, 3)})` : ''} reward a decision`;
  const picture = svg('svg', { viewBox: `0 0 ${WIDE} ${HIGH}`, width: WIDE, height: HIGH, class: 'interval', role: 'img', 'aria-label': `Estimated gain ${words}` },
    svg('path', { d: `M${WIDE / 2} 2V${HIGH - 2}`, class: 'zero' }));
  if (estimate.low !== null && estimate.high !== null) picture.append(svg('path', { d: `M${x(estimate.low)} ${HIGH / 2}H${x(estimate.high)}`, class: 'span' }));
  picture.append(svg('circle', { cx: x(estimate.value), cy: HIGH / 2, r: 3.2 }));
  const box = make('span', { class: 'interval-box', title: words });
  box.append(picture);
  return box;
}
