/** The rendered frame of a timestep, and the image observations of the agent. */

import { el, setText } from './dom.js';
import { plural } from './format.js';

/** @typedef {import('./gym-episode.js').GymEpisode} GymEpisode */

const AHEAD = 3; // frames to prefetch

export class FrameView {
  constructor() {
    this.image = el('img', { class: 'frame-image', alt: '', hidden: true });
    this.note = el('p', { class: 'frame-note', role: 'status' });
    this.frame = el('div', { class: 'town-frame frame-view' }, this.image, this.note);
    this.observationImages = el('div', { class: 'observation-images', hidden: true });
    /** @type {HTMLImageElement[]} */
    this.images = [];
    this.busy = false;
    this.shown = '';
    this.prepared = '';
    for (const event of ['load', 'error']) this.image.addEventListener(event, () => { this.busy = false; });
  }

  /** Show a note instead of a frame. @param {string} words */
  clear(words) {
    this.image.hidden = true;
    this.image.removeAttribute('src');
    this.busy = false;
    this.shown = this.prepared = '';
    this.observationImages.hidden = true;
    this.observationImages.replaceChildren();
    this.images = [];
    this.setNote(words);
  }

  /** @param {string} words */
  setNote(words) {
    this.note.hidden = !words;
    setText(this.note, words);
  }

  /** @param {GymEpisode} film @param {number} at @param {number} ahead direction of playback */
  show(film, at, ahead) {
    if (!film.about || !film.known) return;
    if (this.prepared !== film.path) this.prepare(film);
    this.image.hidden = !film.frameCount;
    this.setNote(film.renderProblem);
    const key = `${film.path} ${at}`;
    // Wait for the pending frame: fast scrubbing skips frames.
    if (key === this.shown || this.busy) return;
    this.shown = key;
    const moment = Math.min(at, film.frameCount - 1);
    if (moment >= 0) {
      this.busy = true;
      this.image.src = film.frameUrl(moment);
      this.image.alt = `The environment at step ${at}`;
      for (let k = 1; k <= AHEAD; k += 1) {
        const next = moment + k * ahead;
        if (next >= 0 && next < film.frameCount) new Image().src = film.frameUrl(next);
      }
    }
    this.images.forEach((image, block) => { image.src = film.observationUrl(block, at); });
  }

  /** @param {GymEpisode} film */
  prepare(film) {
    this.prepared = film.path;
    const blocks = film.about?.images ?? [];
    this.images = blocks.map(({ name }) => el('img', { class: 'observation-image', alt: `Observation ${name}` }));
    this.observationImages.hidden = !blocks.length;
    this.observationImages.replaceChildren(...blocks.map((block, k) => {
      const words = `${block.name}: ${block.width} × ${block.height}${block.count > 1 ? `, ${plural(block.count, 'image')}, newest on the right` : ''}`;
      return el('figure', {}, el('figcaption', {}, el('b', { text: 'Agent’s observation' }), el('span', { text: words })), this.images[k]);
    }));
    this.images.forEach((image, k) => image.style.setProperty('aspect-ratio', `${blocks[k].count * blocks[k].width} / ${blocks[k].height}`));
  }
}
