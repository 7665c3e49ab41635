/** Trainings started on this page: recipe and budget, what is running, and the button that stops it. */

import { ApiError, request } from './api.js';
import { byId, el, setText } from './dom.js';
import { formatCompact, formatCount, plural, sentence } from './format.js';
import { announce, toast } from './notifications.js';

/**
 * @typedef {import('./types.js').TrainingJob} TrainingJob
 * @typedef {import('./types.js').TrainingChoice} TrainingChoice
 */

const POLL = 1000; // milliseconds, while a training runs
const START_SECONDS = 15; // typical time from the click to the first step
const STEPS = [2e4, 5e4, 1e5, 2e5, 5e5, 1e6, 2e6, 5e6, 1e7, 2e7];

export class TrainingControl {
  /** @param {import('./state.js').Store} store @param {import('./runs-controller.js').RunsController} runs */
  constructor(store, runs) {
    this.store = store;
    this.runs = runs;
    /** @type {TrainingChoice[]} */
    this.choices = [];
    /** @type {TrainingJob | null} */
    this.job = null; // the last one that was started here
    this.opened = ''; // run of a job that was opened
    this.polling = false;
    this.world = ''; // the shipped world whose recipes are offered
    this.variant = el('select', { id: 'train-variant' });
    this.about = el('small');
    this.steps = el('input', { type: 'range', id: 'train-steps', min: 0, max: STEPS.length - 1, step: 1, value: 4 });
    this.stepsText = el('output', { for: 'train-steps' });
    this.time = el('small');
    this.maxMinutes = Infinity;
    this.button = el('button', { type: 'button', class: 'primary', text: 'Start training' });
    this.output = el('p', { class: 'check-result', role: 'status' });
    this.startedAt = 0;
    this.seconds = el('span', { class: 'muted', 'aria-hidden': 'true' });
    this.waiting = el('p', { class: 'training-start', hidden: true }, el('progress', { 'aria-label': 'The training is starting' }), this.seconds);
    this.result = el('div', {}, this.output, this.waiting);
    this.stopButton = byId('stop-button');
    this.stopButton.addEventListener('click', () => void this.stop());
    this.steps.addEventListener('input', () => this.showSteps());
    this.variant.addEventListener('change', () => this.showVariant());
    store.on(['run', 'status'], () => this.showStop());
    store.on(['run', 'operator'], () => { if (!this.job) void this.findRunning(); });
    setInterval(() => { if (this.job?.state === 'running' && !this.polling) void this.poll(); }, POLL);
  }

  /** Labels and controls of recipe and budget. */
  fields() {
    return [
      el('label', { for: 'train-variant', text: 'How it learns' }), el('div', {}, this.variant, this.about),
      el('label', { for: 'train-steps', text: 'How long' }), el('div', {}, el('div', { class: 'form-slider' }, this.steps, this.stepsText), this.time),
    ];
  }

  /** Offer the recipes that fit the edited world. @param {() => string} text */
  watchWorld(text) {
    this.store.on(['view', 'worldChecked'], () => { if (this.store.state.view === 'world') void this.loadChoices(text()); });
  }

