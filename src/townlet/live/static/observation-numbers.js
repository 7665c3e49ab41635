/** The numbers of an observation; for stacked frames, a line through the values in the frames. */

import { el, setText, svg } from './dom.js';

/**
 * @typedef {import('./gym-episode.js').GymEpisode} GymEpisode
 * @typedef {import('./types.js').GymEpisodeInfo} GymEpisodeInfo
 */

const LINE = { width: 72, height: 18, margin: 2 }; // pixels

export class ObservationNumbers {
  /** @param {(value: number | null | undefined) => string} format */
  constructor(format) {
    this.format = format;
    this.note = el('span', { class: 'muted' });
    this.title = el('div', { class: 'heading-row' }, el('h3', { text: 'Observation' }), this.note);
    this.list = el('div', { class: 'features' });
    this.boxes = [this.title, this.list];
    /** @type {{row: HTMLElement, line: SVGElement | null, text: HTMLElement, first: number, frames: number}[]} */
    this.rows = [];
  }

  /** @param {GymEpisodeInfo} about */
  prepare(about) {
    let first = 0;
    this.rows = [];
    for (const { name, frames } of about.features) {
      if (first + frames > about.columns.length) break; // omitted
      const line = frames > 1 ? svg('polyline', {}) : null, text = el('b');
      const row = el('div', {}, el('span', { text: name }), text);
      if (line) text.before(svg('svg', { class: 'frame-line', width: LINE.width, height: LINE.height, 'aria-hidden': 'true' }, line));
      this.rows.push({ row, line, text, first, frames });
      first += frames;
    }
    const most = Math.max(1, ...about.features.map(({ frames }) => frames));
    setText(this.note, most > 1 ? `${most} frames, newest on the right` : '');
    this.title.hidden = !about.features.length;
    this.list.classList.toggle('stacked', most > 1);
    const omitted = about.omitted + about.columns.length - first;
    this.list.replaceChildren(...this.rows.map(({ row }) => row),
      ...(omitted ? [el('p', { class: 'muted', text: `${omitted} more are in the CSV.` })] : []));
  }

  /** @param {GymEpisode} episode @param {number} at */
  show(episode, at) {
    for (const { row, line, text, first, frames } of this.rows) {
      const values = Array.from({ length: frames }, (_, k) => episode.obs[at]?.[first + k]);
      setText(text, this.format(values.at(-1)));
      if (!line) continue;
      line.setAttribute('points', points(values, rangeOf(episode, first, frames)));
      row.title = values.map((value) => this.format(value)).join(', ');
    }
  }
}

/** Lowest and highest value in the episode so far. @param {GymEpisode} episode @param {number} first @param {number} frames */
function rangeOf({ ranges }, first, frames) {
  const own = ranges.slice(first, first + frames).filter(Boolean);
  return { low: Math.min(...own.map(([low]) => low)), high: Math.max(...own.map(([, high]) => high)) };
}

/** Points of a line through the values that are known. @param {(number | null | undefined)[]} values @param {{low: number, high: number}} range */
function points(values, { low, high }) {
  const { width, height, margin } = LINE;
  return values.flatMap((value, k) => {
    if (typeof value !== 'number') return [];
    const x = margin + (k / (values.length - 1)) * (width - 2 * margin);
    const share = high > low ? (value - low) / (high - low) : 0.5;
    return [`${x.toFixed(1)},${(height - margin - share * (height - 2 * margin)).toFixed(1)}`];
  }).join(' ');
}
