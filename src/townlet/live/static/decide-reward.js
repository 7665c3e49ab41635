/** What was expected of decisions, and what came of them: in time, and one against the other. */

import { Recently } from './decide-time.js';
import { byId, make, svg, write } from './dom.js';
import { count, figure } from './format.js';

/** @typedef {import('./decide-types.js').Stats} Stats */

const WIDE = 320, HIGH = 200; // of the scatter, in its own units
const LEFT = 34, BELOW = 20;

export class RewardPanel {
  constructor() {
    this.curve = new Recently('Last 200 outcomes', [
      { name: 'actual', label: 'actual', colour: '--accent', fill: true }, { name: 'expected', label: 'expected', colour: '--second' }], 160, false);
    this.scatter = new Scatter();
    this.ever = make('p', { class: 'quiet', id: 'reward-ever' });
    this.legend = make('ul', { class: 'legend' }, make('li', { class: 'actual', text: 'actual' }), make('li', { class: 'expected', text: 'expected by the gate' }));
    byId('reward-body').append(this.curve.box, this.legend, this.scatter.box, this.ever);
  }

  /** @param {Stats} stats */
  show({ decisions, curves, service, buffer }) {
    this.curve.show(curves, service.now);
    this.legend.hidden = this.curve.box.hidden;
    this.scatter.show(decisions.expected_and_actual);
    const { mean_actual: actual, mean_expected: expected } = decisions;
    write(this.ever, actual === null || expected === null ? 'No outcome has come yet.'
      : `Ever: ${figure(actual)} came of ${count(buffer.completed)} decisions in the mean, ${figure(expected)} were expected.`);
  }

  recolour() {
    this.curve.recolour();
  }
}

/** A dot for each outcome: to the right what was expected, upwards what came. On the dashed line both are the same. */
class Scatter {
  constructor() {
    this.dots = svg('path', { class: 'dots' });
    this.same = svg('line', { class: 'same' });
    this.frame = svg('path', { class: 'frame' });
    this.ticks = svg('g', { class: 'scatter-ticks' });
    this.picture = svg('svg', { viewBox: `0 0 ${WIDE} ${HIGH}`, class: 'scatter', role: 'img' },
      this.frame, this.same, this.dots, this.ticks);
    this.box = make('figure', { class: 'scatter-box' },
      make('figcaption', {}, make('span', { text: 'Actual (upwards) against expected' })), this.picture);
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
    this.dots.setAttribute('d', pairs.map(([expected, actual]) => `M${x(expected).toFixed(1)} ${y(actual).toFixed(1)}h0`).join(''));
    this.frame.setAttribute('d', `M${LEFT} 4V${HIGH - BELOW}H${WIDE - 4}`);
    const from = Math.max(across.low, up.low), to = Math.min(across.high, up.high);
    this.same.toggleAttribute('hidden', to <= from);
    if (to > from) for (const [name, value] of Object.entries({ x1: x(from), y1: y(from), x2: x(to), y2: y(to) })) this.same.setAttribute(name, value.toFixed(1));
    this.label([[x(across.low), HIGH - 6, 'start', across.low], [x(across.high), HIGH - 6, 'end', across.high],
      [LEFT - 4, y(up.low), 'end', up.low], [LEFT - 4, y(up.high) + 6, 'end', up.high]]);
    const better = pairs.filter(([expected, actual]) => actual > expected).length;
    this.picture.setAttribute('aria-label', `${better} of the last ${pairs.length} outcomes were better than expected.`);
  }

  /** @param {[number, number, string, number][]} places x, y, anchor, value */
  label(places) {
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

/** A little more than what there is, with steady ends. @param {number[]} values */
function rangeOf(values) {
  const low = Math.min(...values), high = Math.max(...values);
  const step = 10 ** Math.floor(Math.log10(Math.max(high - low, 0.02))) / 4;
  return { low: Math.floor(low / step - 0.1) * step, high: Math.ceil(high / step + 0.1) * step };
}
