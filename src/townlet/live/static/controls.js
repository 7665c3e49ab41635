/** Under the town: what is shown, how fast, and where in a life one is. */

import { byId, make, write } from './dom.js';
import { saveTable, VideoTape } from './export.js';
import { compact, count, endedBy, figure } from './format.js';
import { sign } from './icons.js';
import { Lifeline } from './lifeline.js';
import { nextOverlay, overlayInWords, overlayOf } from './overlay.js';
import { WATCHED } from './session.js';
import { stepsASecond } from './state.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./session.js').Session} Session
 * @typedef {import('./playback.js').Playback} Playback
 */

const ANSWER = 350; // milliseconds in which the server answers where somebody wants to be
const SPEEDS = [0.5, 1, 2, 3, 5, 8, 12, 20, 40, 80, 200]; // steps a second

/** @param {string} glyph @param {string} label @param {string} [keys] */
const iconButton = (glyph, label, keys) =>
  make('button', { type: 'button', class: 'round', 'aria-label': label, title: keys ? `${label} (${keys})` : label, 'aria-keyshortcuts': keys },
    sign(glyph));

export class Controls {
  /** @param {Store} store @param {Session} session @param {Playback[]} playbacks @param {() => HTMLCanvasElement} canvas */
  constructor(store, session, playbacks, canvas) {
    this.store = store;
    this.session = session;
    this.playbacks = playbacks;
    this.tape = new VideoTape(canvas, () => this.showTape());
    this.held = false; // the scrubber is in a hand
    this.sought = 0;
    this.until = 0;
    this.lifeline = new Lifeline();
    this.build();
    store.on(['playing', 'source', 'alone', 'pace', 'speed', 'row', 'status', 'compare', 'overlay', 'maps', 'preview'], () => this.show());
    store.on(['checkpoints', 'checkpoint', 'compare', 'about', 'source', 'status'], () => this.fill());
    this.show();
  }

  build() {
    this.again = iconButton('again', 'Another life', 'R');
    this.back = iconButton('back', 'One step back', 'ArrowLeft');
    this.play = iconButton('pause', 'Pause', 'Space');
    this.play.classList.add('big');
    this.forward = iconButton('forward', 'One step forward', 'ArrowRight');
    this.speed = make('input', { type: 'range', min: 0, max: SPEEDS.length - 1, step: 1, 'aria-label': 'Speed' });
    this.speedText = make('output', { class: 'speed-text' });
    this.home = make('button', { type: 'button', class: 'home-button', hidden: true });
    this.scrub = make('input', { type: 'range', min: 0, max: 1, value: 0, step: 1, class: 'scrub', 'aria-label': 'Moment of this life' });
    this.age = make('output', { class: 'age' });
    this.sources = make('div', { class: 'segments', role: 'group', 'aria-label': 'What is shown' });
    for (const [source, words] of [['training', 'Training'], ['checkpoint', 'Checkpoint'], ['recording', 'Kept lives']]) {
      const titles = { training: 'Training as it happens', checkpoint: 'A checkpoint plays for you', recording: 'Lives that the run has kept' };
      this.sources.append(make('button', { type: 'button', 'data-source': source, text: words, title: titles[/** @type {'training'} */ (source)] }));
    }
    this.who = make('select', { 'aria-label': 'Which checkpoint plays' });
    this.compare = make('select', { 'aria-label': 'Compare with' });
    this.epsilon = make('select', { 'aria-label': 'Random actions' },
      ...[[0, 'greedy'], [0.05, '5% random'], [0.2, '20% random'], [1, 'all random']].map(([v, t]) => make('option', { value: v, text: t })));
    /** @type {HTMLElement | null} */
    this.choices = null;
    this.kept = make('select', { 'aria-label': 'Which kept life' });
    this.row = make('select', { 'aria-label': 'Which row of training' }, make('option', { value: '', text: 'newest life' }),
      ...Array.from({ length: WATCHED }, (_, k) => make('option', { value: k, text: `row ${k}` })));
    this.overlay = make('button', { type: 'button', class: 'round toggle', 'aria-pressed': 'false', 'aria-label': 'Overlay' }, sign('layers'));
    this.table = make('button', { type: 'button', class: 'round toggle', 'aria-label': 'Save as CSV', title: 'Save the moments that were shown as a table (CSV)' }, sign('save'));
    this.video = make('button', { type: 'button', class: 'round toggle', 'aria-pressed': 'false', 'aria-label': 'Record a video', title: 'Record the town as a video (WebM)' }, sign('record'));
    byId('controls').replaceChildren(
      make('div', { class: 'scrub-line' }, make('div', { class: 'scrub-box' }, this.lifeline.canvas, this.scrub), this.age),
      make('div', { class: 'transport' },
        make('div', { class: 'buttons' }, this.again, this.back, this.play, this.forward),
        make('label', { class: 'speed' }, make('span', { class: 'unseen', text: 'Speed' }), this.speed, this.speedText),
        make('div', { class: 'tools' }, this.overlay, this.table, this.video)),
      make('div', { class: 'sources' }, this.sources, this.home, this.choices = make('div', { class: 'choices' }, this.who, this.epsilon, this.compare, this.kept, this.row)),
    );
    this.listen();
  }

