/** World editor: validates YAML while typing, previews it with the current agent, and saves it. */

import { ApiError, request } from './api.js';
import { byId, el, setText } from './dom.js';
import { plural } from './format.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./session.js').Session} Session
 */

const CHECK_DELAY = 60; // milliseconds after the last key

export class WorldEditor {
  /** @param {Store} store @param {Session} session */
  constructor(store, session) {
    this.store = store;
    this.session = session;
    this.number = 0;
    this.timer = 0;
    this.original = '';
    this.draftKey = ''; // key of the draft in sessionStorage
    this.gutter = el('pre', { class: 'gutter', 'aria-hidden': 'true' });
    this.text = el('textarea', { class: 'yaml-editor', spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off', wrap: 'off', 'aria-label': 'The world as YAML', 'aria-describedby': 'world-check-result' });
    this.result = el('p', { class: 'check-result', id: 'world-check-result', role: 'status' });
    this.errors = el('ol', { class: 'error-list' });
    this.tryButton = el('button', { type: 'button', class: 'primary', text: 'Try it with this agent' });
    this.restoreButton = el('button', { type: 'button', text: 'Back to the run’s world' });
    byId('world-body').replaceChildren(
      el('div', { class: 'editor' }, this.gutter, this.text),
      el('div', { class: 'editor-foot' }, this.result, el('div', { class: 'editor-buttons' }, this.restoreButton, this.tryButton)),
      this.errors,
      makeSaveForm(() => this.text.value, () => store.state.program),
      el('p', { class: 'read-only muted', text: 'This link is read-only: you can try worlds, but only the operator’s link can save them.' }),
    );
    this.bindEvents();
    store.on(['about'], () => this.load());
    store.on(['worldChecked'], () => this.showResult());
    store.on(['previewError'], () => this.showPreviewError());
    store.on(['preview'], () => this.showPreview());
  }

  bindEvents() {
    this.text.addEventListener('input', () => {
      this.numberLines();
      this.saveDraft();
      this.result.dataset.verdict = 'none';
      setText(this.result, 'Checking …');
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.check(false), CHECK_DELAY);
    });
    this.text.addEventListener('scroll', () => { this.gutter.scrollTop = this.text.scrollTop; });
    this.text.addEventListener('keydown', (event) => {
      // Tab leaves the editor, so that the keyboard reaches every control.
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) this.check(true);
    });
    this.tryButton.addEventListener('click', () => this.check(true));
    this.restoreButton.addEventListener('click', () => {
      this.text.value = this.original;
      this.numberLines();
      this.saveDraft();
      if (this.store.state.preview) this.session.setSource('checkpoint');
      this.check(false);
    });
    this.errors.addEventListener('click', (event) => {
      const line = Number(/** @type {HTMLElement} */ (event.target).closest('button')?.dataset.line ?? 0);
      if (line) this.goToLine(line);
    });
  }

  load() {
    const { about, run } = this.store.state;
    if (!about?.world) return; // keep the text of a run that is gone
    this.original = about.text ?? '';
    this.draftKey = `townlet-draft ${run}`;
    this.text.value = loadDraft(this.draftKey) ?? this.original;
    this.numberLines();
    this.store.set({ worldChecked: null });
    setText(byId('world-name'), about.world.description);
    if (this.text.value !== this.original) setTimeout(() => this.check(false), CHECK_DELAY * 8); // after the run has opened
  }

  /** Keep the draft across runs and reloads. */
  saveDraft() {
    try {
      if (this.text.value === this.original) sessionStorage.removeItem(this.draftKey);
      else sessionStorage.setItem(this.draftKey, this.text.value);
    } catch { /* storage disabled */ }
  }

  /** @param {boolean} preview */
  check(preview) {
    this.number += 1;
    if (preview) this.store.set({ previewPending: true });
    this.session.checkWorld(this.text.value, this.number, preview);
  }

