/** What was expected of decisions, and what came of them: in time, and one against the other. */

import { Recently } from './decide-time.js';
import { byId, make, svg, write } from './dom.js';
import { count, figure, signed } from './format.js';

/**
 * @typedef {import('./decide-types.js').Stats} Stats
 * @typedef {[number, number, string, number]} Place x, y, anchor and value of a label
 */

const WIDE = 320, HIGH = 200; // of the scatter, in its own units
const LEFT = 34, BELOW = 20;
const OUTCOMES = 500; // that the first and the last mean are of
const NOISE = 0.05; // difference of two such means that chance makes, where it cannot be told from outcomes
const FEW = 4; // different outcomes: dots would lie on each other, so each is moved a little
const ACROSS = 0.7548776662, UP = 0.569840291; // steps that fill a square evenly

export class RewardPanel {
  constructor() {
    this.curve = new Recently('Last 200 outcomes', [
      { name: 'actual', label: 'actual', colour: '--accent', fill: true }, { name: 'expected', label: 'expected', colour: '--second' }], 160, false);
    this.scatter = new Scatter();
    this.ever = make('p', { class: 'quiet', id: 'reward-ever' });
    this.legend = make('ul', { class: 'legend' }, make('li', { class: 'actual', text: 'actual' }), make('li', { class: 'expected', text: 'expected by the gate' }));
    this.better = make('p', { class: 'headline', id: 'better' });
    this.means = make('p', { class: 'quiet', id: 'better-means' });
    byId('reward-body').append(make('div', {}, make('h3', { text: 'Did it get better?' }), this.better, this.means), this.curve.box, this.legend, this.scatter.box, this.ever);
  }

  /** @param {Stats} stats */
  show({ decisions, curves, service, buffer }) {
    this.compare(decisions);
    this.curve.show(curves, service.now);
    this.legend.hidden = this.curve.box.hidden;
    this.scatter.show(decisions.expected_and_actual);
    const { mean_actual: actual, mean_expected: expected } = decisions;
    write(this.ever, actual === null || expected === null ? 'No outcome has come yet.'
      : `Ever: ${figure(actual)} came of ${count(buffer.completed)} decisions in the mean, ${figure(expected)} were expected.`);
  }

  /** The first outcomes ever against the last. @param {Stats['decisions']} decisions */
  compare({ outcomes, actual_first: first, actual_lately: last, expected_and_actual: pairs }) {
    const early = first === null || last === null || outcomes < 2 * OUTCOMES; // before, some would be in both means
    const gain = early ? 0 : last - first, noise = noiseOf(pairs.map(([, actual]) => actual));
    this.better.dataset.way = early || Math.abs(gain) < noise ? '' : gain > 0 ? 'up' : 'down';
    write(this.better, early ? 'Too early to say' : Math.abs(gain) < noise ? `No clear difference, ${signed(gain)}`
      : gain > 0 ? `Better by ${signed(gain)}` : `Worse by ${signed(gain)}`);
    write(this.means, early ? `${count(outcomes)} of ${count(2 * OUTCOMES)} outcomes have come.`
      : `Mean actual reward: ${signed(first)} of the first ${OUTCOMES} outcomes ever → ${signed(last)} of the last ${OUTCOMES}. Chance alone makes ±${noise.toFixed(2)}.`);
  }

  recolour() {
    this.curve.recolour();
  }
}

/** By how much two means of so many outcomes differ by chance, 19 times of 20. @param {number[]} actual */
function noiseOf(actual) {
  if (actual.length < 50) return NOISE;
  const mean = actual.reduce((sum, value) => sum + value, 0) / actual.length;
  const spread = actual.reduce((sum, value) => sum + (value - mean) ** 2, 0) / actual.length;
  return 2 * Math.sqrt((2 * spread) / OUTCOMES);
}

/**
 * A dot for each outcome: to the right what was expected, upwards what came. On the dashed line both are the same; it is
 * no diagonal, since the gate's estimates are close together and outcomes are not.
 */
