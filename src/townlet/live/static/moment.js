/** One step of an episode: what the agent thought of each action, and what came of the one it took. */

import { make, write } from './dom.js';
import { figure, percent } from './format.js';

/** @typedef {import('./film.js').Film} Film */

const TITLES = { values: 'Worth of each action', probabilities: 'Chance of each action', means: 'Action, mean ± deviation' };
const MANY = 8;

/** With its sign. @param {number} value */
const signed = (value) => `${value > 0 ? '+' : ''}${figure(value, 4)}`;

export class MomentPanel {
  constructor() {
    this.title = make('h3', { text: 'Actions' });
    this.list = make('div', { class: 'actions' });
    this.end = make('p', { class: 'why', hidden: true });
    /** @type {Record<string, HTMLElement>} */
    this.facts = Object.fromEntries(['reward', 'return', 'value', 'advantage'].map((name) => [name, make('b', { text: '–' })]));
    this.seen = make('div', { class: 'components' });
    this.seenTitle = make('h3', { text: 'Observation' });
    this.box = make('div', { class: 'moment' },
      make('dl', { class: 'facts' }, ...Object.entries(this.facts).map(([name, value]) => make('div', {}, make('dt', { text: name }), make('dd', {}, value)))),
      make('div', { class: 'thoughts' }, this.title, this.list, this.end), this.seenTitle, this.seen);
    /** @type {{row: HTMLElement, bar: HTMLElement, text: HTMLElement}[]} */
    this.actions = [];
    /** @type {HTMLElement[]} */
    this.numbers = [];
    this.prepared = '';
  }

  /** @param {Film} film */
  prepare(film) {
    const about = film.about;
    if (!about || this.prepared === film.path) return;
    this.prepared = film.path;
    this.list.classList.toggle('many', about.actions.length > MANY);
    this.actions = about.actions.map((name) => {
      const bar = make('i'), text = make('b');
      return { bar, text, row: make('div', { class: 'action' }, make('span', { class: 'action-name', text: name }), make('div', { class: 'bar' }, bar), text) };
    });
    this.list.replaceChildren(...this.actions.map(({ row }) => row));
    this.numbers = about.components.map(() => make('b'));
    this.seenTitle.hidden = !about.components.length;
    this.seen.replaceChildren(...about.components.map((name, k) => make('div', {}, make('span', { text: name }), this.numbers[k])),
      ...(about.more ? [make('p', { class: 'quiet', text: `${about.more} more are in the table that you can save.` })] : []));
  }

  /** @param {Film} film @param {number} at */
  show(film, at) {
    this.prepare(film);
    const { reward, return: won, value, advantage } = this.facts;
    const last = at >= film.steps;
    write(reward, last ? '–' : told(film.rewards[at], signed));
    write(won, told(film.returns[Math.min(at, film.steps - 1)]));
    write(value, told(film.values[at]));
    write(advantage, last ? '–' : told(film.advantages[at], signed));
    this.end.hidden = !(last && film.over);
    this.title.hidden = this.list.hidden = last && film.over;
    write(this.end, film.end);
    this.numbers.forEach((number, k) => write(number, told(film.obs[at]?.[k])));
    this.showActions(film, at);
  }

  /** @param {Film} film @param {number} at */
  showActions(film, at) {
    const [name, beside] = film.outputsAre;
    write(this.title, TITLES[/** @type {'values'} */ (name)] ?? 'Actions');
    const values = film.outputs[name]?.[at] ?? [], deviations = beside ? film.outputs[beside]?.[at] ?? [] : [];
    const known = values.filter((one) => one !== null);
    const low = Math.min(...known), high = Math.max(...known);
    this.actions.forEach(({ row, bar, text }, k) => {
      const value = values[k], done = film.actions[at];
      const chosen = film.about?.chosen === 'one' ? done?.[0] === k : name === 'probabilities' && done?.[k] === 1;
      row.classList.toggle('chosen', Boolean(chosen));
      const numbers = name === 'means';
      const share = typeof value !== 'number' ? 0 : name === 'probabilities' ? value : numbers ? 0 : high > low ? 0.06 + (0.94 * (value - low)) / (high - low) : 1;
      bar.style.width = `${share * 100}%`;
      row.classList.toggle('number', numbers);
      const words = numbers ? `${told(done?.[k])} (${told(value)} ± ${told(deviations[k])})` : typeof value === 'number' && name === 'probabilities' ? percent(value) : told(value);
      write(text, value === undefined ? '' : words);
    });
  }
}

/** @param {number | null | undefined} value @param {(value: number) => string} [as] */
const told = (value, as = (one) => figure(one, 4)) => (typeof value === 'number' ? as(value) : '–');
