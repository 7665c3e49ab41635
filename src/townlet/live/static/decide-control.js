/** The "Control" panel: serving version, latency, and the operator's controls, each with a confirmation. */

import { request, ApiError } from './api.js';
import { formatDuration, RecentChart, Tiles } from './decide-charts.js';
import { byId, el, setText } from './dom.js';
import { formatCount, formatNumber } from './format.js';
import { announce, toast } from './notifications.js';

/**
 * @typedef {import('./decide-types.js').Stats} Stats
 * @typedef {object} Confirmation
 * @property {string} title
 * @property {string} text consequences
 * @property {string} label text of the button that confirms
 * @property {boolean} [dangerous]
 * @property {string} [pin] label of an optional checkbox
 * @property {(reason: string, pin: boolean) => Promise<unknown>} onConfirm
 */

const SERVING = 'serving version'; // the default in the list of versions to pin
const LATENCY = { p50: 'median', p99: '99th percentile' };

export class ControlPanel {
  constructor() {
    this.headline = el('p', { class: 'headline', id: 'serving' });
    this.since = el('p', { class: 'muted', id: 'serving-since' });
    this.tiles = new Tiles({ per_second: 'decisions/s', p50: 'p50 latency', p99: 'p99 latency', games: 'games', waiting: 'queued observations', overloaded: 'requests over capacity' });
    this.curve = new RecentChart('Decisions per second', [{ name: 'decisions_per_second', label: 'per second', color: '--second', fill: true }], 112);
    this.latency = new RecentChart('Latency (ms)', [
      { name: 'p50_ms', label: 'p50', color: '--third', fill: true }, { name: 'p99_ms', label: 'p99', color: '--accent' }], 112);
    this.legend = el('ul', { class: 'legend' }, ...Object.entries(LATENCY).map(([name, text]) => el('li', { class: name, text: `${name}, ${text}` })));
    this.choice = el('select', { id: 'pin-choice', 'aria-label': 'Version to pin' });
    this.pinButton = this.button('Pin …', 'pin-button', () => this.pin());
    this.unpinButton = this.button('Unpin …', 'unpin-button', () => this.unpin());
    this.backButton = this.button('Roll back …', 'rollback-button', () => this.rollBack());
    this.killButton = this.button('', 'kill-switch', () => this.kill());
    this.killButton.classList.add('kill');
    this.killButton.setAttribute('role', 'switch');
    byId('control-body').append(
      el('div', { class: 'control-summary' }, this.headline, this.since), this.tiles.box,
      this.curve.box, el('div', {}, this.latency.box, this.legend),
      el('p', { class: 'read-only muted', text: 'This link is read-only; use the operator’s link for controls.' }),
      el('div', { class: 'operator operator-only', role: 'group', 'aria-label': 'Operator' },
        el('span', { class: 'pin-row' }, this.choice, this.pinButton), this.unpinButton, this.backButton, this.killButton));
    /** @type {Stats | null} */
    this.stats = null;
  }

  /** @param {string} text @param {string} id @param {() => void} onClick */
  button(text, id, onClick) {
    const button = el('button', { type: 'button', id, text });
    button.addEventListener('click', onClick);
    return button;
  }

  /** @param {Stats} stats */
  show(stats) {
    this.stats = stats;
    const { service, versions, decisions, curves } = stats;
    const { pinned, serving } = versions;
    document.body.toggleAttribute('data-gate-only', service.gate_only);
    document.body.toggleAttribute('data-pinned', pinned !== null);
    let headline = pinned === null ? `Version ${serving} is serving` : `Version ${serving} is serving, pinned`;
    if (serving === null) headline = 'No version is serving yet';
    if (service.gate_only) headline = 'The gate decides alone';
    setText(this.headline, headline);
    const change = [...versions.history].reverse().find((one) => one.applied);
    const since = change ? `for ${formatDuration(service.now - change.at)}: ${change.reason}` : '';
    setText(this.since, service.gate_only ? `The network is disabled. Version ${serving ?? '–'} is suspended; training continues.` : since);
    this.since.title = since;
    this.tiles.show({
      per_second: formatNumber(decisions.per_second), p50: formatMs(decisions.p50_ms), p99: formatMs(decisions.p99_ms), games: formatCount(service.games),
      waiting: formatCount(decisions.waiting), overloaded: formatCount(decisions.overloaded),
    }, { overloaded: stats.alarms.some((alarm) => alarm.name === 'overload') });
    this.curve.show(curves, service.now);
    this.latency.show(curves, service.now);
    this.legend.hidden = this.latency.box.hidden;
    this.updateButtons(stats);
  }