class Scatter {
  constructor() {
    this.dots = svg('path', { class: 'dots' });
    this.same = svg('line', { class: 'same' });
    this.frame = svg('path', { class: 'frame' });
    this.ticks = svg('g', { class: 'scatter-ticks' });
    this.picture = svg('svg', { viewBox: `0 0 ${WIDE} ${HIGH}`, class: 'scatter', role: 'img' },
      this.frame, this.same, this.dots, this.ticks);
    this.box = make('figure', { class: 'scatter-box' },
      make('figcaption', {}, make('span', { text: 'Actual (upwards) against expected (to the right)' })), this.picture,
      make('p', { class: 'overlay-note', text: 'Dashed: as expected. The two axes have scales of their own.' }));
  }

  /** @param {[number, number][]} pairs of expected and actual */
  show(pairs) {
    this.box.hidden = pairs.length < 2;
    if (this.box.hidden) return;
    const across = rangeOf(pairs.map(([expected]) => expected)), up = rangeOf(pairs.map(([, actual]) => actual));
    /** @param {number} value */
    const x = (value) => LEFT + ((value - across.low) / (across.high - across.low)) * (WIDE - LEFT - 8);
    /** @param {number} value */
    const y = (value) => HIGH - BELOW - ((value - up.low) / (up.high - up.low)) * (HIGH - BELOW - 8);
    // A line of no length with round ends is a dot: all of them are one element.
    const kinds = [...new Set(pairs.map(([, actual]) => actual))].sort((a, b) => a - b), few = kinds.length <= FEW;
    this.dots.setAttribute('d', pairs.map(([expected, actual], k) =>
      `M${(x(expected) + (few ? shift(k, ACROSS) * 5 : 0)).toFixed(1)} ${(y(actual) + (few ? shift(k, UP) * 14 : 0)).toFixed(1)}h0`).join(''));
    this.frame.setAttribute('d', `M${LEFT} 4V${HIGH - BELOW}H${WIDE - 4}`);
    const from = Math.max(across.low, up.low), to = Math.min(across.high, up.high);
    this.same.toggleAttribute('hidden', to <= from);
    if (to > from) for (const [name, value] of Object.entries({ x1: x(from), y1: y(from), x2: x(to), y2: y(to) })) this.same.setAttribute(name, value.toFixed(1));
    this.label([[x(across.low), HIGH - 6, 'start', across.low], [x(across.high), HIGH - 6, 'end', across.high],
      ...(few ? kinds.map((value) => /** @type {Place} */ ([LEFT - 4, y(value) + 4, 'end', value]))
        : /** @type {Place[]} */ ([[LEFT - 4, y(up.low), 'end', up.low], [LEFT - 4, y(up.high) + 6, 'end', up.high]]))]);
    const better = pairs.filter(([expected, actual]) => actual > expected).length;
    this.picture.setAttribute('aria-label', `${better} of the last ${pairs.length} outcomes were better than expected.`);
  }

  /** @param {Place[]} places */
  label(places) {
    while (this.ticks.children.length > places.length) this.ticks.lastChild?.remove();
    while (this.ticks.children.length < places.length) this.ticks.append(svg('text', {}));
    places.forEach(([x, y, anchor, value], k) => {
      const text = this.ticks.children[k];
      text.setAttribute('x', x.toFixed(1));
      text.setAttribute('y', y.toFixed(1));
      text.setAttribute('text-anchor', anchor);
      write(text, figure(value, 2));
    });
  }
}

/** From −1 to 1, evenly spread and the same at every drawing. @param {number} dot @param {number} step */
const shift = (dot, step) => 2 * ((dot * step) % 1) - 1;

/** A little more than what there is, with steady ends. @param {number[]} values */
function rangeOf(values) {
  const low = Math.min(...values), high = Math.max(...values);
  const step = 10 ** Math.floor(Math.log10(Math.max(high - low, 0.02))) / 4;
  return { low: Math.floor(low / step - 0.1) * step, high: Math.ceil(high / step + 0.1) * step };
}
