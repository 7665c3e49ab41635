/** Who decides now, how fast, and what an operator may do about it; nothing is done without a second click. */

import { ask, Refused } from './ask.js';
import { Tiles } from './decide-bars.js';
import { lasting, Recently } from './decide-time.js';
import { byId, make, write } from './dom.js';
import { count, figure } from './format.js';
import { announce, toast } from './notices.js';

/**
 * @typedef {import('./decide-types.js').Stats} Stats
 * @typedef {object} Wish
 * @property {string} title
 * @property {string} text what happens then
 * @property {string} act on the button
 * @property {boolean} [grave]
 * @property {string} [hold] a choice that goes with it
 * @property {boolean} [why] whether a reason is kept with it
 * @property {(reason: string, hold: boolean) => Promise<unknown>} fulfil
 */

const NEWEST = 'the one that serves';
const LATENCY = { p50: 'half within', p99: '99% within' };

export class Control {
  constructor() {
    this.headline = make('p', { class: 'headline', id: 'who-decides' });
    this.since = make('p', { class: 'quiet', id: 'who-since' });
    this.tiles = new Tiles({ per_second: 'decisions a second', p50: 'half answered in', p99: '99% answered in', games: 'games', waiting: 'waiting', overloaded: 'overloaded' });
    this.curve = new Recently('Decisions a second', [{ name: 'decisions_per_second', label: 'a second', colour: '--second', fill: true }], 112);
    this.latency = new Recently('Latency, in ms', [
      { name: 'p50_ms', label: 'p50', colour: '--third', fill: true }, { name: 'p99_ms', label: 'p99', colour: '--accent' }], 112);
    this.legend = make('ul', { class: 'legend' }, ...Object.entries(LATENCY).map(([name, text]) => make('li', { class: name, text: `${name}, ${text}` })));
    this.choice = make('select', { id: 'pin-choice', 'aria-label': 'Version to pin' });
    this.pinButton = this.button('Pin …', 'pin-button', () => this.pin());
    this.unpinButton = this.button('Unpin …', 'unpin-button', () => this.unpin());
    this.backButton = this.button('Roll back …', 'rollback-button', () => this.rollBack());
    this.killButton = this.button('', 'kill-switch', () => this.kill());
    this.killButton.classList.add('kill');
    this.killButton.setAttribute('role', 'switch');
    byId('control-body').append(
      make('div', { class: 'verdict-line' }, this.headline, this.since), this.tiles.box,
      this.curve.box, make('div', {}, this.latency.box, this.legend),
      make('p', { class: 'read-only quiet', text: 'This link is read-only: the operator’s link has the controls.' }),
      make('div', { class: 'operator operator-only', role: 'group', 'aria-label': 'Operator' },
        make('span', { class: 'pin-line' }, this.choice, this.pinButton), this.unpinButton, this.backButton, this.killButton));
    /** @type {Stats | null} */
    this.stats = null;
  }

  /** @param {string} text @param {string} id @param {() => void} act */
  button(text, id, act) {
    const button = make('button', { type: 'button', id, text });
    button.addEventListener('click', act);
    return button;
  }

  /** @param {Stats} stats */
  show(stats) {
    this.stats = stats;
    const { service, versions, decisions, curves } = stats;
    const { pinned, serving } = versions;
    document.body.toggleAttribute('data-gate-only', service.gate_only);
    document.body.toggleAttribute('data-pinned', pinned !== null);
    write(this.headline, service.gate_only ? 'The gate decides alone' : serving === null ? 'No version serves yet'
      : pinned !== null ? `Version ${serving} decides, pinned` : `Version ${serving} decides`);
    const change = [...versions.chapters].reverse().find((one) => one.served);
    const since = change ? `for ${lasting(service.now - change.at)}: ${change.reason}` : '';
    write(this.since, service.gate_only ? `No network is asked. Version ${serving ?? '–'} waits, and learning goes on.` : since);
    this.since.title = since;
    const most = decisions.p99_ms;
    this.tiles.show({
      per_second: figure(decisions.per_second), p50: ms(decisions.p50_ms), p99: ms(most), games: count(service.games),
      waiting: count(decisions.waiting), overloaded: count(decisions.overloaded),
    }, { overloaded: stats.alarms.some((alarm) => alarm.name === 'overload') });
    this.curve.show(curves, service.now);
    this.latency.show(curves, service.now);
    this.legend.hidden = this.latency.box.hidden;
    this.offer(stats);
  }

