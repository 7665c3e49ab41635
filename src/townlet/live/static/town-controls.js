/** Controls below the town: source, playback, exports, and the timeline of the episode. */

import { meterLevel } from './agent-panel.js';
import { byId, el, pixelRatio, setText } from './dom.js';
import { downloadCsv, VideoRecorder } from './export.js';
import { causeLabel, formatCompact, formatCount } from './format.js';
import { affordanceColor, icon } from './icons.js';
import { activeOverlay, nextOverlay, overlayLabel } from './overlay.js';
import { AgentChooser } from './agent-choice.js';
import { HumanControls } from './human-controls.js';
import { PlayerControls } from './player-controls.js';
import { ShareButtons } from './share.js';
import { RECORDED_ROWS } from './session.js';
import { playbackSpeed } from './state.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./session.js').Session} Session
 * @typedef {import('./playback.js').Playback} Playback
 */

export class TownControls {
  /** @param {Store} store @param {Session} session @param {Playback[]} playbacks @param {() => HTMLCanvasElement} canvas */
  constructor(store, session, playbacks, canvas) {
    this.store = store;
    this.session = session;
    this.playbacks = playbacks;
    this.recorder = new VideoRecorder(canvas, () => this.showRecording());
    this.player = new PlayerControls('episode', {
      reset: () => session.reset(), toggle: () => session.toggle(), step: (by) => session.step(by), speed: (speed) => session.setSpeed(speed),
      seek: (age) => session.seek(age - playbacks[0].firstAge),
    });
    this.timeline = new Timeline();
    this.build();
    store.on(['playing', 'source', 'detached', 'pace', 'speed', 'row', 'status', 'agents', 'overlay', 'maps', 'preview'], () => this.show());
    store.on(['checkpoints', 'agents', 'about', 'source', 'status', 'runs'], () => this.fillChoices());
    this.show();
  }

  build() {
    this.backButton = el('button', { type: 'button', class: 'back-button', hidden: true });
    this.sources = el('div', { class: 'segmented', role: 'group', 'aria-label': 'Source' });
    for (const [source, label] of [['training', 'Training'], ['checkpoint', 'Agents'], ['recording', 'Recordings']]) {
      const titles = { training: 'Training episodes as they end', checkpoint: 'Let an agent play: this one at any time of its training, another one, or you', recording: 'Recorded episodes of this run' };
      this.sources.append(el('button', { type: 'button', 'data-source': source, text: label, title: titles[/** @type {'training'} */ (source)] }));
    }
    this.choosers = [
      new AgentChooser('Who plays', false, (agent) => this.session.setAgent(0, agent)),
      new AgentChooser('Compare with', true, (agent) => this.session.setAgent(1, agent)),
    ];
    this.epsilon = el('select', { 'aria-label': 'Random actions' },
      ...[[0, 'as it has learned'], [0.05, '5% random actions'], [0.2, '20% random actions'], [1, 'random actions only']].map(([v, t]) => el('option', { value: v, text: t })));
    /** @type {HTMLElement | null} */
    this.choices = null;
    this.recording = el('select', { 'aria-label': 'Recorded episode' });
    this.row = el('select', { 'aria-label': 'Parallel town' }, el('option', { value: '', text: 'newest episode' }),
      ...Array.from({ length: RECORDED_ROWS }, (_, k) => el('option', { value: k, text: `town ${k}` })));
    this.overlayButton = el('button', { type: 'button', class: 'round-button toggle', 'aria-pressed': 'false', 'aria-label': 'Overlay' }, icon('layers'));
    this.saveButton = el('button', { type: 'button', class: 'round-button toggle', 'aria-label': 'Save as CSV', title: 'Save the watched steps as a table (CSV)' }, icon('save'));
    this.videoButton = el('button', { type: 'button', class: 'round-button toggle', 'aria-pressed': 'false', 'aria-label': 'Record a video', title: 'Record the town as a video (WebM)' }, icon('record'));
    byId('controls').replaceChildren(
      this.player.scrubRow(this.timeline.canvas),
      this.player.buttonRow(this.overlayButton, ...new ShareButtons(this.store, this.playbacks).buttons, this.saveButton, this.videoButton),
      el('div', { class: 'source-row' }, this.sources, this.backButton, this.choices = el('div', { class: 'source-options' }, this.recording, this.row)),
      this.agents = el('div', { class: 'agent-choices' }, ...this.choosers.map((chooser) => chooser.box), this.epsilon),
      new HumanControls(this.store, this.session).box,
    );
    this.bindEvents();
  }

