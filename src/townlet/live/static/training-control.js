/** Trainings started on this page: the form, what is running, and the button that stops it. */

import { ApiError, request } from './api.js';
import { byId, el, setText } from './dom.js';
import { formatCompact, sentence } from './format.js';
import { announce, toast } from './notifications.js';

/**
 * @typedef {import('./types.js').TrainingJob} TrainingJob
 * @typedef {import('./types.js').TrainingChoice} TrainingChoice
 */

const POLL = 1000; // milliseconds, while a training runs
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
    this.name = el('input', { type: 'text', id: 'train-name', value: 'my-town', pattern: '[a-z][a-z0-9\\-]{0,39}', maxlength: 40, required: true, autocomplete: 'off', spellcheck: 'false', title: 'Lowercase letters, digits and dashes, starting with a letter' });
    this.variant = el('select', { id: 'train-variant' });
    this.about = el('small');
    this.steps = el('input', { type: 'range', id: 'train-steps', min: 0, max: STEPS.length - 1, step: 1, value: 4 });
    this.stepsText = el('output');
    this.button = el('button', { type: 'submit', class: 'primary', text: 'Start training' });
    this.output = el('p', { class: 'check-result', role: 'status' });
    this.stopButton = byId('stop-button');
    this.stopButton.addEventListener('click', () => void this.stop());
    this.steps.addEventListener('input', () => this.showSteps());
    this.variant.addEventListener('change', () => this.showVariant());
    store.on(['run', 'status'], () => this.showStop());
    store.on(['run', 'operator'], () => { if (!this.job) void this.findRunning(); });
    setInterval(() => { if (this.job?.state === 'running' && !this.polling) void this.poll(); }, POLL);
  }

  /** The form below the editor. @param {() => string} text of the world */
  makeForm(text) {
    const form = el('form', { class: 'train-form operator-only' },
      el('h3', { text: 'Train an agent here' }),
      el('p', { class: 'muted', text: 'Saves this world under the name, and starts a training in it on this computer. Its town and its curve open at once.' }),
      el('div', { class: 'train-fields' },
        el('label', { for: 'train-name', text: 'Name' }), this.name,
        el('label', { for: 'train-variant', text: 'How it learns' }), el('div', {}, this.variant, this.about),
        el('label', { for: 'train-steps', text: 'How long' }), el('div', { class: 'form-slider' }, this.steps, this.stepsText)),
      this.button, this.output);
    form.addEventListener('submit', (event) => {
      event.preventDefault();
      void this.start(text());
    });
    this.store.on(['view', 'worldChecked'], () => { if (this.store.state.view === 'world') void this.loadChoices(text()); });
    return form;
  }

  /** Recipes for the shipped world that the text extends. @param {string} text */
  async loadChoices(text) {
    const world = /^extends:\s*["']?([\w-]+)/m.exec(text)?.[1] ?? 'town';
    if (this.world === world) return;
    this.world = world;
    const answer = await request(`api/trainings?world=${encodeURIComponent(world)}`).catch(() => null);
    if (!answer) return;
    this.choices = answer.choices;
    this.variant.replaceChildren(...this.choices.map((one) => el('option', { value: one.variant, text: one.variant })));
    this.showVariant();
  }

  showVariant() {
    const choice = this.choices.find((one) => one.variant === this.variant.value);
    setText(this.about, choice?.description ?? '');
    if (!choice) return;
    const nearest = STEPS.reduce((best, steps, k) => (Math.abs(Math.log(steps / choice.env_steps)) < Math.abs(Math.log(STEPS[best] / choice.env_steps)) ? k : best), 0);
    this.steps.value = String(nearest);
    this.showSteps();
  }

  showSteps() {
    setText(this.stepsText, `${formatCompact(STEPS[Number(this.steps.value)])} steps`);
  }

  /** @param {string} text */
  async start(text) {
    this.button.disabled = true;
    this.output.dataset.verdict = 'none';
    setText(this.output, 'Starting …');
    try {
      this.job = await request('api/trainings', { world: this.name.value, text, variant: this.variant.value, env_steps: STEPS[Number(this.steps.value)] });
      this.name.value = this.job?.title.split(':')[0] ?? this.name.value; // with a number, if the name was taken
      setText(this.output, `The training in ${this.name.value} is starting; its town opens in a few seconds.`);
      announce('The training is starting.');
    } catch (error) {
      this.output.dataset.verdict = 'wrong';
      setText(this.output, sentence(`${error instanceof Error ? error.message : error}${error instanceof ApiError && error.fix ? `: ${error.fix}` : ''}`));
      this.button.disabled = false;
    }
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
      setText(this.output, job.state === 'failed' ? `It failed: ${job.error}` : `The training has ${job.state === 'stopped' ? 'been stopped; its run is saved' : 'finished'}.`);
    }
    this.showStop();
  }

  showStop() {
    this.stopButton.hidden = !(this.job?.state === 'running' && this.job.run !== null && this.job.run === this.store.state.run);
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
