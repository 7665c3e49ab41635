/** How learning goes: curves, what a person should look at, and what it came to. */

import { Chart } from './chart.js';
import { byId, make, write } from './dom.js';
import { compact, figure, many } from './format.js';
import { kindOf, wordsOf } from './kinds.js';
import { makeStages } from './stages.js';

/** @typedef {import('./state.js').Store} Store */

/** Small curves in order of interest; the first of a group that the run has is drawn. */
/** @type {{names: string[], title: Record<string, string>}[]} */
const SMALL = [
  { names: ['loss', 'policy_loss'], title: { loss: 'Loss', policy_loss: 'Policy loss' } },
  { names: ['epsilon', 'normalized_entropy', 'entropy', 'temperature'], title: { epsilon: 'Random ε', normalized_entropy: 'Entropy', entropy: 'Entropy', temperature: 'Temperature' } },
  { names: ['stage'], title: { stage: 'Stage' } },
  { names: ['intrinsic_weight'], title: { intrinsic_weight: 'Novelty weight' } },
  { names: ['mean_q', 'value_loss'], title: { mean_q: 'Mean value', value_loss: 'Value error' } },
  { names: ['grad_norm', 'approx_kl'], title: { grad_norm: 'Gradient', approx_kl: 'KL per update' } },
  { names: ['steps_per_second'], title: { steps_per_second: 'Steps per second' } },
];

export class LearningPanel {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.told = make('div', { class: 'told', hidden: true });
    this.alerts = make('div', { class: 'alerts' });
    this.smallBox = make('div', { class: 'small-charts' });
    this.waiting = make('p', { class: 'quiet' });
    this.main = new Chart('', [
      { label: 'in training', colour: '--accent', fill: true },
      { label: 'tested', colour: '--second', marks: true },
      { label: 'random agent', colour: '--muted', dash: [5, 4], width: 1.3 },
      { label: 'solved', colour: '--well', dash: [2, 3], width: 1.5 },
    ], Math.round(Math.min(340, Math.max(190, innerHeight * 0.24))), true);
    this.solved = make('li', { class: 'solved', hidden: true });
    this.legend = make('ul', { class: 'legend' }, make('li', { class: 'train', text: 'training' }),
      make('li', { class: 'test', text: 'tested' }), make('li', { class: 'random', text: 'random agent' }), this.solved);
    /** @type {Map<string, Chart>} */
    this.small = new Map();
    byId('learning-body').replaceChildren(this.told, this.waiting, this.main.box, this.legend, this.smallBox, makeStages(store), this.alerts);
    let waits = 0;
    store.on(['series', 'evaluations', 'runs', 'run', 'about'], () => {
      // Figures come in bursts; one picture for all of them is enough.
      clearTimeout(waits);
      waits = setTimeout(() => this.draw(), 60);
    });
    store.on(['theme'], () => { this.main.recolour(); for (const chart of this.small.values()) chart.recolour(); });
    store.on(['about'], () => this.speak());
    store.on(['alerts'], () => this.showAlerts());
    store.on(['status'], () => this.showTold());
  }

  /** In the words of this kind of run, and with the line from which on it counts as solved, where there is one. */
  speak() {
    const { known } = this.store;
    this.main.name(wordsOf(known).curve, kindOf(known) === 'town');
    const threshold = known.about?.threshold ?? null;
    this.solved.hidden = threshold === null;
    write(this.solved, threshold === null ? '' : `solved from ${figure(threshold)} on`);
  }

  draw() {
    const { series, evaluations, runs, run, about } = this.store.known;
    const words = wordsOf(this.store.known);
    const trained = [...(series.get(words.series) ?? [])];
    const tested = evaluations.filter((one) => Number.isFinite(one[words.tested])).map((one) => /** @type {[number, number]} */ ([one.env_steps, one[words.tested]]));
    const xs = [...trained, ...tested].map(([x]) => x);
    /** @param {number | null | undefined} value @returns {[number, number][]} */
    const flat = (value) => (typeof value === 'number' && xs.length ? [[Math.min(...xs), value], [Math.max(...xs), value]] : []);
    this.waiting.hidden = xs.length > 0;
    this.main.box.hidden = this.legend.hidden = !xs.length;
    this.main.set([trained, tested, flat(runs?.find((line) => line.name === run)?.random), flat(about?.threshold)]);
    for (const { names, title } of SMALL) {
      const name = names.find((one) => (series.get(one)?.size ?? 0) > 1);
      const points = name ? [...(series.get(name) ?? [])] : [];
      const tells = name && (name !== 'intrinsic_weight' || points.some(([, v]) => v !== points[0][1]));
      for (const other of names) if (other !== name || !tells) this.drop(other);
      if (!name || !tells) continue;
      if (!this.small.has(name)) {
        const words = title[name];
        const chart = new Chart(words, [{ label: words, colour: '--third', fill: true, width: 1.5 }], innerHeight > 950 ? 120 : 84, name !== 'mean_q');
        this.small.set(name, chart);
        this.smallBox.append(chart.box);
      }
      this.small.get(name)?.set([points]);
    }
  }

  /** @param {string} name */
  drop(name) {
    this.small.get(name)?.box.remove();
    this.small.delete(name);
  }

  showAlerts() {
    // The newest of each kind: an alert that comes back is still the same one.
    const newest = [...new Map(this.store.known.alerts.map((alert) => [alert.name, alert])).values()].reverse();
    const told = newest.map((alert) => make('div', { class: 'alert' },
      make('strong', { text: alert.message }),
      alert.tip ? make('span', { text: alert.tip }) : null,
      make('small', { text: `after ${compact(alert.env_steps)} steps` })));
    const [first, ...rest] = told;
    this.alerts.replaceChildren(...(first ? [first] : []), ...(rest.length
      ? [make('details', {}, make('summary', { text: `${many(rest.length, 'more alert')}` }), ...rest)] : []));
  }

  showTold() {
    const { status } = this.store.known;
    // Sentences about commands are for the terminal; the last ones are the least.
    const told = status && status.state !== 'running' ? status.told.filter((line) => !line.includes('`')) : [];
    this.told.hidden = !told.length;
    const key = told.join('\n');
    if (this.told.dataset.key === key) return;
    this.told.dataset.key = key;
    const chief = told.slice(0, 4), rest = told.slice(4);
    const more = make('details', {}, make('summary', { text: 'More about it' }), ...rest.map((line) => make('p', { text: line })));
    this.told.replaceChildren(...chief.map((line) => make('p', { text: line })), ...(rest.length ? [more] : []));
    write(this.waiting, !status ? '' : status.state === 'running' ? 'The first figures come after some thousand steps.' : 'This run has no figures.');
  }
}