  bindEvents() {
    const { session, store } = this;
    this.backButton?.addEventListener('click', () => session.setSource(store.state.preview ? 'checkpoint' : 'training'));
    this.sources?.addEventListener('click', (event) => {
      const source = /** @type {HTMLElement} */ (event.target).dataset.source;
      if (source) session.setSource(/** @type {import('./types.js').Source} */ (source));
    });
    this.epsilon?.addEventListener('change', () => session.setEpsilon(Number(this.epsilon?.value)));
    this.recording?.addEventListener('change', () => session.setSource('recording', Number(this.recording?.value)));
    this.row?.addEventListener('change', () => session.selectRow(this.row?.value ? Number(this.row.value) : null));
    this.overlayButton?.addEventListener('click', () => nextOverlay(store));
    this.saveButton?.addEventListener('click', () => {
      if (store.state.world) downloadCsv(store.state.world, this.playbacks[store.state.side], store.state.run ?? 'episode');
    });
    this.videoButton?.addEventListener('click', () => this.recorder.toggle(store.state.run ?? 'town'));
  }

  show() {
    const { playing, source, detached, row, status, agents, preview } = this.store.state;
    if (!this.backButton || !this.overlayButton) return;
    this.player.showPlaying(playing);
    this.showSpeed();
    this.backButton.hidden = !(preview || (source === 'training' && detached));
    setText(this.backButton, preview ? 'Back to the run’s world' : 'Back to training');
    const label = overlayLabel(this.store.state);
    this.overlayButton.setAttribute('aria-pressed', String(activeOverlay(this.store.state) !== 'none'));
    this.overlayButton.setAttribute('aria-label', `Overlay: ${label}. Change it`);
    this.overlayButton.title = `Overlay: ${label} (V)`;
    for (const button of this.sources?.querySelectorAll('button') ?? []) {
      button.setAttribute('aria-pressed', String(button.dataset.source === source));
    }
    if (this.choices) this.choices.dataset.source = source;
    const played = source === 'checkpoint';
    /** @param {HTMLElement | undefined} element @param {boolean} shown */
    const reveal = (element, shown) => { if (element) element.hidden = !shown; };
    reveal(this.agents, played);
    reveal(this.epsilon, agents.some((agent) => agent.kind === 'policy'));
    reveal(this.choices ?? undefined, !played);
    reveal(this.recording, source === 'recording');
    reveal(this.row, source === 'training' && status?.state === 'running');
    if (this.row) this.row.value = row === null ? '' : String(row);
    document.body.toggleAttribute('data-compare', agents.length > 1);
  }

  /** Show the speed; the live speed of training varies, so it has no number. */
  showSpeed() {
    const { state } = this.store;
    this.player.showSpeed(playbackSpeed(state, this.playbacks[0].start), state.pace === 'live' ? 'live speed' : undefined);
  }

  /** Fill the lists with agents and recordings. */
  fillChoices() {
    const { agents, about, recording } = this.store.state;
    if (!this.choosers || !this.recording) return;
    this.choosers.forEach((chooser, side) => chooser.show(this.store.state, agents[side] ?? null));
    const recordings = [...(about?.recordings ?? [])].reverse();
    this.recording.replaceChildren(...(recordings.length ? recordings.map((one) => el('option', {
      value: one.number,
      text: `${one.kind}: ${one.length} steps, ${causeLabel(one.cause)} (after ${formatCompact(one.env_steps)} training steps)`,
    })) : [el('option', { value: '', text: 'none yet' })]));
    if (recording !== null) this.recording.value = String(recording);
  }

