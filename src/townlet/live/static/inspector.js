/** The episode inspector of Gymnasium runs: requests rollouts and plays them. */

import { request, ApiError } from './api.js';
import { byId, el, setText } from './dom.js';
import { gifButton } from './gif.js';
import { GymEpisode } from './gym-episode.js';
import { gymGif } from './gym-gif.js';
import { formatCount, runKind } from './format.js';
import { icon } from './icons.js';
import { StepPanel } from './step-panel.js';
import { announce } from './notifications.js';
import { FrameView } from './frame-view.js';
import { StepTable } from './step-table.js';
import { checkpointOptions, PlayerControls } from './player-controls.js';

/** @typedef {import('./state.js').Store} Store */

const POLL_INTERVAL = 200; // milliseconds
const DEFAULT_SPEED = 20; // steps per second
const RETRY_AFTER = 10000; // milliseconds before an evicted episode is requested again
const SEEDS = 2 ** 31;

/** @param {number} time */
const wait = (time) => new Promise((done) => { setTimeout(done, time); });

export class Inspector {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    /** @type {GymEpisode | null} */
    this.episode = null;
    this.position = 0; // timestep, with the fraction of the next
    this.direction = 1; // 1 forward, −1 back
    this.playing = false;
    this.speed = DEFAULT_SPEED;
    this.requests = 0; // number of rollouts requested so far, to ignore late responses
    this.started = false; // a rollout of this run was requested
    this.lastRetry = -RETRY_AFTER;
    this.shown = '';
    this.player = new PlayerControls('episode', {
      reset: () => this.reset(), toggle: () => this.toggle(), step: (by) => this.step(by), seek: (timestep) => this.seek(timestep),
      speed: (speed) => { this.speed = speed; this.player.showSpeed(speed); },
    });
    this.frameView = new FrameView();
    this.frameView.image.addEventListener('error', () => this.rollOutAgain());
    this.stepPanel = new StepPanel();
    this.stepTable = new StepTable((timestep) => this.inspect(timestep));
    this.checkpoint = el('select', { 'aria-label': 'Checkpoint to play' });
    this.seed = el('input', { type: 'number', id: 'episode-seed', min: 0, max: SEEDS - 1, step: 1, value: 1, class: 'seed', title: 'Seed of the environment' });
    this.selection = el('select', { 'aria-label': 'Action selection' }, el('option', { value: 'greedy', text: 'greedy' }), el('option', { value: 'sampled', text: 'sampled' }));
    this.startButton = el('button', { type: 'button', class: 'primary', text: 'Roll out an episode', hidden: true });
    this.saveButton = el('button', { type: 'button', class: 'round-button toggle', 'aria-label': 'Save as CSV', title: 'Save all steps as a table (CSV)', disabled: true }, icon('save'));
    this.gifButton = gifButton(() => (this.episode ? gymGif(this.episode, store.state.about?.env ?? '') : ''));
    for (const one of [this.checkpoint, this.seed, this.selection]) one.addEventListener('change', () => void this.rollOut());
    this.startButton.addEventListener('click', () => void this.rollOut());
    this.saveButton.addEventListener('click', () => this.download());
    store.on(['about'], () => this.onRunChange());
    store.on(['checkpoints', 'status'], () => this.updateChoices());
  }

  /** Reset for another run; the controls exist only for Gymnasium runs. */
  onRunChange() {
    const on = runKind(this.store.state) === 'gym';
    this.requests += 1;
    this.episode = null;
    this.started = this.playing = false;
    this.checkpoint.value = '';
    this.player.showPlaying(false);
    this.player.showSpeed(this.speed);
    this.frameView.clear('');
    this.frameView.frame.append(this.startButton);
    byId('episode-body').replaceChildren(...(on ? [this.frameView.frame, this.frameView.observationImages, el('div', { class: 'controls' },
      this.player.scrubRow(), this.player.buttonRow(this.gifButton, this.saveButton),
      el('div', { class: 'source-options', 'data-source': 'checkpoint' }, this.checkpoint, this.selection, el('label', { class: 'seed-label', for: 'episode-seed' }, 'seed', this.seed)))] : []));
    byId('step-body').replaceChildren(...(on ? [this.stepPanel.box] : []));
    byId('step-table-body').replaceChildren(...(on ? [this.stepTable.box] : []));
    this.show();
  }

  /** Update the list of checkpoints. During training nothing is rolled out automatically, to save CPU time. */
  updateChoices() {
    const { state } = this.store;
    if (runKind(state) !== 'gym') return;
    const { checkpoints, status } = state;
    if (!checkpoints.length && this.started) return; // reconnected: the server sends them again
    const chosen = this.checkpoint.value || 'best';
    this.checkpoint.replaceChildren(...checkpointOptions(checkpoints));
    this.checkpoint.value = chosen;
    if (this.checkpoint.value !== chosen) this.checkpoint.value = 'best';
    const ready = checkpoints.length > 0;
    if (ready && !this.started && status && status.state !== 'running') void this.rollOut();
    this.startButton.hidden = this.started || !ready;
    if (!this.started) this.frameView.setNote(ready ? '' : 'No checkpoint yet: episodes can be rolled out once the first one is saved.');
  }

  /** Roll out an episode of the chosen checkpoint. @param {number} [at] timestep to show */
  async rollOut(at = 0) {
    const { run } = this.store.state;
    if (!run) return;
    this.requests += 1;
    const requestId = this.requests;
    this.started = true;
    this.startButton.hidden = true;
    this.episode = null;
    this.position = at;
    this.playing = at === 0;
    this.frameView.clear('Rolling out an episode …');
    const seed = Math.min(SEEDS - 1, Math.max(0, Math.round(Number(this.seed.value) || 0)));
    this.seed.value = String(seed);
    try {
      const { episode } = await request(`api/runs/${encodeURIComponent(run)}/episodes`, { checkpoint: this.checkpoint.value || 'best', seed, greedy: this.selection.value === 'greedy' });
      await this.poll(new GymEpisode(run, episode), requestId);
    } catch (error) {
      if (requestId !== this.requests) return;
      this.episode = null;
      this.frameView.clear(error instanceof Error ? `${error.message}${error instanceof ApiError && error.fix ? `: ${error.fix}` : ''}.` : String(error));
    }
    this.show();
  }

  /** Poll an episode until it is complete or another one is requested. @param {GymEpisode} episode @param {number} requestId */
  async poll(episode, requestId) {
    while (!episode.over) {
      const part = await request(`${episode.path}?since=${episode.since}`);
      if (requestId !== this.requests) return;
      episode.append(part);
      if (episode.known) this.episode = episode;
      this.show();
      if (!episode.over) await wait(POLL_INTERVAL);
    }
    if (episode.error) throw new Error(`The episode could not be rolled out: ${episode.error}`);
    announce(`The episode has ${formatCount(episode.steps)} steps.`);
  }

  /** Roll out an evicted episode again, at the same timestep. */
  rollOutAgain() {
    if (!this.episode || performance.now() - this.lastRetry < RETRY_AFTER) return;
    this.lastRetry = performance.now();
    void this.rollOut(Math.floor(this.position));
  }

  /** Roll out the next seed. */
  reset() {
    this.seed.value = String((Number(this.seed.value) + 1) % SEEDS);
    void this.rollOut();
  }

  get last() {
    return Math.max(0, (this.episode?.known ?? 1) - 1);
  }

  toggle() {
    if (!this.episode) return;
    if (!this.playing && this.episode.over && this.position >= this.last) this.position = 0;
    this.playing = !this.playing;
    this.show();
  }

  /** @param {number} by */
  step(by) {
    this.inspect(Math.floor(this.position) + by);
  }

  /** Stop at a step. @param {number} timestep */
  inspect(timestep) {
    this.playing = false;
    this.seek(timestep);
  }

  /** @param {number} timestep */
  seek(timestep) {
    const to = Math.min(this.last, Math.max(0, Math.round(timestep)));
    this.direction = to < this.position ? -1 : 1;
    this.position = to;
    this.show();
  }

  /** Advance by `seconds`. @param {number} seconds */
  tick(seconds) {
    if (this.episode && this.playing && !this.player.scrubbing) {
      this.direction = 1;
      this.position = Math.min(this.last, this.position + this.speed * seconds);
      if (this.episode.over && this.position >= this.last) this.playing = false;
    }
    this.show();
  }

  show() {
    const { episode } = this;
    const at = Math.floor(this.position + 1e-6);
    this.player.showPlaying(this.playing);
    this.saveButton.disabled = !episode;
    this.gifButton.hidden = !episode?.frameCount;
    setText(byId('episode-label'), episode?.about ? `${episode.about.label}, ${episode.about.greedy ? 'greedy' : 'sampled'}, seed ${episode.about.seed}` : '');
    setText(byId('step-table-note'), !episode ? '' : episode.over ? episode.endText : `${formatCount(episode.steps)} so far …`);
    if (!episode) return;
    const shown = Math.min(at, this.last);
    this.frameView.show(episode, shown, this.direction);
    this.player.showPosition(shown, 0, this.last, (now) => `step ${formatCount(now)}${episode.over ? ` of ${formatCount(this.last)}` : ''}`);
    const key = [episode.path, shown, episode.known, episode.over].join();
    if (key === this.shown) return;
    this.shown = key;
    this.stepPanel.show(episode, shown);
    this.stepTable.show(episode, shown);
  }

  download() {
    if (!this.episode) return;
    const link = el('a', { href: `${this.episode.path}/steps.csv`, download: '' });
    link.click();
  }
}
