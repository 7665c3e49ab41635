/** The "Story" panel: what happened in the watched life, in plain words, with an optional sound for each event. */

import { byId, el } from './dom.js';
import { playEvent } from './sound.js';

/**
 * @typedef {import('./playback.js').Playback} Playback
 * @typedef {import('./state.js').Store} Store
 */

const SHOWN = 40; // events
const MAX_TONES = 3; // events at most that sound together, when playback jumps

export class StoryPanel {
  /** @param {Store} store @param {Playback[]} playbacks */
  constructor(store, playbacks) {
    this.store = store;
    this.playbacks = playbacks;
    this.list = el('ol', { class: 'story', 'aria-live': 'off' });
    this.empty = el('p', { class: 'muted', text: 'Nothing remarkable has happened yet.' });
    byId('story-body').replaceChildren(this.empty, this.list);
    this.key = '';
    this.played = 0; // events of this episode that have sounded
    this.episode = -1;
  }

  update() {
    const playback = this.playbacks[this.store.state.side];
    const { start } = playback;
    if (!start) {
      if (this.key) this.list.replaceChildren();
      this.key = byId('story-name').textContent = '';
      this.empty.hidden = false;
      return;
    }
    const now = Math.floor(playback.position + 1e-6);
    const events = playback.eventsUntil(now);
    const key = `${start.episode} ${events.length}`;
    if (key === this.key) return;
    this.key = key;
    if (this.episode !== start.episode) {
      this.episode = start.episode;
      this.played = events.length;
    }
    for (const text of events.slice(Math.max(this.played, events.length - MAX_TONES))) if (this.store.state.sound) playEvent(text);
    this.played = events.length;
    this.empty.hidden = events.length > 0;
    byId('story-name').textContent = start.name;
    this.list.replaceChildren(...events.slice(-SHOWN).reverse().map((text) => {
      const [when, ...what] = text.split(': ');
      return el('li', { 'data-kind': eventKind(text) }, el('small', { text: when }), el('span', { text: what.join(': ') }));
    }));
  }
}

/** Kind of an event, for its color and its sound. @param {string} text @returns {'end' | 'danger' | 'good' | 'first'} */
export function eventKind(text) {
  if (/: (dies|broke)/.test(text)) return 'end';
  if (text.includes('critical')) return 'danger';
  return /: (saved|a new record|lives|\d+ steps old)/.test(text) ? 'good' : 'first';
}