  /** Update position and timeline. */
  updatePosition() {
    const [left, right] = this.playbacks;
    const playback = right.start && right.position > left.position ? right : left; // the agent that lives longer
    const { start, end, lastAge, firstAge: first } = playback;
    if (!start) {
      this.player.clearPosition();
      this.timeline.clear();
      return;
    }
    const { world, theme } = this.store.state;
    let last = Math.max(lastAge, world?.max_steps ?? 1);
    if (end) last = end.length;
    else if (start.length !== null) last = first + start.length;
    if (world) this.timeline.draw(playback, world, first, last, theme);
    this.player.showPosition(Math.floor(playback.position + 1e-6), first, last,
      (age) => `step ${formatCount(age)}${end || start.length !== null ? ` of ${formatCount(last)}` : ''}`);
  }

  showRecording() {
    this.videoButton?.setAttribute('aria-pressed', String(this.recorder.running));
    this.videoButton?.classList.toggle('recording', this.recorder.running);
    this.videoButton?.setAttribute('aria-label', this.recorder.running ? 'Stop and save the video' : 'Record a video');
  }
}

const HEIGHT = 16;

export class Timeline {
  constructor() {
    this.canvas = el('canvas', { class: 'timeline', role: 'img', 'aria-label': 'Timeline of this episode: green where all lethal meters were high, red where one was nearly empty; dots mark uses of affordances' });
    this.drawn = '';
  }

  /** Remove the episode. */
  clear() {
    this.drawn = '';
    this.canvas.width = 0;
  }

  /**
   * @param {import('./playback.js').Playback} playback
   * @param {import('./types.js').World} world
   * @param {number} first @param {number} last ages at both ends
   * @param {string} theme
   */
  draw(playback, world, first, last, theme) {
    const width = this.canvas.clientWidth;
    const key = [playback.start?.episode, playback.timesteps.size, width, last, theme].join();
    if (key === this.drawn || width < 20) return;
    this.drawn = key;
    const ratio = pixelRatio(this.canvas);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = HEIGHT * ratio;
    const ctx = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext('2d'));
    const style = getComputedStyle(this.canvas);
    const colors = { well: style.getPropertyValue('--well'), low: style.getPropertyValue('--low'), critical: style.getPropertyValue('--critical') };
    const cells = playback.start?.cell_of ?? [];
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    // A slider's thumb does not reach its ends: align with its center.
    const inset = 8, step = (width - 2 * inset) / Math.max(1, last - first);
    let used = -1, usedAt = -99;
    for (const timestep of playback.all()) {
      const x = inset + (timestep.age - first) * step;
      const lowest = Math.min(...timestep.meters.filter((_, m) => world.meters[m]?.lethal), 1);
      const action = timestep.action === null ? '' : world.actions[timestep.action] ?? '';
      ctx.fillStyle = colors[meterLevel(lowest)];
      ctx.globalAlpha = 0.75;
      ctx.fillRect(x - step / 2, HEIGHT - 4, Math.max(1, step + 0.4), 4);
      ctx.globalAlpha = 1;
      if (!action.startsWith('INTERACT')) continue;
      const place = world.size.length ? cells.indexOf(timestep.cell) : timestep.action ?? -1;
      if (place < 0 || (place === used && x - usedAt < 7)) continue;
      used = place;
      usedAt = x;
      ctx.fillStyle = affordanceColor(world.affordances[place]);
      ctx.beginPath();
      ctx.arc(x, 5, 3.2, 0, 2 * Math.PI);
      ctx.fill();
    }
  }
}
