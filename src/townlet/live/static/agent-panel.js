/** The agent panel: meters, value or probability of each action, and the reward of the step. */

import { byId, el, setText } from './dom.js';
import { formatNumber, formatMoney, formatPercent, formatSigned, humanize, actionLabel } from './format.js';
import { actionIcon, affordanceColor, affordanceIcon } from './icons.js';

/**
 * @typedef {import('./types.js').World} World
 * @typedef {import('./types.js').Timestep} Timestep
 * @typedef {import('./playback.js').Playback} Playback
 */

const CRITICAL = 0.2, LOW = 0.3;
const GROUPS = ['primary', 'secondary', 'tertiary', 'resource']; // of meters, as in world files
const ACTION_HISTORY = 11; // latest actions shown
const MIN_CHANGE = 0.0295; // of a meter; smaller changes have no arrow

/** @param {number} value */
export const meterLevel = (value) => (value < CRITICAL ? 'critical' : value < LOW ? 'low' : 'well');

export class AgentPanel {
  /** @param {World} world @param {import('./question-panel.js').QuestionPanel} questions */
  constructor(world, questions) {
    this.world = world;
    this.questions = questions;
    /** @type {{bar: HTMLElement, row: HTMLElement, text: HTMLElement, change: HTMLElement}[]} */
    this.meters = [];
    /** @type {{row: HTMLElement, bar: HTMLElement, text: HTMLElement}[]} */
    this.actions = [];
    /** @type {{bar: HTMLElement, text: HTMLElement}[]} */
    this.rewards = [];
    this.why = el('p', { class: 'explanation' });
    this.mode = el('span', { class: 'badge-text', 'data-mode': 'none', hidden: true });
    this.history = el('div', { class: 'last-actions', role: 'img', 'aria-label': 'Last actions' });
    this.total = el('span', { class: 'reward-total' });
    this.historyKey = '';
    byId('agent-body').replaceChildren(this.buildMeters(), this.buildActions(), this.buildRewards());
  }

  buildMeters() {
    const box = el('div', { class: 'meters' });
    for (const group of GROUPS) {
      const members = this.world.meters.map((meter, m) => ({ meter, m })).filter((x) => x.meter.group === group);
      if (!members.length) continue;
      box.append(el('h3', { text: group }));
      for (const { meter, m } of members) {
        const bar = el('i');
        const text = el('b', { text: '–' });
        const change = el('small', { 'aria-hidden': 'true' });
        const name = el('div', {}, el('span', { text: humanize(meter.name) }));
        if (meter.lethal) name.append(el('small', { text: 'lethal', title: 'The agent dies when this meter is empty' }));
        const row = el('div', { class: 'meter', 'data-level': 'well' }, name,
          el('div', { class: 'bar' }, bar), text, change);
        this.meters[m] = { bar, row, text, change };
        box.append(row);
      }
    }
    return box;
  }

  buildActions() {
    const list = el('div', { class: `actions${this.world.actions.length > 8 ? ' compact' : ''}` });
    this.actions = this.world.actions.map((action, k) => {
      const bar = el('i');
      const text = el('b');
      const place = this.usedAffordance(action);
      const row = el('button', { type: 'button', class: 'action' }, el('span', { class: 'action-symbol' }, place ? affordanceIcon(place, 14) : actionIcon(action)),
        el('span', { class: 'action-name', text: actionLabel(action) }), el('div', { class: 'bar' }, bar), text);
      row.addEventListener('click', () => this.questions.ask({ action: k }));
      list.append(row);
      return { row, bar, text };
    });
    this.actionsTitle = el('h3', { text: 'Actions' });
    return el('div', { class: 'action-scores' },
      el('div', { class: 'heading-row' }, this.actionsTitle, this.mode), list,
      el('h3', { text: 'Why did it do that?' }), this.why, this.questions.hint, this.questions.box,
      el('h3', { text: 'Last actions' }), this.history);
  }

  buildRewards() {
    const list = el('div', { class: 'rewards' });
    this.rewards = this.world.rewards.map((name) => {
      const bar = el('i');
      const text = el('b');
      list.append(el('div', { class: 'reward' }, el('span', { text: humanize(name) }), el('div', { class: 'bar signed' }, bar), text));
      return { bar, text };
    });
    return el('details', { class: 'more' }, el('summary', { text: 'Reward of this step' }), this.total, list);
  }

  /** @param {Playback} playback */
  update(playback) {
    const timestep = playback.current();
    if (!timestep) return;
    const before = playback.timesteps.get(timestep.age - 1) ?? null;
    this.updateMeters(timestep, before);
    this.updateActions(timestep, playback.start?.output_kind ?? 'values');
    this.updateRewards(timestep);
    this.updateHistory(playback);
    setText(this.why, timestep.why ? asProse(timestep.why) : 'The episode starts; no action has been taken yet.');
  }

