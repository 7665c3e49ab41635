/** The "Reward" panel: expected and actual reward over time and against each other. */

import { RecentChart } from './decide-charts.js';
import { byId, el, svg, setText } from './dom.js';
import { formatCount, formatNumber, formatSigned } from './format.js';

/**
 * @typedef {import('./decide-types.js').Stats} Stats
 * @typedef {[number, number, string, number]} Label x, y, anchor, value
 */

const WIDE = 320, HIGH = 200; // viewBox of the scatter plot
const LEFT = 34, BELOW = 20;
const OUTCOMES = 500; // number of outcomes in each of the two compared means
const NOISE = 0.05; // assumed noise of the difference while there are few outcomes
const FEW_OUTCOMES = 4; // dots are jittered if there are at most this many distinct outcomes
const ACROSS = 0.7548776662, UP = 0.569840291; // low-discrepancy steps for jitter

export class RewardPanel {
  constructor() {
    this.curve = new RecentChart('Moving average over 200 outcomes', [
      { name: 'actual', label: 'actual', color: '--accent', fill: true }, { name: 'expected', label: 'expected', color: '--second' }], 160, false);
    this.scatter = new Scatter();
    this.ever = el('p', { class: 'muted', id: 'reward-ever' });
    this.legend = el('ul', { class: 'legend' }, el('li', { class: 'actual', text: 'actual' }), el('li', { class: 'expected', text: 'expected by the gate' }));
    this.better = el('p', { class: 'headline', id: 'improvement' });
    this.means = el('p', { class: 'muted', id: 'improvement-means' });
    byId('reward-body').append(el('div', {}, el('h3', { text: 'Improvement' }), this.better, this.means), this.curve.box, this.legend, this.scatter.box, this.ever);
  }

  /** @param {Stats} stats */
  show({ decisions, curves, service, buffer }) {
    this.compare(decisions);
    this.curve.show(curves, service.now);
    const estimated = decisions.mean_expected !== null;
    this.legend.hidden = this.curve.box.hidden || !estimated;
    this.scatter.show(estimated ? decisions.expected_and_actual : []);
    const { mean_actual: actual, mean_expected: expected } = decisions;
    setText(this.ever, actual === null ? 'No outcomes yet.'
      : `Mean over all ${formatCount(buffer.completed)} outcomes: ${formatNumber(actual)} actual${expected === null ? '' : `, ${formatNumber(expected)} expected`}.`);
  }

  /** Compare the first outcomes with the latest. @param {Stats['decisions']} decisions */
  compare({ outcomes, actual_first: first, actual_recent: last, expected_and_actual: pairs }) {
    const early = first === null || last === null || outcomes < 2 * OUTCOMES; // with fewer, the two means overlap
    const gain = early ? 0 : last - first, noise = chanceDifference(pairs.map(([, actual]) => actual));
    let direction = '', headline = `No clear difference, ${formatSigned(gain)}`;
    if (early) headline = 'Too early to say';
    else if (gain > noise) [direction, headline] = ['up', `Better by ${formatNumber(gain)}`];
    else if (-gain > noise) [direction, headline] = ['down', `Worse by ${formatNumber(-gain)}`];
    this.better.dataset.direction = direction;
    setText(this.better, headline);
    setText(this.means, early ? `${formatCount(outcomes)} of ${formatCount(2 * OUTCOMES)} outcomes so far.`
      : `Mean actual reward: ${formatSigned(first)} for the first ${OUTCOMES} outcomes → ${formatSigned(last)} for the last ${OUTCOMES}. Noise: ±${noise.toFixed(2)}.`);
  }

  redraw() {
    this.curve.redraw();
  }
}

/** 95% bound on the difference between two means by chance. @param {number[]} actual */
function chanceDifference(actual) {
  if (actual.length < 50) return NOISE;
  const mean = actual.reduce((sum, value) => sum + value, 0) / actual.length;
  const spread = actual.reduce((sum, value) => sum + (value - mean) ** 2, 0) / actual.length;
  return 2 * Math.sqrt((2 * spread) / OUTCOMES);
}