  /** Show the answer of the server, if it is about the current text. */
  showResult() {
    const { worldChecked } = this.store.state;
    this.restoreButton.hidden = this.text.value === this.original && !this.store.state.preview;
    if (!worldChecked) {
      setText(this.result, 'Edit the world; it is checked while you type.');
      this.result.dataset.verdict = 'none';
      this.errors.replaceChildren();
      this.numberLines();
      return;
    }
    if (worldChecked.number !== this.number) return;
    const bad = worldChecked.errors;
    this.result.dataset.verdict = bad.length ? 'wrong' : 'right';
    setText(this.result, bad.length ? plural(bad.length, 'error') : worldChecked.world ? 'The agent now plays in this world.' : 'This world is valid.');
    this.tryButton.disabled = bad.length > 0;
    this.errors.replaceChildren(...bad.slice(0, 12).map((one) => el('li', {}, el('button', { type: 'button', 'data-line': one.line },
      el('b', { text: one.line ? `line ${one.line}` : 'world' }), el('span', { text: one.what }),
      one.fix ? el('small', { text: one.fix }) : null))));
    this.numberLines(new Set(bad.map((one) => one.line)));
  }

  /** Show why the agent cannot play in this world. */
  showPreviewError() {
    const { previewError } = this.store.state;
    if (!previewError) return;
    this.result.dataset.verdict = 'wrong';
    setText(this.result, `The agent cannot play in it: ${previewError.what}${previewError.fix ? ` (${previewError.fix})` : ''}.`);
  }

  showPreview() {
    const on = this.store.state.preview;
    this.restoreButton.hidden = this.text.value === this.original && !on;
    document.body.toggleAttribute('data-preview', on);
  }

  /** @param {Set<number>} [wrong] */
  numberLines(wrong = new Set()) {
    const lines = this.text.value.split('\n').length;
    const rows = document.createDocumentFragment();
    for (let line = 1; line <= lines; line += 1) {
      rows.append(el('span', { class: wrong.has(line) ? 'wrong' : null, text: String(line) }));
    }
    this.gutter.replaceChildren(rows);
    this.gutter.scrollTop = this.text.scrollTop;
  }

  /** @param {number} line */
  goToLine(line) {
    const lines = this.text.value.split('\n');
    const from = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    this.text.focus();
    this.text.setSelectionRange(from, from + (lines[line - 1]?.length ?? 0));
    const height = this.text.scrollHeight / Math.max(1, lines.length);
    this.text.scrollTop = Math.max(0, (line - 6) * height);
  }
}

/** @param {string} key */
function loadDraft(key) {
  try {
    return sessionStorage.getItem(key);
  } catch {
    return null;
  }
}

const NAME = '[a-z][a-z0-9\\-]{0,39}';

/** Form that saves the world under a new name. @param {() => string} text of the world @param {() => string} program */
export function makeSaveForm(text, program) {
  const name = el('input', {
    type: 'text', id: 'world-save-name', placeholder: 'my-town', pattern: NAME, maxlength: 40, required: true, autocomplete: 'off',
    autocapitalize: 'off', spellcheck: 'false', 'aria-describedby': 'world-save-result', title: 'Lowercase letters, digits and dashes, starting with a letter',
  });
  const button = el('button', { type: 'submit', text: 'Save as new world' });
  const output = el('div', { class: 'save-result', id: 'world-save-result', role: 'status' });
  const form = el('form', { class: 'save-form operator-only' },
    el('label', { for: 'world-save-name', text: 'Name' }), name, button, output);

  form.addEventListener('submit', async (event) => {
    event.preventDefault();
    button.disabled = true;
    try {
      const { file } = await request('api/worlds', { name: name.value, text: text() });
      showResult(output, 'right', el('p', { text: `Saved as ${file}. To train an agent in it, run this where you started the server:` }),
        el('pre', {}, el('code', { text: `${program()} train ${file} --live` })));
    } catch (error) {
      const fix = error instanceof ApiError ? error.fix : 'Your text is unchanged; try again.';
      showResult(output, 'wrong', el('p', { text: sentence(error instanceof Error ? error.message : String(error)) }), fix ? el('p', { class: 'muted', text: sentence(fix) }) : null);
    }
    button.disabled = false;
  });
  name.addEventListener('input', () => output.replaceChildren());
  return form;
}

/** @param {HTMLElement} box @param {'right' | 'wrong'} verdict @param {...(HTMLElement | null)} parts */
function showResult(box, verdict, ...parts) {
  box.dataset.verdict = verdict;
  box.replaceChildren(...parts.filter((part) => part !== null));
}

/** @param {string} text */
const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?:]$/.test(text) ? '' : '.');
