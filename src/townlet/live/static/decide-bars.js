/** Figures as people see them at a glance: numbers with their names, bars beside words, and columns. */

import { make, write } from './dom.js';

/** Numbers with their names, in a row that wraps. */
export class Tiles {
  /** @param {Record<string, string>} names by key, in their order */
  constructor(names) {
    /** @type {Record<string, HTMLElement>} */
    this.values = {};
    this.box = make('dl', { class: 'tiles' });
    for (const [key, name] of Object.entries(names)) {
      this.values[key] = make('dd', { 'data-figure': key, text: '–' });
      this.box.append(make('div', {}, make('dt', { text: name }), this.values[key]));
    }
  }

  /** @param {Record<string, string>} values by key @param {Record<string, boolean>} [worrying] which of them are */
  show(values, worrying = {}) {
    for (const [key, value] of Object.entries(values)) {
      write(this.values[key], value);
      this.values[key].toggleAttribute('data-worrying', worrying[key] ?? false);
    }
  }
}

/**
 * @typedef {{name: string, share: number, text: string, title?: string, kind?: string}} BarLine
 *   share: from 0 to 1, or from −1 to 1 where bars have two sides
 */

/** Words with a bar each; a name keeps its line, so that bars grow instead of jumping. */
export class Bars {
  /** @param {string} title @param {boolean} [both] whether bars go to both sides of a middle */
  constructor(title, both = false) {
    this.both = both;
    /** @type {Map<string, {line: HTMLElement, bar: HTMLElement, value: HTMLElement}>} */
    this.lines = new Map();
    this.list = make('div', { class: 'tally' });
    this.title = make('h3', { text: title });
    this.box = make('div', { class: 'bars' }, this.title, this.list);
  }

  /** @param {BarLine[]} lines */
  show(lines) {
    for (const { name, share, text, title, kind } of lines) {
      const { line, bar, value } = this.lines.get(name) ?? this.add(name);
      const width = Math.min(1, Math.abs(share)) * (this.both ? 50 : 100);
      bar.style.width = `${width}%`;
      bar.style.left = this.both ? `${share < 0 ? 50 - width : 50}%` : '0';
      bar.dataset.way = share < 0 ? 'down' : 'up';
      line.title = title ?? '';
      line.dataset.kind = kind ?? '';
      write(value, text);
    }
    const names = new Set(lines.map((line) => line.name));
    for (const [name, { line }] of this.lines) line.hidden = !names.has(name);
    this.box.hidden = !lines.length;
  }

  /** @param {string} name */
  add(name) {
    const bar = make('i'), value = make('b');
    const line = make('div', { class: 'cause' }, make('span', { text: name }), make('div', { class: this.both ? 'bar both' : 'bar' }, bar), value);
    this.list.append(line);
    const parts = { line, bar, value };
    this.lines.set(name, parts);
    return parts;
  }
}

/** Columns beside each other, with what they stand for below. */
export class Columns {
  /** @param {string} title @param {string} kind for its colour */
  constructor(title, kind) {
    this.title = make('h3', { text: title });
    this.picture = make('div', { class: 'columns', 'data-kind': kind, role: 'img' });
    this.below = make('div', { class: 'columns-below', 'aria-hidden': 'true' });
    this.box = make('div', { class: 'columns-box' }, this.title, this.picture, this.below);
  }

  /**
   * @param {number[]} values @param {string[]} labels below them, one for each or for the first and last
   * @param {(k: number) => string} tell in words @param {string} summary for those who do not see it
   */
  show(values, labels, tell, summary) {
    const most = Math.max(1, ...values);
    while (this.picture.children.length < values.length) this.picture.append(make('i'));
    values.forEach((value, k) => {
      const column = /** @type {HTMLElement} */ (this.picture.children[k]);
      column.style.height = `${value ? Math.max(2, (100 * value) / most) : 0}%`;
      column.title = tell(k);
    });
    this.picture.setAttribute('aria-label', summary);
    if (this.below.dataset.key === labels.join()) return;
    this.below.dataset.key = labels.join();
    this.below.classList.toggle('each', labels.length === values.length);
    this.below.replaceChildren(...labels.map((text) => make('span', { text })));
  }
}
