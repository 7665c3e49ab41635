/** Episodes of runs that are no towns: which one is rolled out, and which of its moments is shown. */

import { ask, Refused } from './ask.js';
import { checkpointOptions } from './checkpoints.js';
import { byId, make, write } from './dom.js';
import { Film } from './film.js';
import { count } from './format.js';
import { sign } from './icons.js';
import { kindOf } from './kinds.js';
import { MomentPanel } from './moment.js';
import { announce } from './notices.js';
import { Screen } from './screen.js';
import { StepTable } from './steps.js';
import { Transport } from './transport.js';

/** @typedef {import('./state.js').Store} Store */

const POLL = 200; // milliseconds between two questions about an episode that grows
const SPEED = 20; // steps a second at first
const AGAIN = 10000; // milliseconds before an episode that the server has forgotten is asked for once more
const SEEDS = 2 ** 31;

/** @param {number} time */
const wait = (time) => new Promise((done) => { setTimeout(done, time); });

export class Inspector {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    /** @type {Film | null} */
    this.film = null;
    this.at = 0; // moments, with a part of the next
    this.way = 1; // forward or back
    this.playing = false;
    this.speed = SPEED;
    this.asked = 0; // counts wishes, so that answers about another one are dropped
    this.begun = false; // of this run something was rolled out, or tried
    this.revived = -AGAIN;
    this.shown = '';
    this.transport = new Transport('episode', {
      again: () => this.reset(), toggle: () => this.toggle(), step: (by) => this.step(by), seek: (moment) => this.go(moment),
      speed: (speed) => { this.speed = speed; this.transport.showSpeed(speed); },
    });
    this.screen = new Screen();
    this.screen.image.addEventListener('error', () => this.revive());
    this.moment = new MomentPanel();
    this.table = new StepTable((moment) => this.go(moment));
    this.who = make('select', { 'aria-label': 'Which checkpoint plays' });
    this.seed = make('input', { type: 'number', id: 'episode-seed', min: 0, max: SEEDS - 1, step: 1, value: 1, class: 'seed', title: 'Another number gives another episode' });
    this.greedy = make('select', { 'aria-label': 'How it acts' }, make('option', { value: 'greedy', text: 'greedy' }), make('option', { value: 'drawn', text: 'drawn by chance' }));
    this.start = make('button', { type: 'button', class: 'primary', text: 'Roll out an episode', hidden: true });
    this.save = make('button', { type: 'button', class: 'round toggle', 'aria-label': 'Save as CSV', title: 'Save all steps as a table (CSV)', disabled: true }, sign('save'));
    for (const one of [this.who, this.seed, this.greedy]) one.addEventListener('change', () => void this.roll());
    this.start.addEventListener('click', () => void this.roll());
    this.save.addEventListener('click', () => this.download());
    store.on(['about'], () => this.enter());
    store.on(['checkpoints', 'status'], () => this.offer());
  }

  /** Another run: what was shown is forgotten, and controls that nobody needs are not in the page. */
  enter() {
    const on = kindOf(this.store.known) === 'gym';
    this.asked += 1;
    this.film = null;
    this.begun = this.playing = false;
    this.who.value = '';
    this.transport.showPlaying(false);
    this.transport.showSpeed(this.speed);
    this.screen.clear('');
    this.screen.frame.append(this.start);
    byId('episode-body').replaceChildren(...(on ? [this.screen.frame, this.screen.looks, make('div', { class: 'controls' },
      this.transport.line(), this.transport.row(this.save),
      make('div', { class: 'choices', 'data-source': 'checkpoint' }, this.who, this.greedy, make('label', { class: 'seed-label', for: 'episode-seed' }, 'seed', this.seed)))] : []));
    byId('step-body').replaceChildren(...(on ? [this.moment.box] : []));
    byId('steps-body').replaceChildren(...(on ? [this.table.box] : []));
    this.show();
  }

  /** Checkpoints to choose from. Beside a training nobody plays unasked: it would take time from it. */
  offer() {
    const { known } = this.store;
    if (kindOf(known) !== 'gym') return;
    const { checkpoints, status } = known;
    if (!checkpoints.length && this.begun) return; // the server is back, and tells them anew
    const chosen = this.who.value || 'best';
    this.who.replaceChildren(...checkpointOptions(checkpoints));
    this.who.value = chosen;
    if (this.who.value !== chosen) this.who.value = 'best';
    const ready = checkpoints.length > 0;
    if (ready && !this.begun && status && status.state !== 'running') void this.roll();
    this.start.hidden = this.begun || !ready;
    if (!this.begun) this.screen.say(ready ? '' : 'No checkpoint was saved yet: an episode can be rolled out from the first one on.');
  }

  /** Let the chosen checkpoint play. @param {number} [at] the moment to go to */
  async roll(at = 0) {
    const { run } = this.store.known;
    if (!run) return;
    this.asked += 1;
    const mine = this.asked;
    this.begun = true;
    this.start.hidden = true;
    this.film = null;
    this.at = at;
    this.playing = at === 0;
    this.screen.clear('Rolling out an episode …');
    const seed = Math.min(SEEDS - 1, Math.max(0, Math.round(Number(this.seed.value) || 0)));
    this.seed.value = String(seed);
    try {
      const { episode } = await ask(`api/runs/${encodeURIComponent(run)}/episodes`, { checkpoint: this.who.value || 'best', seed, greedy: this.greedy.value === 'greedy' });
      await this.follow(new Film(run, episode), mine);
    } catch (error) {
      if (mine !== this.asked) return;
      this.film = null;
      this.screen.clear(error instanceof Error ? `${error.message}${error instanceof Refused && error.fix ? `: ${error.fix}` : ''}.` : String(error));
    }
    this.show();
  }

  /** Take in what comes of an episode until it is over, or another one is wished for. @param {Film} film @param {number} mine */
  async follow(film, mine) {
    while (!film.over) {
      const part = await ask(`${film.path}?since=${film.since}`);
      if (mine !== this.asked) return;
      film.take(part);
      if (film.known) this.film = film;
      this.show();
      if (!film.over) await wait(POLL);
    }
    if (film.problem) throw new Error(`It could not be rolled out: ${film.problem}`);
    announce(`The episode has ${count(film.steps)} steps.`);
  }

  /** The server has forgotten the episode: it is rolled out again, and shown where it was. */
  revive() {
    if (!this.film || performance.now() - this.revived < AGAIN) return;
    this.revived = performance.now();
    void this.roll(Math.floor(this.at));
  }

  /** Another episode. */
  reset() {
    this.seed.value = String((Number(this.seed.value) + 1) % SEEDS);
    void this.roll();
  }

  get last() {
    return Math.max(0, (this.film?.known ?? 1) - 1);
  }

  toggle() {
    if (!this.film) return;
    if (!this.playing && this.film.over && this.at >= this.last) this.at = 0;
    this.playing = !this.playing;
    this.show();
  }

  /** @param {number} by */
  step(by) {
    this.playing = false;
    this.go(Math.floor(this.at) + by);
  }

  /** @param {number} moment */
  go(moment) {
    const to = Math.min(this.last, Math.max(0, Math.round(moment)));
    this.way = to < this.at ? -1 : 1;
    this.at = to;
    this.show();
  }

  /** So many seconds went by. @param {number} seconds */
  tick(seconds) {
    if (this.film && this.playing && !this.transport.held) {
      this.way = 1;
      this.at = Math.min(this.last, this.at + this.speed * seconds);
      if (this.film.over && this.at >= this.last) this.playing = false;
    }
    this.show();
  }

  show() {
    const { film } = this;
    const at = Math.floor(this.at + 1e-6);
    this.transport.showPlaying(this.playing);
    this.save.disabled = !film;
    write(byId('episode-who'), film?.about ? `${film.about.who}, ${film.about.greedy ? 'greedy' : 'drawn'}, seed ${film.about.seed}` : '');
    write(byId('steps-note'), !film ? '' : film.over ? film.end : `${count(film.steps)} so far …`);
    if (!film) return;
    const shown = Math.min(at, this.last);
    this.screen.show(film, shown, this.way);
    this.transport.showMoment(shown, 0, this.last, (now) => `step ${count(now)}${film.over ? ` of ${count(this.last)}` : ''}`);
    const key = [film.path, shown, film.known, film.over].join();
    if (key === this.shown) return;
    this.shown = key;
    this.moment.show(film, shown);
    this.table.show(film, shown);
  }

  download() {
    if (!this.film) return;
    const link = make('a', { href: `${this.film.path}/steps.csv`, download: '' });
    link.click();
  }
}
