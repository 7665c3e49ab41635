/** Buttons and keys with which the viewer plays. */

import { hasHuman } from './agent-choice.js';
import { el } from './dom.js';
import { actionLabel } from './format.js';
import { actionIcon } from './icons.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./session.js').Session} Session
 */

/** Keys of actions; a world without a map has a button for each place instead. @type {Record<string, string>} */
const KEYS = {
  ArrowUp: 'UP', ArrowDown: 'DOWN', ArrowLeft: 'LEFT', ArrowRight: 'RIGHT', PageUp: 'ABOVE', PageDown: 'BELOW',
  Enter: 'INTERACT', ' ': 'INTERACT', w: 'WAIT', '.': 'WAIT',
};

export class HumanControls {
  /** @param {Store} store @param {Session} session */
  constructor(store, session) {
    this.store = store;
    this.session = session;
    this.buttons = el('div', { class: 'human-buttons' });
    this.box = el('div', { class: 'human-controls', hidden: true, role: 'group', 'aria-label': 'Your actions' }, this.buttons,
      el('p', { class: 'muted', text: 'You play: arrow keys move, Enter uses the place where you are, W waits. The other agent takes a step whenever you do.' }));
    store.on(['agents', 'source', 'world'], () => this.show());
    document.addEventListener('keydown', (event) => this.onKey(event), { capture: true });
  }

  get active() {
    return this.store.state.source === 'checkpoint' && hasHuman(this.store.state.agents);
  }

  show() {
    this.box.hidden = !this.active;
    const { world } = this.store.state;
    if (!this.active || !world) return;
    this.buttons.replaceChildren(...world.actions.map((action, k) => {
      const button = el('button', { type: 'button', 'data-action': action }, actionIcon(action), el('span', { text: actionLabel(action) }));
      button.addEventListener('click', () => this.session.act(k));
      return button;
    }));
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const target = /** @type {HTMLElement} */ (event.target);
    if (!this.active || event.ctrlKey || event.metaKey || event.altKey) return;
    if (target.closest('input, select, textarea, dialog, [role=listbox], [role=application]')) return;
    if ((event.key === ' ' || event.key === 'Enter') && target.closest('button, summary, a')) return;
    const action = this.store.state.world?.actions.indexOf(KEYS[event.key] ?? '') ?? -1;
    if (action < 0) return;
    event.preventDefault();
    event.stopPropagation(); // arrow keys step through other episodes
    this.session.act(action);
  }
}
