/** Questions to the agent: "why not …?" about an action or a place, answered with chances instead of raw values. */

import { el, setText } from './dom.js';
import { formatPercent } from './format.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./session.js').Session} Session
 */

export class QuestionPanel {
  /** @param {Store} store @param {Session} session @param {import('./playback.js').Playback[]} playbacks */
  constructor(store, session, playbacks) {
    this.store = store;
    this.session = session;
    this.playbacks = playbacks;
    this.hint = el('p', { class: 'muted', text: 'Click an action above, or a place in the town, to ask why the agent does not choose it.' });
    this.question = el('strong');
    this.options = el('div', { class: 'answer-options' });
    this.sentences = el('div');
    this.box = el('div', { class: 'answer', role: 'status', hidden: true }, this.question, this.options, this.sentences);
    store.on(['answer', 'asking'], () => this.show());
  }

  /** @param {{action?: number, affordance?: string}} about */
  ask(about) {
    const playback = this.playbacks[this.store.state.side];
    const timestep = playback.current();
    if (!timestep || !playback.start) return;
    // The actions are those before the step on screen; a place would be used after it.
    const decided = about.action !== undefined && timestep.action !== null ? 1 : 0;
    this.session.ask(timestep.age - playback.firstAge - decided, about);
  }

  show() {
    const { answer, asking } = this.store.state;
    this.box.hidden = !answer && !asking;
    this.hint.hidden = !this.box.hidden;
    if (asking) {
      setText(this.question, 'Playing it out …');
      this.options.replaceChildren();
      this.sentences.replaceChildren();
    }
    if (!answer) return;
    setText(this.question, answer.question);
    this.options.replaceChildren(...answer.options.map(({ label, chance, low, high }) => {
      const bar = el('i');
      bar.style.width = `${chance * 100}%`;
      return el('div', { class: 'answer-option' }, el('span', { text: label }), el('div', { class: 'bar' }, bar), el('b', { text: formatPercent(chance) }),
        el('small', { class: 'muted', text: `${formatPercent(low)}–${formatPercent(high)}`, title: 'The chance lies in this interval with 95% confidence' }));
    }));
    this.sentences.replaceChildren(...answer.sentences.map((text) => el('p', { text })));
  }
}
