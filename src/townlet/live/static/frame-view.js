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

  /** Show a note instead of a frame. @param {string} text */
  clear(text) {
    this.image.hidden = true;
    this.image.removeAttribute('src');
    this.busy = false;
    this.shown = this.prepared = '';
    this.observationImages.hidden = true;
    this.observationImages.replaceChildren();
    this.images = [];
    this.setNote(text);
  }

  /** @param {string} text */
  setNote(text) {
    this.note.hidden = !text;
    setText(this.note, text);
  }

  /** @param {GymEpisode} episode @param {number} at @param {number} ahead direction of playback */
  show(episode, at, ahead) {
    if (!episode.about || !episode.known) return;
    if (this.prepared !== episode.path) this.prepare(episode);
    this.image.hidden = !episode.frameCount;
    this.setNote(episode.renderProblem);
    const key = `${episode.path} ${at}`;
    // Wait for the pending frame: fast scrubbing skips frames.
    if (key === this.shown || this.busy) return;
    this.shown = key;
    const timestep = Math.min(at, episode.frameCount - 1);
    if (timestep >= 0) {
      this.busy = true;
      this.image.src = episode.frameUrl(timestep);
      this.image.alt = `The environment at step ${at}`;
      for (let k = 1; k <= AHEAD; k += 1) {
        const next = timestep + k * ahead;
        if (next >= 0 && next < episode.frameCount) new Image().src = episode.frameUrl(next);
      }
    }
    this.images.forEach((image, block) => { image.src = episode.observationUrl(block, at); });
  }

  /** @param {GymEpisode} episode */
  prepare(episode) {
    this.prepared = episode.path;
    const blocks = episode.about?.images ?? [];
    this.images = blocks.map(({ name }) => el('img', { class: 'observation-image', alt: `Observation ${name}` }));
    this.observationImages.hidden = !blocks.length;
    this.observationImages.replaceChildren(...blocks.map((block, k) => {
      const caption = `${block.name}: ${block.width} × ${block.height}${block.count > 1 ? `, ${plural(block.count, 'image')}, newest on the right` : ''}`;
      return el('figure', {}, el('figcaption', {}, el('b', { text: 'Agent’s observation' }), el('span', { text: caption })), this.images[k]);
    }));
    this.images.forEach((image, k) => image.style.setProperty('aspect-ratio', `${blocks[k].count * blocks[k].width} / ${blocks[k].height}`));
  }
}