  listen() {
    const { session, store } = this;
    this.again?.addEventListener('click', () => session.reset());
    this.back?.addEventListener('click', () => session.step(-1));
    this.play?.addEventListener('click', () => session.toggle());
    this.forward?.addEventListener('click', () => session.step(1));
    this.home?.addEventListener('click', () => session.source(store.known.preview ? 'checkpoint' : 'training'));
    this.speed?.addEventListener('input', () => session.speed(SPEEDS[Number(this.speed?.value)]));
    this.scrub?.addEventListener('input', () => this.seek(false));
    this.scrub?.addEventListener('change', () => { this.seek(true); this.held = false; this.until = performance.now() + ANSWER; });
    this.scrub?.addEventListener('pointerdown', () => { this.held = true; });
    this.sources?.addEventListener('click', (event) => {
      const source = /** @type {HTMLElement} */ (event.target).dataset.source;
      if (source) session.source(/** @type {import('./types.js').Source} */ (source));
    });
    this.who?.addEventListener('change', () => session.checkpoint(this.who?.value ?? 'latest'));
    this.compare?.addEventListener('change', () => session.compare(this.compare?.value || null));
    this.epsilon?.addEventListener('change', () => session.epsilon(Number(this.epsilon?.value)));
    this.kept?.addEventListener('change', () => session.source('recording', Number(this.kept?.value)));
    this.row?.addEventListener('change', () => session.row(this.row?.value ? Number(this.row.value) : null));
    this.overlay?.addEventListener('click', () => nextOverlay(store));
    this.table?.addEventListener('click', () => {
      if (store.known.world) saveTable(store.known.world, this.playbacks[store.known.side], store.known.run ?? 'life');
    });
    this.video?.addEventListener('click', () => this.tape.toggle(store.known.run ?? 'town'));
  }

  /** Not more often than the server listens, but always the last word. @param {boolean} last */
  seek(last) {
    this.held = true;
    const now = performance.now();
    if (!last && now - this.sought < 90) return;
    this.sought = now;
    this.session.seek(Number(this.scrub?.value) - this.playbacks[0].first);
  }

  show() {
    const { playing, source, alone, row, status, compare, preview } = this.store.known;
    if (!this.play || !this.home || !this.overlay) return;
    this.play.replaceChildren(sign(playing ? 'pause' : 'play', 22));
    this.play.setAttribute('aria-label', playing ? 'Pause' : 'Play');
    this.play.title = `${playing ? 'Pause' : 'Play'} (Space)`;
    this.showSpeed();
    this.home.hidden = !(preview || (source === 'training' && alone));
    write(this.home, preview ? 'Back to the run’s world' : 'Back to training');
    const words = overlayInWords(this.store.known);
    this.overlay.setAttribute('aria-pressed', String(overlayOf(this.store.known) !== 'none'));
    this.overlay.setAttribute('aria-label', `Overlay: ${words}. Change it`);
    this.overlay.title = `Overlay: ${words} (V)`;
    for (const button of this.sources?.querySelectorAll('button') ?? []) {
      button.setAttribute('aria-pressed', String(button.dataset.source === source));
    }
    if (this.choices) this.choices.dataset.source = source;
    const played = source === 'checkpoint';
    /** @param {HTMLElement | undefined} element @param {boolean} shown */
    const reveal = (element, shown) => { if (element) element.hidden = !shown; };
    reveal(this.who, played);
    reveal(this.epsilon, played);
    reveal(this.compare, played);
    reveal(this.kept, source === 'recording');
    reveal(this.row, source === 'training' && status?.state === 'running');
    if (this.row) this.row.value = row === null ? '' : String(row);
    document.body.toggleAttribute('data-compare', compare !== null);
  }

