/** What the server says about an edited world: errors, why an agent cannot play in it, and whether one can live there. */

import { el, setText } from './dom.js';
import { listOf, plural } from './format.js';
import { settingLabel } from './world-fields.js';

const MAX_ERRORS = 12; // shown

export class WorldResults {
  /** @param {(line: number) => void} goToLine */
  constructor(goToLine) {
    this.result = el('p', { class: 'check-result', id: 'world-check-result', role: 'status' });
    this.verdict = el('div', { class: 'verdict', role: 'status' });
    this.differences = el('div', { class: 'differences', hidden: true });
    this.errors = el('ol', { class: 'error-list' });
    this.errors.addEventListener('click', (event) => {
      const line = Number(/** @type {HTMLElement} */ (event.target).closest('button')?.dataset.line ?? 0);
      if (line) goToLine(line);
    });
  }

  clear() {
    setText(this.result, '');
    this.errors.replaceChildren();
  }

  showChecking() {
    this.result.dataset.verdict = 'none';
    setText(this.result, 'Checking …');
    this.showUnderway();
  }

  /** @param {import('./types.js').WorldError[]} errors none if the world is valid */
  showErrors(errors) {
    this.result.dataset.verdict = errors.length ? 'wrong' : 'right';
    setText(this.result, errors.length ? plural(errors.length, 'error') : 'This world is valid.');
    this.errors.replaceChildren(...errors.slice(0, MAX_ERRORS).map((one) => el('li', {}, el('button', { type: 'button', 'data-line': one.line },
      el('b', { text: one.line ? `line ${one.line}` : 'world' }), el('span', { text: withSetting(one) }),
      one.fix ? el('small', { text: one.fix }) : null))));
    if (errors.length) this.verdict.replaceChildren();
  }

  /**
   * Say before trying what this agent cannot do here: play at all, see what is new, or find what is gone.
   * An invalid world has no differences. @param {import('./types.js').WorldChecked} checked
   */
  showDifferences({ differences, unobserved, missing }) {
    this.differences.hidden = !differences.length && !unobserved.length && !missing.length;
    if (!differences.length) {
      const limits = [];
      const reasons = [];
      if (unobserved.length) {
        limits.push(`it does not see ${listOf(unobserved)}`);
        reasons.push('What did not exist in its training is invisible to it.');
      }
      if (missing.length) {
        limits.push(`it knows ${listOf(missing)} only from its training`);
        reasons.push('It may look for what is gone.');
      }
      this.differences.replaceChildren(
        el('strong', { text: `This agent can play here, but ${limits.join(', and ')}.` }),
        el('p', { text: `${reasons.join(' ')} An agent that you train here sees everything: use “Start training” below.` }));
      return;
    }
    this.differences.replaceChildren(
      el('strong', { text: 'This agent cannot play in your world: it has learned to see and do other things.' }),
      el('ul', {}, ...differences.map((text) => el('li', { text }))),
      el('p', { text: 'Train a new one in it: use “Start training” below.' }));
  }

  /** The verdict on screen is about an earlier text. */
  showUnderway() {
    if (!this.verdict.firstElementChild || this.verdict.classList.contains('old')) return;
    this.verdict.classList.add('old');
    this.verdict.prepend(el('em', { text: 'Scripted agents are playing in the new version. Until they are done, this is the verdict on the previous one:' }));
  }

  /** @param {import('./types.js').WorldVerdict} verdict */
  showVerdict(verdict) {
    this.verdict.classList.remove('old');
    this.verdict.dataset.verdict = verdict.livable ? 'right' : 'wrong';
    this.verdict.replaceChildren(el('strong', { text: verdict.livable ? 'An agent can live here.' : 'Hardly anything can live here.' }),
      ...verdict.sentences.map((text) => el('p', { text })));
  }

  /** Show why the agent cannot play in this world. @param {import('./types.js').ErrorMessage} error */
  showPreviewError(error) {
    this.result.dataset.verdict = 'wrong';
    setText(this.result, `The agent cannot play in it: ${error.what}${error.fix ? ` (${error.fix})` : ''}.`);
  }
}

/** What is wrong, after the name of the place and the setting. @param {import('./types.js').WorldError} error */
function withSetting({ path, what }) {
  const label = settingLabel(path);
  return label && !what.includes(`'${label}'`) ? `${label}: ${what}` : what;
}
