/** Small charts of the dashboard: number tiles, bars, columns and curves of the last ten minutes. */

import { Chart } from './chart.js';
import { el, setText } from './dom.js';

/** A grid of labeled numbers. */
export class Tiles {
  /** @param {Record<string, string>} names by key, in their order */
  constructor(names) {
    /** @type {Record<string, HTMLElement>} */
    this.values = {};
    this.box = el('dl', { class: 'tiles' });
    for (const [key, name] of Object.entries(names)) {
      this.values[key] = el('dd', { 'data-figure': key, text: '–' });
      this.box.append(el('div', {}, el('dt', { text: name }), this.values[key]));
    }
  }

  /** @param {Record<string, string>} values by key @param {Record<string, boolean>} [warnings] which of them to highlight */
  show(values, warnings = {}) {
    for (const [key, value] of Object.entries(values)) {
      setText(this.values[key], value);
      this.values[key].toggleAttribute('data-worrying', warnings[key] ?? false);
    }
  }
}

/**
 * @typedef {{name: string, share: number, text: string, title?: string, kind?: string}} BarLine
 *   share: from 0 to 1, or from −1 to 1 where bars have two sides
 */

/** Horizontal bars; each name keeps its row so that changes animate. */
export class Bars {
  /** @param {string} title @param {boolean} [signed] whether bars go to both sides of the middle */
  constructor(title, signed = false) {
    this.signed = signed;
    /** @type {Map<string, {line: HTMLElement, bar: HTMLElement, value: HTMLElement}>} */
    this.lines = new Map();
    this.list = el('div', { class: 'bar-list' });
    this.title = el('h3', { text: title });
    this.box = el('div', { class: 'bars' }, this.title, this.list);
  }

  /** Show these bars in this order. @param {BarLine[]} lines */
  show(lines) {
    for (const { name, share, text, title, kind } of lines) {
      const { line, bar, value } = this.lines.get(name) ?? this.add(name);
      const width = Math.min(1, Math.abs(share)) * (this.signed ? 50 : 100);
      bar.style.width = `${width}%`;
      bar.style.left = this.signed ? `${share < 0 ? 50 - width : 50}%` : '0';
      bar.dataset.direction = share < 0 ? 'down' : 'up';
      line.title = title ?? '';
      line.dataset.kind = kind ?? '';
      setText(value, text);
    }
    const names = new Set(lines.map((line) => line.name));
    for (const [name, { line }] of this.lines) line.hidden = !names.has(name);
    const order = lines.flatMap(({ name }) => this.lines.get(name)?.line ?? []);
    if (order.some((line, k) => this.list.children[k] !== line)) this.list.prepend(...order);
    this.box.hidden = !lines.length;
  }

  /** @param {string} name */
  add(name) {
    const bar = el('i'), value = el('b');
    const line = el('div', { class: 'bar-row' }, el('span', { text: name }), el('div', { class: this.signed ? 'bar signed' : 'bar' }, bar), value);
    this.list.append(line);
    const parts = { line, bar, value };
    this.lines.set(name, parts);
    return parts;
  }
}

/** Vertical bars with labels below. */
export class Columns {
  /** @param {string} title @param {string} kind for its color */
  constructor(title, kind) {
    this.title = el('h3', { text: title });
    this.picture = el('div', { class: 'columns', 'data-kind': kind, role: 'img' });
    this.below = el('div', { class: 'columns-below', 'aria-hidden': 'true' });
    this.box = el('div', { class: 'columns-box' }, this.title, this.picture, this.below);
  }

  /**
   * @param {number[]} values @param {string[]} labels below them, one for each or for the first and last
   * @param {(k: number) => string} describe title of a column @param {string} summary for screen readers
   */
  show(values, labels, describe, summary) {
    const most = Math.max(1, ...values);
    while (this.picture.children.length < values.length) this.picture.append(el('i'));
    values.forEach((value, k) => {
      const column = /** @type {HTMLElement} */ (this.picture.children[k]);
      column.style.height = `${value ? Math.max(2, (100 * value) / most) : 0}%`;
      column.title = describe(k);
    });
    this.picture.setAttribute('aria-label', summary);
    if (this.below.dataset.key === labels.join()) return;
    this.below.dataset.key = labels.join();
    this.below.classList.toggle('each', labels.length === values.length);
    this.below.replaceChildren(...labels.map((text) => el('span', { text })));
  }
}

/** @typedef {import('./decide-types.js').Curves} Curves */

const MINUTE = 60, HOUR = 3600, DAY = 86400;

/** 40 s, 12 min, 3.5 h or 2.1 days. @param {number} seconds */
export function formatDuration(seconds) {
  const total = Math.max(0, seconds);
  if (total < 1.5 * MINUTE) return `${Math.round(total)} s`;
  if (total < 1.5 * HOUR) return `${Math.round(total / MINUTE)} min`;
  if (total < 1.5 * DAY) return `${(total / HOUR).toFixed(1)} h`;
  return `${(total / DAY).toFixed(1)} days`;
}

/** 14:05:09 in local time. @param {number} at seconds since 1970 */
export const formatTime = (at) => new Date(at * 1000).toLocaleTimeString('en-GB');

/** Axis label of a time relative to now. @param {number} minutes */
export function formatMinutesAgo(minutes) {
  if (Math.abs(minutes) < 0.01) return 'now';
  const seconds = Math.round(minutes * MINUTE);
  return (Math.abs(seconds) < MINUTE ? `${seconds} s` : `${Number((seconds / MINUTE).toFixed(1))} min`).replace('-', '−');
}

/** Curves of the last ten minutes. */
export class RecentChart {
  /**
   * @param {string} title @param {{name: string, label: string, color: string, fill?: boolean, dash?: number[]}[]} lines
   * @param {number} height @param {boolean} [fromZero]
   */
  constructor(title, lines, height, fromZero = true) {
    this.names = lines.map((line) => line.name);
    this.chart = new Chart(title, lines.map((line) => ({ width: 1.6, ...line })), height, fromZero, formatMinutesAgo);
    this.box = this.chart.box;
    this.box.hidden = true; // until there are two points
  }

  /** @param {Curves} curves @param {number} now */
  show(curves, now) {
    const places = this.names.map((name) => curves.names.indexOf(name));
    const lines = places.map((place) => curves.rows.filter((row) => row[place] !== null).map((row) => /** @type {[number, number]} */ (
      [Math.min(0, (Number(row[0]) - now) / MINUTE), Number(row[place])])));
    this.box.hidden = lines.every((line) => line.length < 2);
    if (!this.box.hidden) this.chart.setData(lines);
  }

  redraw() {
    this.chart.redraw();
  }
}
