/** Buttons and keys with which the viewer plays. */

import { hasHuman } from './agent-choice.js';
import { el, setText } from './dom.js';
import { actionLabel } from './format.js';
import { actionIcon } from './icons.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./session.js').Session} Session
 */

/** Keys of actions. @type {Record<string, string>} */
const KEYS = {
  ArrowUp: 'UP', ArrowDown: 'DOWN', ArrowLeft: 'LEFT', ArrowRight: 'RIGHT', PageUp: 'ABOVE', PageDown: 'BELOW',
  Enter: 'INTERACT', ' ': 'INTERACT', w: 'WAIT', '.': 'WAIT',
};
const NUMBER_KEYS = '1234567890'; // of the places, in a world without a map
/** @type {Record<string, string>} */
const KEY_LABELS = {
  UP: '↑', DOWN: '↓', LEFT: '←', RIGHT: '→', ABOVE: 'Page ↑', BELOW: 'Page ↓', INTERACT: 'Enter', WAIT: 'W',
};
const TEXT_FIELDS = 'input:not([type=range]), textarea';

export class HumanControls {
  /** @param {Store} store @param {Session} session */
  constructor(store, session) {
    this.store = store;
    this.session = session;
    this.buttons = el('div', { class: 'human-buttons' });
    this.hint = el('p', { class: 'muted' });
    this.box = el('div', { class: 'human-controls', hidden: true, role: 'group', 'aria-label': 'Your actions' }, this.buttons, this.hint);
    store.on(['agents', 'source', 'world', 'link', 'view'], () => this.show());
    document.addEventListener('keydown', (event) => this.onKey(event), { capture: true });
    // What was just chosen or clicked would take the next key: Enter would press a button again, an arrow change a list.
    document.addEventListener('change', (event) => this.release(event, 'select'));
    document.addEventListener('click', (event) => { if (event.detail) this.release(event, 'button'); }); // 0: pressed by key
  }

  /** Take the focus from a control of the town. @param {Event} event @param {string} selector */
  release(event, selector) {
    const control = /** @type {HTMLElement | null} */ (/** @type {HTMLElement} */ (event.target).closest(`#town ${selector}, #agent ${selector}`));
    if (this.active) control?.blur();
  }

  get active() {
    const { link, view, source, agents } = this.store.state;
    return link === 'open' && view === 'watch' && source === 'checkpoint' && hasHuman(agents);
  }

  show() {
    this.box.hidden = !this.active;
    const { world, agents } = this.store.state;
    if (!this.active || !world) return;
    setText(this.hint, `You play with these keys.${agents.length > 1 ? ' The other agent takes a step whenever you do.' : ''}`);
    this.buttons.replaceChildren(...world.actions.map((action, k) => {
      const key = KEY_LABELS[action] ?? NUMBER_KEYS[k] ?? '';
      const button = el('button', { type: 'button', 'data-action': action }, actionIcon(action), el('span', { text: actionLabel(action) }), key ? el('kbd', { text: key }) : null);
      button.addEventListener('click', () => this.session.act(k));
      return button;
    }));
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (!this.active || event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.closest(`${TEXT_FIELDS}, select, dialog, [role=listbox], [role=application]`)) return;
    if ((event.key === ' ' || event.key === 'Enter') && target.closest('button, summary, a')) return;
    const action = this.actionOf(event.key);
    if (action < 0 && !(event.key in KEYS)) return;
    event.preventDefault(); // also keys without an action in this world: the page must not scroll
    event.stopPropagation(); // arrow keys step through other episodes
    if (action >= 0) this.session.act(action);
  }

  /** The action of a key, or -1. @param {string} key */
  actionOf(key) {
    const actions = this.store.state.world?.actions ?? [];
    const named = actions.indexOf(KEYS[key] ?? KEYS[key.toLowerCase()] ?? '');
    if (named >= 0) return named;
    const at = NUMBER_KEYS.indexOf(key);
    return at >= 0 && actions[at]?.startsWith('INTERACT ') ? at : -1;
  }
}