  /** Training has a pace of its own, which differs from life to life: nobody is told a number then. */
  showSpeed() {
    if (!this.speed || !this.speedText) return;
    const { known } = this.store;
    this.speed.value = String(nearest(stepsASecond(known, this.playbacks[0].start)));
    const words = known.pace === 'live' ? 'live pace' : `${SPEEDS[Number(this.speed.value)]} steps/s`;
    write(this.speedText, words);
    this.speed.setAttribute('aria-valuetext', words);
  }

  /** Choices that come from the run. */
  fill() {
    const { checkpoints, checkpoint, compare, about, recording } = this.store.known;
    const named = [...checkpoints].sort((a, b) => b.env_steps - a.env_steps);
    /** @param {string} prefix @param {string} noun */
    const options = (prefix, noun) => [
      make('option', { value: 'latest', text: `${prefix}latest${noun}` }),
      make('option', { value: 'best', text: `${prefix}best${noun}` }),
      ...named.map((one) => make('option', {
        value: one.name, text: `${prefix}${prefix ? '' : 'after '}${compact(one.env_steps)} steps${one.score === null ? '' : `, score ${figure(one.score)}`}${one.best ? ' ★ best' : ''}`,
      })),
    ];
    if (!this.who || !this.compare || !this.kept) return;
    this.who.replaceChildren(...options('', ' checkpoint'));
    this.who.value = checkpoint;
    this.compare.replaceChildren(make('option', { value: '', text: 'compare with …' }), ...options('beside: ', ''));
    this.compare.value = compare ?? '';
    const lives = [...(about?.recordings ?? [])].reverse();
    this.kept.replaceChildren(...(lives.length ? lives.map((one) => make('option', {
      value: one.number,
      text: `${one.kind}: ${one.length} steps, ${endedBy(one.cause)} (after ${compact(one.env_steps)})`,
    })) : [make('option', { value: '', text: 'none kept yet' })]));
    if (recording !== null) this.kept.value = String(recording);
  }

  /** Where the shown life is; called with every picture of it. */
  follow() {
    const playback = this.playbacks[0];
    const { start, end, target, first } = playback;
    if (!start || !this.scrub || !this.age) return;
    const { world, theme } = this.store.known;
    const most = world?.max_steps ?? 1;
    const last = end ? end.length : start.length !== null ? first + start.length : Math.max(target, most);
    if (Number(this.scrub.max) !== last) this.scrub.max = String(last);
    if (Number(this.scrub.min) !== first) this.scrub.min = String(first);
    if (world) this.lifeline.draw(playback, world, first, last, theme);
    const now = Math.floor(playback.head + 1e-6);
    const held = this.held || performance.now() < this.until; // else the thumb jumps back until the answer is here
    if (!held) this.scrub.value = String(now);
    this.scrub.style.setProperty('--done', `${((Number(this.scrub.value) - first) / Math.max(1, last - first)) * 100}%`);
    const words = `step ${count(held ? Number(this.scrub.value) : now)}${end || start.length !== null ? ` of ${count(last)}` : ''}`;
    write(this.age, words);
    this.scrub.setAttribute('aria-valuetext', words);
  }

  showTape() {
    this.video?.setAttribute('aria-pressed', String(this.tape.running));
    this.video?.classList.toggle('recording', this.tape.running);
    this.video?.setAttribute('aria-label', this.tape.running ? 'Stop and save the video' : 'Record a video');
  }
}

/** @param {number} speed */
function nearest(speed) {
  let best = 0;
  SPEEDS.forEach((one, k) => { if (Math.abs(one - speed) < Math.abs(SPEEDS[best] - speed)) best = k; });
  return best;
}
