/** The agent at this moment: its meters, what it thought of each action, and what the step was worth. */

import { byId, make, write } from './dom.js';
import { figure, money, percent, signed, spaced, spoken } from './format.js';
import { actionSign, colourOf, placeSign } from './icons.js';

/**
 * @typedef {import('./types.js').World} World
 * @typedef {import('./types.js').Moment} Moment
 * @typedef {import('./playback.js').Playback} Playback
 */

const CRITICAL = 0.2, LOW = 0.3;
const GROUPS = ['survival', 'modifiers', 'quality of life'];
const LAST = 11; // actions that are kept in sight

/** @param {number} value */
export const level = (value) => (value < CRITICAL ? 'critical' : value < LOW ? 'low' : 'well');

export class AgentPanel {
  /** @param {World} world */
  constructor(world) {
    this.world = world;
    /** @type {{bar: HTMLElement, row: HTMLElement, text: HTMLElement, change: HTMLElement}[]} */
    this.meters = [];
    /** @type {{row: HTMLElement, bar: HTMLElement, text: HTMLElement}[]} */
    this.actions = [];
    /** @type {{bar: HTMLElement, text: HTMLElement}[]} */
    this.rewards = [];
    this.why = make('p', { class: 'why' });
    this.mode = make('span', { class: 'chip', 'data-mode': 'none', hidden: true });
    this.last = make('div', { class: 'last-actions', role: 'img', 'aria-label': 'Last actions' });
    this.total = make('span', { class: 'total' });
    this.lastShown = '';
    byId('agent-body').replaceChildren(this.meterBox(), this.actionBox(), this.rewardBox());
  }

  meterBox() {
    const box = make('div', { class: 'meters' });
    for (const group of GROUPS) {
      const members = this.world.meters.map((meter, m) => ({ meter, m })).filter((x) => x.meter.group === group);
      if (!members.length) continue;
      box.append(make('h3', { text: group }));
      for (const { meter, m } of members) {
        const bar = make('i');
        const text = make('b', { text: '–' });
        const change = make('small', { 'aria-hidden': 'true' });
        const row = make('div', { class: 'meter', 'data-level': 'well' }, make('span', { text: spaced(meter.name) }),
          make('div', { class: 'bar' }, bar), text, change);
        this.meters[m] = { bar, row, text, change };
        box.append(row);
      }
    }
    return box;
  }

  actionBox() {
    const list = make('div', { class: `actions${this.world.actions.length > 8 ? ' many' : ''}` });
    this.actions = this.world.actions.map((action) => {
      const bar = make('i');
      const text = make('b');
      const place = action.startsWith('INTERACT ') ? action.slice(9) : null;
      const row = make('div', { class: 'action' }, make('span', { class: 'action-sign' }, place ? placeSign(place, 14) : actionSign(action)),
        make('span', { class: 'action-name', text: spoken(action) }), make('div', { class: 'bar' }, bar), text);
      list.append(row);
      return { row, bar, text };
    });
    this.actionsTitle = make('h3', { text: 'Worth of each action' });
    return make('div', { class: 'thoughts' },
      make('div', { class: 'line' }, this.actionsTitle, this.mode), list,
      make('h3', { text: 'Why did it do that?' }), this.why,
      make('h3', { text: 'Last actions' }), this.last);
  }

  rewardBox() {
    const list = make('div', { class: 'rewards' });
    this.rewards = this.world.rewards.map((name) => {
      const bar = make('i');
      const text = make('b');
      list.append(make('div', { class: 'reward' }, make('span', { text: spaced(name) }), make('div', { class: 'bar both' }, bar), text));
      return { bar, text };
    });
    return make('div', {}, make('div', { class: 'line' }, make('h3', { text: 'Reward of this step' }), this.total), list);
  }

  /** @param {Playback} playback */
  update(playback) {
    const moment = playback.moment();
    if (!moment) return;
    const before = playback.moments.get(moment.age - 1) ?? null;
    this.updateMeters(moment, before);
    this.updateActions(moment, playback.start?.outputs_are ?? 'values');
    this.updateRewards(moment);
    this.updateLast(playback);
    write(this.why, moment.why ? sentence(moment.why) : 'A new life begins. Nothing was chosen yet.');
  }

  /** @param {Moment} moment @param {Moment | null} before */
  updateMeters(moment, before) {
    moment.meters.forEach((value, m) => {
      const shown = this.meters[m];
      const meter = this.world.meters[m];
      if (!shown || !meter) return;
      const isMoney = meter.name === this.world.currency && this.world.dollars > 0;
      shown.bar.style.width = `${Math.max(0, Math.min(1, value)) * 100}%`;
      shown.row.dataset.level = isMoney && value >= CRITICAL ? 'money' : level(value);
      write(shown.text, isMoney ? money(value * this.world.dollars) : percent(value));
      const by = before ? value - before.meters[m] : 0;
      write(shown.change, Math.abs(by) < 0.0295 ? '' : by > 0 ? '▲' : '▼');
      shown.change.dataset.way = by > 0 ? 'up' : 'down';
    });
  }