  /** Which buttons make sense now. @param {Stats} stats */
  offer({ versions, service }) {
    const { before, pinned } = versions;
    write(this.backButton, before === null ? 'Roll back …' : `Roll back to ${before} …`);
    this.backButton.disabled = before === null || pinned !== null;
    this.backButton.title = pinned !== null ? 'Unpin first' : before === null ? 'Nothing served before' : '';
    this.unpinButton.hidden = pinned === null;
    write(this.killButton, service.gate_only ? 'Let the network decide …' : 'Gate only …');
    this.killButton.setAttribute('aria-checked', String(service.gate_only));
    this.killButton.setAttribute('aria-label', service.gate_only ? 'Kill switch, on: the gate decides alone. Put it back' : 'Kill switch: let the gate decide alone');
    // A list that somebody has opened must not change under the pointer.
    if (document.activeElement === this.choice) return;
    const kept = versions.versions.map((one) => one.version).reverse();
    const key = kept.join();
    if (this.choice.dataset.key === key) return;
    const chosen = this.choice.value;
    this.choice.dataset.key = key;
    this.choice.replaceChildren(make('option', { value: '', text: NEWEST }), ...kept.map((one) => make('option', { value: one, text: `version ${one}` })));
    if (kept.includes(Number(chosen))) this.choice.value = chosen;
  }

  pin() {
    const version = Number(this.choice.value) || this.stats?.versions.serving;
    if (!version) return;
    confirmed({
      title: `Pin version ${version}?`, act: 'Pin it', why: true,
      text: 'It serves from now on, whatever is learned, until you unpin it. Learning goes on, and what it would have promoted is noted.',
      fulfil: (reason) => ask('api/decide/pin', { version, reason }).then(() => { this.choice.value = ''; }),
    });
  }

  unpin() {
    confirmed({
      title: `Unpin version ${this.stats?.versions.pinned}?`, act: 'Unpin it', why: true,
      text: 'It serves until the next version is promoted. That may be within a second.',
      fulfil: (reason) => ask('api/decide/unpin', { reason }),
    });
  }

  rollBack() {
    // Asked for by its number: another may have served before by the time that somebody has said why.
    const version = this.stats?.versions.before;
    if (!version) return;
    confirmed({
      title: `Roll back to version ${version}?`, act: `Roll back to ${version}`, why: true, grave: true,
      text: `Version ${version}, which served before, serves again at once.`,
      hold: 'Pin it there. Otherwise the next promotion may replace it within a second.',
      fulfil: (reason, hold) => ask('api/decide/rollback', { version, reason, hold }),
    });
  }

  kill() {
    const on = !this.stats?.service.gate_only;
    confirmed({
      title: on ? 'Let the gate decide alone?' : 'Let the network decide again?', act: on ? 'Gate only' : 'Let it decide', grave: on, why: true,
      text: on ? 'From the next observation on no network is asked: every decision is what the gate rates highest. Outcomes are still joined, and learning goes on. It stays so, also over a restart, until you put it back.'
        : 'From the next observation on the version that serves decides again, and the gate approves.',
      fulfil: (reason) => ask('api/decide/gate-only', { on, reason }),
    });
  }

  recolour() {
    this.curve.recolour();
    this.latency.recolour();
  }
}

/** @param {number | null} value */
const ms = (value) => (value === null ? '–' : `${figure(value, 2)} ms`);

/** Ask whether it is meant, and do it. @param {Wish} wish */
function confirmed({ title, text, act, grave, hold, why, fulfil }) {
  const dialog = /** @type {HTMLDialogElement} */ (byId('confirm'));
  const reason = make('input', { type: 'text', id: 'confirm-reason', maxlength: 200, placeholder: 'by hand', autocomplete: 'off' });
  const held = make('input', { type: 'checkbox', checked: true });
  const yes = make('button', { type: 'submit', class: grave ? 'primary grave' : 'primary', text: act });
  const no = make('button', { type: 'button', text: 'Cancel' });
  no.addEventListener('click', () => dialog.close());
  const form = make('form', { method: 'dialog' },
    make('h2', { id: 'confirm-title', text: title }), make('p', { text }),
    hold ? make('label', { class: 'check' }, held, make('span', { text: hold })) : null,
    why ? make('label', { class: 'reason' }, make('span', { text: 'Why, for the history' }), reason) : null,
    make('div', { class: 'answers' }, no, yes));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    yes.disabled = true;
    try {
      await fulfil(reason.value.trim() || 'by hand', Boolean(hold) && held.checked);
      announce('Done.');
    } catch (error) {
      toast(error instanceof Refused ? error.message : 'the service does not answer', error instanceof Refused ? error.fix : 'nothing was changed');
    }
    dialog.close();
  });
  dialog.replaceChildren(form);
  dialog.showModal();
}