  /** Enable the buttons that apply now. @param {Stats} stats */
  updateButtons({ versions, service }) {
    const { before, pinned } = versions;
    setText(this.backButton, before === null ? 'Roll back …' : `Roll back to ${before} …`);
    this.backButton.disabled = before === null || pinned !== null;
    this.backButton.title = pinned !== null ? 'Unpin first' : before === null ? 'No previous version' : '';
    this.unpinButton.hidden = pinned === null;
    setText(this.killButton, service.gate_only ? 'Enable the network …' : 'Disable the network (gate only) …');
    this.killButton.setAttribute('aria-checked', String(service.gate_only));
    this.killButton.setAttribute('aria-label', service.gate_only ? 'Kill switch is on: the gate decides alone. Enable the network' : 'Kill switch: disable the network, so that the gate decides alone');
    // Do not change an open list under the pointer.
    if (document.activeElement === this.choice) return;
    const stored = versions.versions.map((one) => one.version).reverse();
    const key = stored.join();
    if (this.choice.dataset.key === key) return;
    const chosen = this.choice.value;
    this.choice.dataset.key = key;
    this.choice.replaceChildren(el('option', { value: '', text: SERVING }), ...stored.map((one) => el('option', { value: one, text: `version ${one}` })));
    if (stored.includes(Number(chosen))) this.choice.value = chosen;
  }

  pin() {
    const version = Number(this.choice.value) || this.stats?.versions.serving;
    if (!version) return;
    confirmAction({
      title: `Pin version ${version}?`, label: 'Pin',
      text: 'It serves until you unpin it, even if better versions are trained. Training continues; promotions are recorded but not applied.',
      onConfirm: (reason) => request('api/decide/pin', { version, reason }).then(() => { this.choice.value = ''; }),
    });
  }

  unpin() {
    confirmAction({
      title: `Unpin version ${this.stats?.versions.pinned}?`, label: 'Unpin',
      text: 'It serves until the next promotion, which may happen within a second.',
      onConfirm: (reason) => request('api/decide/unpin', { reason }),
    });
  }

  rollBack() {
    // By number, since the previous version may change before the confirmation.
    const version = this.stats?.versions.before;
    if (!version) return;
    confirmAction({
      title: `Roll back to version ${version}?`, label: `Roll back to ${version}`, dangerous: true,
      text: `Version ${version}, which served before, serves again immediately.`,
      pin: 'Pin it. Otherwise the next promotion may replace it within a second.',
      onConfirm: (reason, pin) => request('api/decide/rollback', { version, reason, pin }),
    });
  }

  kill() {
    const on = !this.stats?.service.gate_only;
    confirmAction({
      title: on ? 'Let the gate decide alone?' : 'Let the network decide again?', label: on ? 'Disable the network' : 'Enable the network', dangerous: on,
      text: on ? 'From the next observation on, every decision is the action that the gate rates highest. Outcomes are still joined, and training continues. This survives a restart and lasts until you enable the network again.'
        : 'From the next observation on, the serving version decides again, and the gate sends its action or withholds it.',
      onConfirm: (reason) => request('api/decide/gate-only', { on, reason }),
    });
  }

  redraw() {
    this.curve.redraw();
    this.latency.redraw();
  }
}

/** @param {number | null} value */
const formatMs = (value) => (value === null ? '–' : `${formatNumber(value, 2)} ms`);

/** Ask for confirmation, then perform the action. @param {Confirmation} confirmation */
function confirmAction({ title, text, label, dangerous, pin, onConfirm }) {
  const dialog = /** @type {HTMLDialogElement} */ (byId('confirm'));
  const reason = el('input', { type: 'text', id: 'confirm-reason', maxlength: 200, placeholder: 'manual', autocomplete: 'off' });
  const pinBox = el('input', { type: 'checkbox', checked: true });
  const confirm = el('button', { type: 'submit', class: dangerous ? 'primary danger' : 'primary', text: label });
  const cancel = el('button', { type: 'button', text: 'Cancel' });
  cancel.addEventListener('click', () => dialog.close());
  const form = el('form', { method: 'dialog' },
    el('h2', { id: 'confirm-title', text: title }), el('p', { text }),
    pin ? el('label', { class: 'checkbox' }, pinBox, el('span', { text: pin })) : null,
    el('label', { class: 'reason' }, el('span', { text: 'Reason, for the history' }), reason),
    el('div', { class: 'answers' }, cancel, confirm));
  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    confirm.disabled = true;
    try {
      await onConfirm(reason.value.trim() || 'manual', Boolean(pin) && pinBox.checked);
      announce('Done.');
    } catch (error) {
      toast(error instanceof ApiError ? error.message : 'the service does not answer', error instanceof ApiError ? error.fix : 'nothing was changed');
    }
    dialog.close();
  });
  dialog.replaceChildren(form);
  dialog.showModal();
}