  /** Recipes for the shipped world that the text extends. @param {string} text */
  async loadChoices(text) {
    const world = /^extends:\s*["']?([\w-]+)/m.exec(text)?.[1] ?? 'town';
    if (this.world === world) return;
    this.world = world;
    const answer = await request(`api/trainings?world=${encodeURIComponent(world)}`).catch(() => null);
    if (!answer) return;
    this.choices = answer.choices;
    this.maxMinutes = answer.max_minutes;
    this.variant.replaceChildren(...this.choices.map((one) => el('option', { value: one.variant, text: one.recommended ? `${one.variant} (recommended)` : one.variant })));
    this.variant.value = this.choices.find((one) => one.recommended)?.variant ?? this.variant.value;
    this.showVariant();
  }

  get choice() {
    return this.choices.find((one) => one.variant === this.variant.value);
  }

  showVariant() {
    const { choice } = this;
    setText(this.about, choice?.description ?? '');
    if (!choice) return;
    const nearest = STEPS.reduce((best, steps, k) => (Math.abs(Math.log(steps / choice.env_steps)) < Math.abs(Math.log(STEPS[best] / choice.env_steps)) ? k : best), 0);
    this.steps.value = String(nearest);
    this.showSteps();
  }

  showSteps() {
    const steps = STEPS[Number(this.steps.value)], speed = this.choice?.steps_per_second;
    setText(this.stepsText, `${formatCompact(steps)} steps`);
    setText(this.time, speed ? sentence(duration(steps / speed / 60, this.maxMinutes))
      : `At most ${this.maxMinutes} minutes. How long it takes on this machine is known after the first training.`);
  }

  /** @param {string} world its file name @param {string} text */
  async start(world, text) {
    this.button.disabled = true;
    this.output.dataset.verdict = 'none';
    setText(this.output, 'Starting …');
    this.startedAt = performance.now();
    this.showWaiting(true);
    try {
      this.job = await request('api/trainings', { world, text, variant: this.variant.value, env_steps: STEPS[Number(this.steps.value)] });
      const stored = this.job?.title.split(':')[0] ?? world; // with a number, if the name was taken
      setText(this.output, `Saved as ${stored}.yaml. The training is starting; its town opens in about ${START_SECONDS} seconds.`);
      announce('The training is starting.');
    } catch (error) {
      this.showWaiting(false);
      this.output.dataset.verdict = 'wrong';
      setText(this.output, sentence(`${error instanceof Error ? error.message : error}${error instanceof ApiError && error.fix ? `: ${error.fix}` : ''}`));
      this.button.disabled = false;
    }
  }

  /** Show for how long a training has been starting: loading PyTorch and compiling take a while. @param {boolean} on */
  showWaiting(on) {
    this.waiting.hidden = !on;
    setText(this.seconds, `${Math.round((performance.now() - this.startedAt) / 1000)} s`);
  }

  /** Find the training that was started here before the page was loaded again. */
  async findRunning() {
    if (!this.store.state.operator) return;
    const answer = await request('api/trainings').catch(() => null);
    const found = answer?.jobs.find((/** @type {TrainingJob} */ one) => one.state === 'running');
    if (!found || this.job) return;
    this.job = found;
    this.opened = found.run ?? '';
    this.button.disabled = true;
    this.showStop();
  }

  async poll() {
    this.polling = true;
    await this.update().finally(() => { this.polling = false; });
  }

  async update() {
    const answer = await request('api/trainings').catch(() => null);
    if (!answer) return;
    const job = answer.jobs.find((/** @type {TrainingJob} */ one) => one.id === this.job?.id);
    if (!job) { // it ended with a server that was started again since
      this.job = null;
      this.button.disabled = false;
      setText(this.output, 'The training ended with the server; its run is saved.');
      this.showStop();
      return;
    }
    this.job = job;
    this.showWaiting(job.state === 'running' && !job.run);
    if (job.run && this.opened !== job.run) {
      await this.runs.loadRuns();
      if (await this.runs.open(job.run, true)) {
        this.opened = job.run;
        this.store.set({ view: 'watch' });
      }
    }
    if (job.state !== 'running') {
      this.button.disabled = false;
      this.output.dataset.verdict = job.state === 'failed' ? 'wrong' : 'right';
      const text = job.state === 'failed' ? `It failed: ${job.error}` : `The training has ${job.state === 'stopped' ? 'been stopped; its run is saved' : 'finished'}.`;
      setText(this.output, text);
      announce(text);
    }
    this.showStop();
  }

  showStop() {
    const { run, status } = this.store.state;
    this.stopButton.hidden = !(this.job?.state === 'running' && this.job.run !== null && this.job.run === run && status?.state !== 'finished');
  }

  async stop() {
    if (!this.job) return;
    try {
      await request(`api/trainings/${this.job.id}/stop`, {});
      toast('The training is stopping', 'Its run is saved');
    } catch {
      toast('The training could not be stopped', 'Try again');
    }
  }
}

/** How long a training takes. @param {number} minutes estimated @param {number} limit minutes after which it is stopped */
function duration(minutes, limit) {
  if (minutes > limit) return `${limit} minutes, the limit: all steps would take about ${formatCount(minutes)} on this machine`;
  return minutes < 1 ? 'less than a minute on this machine' : `about ${plural(Math.round(minutes), 'minute')} on this machine`;
}