  /** @param {Moment} moment @param {'values' | 'probabilities'} kind */
  updateActions(moment, kind) {
    const { outputs, mask, action } = moment;
    const likely = kind === 'probabilities';
    write(/** @type {HTMLElement} */ (this.actionsTitle), likely ? 'Chance of each action' : 'Worth of each action');
    const allowed = outputs?.filter((_, k) => mask?.[k] ?? true) ?? [];
    const low = Math.min(...allowed), high = Math.max(...allowed);
    this.actions.forEach(({ row, bar, text }, k) => {
      const open = mask?.[k] ?? true;
      const value = outputs?.[k];
      const share = value === undefined || !open ? 0 : likely ? value : high > low ? 0.06 + (0.94 * (value - low)) / (high - low) : 1;
      bar.style.width = `${share * 100}%`;
      row.classList.toggle('masked', !open);
      row.classList.toggle('chosen', k === action);
      write(text, value === undefined ? '' : !open ? 'not possible' : likely ? percent(value) : high - low < 0.2 && Math.abs(high) < 100 ? value.toFixed(3).replace('-', '−') : figure(value, 3));
    });
    let mode = 'none', words = '';
    if (outputs && action !== null) {
      const best = outputs[action] >= high - 1e-9;
      mode = best ? 'exploits' : 'explores';
      words = likely ? (best ? 'took the likeliest' : 'drew another') : best ? 'exploits' : 'explores';
    }
    this.mode.dataset.mode = mode;
    write(this.mode, words);
    this.mode.hidden = !words;
  }

  /** @param {Moment} moment */
  updateRewards(moment) {
    const parts = moment.components ?? [];
    const most = Math.max(0.5, ...parts.map(Math.abs));
    this.rewards.forEach(({ bar, text }, k) => {
      const value = parts[k];
      const share = value === undefined ? 0 : Math.abs(value) / most / 2;
      bar.style.width = `${share * 100}%`;
      bar.style.left = `${value < 0 ? 50 - share * 100 : 50}%`;
      bar.dataset.way = value < 0 ? 'down' : 'up';
      write(text, value === undefined ? '' : value === 0 ? '0' : signed(value));
    });
    write(this.total, moment.reward === null ? '' : signed(moment.reward));
  }

  /** @param {Playback} playback */
  updateLast(playback) {
    const past = playback.lately(LAST);
    const key = `${playback.start?.episode}:${past.at(-1)?.age}:${past.length}`;
    if (key === this.lastShown) return;
    this.lastShown = key;
    /** @type {string[]} */
    const words = [];
    this.last.replaceChildren(...past.filter((m) => m.action !== null).map((m) => {
      const action = this.world.actions[m.action ?? 0] ?? '';
      const before = playback.moments.get(m.age - 1);
      const place = this.placeOf(action, before?.cell ?? m.cell, playback.start?.cell_of ?? []);
      const words_ = place ? `use ${spaced(place).toLowerCase()}` : spoken(action);
      words.push(words_);
      const glyph = make('span', { class: place ? 'glyph place' : 'glyph', title: `step ${m.age}: ${words_}` });
      glyph.append(place ? placeSign(place, 15) : actionSign(action));
      if (place) glyph.style.background = colourOf(place);
      return glyph;
    }));
    this.last.setAttribute('aria-label', `Last actions: ${words.slice(-6).join(', ')}`);
  }

  /** The place that an action uses. @param {string} action @param {number} cell @param {number[]} cells */
  placeOf(action, cell, cells) {
    if (action.startsWith('INTERACT ')) return action.slice(9);
    if (action !== 'INTERACT') return null;
    return this.world.affordances[cells.indexOf(cell)]?.name ?? null;
  }
}

/** Server sentences name actions as they are in the world's tables; here they read as prose. @param {string} why */
function sentence(why) {
  const said = why.replace(/\b(UP|DOWN|LEFT|RIGHT|ABOVE|BELOW|WAIT|INTERACT)\b( [A-Z]\w+)?/g, (_, verb, place) =>
    (verb === 'INTERACT' && place ? `use${place}` : verb === 'INTERACT' ? 'use' : verb.toLowerCase() + (place ?? '')));
  return said.charAt(0).toUpperCase() + said.slice(1);
}
