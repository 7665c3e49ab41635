/** What moves through something that was lived or played: play, pause, steps, speed, and a scrubber. */

import { make, write } from './dom.js';
import { sign } from './icons.js';

/**
 * @typedef {object} Moves what the buttons do
 * @property {() => void} again
 * @property {() => void} toggle
 * @property {(by: number) => void} step
 * @property {(speed: number) => void} speed in steps a second
 * @property {(moment: number) => void} seek
 */

const ANSWER = 350; // milliseconds in which the server answers where somebody wants to be
const OFTEN = 90; // milliseconds between two wishes of a hand that scrubs
const SPEEDS = [0.5, 1, 2, 3, 5, 8, 12, 20, 40, 80, 200]; // steps a second

/** @param {string} glyph @param {string} label @param {string} [keys] */
export const iconButton = (glyph, label, keys) =>
  make('button', { type: 'button', class: 'round', 'aria-label': label, title: keys ? `${label} (${keys})` : label, 'aria-keyshortcuts': keys },
    sign(glyph));

export class Transport {
  /** @param {string} noun of what is shown: life, episode @param {Moves} moves */
  constructor(noun, moves) {
    this.moves = moves;
    this.held = false; // the scrubber is in a hand
    this.sought = 0;
    this.until = 0;
    this.again = iconButton('again', `Another ${noun}`, 'R');
    this.back = iconButton('back', 'One step back', 'ArrowLeft');
    this.play = iconButton('pause', 'Pause', 'Space');
    this.play.classList.add('big');
    this.forward = iconButton('forward', 'One step forward', 'ArrowRight');
    this.speed = make('input', { type: 'range', min: 0, max: SPEEDS.length - 1, step: 1, 'aria-label': 'Speed' });
    this.speedText = make('output', { class: 'speed-text' });
    this.scrub = make('input', { type: 'range', min: 0, max: 1, value: 0, step: 1, class: 'scrub', 'aria-label': `Moment of this ${noun}` });
    this.age = make('output', { class: 'age' });
    this.listen();
  }

  listen() {
    this.again.addEventListener('click', () => this.moves.again());
    this.back.addEventListener('click', () => this.moves.step(-1));
    this.play.addEventListener('click', () => this.moves.toggle());
    this.forward.addEventListener('click', () => this.moves.step(1));
    this.speed.addEventListener('input', () => this.moves.speed(SPEEDS[Number(this.speed.value)]));
    this.scrub.addEventListener('input', () => this.seek(false));
    this.scrub.addEventListener('change', () => { this.seek(true); this.held = false; this.until = performance.now() + ANSWER; });
    this.scrub.addEventListener('pointerdown', () => { this.held = true; });
  }

  /** Not more often than a server listens, but always the last word. @param {boolean} last */
  seek(last) {
    this.held = true;
    const now = performance.now();
    if (!last && now - this.sought < OFTEN) return;
    this.sought = now;
    this.moves.seek(Number(this.scrub.value));
  }

  /** The scrubber and where it stands. @param {...HTMLElement} above what lies over the scrubber */
  line(...above) {
    return make('div', { class: 'scrub-line' }, make('div', { class: 'scrub-box' }, ...above, this.scrub), this.age);
  }

  /** The buttons in a row. @param {...HTMLElement} tools at its end */
  row(...tools) {
    return make('div', { class: 'transport' },
      make('div', { class: 'buttons' }, this.again, this.back, this.play, this.forward),
      make('label', { class: 'speed' }, make('span', { class: 'unseen', text: 'Speed' }), this.speed, this.speedText),
      make('div', { class: 'tools' }, ...tools));
  }

  /** @param {boolean} playing */
  showPlaying(playing) {
    const words = playing ? 'Pause' : 'Play';
    if (this.play.dataset.words === words) return;
    this.play.dataset.words = words;
    this.play.replaceChildren(sign(playing ? 'pause' : 'play', 22));
    this.play.setAttribute('aria-label', words);
    this.play.title = `${words} (Space)`;
  }

  /** @param {number} speed in steps a second @param {string} [told] in words, where nobody is told a number */
  showSpeed(speed, told) {
    this.speed.value = String(nearest(speed));
    const words = told ?? `${SPEEDS[Number(this.speed.value)]} steps/s`;
    write(this.speedText, words);
    this.speed.setAttribute('aria-valuetext', words);
  }

  /** Where one is. @param {number} now @param {number} first @param {number} last @param {(now: number) => string} told */
  showMoment(now, first, last, told) {
    if (Number(this.scrub.max) !== last) this.scrub.max = String(last);
    if (Number(this.scrub.min) !== first) this.scrub.min = String(first);
    const held = this.held || performance.now() < this.until; // else the thumb jumps back until the answer is here
    if (!held) this.scrub.value = String(now);
    const shown = Number(this.scrub.value);
    this.scrub.style.setProperty('--done', `${((shown - first) / Math.max(1, last - first)) * 100}%`);
    const words = told(held ? shown : now);
    write(this.age, words);
    this.scrub.setAttribute('aria-valuetext', words);
  }
}

/** @param {number} speed */
function nearest(speed) {
  let best = 0;
  SPEEDS.forEach((one, k) => { if (Math.abs(one - speed) < Math.abs(SPEEDS[best] - speed)) best = k; });
  return best;
}
