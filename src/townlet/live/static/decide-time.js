/** Time as people say it, and the last ten minutes as curves. */

import { Chart } from './chart.js';

/** @typedef {import('./decide-types.js').Curves} Curves */

const MINUTE = 60, HOUR = 3600, DAY = 86400;

/** 40 s, 12 min, 3.5 h or 2.1 days. @param {number} seconds */
export function lasting(seconds) {
  const whole = Math.max(0, seconds);
  if (whole < 1.5 * MINUTE) return `${Math.round(whole)} s`;
  if (whole < 1.5 * HOUR) return `${Math.round(whole / MINUTE)} min`;
  if (whole < 1.5 * DAY) return `${(whole / HOUR).toFixed(1)} h`;
  return `${(whole / DAY).toFixed(1)} days`;
}

/** 14:05:09, by the clock of whoever looks. @param {number} at seconds since 1970 */
export const clockTime = (at) => new Date(at * 1000).toLocaleTimeString('en-GB');

/** Minutes before now, as a place on an axis. @param {number} minutes */
export function ago(minutes) {
  if (Math.abs(minutes) < 0.01) return 'now';
  const seconds = Math.round(minutes * MINUTE);
  return (Math.abs(seconds) < MINUTE ? `${seconds} s` : `${Number((seconds / MINUTE).toFixed(1))} min`).replace('-', '−');
}

/** One curve, or some, of what the service tells about its last ten minutes. */
export class Recently {
  /**
   * @param {string} title @param {{name: string, label: string, colour: string, fill?: boolean, dash?: number[]}[]} lines
   * @param {number} height @param {boolean} [fromZero]
   */
  constructor(title, lines, height, fromZero = true) {
    this.names = lines.map((line) => line.name);
    this.chart = new Chart(title, lines.map((line) => ({ width: 1.6, ...line })), height, fromZero, ago);
    this.box = this.chart.box;
    this.box.hidden = true; // until there are two points
  }

  /** @param {Curves} curves @param {number} now */
  show(curves, now) {
    const places = this.names.map((name) => curves.names.indexOf(name));
    const lines = places.map((place) => curves.rows.filter((row) => row[place] !== null).map((row) => /** @type {[number, number]} */ (
      [Math.min(0, (Number(row[0]) - now) / MINUTE), Number(row[place])])));
    this.box.hidden = lines.every((line) => line.length < 2);
    if (!this.box.hidden) this.chart.set(lines);
  }

  recolour() {
    this.chart.recolour();
  }
}
