/** The shown moment of an episode: the environment's own picture, and what the agent sees where that is one. */

import { make, write } from './dom.js';
import { many } from './format.js';

/** @typedef {import('./film.js').Film} Film */

const AHEAD = 3; // pictures that are fetched before they are needed

export class Screen {
  constructor() {
    this.image = make('img', { class: 'screen-image', alt: '', hidden: true });
    this.note = make('p', { class: 'screen-note', role: 'status' });
    this.frame = make('div', { class: 'stage-frame screen' }, this.image, this.note);
    this.looks = make('div', { class: 'looks', hidden: true });
    /** @type {HTMLImageElement[]} */
    this.seen = [];
    this.busy = false;
    this.shown = '';
    this.prepared = '';
    for (const event of ['load', 'error']) this.image.addEventListener(event, () => { this.busy = false; });
  }

  /** Nothing is shown yet, and why. @param {string} words */
  clear(words) {
    this.image.hidden = true;
    this.image.removeAttribute('src');
    this.busy = false;
    this.shown = this.prepared = '';
    this.looks.hidden = true;
    this.looks.replaceChildren();
    this.seen = [];
    this.say(words);
  }

  /** @param {string} words */
  say(words) {
    this.note.hidden = !words;
    write(this.note, words);
  }

  /** @param {Film} film @param {number} at @param {number} ahead which way one goes */
  show(film, at, ahead) {
    if (!film.about || !film.known) return;
    if (this.prepared !== film.path) this.prepare(film);
    this.image.hidden = !film.drawn;
    this.say(film.unseen);
    const key = `${film.path} ${at}`;
    // A picture that is on its way comes first: who scrubs faster than pictures come sees some of them.
    if (key === this.shown || this.busy) return;
    this.shown = key;
    const moment = Math.min(at, film.drawn - 1);
    if (moment >= 0) {
      this.busy = true;
      this.image.src = film.frame(moment);
      this.image.alt = `The environment at step ${at}`;
      for (let k = 1; k <= AHEAD; k += 1) {
        const next = moment + k * ahead;
        if (next >= 0 && next < film.drawn) new Image().src = film.frame(next);
      }
    }
    this.seen.forEach((image, block) => { image.src = film.seen(block, at); });
  }

  /** @param {Film} film */
  prepare(film) {
    this.prepared = film.path;
    const blocks = film.about?.pictures ?? [];
    this.seen = blocks.map(({ name }) => make('img', { class: 'look', alt: `Observation ${name} as the agent sees it` }));
    this.looks.hidden = !blocks.length;
    this.looks.replaceChildren(...blocks.map((block, k) => {
      const words = `${block.name}: ${block.width} × ${block.height}${block.looks > 1 ? `, ${many(block.looks, 'picture')}, the newest on the right` : ''}`;
      return make('figure', {}, make('figcaption', {}, make('b', { text: 'What the agent sees' }), make('span', { text: words })), this.seen[k]);
    }));
    this.seen.forEach((image, k) => image.style.setProperty('aspect-ratio', `${blocks[k].looks * blocks[k].width} / ${blocks[k].height}`));
  }
}
