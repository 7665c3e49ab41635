/** The "This step" panel: action values or probabilities, reward, value, advantage and observation. */

import { el, setText } from './dom.js';
import { ObservationNumbers } from './observation-numbers.js';
import { formatNumber, formatPercent } from './format.js';

/** @typedef {import('./gym-episode.js').GymEpisode} GymEpisode */

const TITLES = { values: 'Value of each action', probabilities: 'Probability of each action', means: 'Action (mean ± standard deviation)' };
const MANY_ACTIONS = 8;

/** With an explicit sign. @param {number} value */
const signed = (value) => `${value > 0 ? '+' : ''}${formatNumber(value, 4)}`;

export class StepPanel {
  constructor() {
    this.title = el('h3', { text: 'Actions' });
    this.list = el('div', { class: 'actions' });
    this.end = el('p', { class: 'explanation', hidden: true });
    /** @type {Record<string, HTMLElement>} */
    this.facts = Object.fromEntries(['reward', 'return', 'value', 'advantage'].map((name) => [name, el('b', { text: '–' })]));
    this.observation = new ObservationNumbers(formatValue);
    this.box = el('div', { class: 'step-details' },
      el('dl', { class: 'step-metrics' }, ...Object.entries(this.facts).map(([name, value]) => el('div', {}, el('dt', { text: name }), el('dd', {}, value)))),
      el('div', { class: 'action-scores' }, this.title, this.list, this.end), ...this.observation.boxes);
    /** @type {{row: HTMLElement, bar: HTMLElement, text: HTMLElement}[]} */
    this.actions = [];
    this.prepared = '';
  }

  /** @param {GymEpisode} episode */
  prepare(episode) {
    const about = episode.about;
    if (!about || this.prepared === episode.path) return;
    this.prepared = episode.path;
    this.list.classList.toggle('compact', about.actions.length > MANY_ACTIONS);
    this.actions = about.actions.map((name) => {
      const bar = el('i'), text = el('b');
      return { bar, text, row: el('div', { class: 'action' }, el('span', { class: 'action-name', text: name }), el('div', { class: 'bar' }, bar), text) };
    });
    this.list.replaceChildren(...this.actions.map(({ row }) => row));
    this.observation.prepare(about);
  }

  /** @param {GymEpisode} episode @param {number} at */
  show(episode, at) {
    this.prepare(episode);
    const { reward, return: episodeReturn, value, advantage } = this.facts;
    const last = at >= episode.steps;
    setText(reward, last ? '–' : formatValue(episode.rewards[at], signed));
    setText(episodeReturn, formatValue(episode.returns[Math.min(at, episode.steps - 1)]));
    setText(value, formatValue(episode.values[at]));
    setText(advantage, last ? '–' : formatValue(episode.advantages[at], signed));
    this.end.hidden = !(last && episode.over);
    this.title.hidden = this.list.hidden = last && episode.over;
    setText(this.end, episode.endText);
    this.observation.show(episode, at);
    this.showActions(episode, at);
  }

  /** @param {GymEpisode} episode @param {number} at */
  showActions(episode, at) {
    const [name, second] = episode.outputKinds; // the second kind, if any: standard deviations
    setText(this.title, TITLES[/** @type {'values'} */ (name)] ?? 'Actions');
    const values = episode.outputs[name]?.[at] ?? [], deviations = second ? episode.outputs[second]?.[at] ?? [] : [];
    const known = values.filter((one) => one !== null);
    const low = Math.min(...known), high = Math.max(...known);
    const action = episode.actions[at];
    this.actions.forEach(({ row, bar, text }, k) => {
      const value = values[k];
      const chosen = episode.about?.discrete ? action?.[0] === k : name === 'probabilities' && action?.[k] === 1;
      row.classList.toggle('chosen', Boolean(chosen));
      row.classList.toggle('numeric', name === 'means');
      let share = 0, label = formatValue(value);
      if (name === 'means') {
        label = `${formatValue(action?.[k])} (${formatValue(value)} ± ${formatValue(deviations[k])})`;
      } else if (typeof value === 'number' && name === 'probabilities') {
        share = value;
        label = formatPercent(value);
      } else if (typeof value === 'number') {
        share = high > low ? 0.06 + (0.94 * (value - low)) / (high - low) : 1;
      }
      bar.style.width = `${share * 100}%`;
      setText(text, value === undefined ? '' : label);
    });
  }
}

/** @param {number | null | undefined} value @param {(value: number) => string} [as] */
const formatValue = (value, as = (one) => formatNumber(one, 4)) => (typeof value === 'number' ? as(value) : '–');