/**
 * Scatter plot of actual (y) against expected (x) reward. The dashed line marks equality; the axes have separate scales
 * because the gate's estimates vary less than outcomes.
 */
class Scatter {
  constructor() {
    this.dots = svg('path', { class: 'dots' });
    this.same = svg('line', { class: 'same' });
    this.frame = svg('path', { class: 'frame' });
    this.ticks = svg('g', { class: 'scatter-ticks' });
    this.picture = svg('svg', { viewBox: `0 0 ${WIDE} ${HIGH}`, class: 'scatter', role: 'img' },
      this.frame, this.same, this.dots, this.ticks);
    this.box = el('figure', { class: 'scatter-box' },
      el('figcaption', {}, el('span', { text: 'Actual (y) against expected (x)' })), this.picture,
      el('p', { class: 'overlay-note', text: 'Dashed: actual = expected. The axes have different scales.' }));
  }

  /** @param {[number, number][]} pairs of expected and actual */
  show(pairs) {
    this.box.hidden = pairs.length < 2;
    if (this.box.hidden) return;
    const across = axisRange(pairs.map(([expected]) => expected)), up = axisRange(pairs.map(([, actual]) => actual));
    /** @param {number} value */
    const x = (value) => LEFT + ((value - across.low) / (across.high - across.low)) * (WIDE - LEFT - 8);
    /** @param {number} value */
    const y = (value) => HIGH - BELOW - ((value - up.low) / (up.high - up.low)) * (HIGH - BELOW - 8);
    // Zero-length lines with round caps draw all dots as one element.
    const kinds = [...new Set(pairs.map(([, actual]) => actual))].sort((a, b) => a - b), few = kinds.length <= FEW_OUTCOMES;
    this.dots.setAttribute('d', pairs.map(([expected, actual], k) =>
      `M${(x(expected) + (few ? jitter(k, ACROSS) * 5 : 0)).toFixed(1)} ${(y(actual) + (few ? jitter(k, UP) * 14 : 0)).toFixed(1)}h0`).join(''));
    this.frame.setAttribute('d', `M${LEFT} 4V${HIGH - BELOW}H${WIDE - 4}`);
    const from = Math.max(across.low, up.low), to = Math.min(across.high, up.high);
    this.same.toggleAttribute('hidden', to <= from);
    if (to > from) for (const [name, value] of Object.entries({ x1: x(from), y1: y(from), x2: x(to), y2: y(to) })) this.same.setAttribute(name, value.toFixed(1));
    this.label([[x(across.low), HIGH - 6, 'start', across.low], [x(across.high), HIGH - 6, 'end', across.high],
      ...(few ? kinds.map((value) => /** @type {Label} */ ([LEFT - 4, y(value) + 4, 'end', value]))
        : /** @type {Label[]} */ ([[LEFT - 4, y(up.low), 'end', up.low], [LEFT - 4, y(up.high) + 6, 'end', up.high]]))]);
    const better = pairs.filter(([expected, actual]) => actual > expected).length;
    this.picture.setAttribute('aria-label', `${better} of the last ${pairs.length} outcomes were better than expected.`);
  }

  /** @param {Label[]} places */
  label(places) {
    while (this.ticks.children.length > places.length) this.ticks.lastChild?.remove();
    while (this.ticks.children.length < places.length) this.ticks.append(svg('text', {}));
    places.forEach(([x, y, anchor, value], k) => {
      const text = this.ticks.children[k];
      text.setAttribute('x', x.toFixed(1));
      text.setAttribute('y', y.toFixed(1));
      text.setAttribute('text-anchor', anchor);
      setText(text, formatNumber(value, 2));
    });
  }
}

/** Deterministic offset in −1 … 1. @param {number} dot @param {number} step */
const jitter = (dot, step) => 2 * ((dot * step) % 1) - 1;

/** Axis limits around the values, rounded so that they rarely change. @param {number[]} values */
function axisRange(values) {
  const low = Math.min(...values), high = Math.max(...values);
  const step = 10 ** Math.floor(Math.log10(Math.max(high - low, 0.02))) / 4;
  return { low: Math.floor(low / step - 0.1) * step, high: Math.ceil(high / step + 0.1) * step };
}
