/** Player controls: play, pause, step, speed and scrubber; and options for choosing a checkpoint. */

import { el, setText } from './dom.js';
import { formatCompact, formatNumber } from './format.js';
import { icon } from './icons.js';

/**
 * @typedef {object} PlayerActions actions of the buttons
 * @property {() => void} reset
 * @property {() => void} toggle
 * @property {(by: number) => void} step
 * @property {(speed: number) => void} speed in steps per second
 * @property {(timestep: number) => void} seek
 */

const SEEK_SETTLE = 350; // milliseconds to wait for the answer to a seek
const SEEK_INTERVAL = 90; // milliseconds between seeks while scrubbing
const SPEEDS = [0.5, 1, 2, 3, 5, 8, 12, 20, 40, 80, 200]; // steps per second

/** @param {string} glyph @param {string} label @param {string} [keys] */
export const iconButton = (glyph, label, keys) =>
  el('button', { type: 'button', class: 'round-button', 'aria-label': label, title: keys ? `${label} (${keys})` : label, 'aria-keyshortcuts': keys },
    icon(glyph));

export class PlayerControls {
  /** @param {string} noun what is played @param {PlayerActions} actions */
  constructor(noun, actions) {
    this.actions = actions;
    this.scrubbing = false; // the scrubber is being dragged
    this.lastSeek = 0;
    this.settledAt = 0;
    this.resetButton = iconButton('again', `New ${noun}`, 'R');
    this.backButton = iconButton('back', 'One step back', 'ArrowLeft');
    this.playButton = iconButton('pause', 'Pause', 'Space');
    this.playButton.classList.add('big');
    this.forwardButton = iconButton('forward', 'One step forward', 'ArrowRight');
    this.speed = el('input', { type: 'range', min: 0, max: SPEEDS.length - 1, step: 1, 'aria-label': 'Speed' });
    this.speedText = el('output', { class: 'speed-text' });
    this.scrub = el('input', { type: 'range', min: 0, max: 1, value: 0, step: 1, class: 'scrub', 'aria-label': `Position in this ${noun}` });
    this.positionText = el('output', { class: 'position' });
    this.listen();
  }

  listen() {
    this.resetButton.addEventListener('click', () => this.actions.reset());
    this.backButton.addEventListener('click', () => this.actions.step(-1));
    this.playButton.addEventListener('click', () => this.actions.toggle());
    this.forwardButton.addEventListener('click', () => this.actions.step(1));
    this.speed.addEventListener('input', () => this.actions.speed(SPEEDS[Number(this.speed.value)]));
    this.scrub.addEventListener('input', () => this.seek(false));
    this.scrub.addEventListener('change', () => { this.seek(true); this.scrubbing = false; this.settledAt = performance.now() + SEEK_SETTLE; });
    this.scrub.addEventListener('pointerdown', () => { this.scrubbing = true; });
  }

  /** Throttled seek; the last position is always sent. @param {boolean} last */
  seek(last) {
    this.scrubbing = true;
    const now = performance.now();
    if (!last && now - this.lastSeek < SEEK_INTERVAL) return;
    this.lastSeek = now;
    this.actions.seek(Number(this.scrub.value));
  }

  /** The scrubber and its position. @param {...HTMLElement} above elements above the scrubber */
  scrubRow(...above) {
    return el('div', { class: 'scrub-line' }, el('div', { class: 'scrub-box' }, ...above, this.scrub), this.positionText);
  }

  /** The row of buttons. @param {...HTMLElement} tools at its end */
  buttonRow(...tools) {
    return el('div', { class: 'player-controls' },
      el('div', { class: 'buttons' }, this.resetButton, this.backButton, this.playButton, this.forwardButton),
      el('label', { class: 'speed' }, el('span', { class: 'visually-hidden', text: 'Speed' }), this.speed, this.speedText),
      el('div', { class: 'tools' }, ...tools));
  }

  /** @param {boolean} playing */
  showPlaying(playing) {
    const label = playing ? 'Pause' : 'Play';
    if (this.playButton.dataset.label === label) return;
    this.playButton.dataset.label = label;
    this.playButton.replaceChildren(icon(playing ? 'pause' : 'play', 22));
    this.playButton.setAttribute('aria-label', label);
    this.playButton.title = `${label} (Space)`;
  }

  /** @param {number} speed in steps per second @param {string} [label] text in place of the number */
  showSpeed(speed, label) {
    this.speed.value = String(nearestSpeed(speed));
    const text = label ?? `${SPEEDS[Number(this.speed.value)]} steps/s`;
    setText(this.speedText, text);
    this.speed.setAttribute('aria-valuetext', text);
  }

  /** Nothing is played: there is no position. */
  clearPosition() {
    this.scrub.disabled = true;
    this.scrub.min = this.scrub.value = '0';
    this.scrub.style.setProperty('--done', '0%');
    this.scrub.setAttribute('aria-valuetext', '');
    setText(this.positionText, '');
  }

  /** Show the position. @param {number} now @param {number} first @param {number} last @param {(now: number) => string} label */
  showPosition(now, first, last, label) {
    this.scrub.disabled = false;
    if (Number(this.scrub.max) !== last) this.scrub.max = String(last);
    if (Number(this.scrub.min) !== first) this.scrub.min = String(first);
    const held = this.scrubbing || performance.now() < this.settledAt; // else the thumb jumps back until the answer arrives
    if (!held) this.scrub.value = String(now);
    const shown = Number(this.scrub.value);
    this.scrub.style.setProperty('--done', `${((shown - first) / Math.max(1, last - first)) * 100}%`);
    const text = label(held ? shown : now);
    setText(this.positionText, text);
    this.scrub.setAttribute('aria-valuetext', text);
  }
}

/** @param {number} speed */
function nearestSpeed(speed) {
  let best = 0;
  SPEEDS.forEach((one, k) => { if (Math.abs(one - speed) < Math.abs(SPEEDS[best] - speed)) best = k; });
  return best;
}

/**
 * Options of a checkpoint list: latest, best, then all checkpoints, newest first.
 * @param {import('./types.js').Checkpoint[]} checkpoints @param {string} [prefix] @param {string} [noun]
 */
export function checkpointOptions(checkpoints, prefix = '', noun = ' checkpoint') {
  const named = [...checkpoints].sort((a, b) => b.env_steps - a.env_steps);
  return [
    el('option', { value: 'latest', text: `${prefix}latest${noun}` }),
    el('option', { value: 'best', text: `${prefix}best${noun}` }),
    ...named.map((one) => el('option', {
      value: one.name, text: `${prefix}${prefix ? '' : 'after '}${formatCompact(one.env_steps)} steps${one.score === null ? '' : `, score ${formatNumber(one.score)}`}${one.best ? ' ★ best' : ''}`,
    })),
  ];
}
