/** Under the town: what is shown, how fast, and where in a life one is. */

import { checkpointOptions } from './checkpoints.js';
import { byId, make, write } from './dom.js';
import { saveTable, VideoTape } from './export.js';
import { compact, count, endedBy } from './format.js';
import { sign } from './icons.js';
import { Lifeline } from './lifeline.js';
import { nextOverlay, overlayInWords, overlayOf } from './overlay.js';
import { WATCHED } from './session.js';
import { stepsASecond } from './state.js';
import { Transport } from './transport.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./session.js').Session} Session
 * @typedef {import('./playback.js').Playback} Playback
 */

export class Controls {
  /** @param {Store} store @param {Session} session @param {Playback[]} playbacks @param {() => HTMLCanvasElement} canvas */
  constructor(store, session, playbacks, canvas) {
    this.store = store;
    this.session = session;
    this.playbacks = playbacks;
    this.tape = new VideoTape(canvas, () => this.showTape());
    this.transport = new Transport('life', {
      again: () => session.reset(), toggle: () => session.toggle(), step: (by) => session.step(by), speed: (speed) => session.speed(speed),
      seek: (age) => session.seek(age - playbacks[0].first),
    });
    this.lifeline = new Lifeline();
    this.build();
    store.on(['playing', 'source', 'alone', 'pace', 'speed', 'row', 'status', 'compare', 'overlay', 'maps', 'preview'], () => this.show());
    store.on(['checkpoints', 'checkpoint', 'compare', 'about', 'source', 'status'], () => this.fill());
    this.show();
  }

  build() {
    this.home = make('button', { type: 'button', class: 'home-button', hidden: true });
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
      this.transport.line(this.lifeline.canvas),
      this.transport.row(this.overlay, this.table, this.video),
      make('div', { class: 'sources' }, this.sources, this.home, this.choices = make('div', { class: 'choices' }, this.who, this.epsilon, this.compare, this.kept, this.row)),
    );
    this.listen();
  }

  listen() {
    const { session, store } = this;
    this.home?.addEventListener('click', () => session.source(store.known.preview ? 'checkpoint' : 'training'));
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

  show() {
    const { playing, source, alone, row, status, compare, preview } = this.store.known;
    if (!this.home || !this.overlay) return;
    this.transport.showPlaying(playing);
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
    const { known } = this.store;
    this.transport.showSpeed(stepsASecond(known, this.playbacks[0].start), known.pace === 'live' ? 'live pace' : undefined);
  }

  /** Choices that come from the run. */
  fill() {
    const { checkpoints, checkpoint, compare, about, recording } = this.store.known;
    if (!this.who || !this.compare || !this.kept) return;
    this.who.replaceChildren(...checkpointOptions(checkpoints));
    this.who.value = checkpoint;
    this.compare.replaceChildren(make('option', { value: '', text: 'compare with …' }), ...checkpointOptions(checkpoints, 'beside: ', ''));
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
    if (!start) return;
    const { world, theme } = this.store.known;
    const most = world?.max_steps ?? 1;
    const last = end ? end.length : start.length !== null ? first + start.length : Math.max(target, most);
    if (world) this.lifeline.draw(playback, world, first, last, theme);
    this.transport.showMoment(Math.floor(playback.head + 1e-6), first, last,
      (age) => `step ${count(age)}${end || start.length !== null ? ` of ${count(last)}` : ''}`);
  }

  showTape() {
    this.video?.setAttribute('aria-pressed', String(this.tape.running));
    this.video?.classList.toggle('recording', this.tape.running);
    this.video?.setAttribute('aria-label', this.tape.running ? 'Stop and save the video' : 'Record a video');
  }
}
