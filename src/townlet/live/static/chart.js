/** A line chart (uPlot) in the colors of the theme. */

import uPlot from './vendor/uplot/uPlot.esm.js';
import { el, setText } from './dom.js';
import { formatCompact, formatNumber } from './format.js';

/**
 * @typedef {{label: string, color: string, dash?: number[], marks?: boolean, fill?: boolean, width?: number}} Line
 * @typedef {[number, number][]} Points
 */

export class Chart {
  /**
   * @param {string} title @param {Line[]} lines @param {number} height @param {boolean} [fromZero]
   * @param {(x: number) => string} [formatX] label of an x value
   */
  constructor(title, lines, height, fromZero = false, formatX = formatCompact) {
    this.lines = lines;
    this.height = height;
    this.fromZero = fromZero;
    this.formatX = formatX;
    this.value = el('span', { class: 'chart-value' });
    this.plotBox = el('div', { class: 'chart-plot' });
    this.title = el('span', { text: title });
    this.box = el('figure', { class: 'chart' },
      el('figcaption', {}, this.title, this.value), this.plotBox);
    /** @type {uPlot | null} */
    this.plot = null;
    /** @type {Points[]} */
    this.points = lines.map(() => []);
    /** @type {uPlot.AlignedData} */
    this.data = [[]];
    new ResizeObserver(() => {
      if (this.plot && this.plotBox.clientWidth > 40) this.plot.setSize({ width: this.plotBox.clientWidth, height: this.height });
      else if (!this.plot) this.draw();
    }).observe(this.plotBox);
  }

  /** Set the title, and whether the y axis starts at 0. @param {string} title @param {boolean} fromZero */
  setTitle(title, fromZero) {
    setText(this.title, title);
    this.fromZero = fromZero;
  }

  /** @param {Points[]} points one list for each line */
  setData(points) {
    this.points = points;
    const xs = [...new Set(points.flatMap((line) => line.map(([x]) => x)))].sort((a, b) => a - b);
    const columns = points.map((line) => {
      const at = new Map(line);
      return xs.map((x) => at.get(x) ?? null);
    });
    this.data = /** @type {uPlot.AlignedData} */ (/** @type {unknown} */ ([xs, ...columns]));
    if (this.plot) this.plot.setData(this.data);
    else this.draw();
    this.showValue(null);
  }

  /** Draw again, in the colors of a new theme. */
  redraw() {
    this.plot?.destroy();
    this.plot = null;
    this.draw();
  }

  draw() {
    if (this.plot || this.plotBox.clientWidth < 40 || !this.data[0].length) return;
    const style = getComputedStyle(this.plotBox);
    /** @param {string} name */
    const color = (name) => style.getPropertyValue(name).trim();
    const axis = {
      stroke: color('--muted'), font: '11px system-ui, sans-serif', size: 34, gap: 3,
      grid: { stroke: color('--line'), width: 1 }, ticks: { show: false },
    };
    this.plot = new uPlot({
      width: this.plotBox.clientWidth,
      height: this.height,
      legend: { show: false },
      padding: [6, 14, 0, 0],
      cursor: { y: false, points: { size: 6 }, drag: { x: false, y: false } },
      scales: { x: { time: false }, y: { range: (_, low, high) => this.range(low, high) } },
      axes: [
        { ...axis, size: 20, grid: { show: false }, space: 56, values: (_, splits) => splits.map(this.formatX) },
        // five digits are wider than the axis
        { ...axis, space: 26, values: (_, splits) => splits.map((v) => (Math.abs(v) >= 1e4 ? formatCompact(v) : formatNumber(v, 2))) },
      ],
      series: [{}, ...this.lines.map((line) => ({
        label: line.label,
        stroke: color(line.color),
        width: line.marks ? 0 : line.width ?? 1.8,
        dash: line.dash,
        spanGaps: true,
        fill: line.fill ? `${color(line.color)}1f` : undefined,
        points: { show: Boolean(line.marks), size: 7, fill: color('--panel'), width: 2, stroke: color(line.color) },
        paths: line.marks ? () => null : undefined,
      }))],
      hooks: { setCursor: [(u) => this.showValue(u.cursor.idx ?? null)] },
    }, this.data, this.plotBox);
  }

  /** @param {number} low @param {number} high @returns {[number, number]} */
  range(low, high) {
    if (low === null || !Number.isFinite(low)) return [0, 1];
    const from = this.fromZero ? Math.min(0, low) : low;
    const room = (high - from) * 0.08 || Math.abs(high) * 0.1 || 1;
    return [this.fromZero && low >= 0 ? 0 : from - room, high + room];
  }

  /** Show the values under the pointer, or the latest. @param {number | null} at */
  showValue(at) {
    const parts = [];
    for (let k = 0; k < this.lines.length; k += 1) {
      if (this.lines[k].dash) continue;
      const column = this.data[k + 1] ?? [];
      const value = at === null || at === undefined ? this.points[k]?.at(-1)?.[1] : column[at];
      if (value !== null && value !== undefined) parts.push(this.lines.length > 1 ? `${this.lines[k].label} ${formatNumber(value)}` : formatNumber(value));
    }
    const x = at === null ? undefined : this.data[0]?.[at];
    setText(this.value, `${x === undefined ? '' : `at ${this.formatX(x)}: `}${parts.join(', ')}`);
  }
}