  /** @param {Timestep} timestep @param {Timestep | null} before */
  updateMeters(timestep, before) {
    timestep.meters.forEach((value, m) => {
      const shown = this.meters[m];
      const meter = this.world.meters[m];
      if (!shown || !meter) return;
      const isMoney = meter.name === this.world.currency && this.world.dollars > 0;
      shown.bar.style.width = `${Math.max(0, Math.min(1, value)) * 100}%`;
      shown.row.dataset.level = isMoney && value >= CRITICAL ? 'money' : meterLevel(value);
      setText(shown.text, isMoney ? formatMoney(value * this.world.dollars) : formatPercent(value));
      const change = before ? value - before.meters[m] : 0;
      const arrow = change > 0 ? '▲' : '▼';
      setText(shown.change, Math.abs(change) < MIN_CHANGE ? '' : arrow);
      shown.change.dataset.direction = change > 0 ? 'up' : 'down';
    });
  }

  /** @param {Timestep} timestep @param {import('./types.js').OutputKind} kind */
  updateActions(timestep, kind) {
    const { outputs, mask, action } = timestep;
    const probabilities = kind === 'probabilities';
    setText(/** @type {HTMLElement} */ (this.actionsTitle), probabilities ? 'How likely each action is' : kind === 'values' ? 'How much worse than the best' : 'Actions');
    const allowed = outputs?.filter((_, k) => mask?.[k] ?? true) ?? [];
    const low = Math.min(...allowed), high = Math.max(...allowed);
    /** Length of a bar and its text. @param {number} value @returns {[number, string]} */
    const display = (value) => {
      if (probabilities) return [value, formatPercent(value)];
      const share = high > low ? 0.06 + (0.94 * (value - low)) / (high - low) : 1;
      return [share, value >= high - 1e-9 ? 'best' : `−${formatNumber(high - value, 2)}`];
    };
    this.actions.forEach(({ row, bar, text }, k) => {
      const open = mask?.[k] ?? true;
      const value = outputs?.[k];
      let share = 0, label = '';
      if (value !== undefined && open) [share, label] = display(value);
      else if (value !== undefined) label = 'not possible now';
      bar.style.width = `${share * 100}%`;
      row.classList.toggle('masked', !open);
      row.classList.toggle('chosen', k === action);
      row.title = `${k === action ? 'Why' : 'Why not'} “${actionLabel(this.world.actions[k])}”?`;
      setText(text, label);
    });
    let mode = 'none', label = '';
    if (outputs && action !== null) {
      const best = outputs[action] >= high - 1e-9;
      mode = best ? 'exploiting' : 'exploring';
      label = best ? 'its favorite' : 'trying something else';
      if (probabilities) label = best ? 'most likely' : 'less likely';
    }
    this.mode.dataset.mode = mode;
    setText(this.mode, label);
    this.mode.hidden = !label;
  }

  /** @param {Timestep} timestep */
  updateRewards(timestep) {
    const components = timestep.components ?? [];
    const scale = Math.max(0.5, ...components.map(Math.abs));
    this.rewards.forEach(({ bar, text }, k) => {
      const value = components[k];
      const share = value === undefined ? 0 : Math.abs(value) / scale / 2;
      bar.style.width = `${share * 100}%`;
      bar.style.left = `${value < 0 ? 50 - share * 100 : 50}%`;
      bar.dataset.direction = value < 0 ? 'down' : 'up';
      setText(text, value === undefined ? '' : value === 0 ? '0' : formatSigned(value));
    });
    setText(this.total, timestep.reward === null ? '' : formatSigned(timestep.reward));
  }

  /** @param {Playback} playback */
  updateHistory(playback) {
    const past = playback.recent(ACTION_HISTORY);
    const key = `${playback.start?.episode}:${past.at(-1)?.age}:${past.length}`;
    if (key === this.historyKey) return;
    this.historyKey = key;
    /** @type {string[]} */
    const labels = [];
    this.history.replaceChildren(...past.filter((m) => m.action !== null).map((m) => {
      const action = this.world.actions[m.action ?? 0] ?? '';
      const before = playback.timesteps.get(m.age - 1);
      const place = this.usedAffordance(action, before?.cell ?? m.cell, playback.start?.cell_of ?? []);
      const label = place ? `use ${humanize(place.name).toLowerCase()}` : actionLabel(action);
      labels.push(label);
      const glyph = el('span', { class: place ? 'action-icon place' : 'action-icon', title: `step ${m.age}: ${label}` });
      glyph.append(place ? affordanceIcon(place, 15) : actionIcon(action));
      if (place) glyph.style.background = affordanceColor(place);
      return glyph;
    }));
    this.history.setAttribute('aria-label', `Last actions: ${labels.slice(-6).join(', ')}`);
  }

  /** The affordance that an action uses. @param {string} action @param {number} cell @param {number[]} cells */
  usedAffordance(action, cell = -1, cells = []) {
    const { affordances } = this.world;
    if (action.startsWith('INTERACT ')) return affordances.find((place) => place.name === action.slice(9));
    return action === 'INTERACT' ? affordances[cells.indexOf(cell)] : undefined;
  }
}

/** Replace action names in a sentence from the server with ordinary words. @param {string} sentence */
function asProse(sentence) {
  const prose = sentence.replace(/\b(UP|DOWN|LEFT|RIGHT|ABOVE|BELOW|WAIT|INTERACT)\b( [A-Z]\w+)?/g, (_, verb, place) =>
    (verb === 'INTERACT' && place ? `use${place}` : verb === 'INTERACT' ? 'use' : verb.toLowerCase() + (place ?? '')));
  return prose.charAt(0).toUpperCase() + prose.slice(1);
}
