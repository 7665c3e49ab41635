/** The text of a world beside the town: checked while one types, and played by the present agent. */

import { byId, make, write } from './dom.js';
import { many } from './format.js';
import { makeSaving } from './save.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./session.js').Session} Session
 */

const PATIENCE = 60; // milliseconds without a key before the text is checked

export class WorldPanel {
  /** @param {Store} store @param {Session} session */
  constructor(store, session) {
    this.store = store;
    this.session = session;
    this.number = 0;
    this.timer = 0;
    this.original = '';
    this.draft = ''; // where changes are kept
    this.gutter = make('pre', { class: 'gutter', 'aria-hidden': 'true' });
    this.text = make('textarea', { class: 'yaml', spellcheck: 'false', autocomplete: 'off', autocapitalize: 'off', wrap: 'off', 'aria-label': 'The world as YAML', 'aria-describedby': 'world-verdict' });
    this.verdict = make('p', { class: 'verdict', id: 'world-verdict', role: 'status' });
    this.mistakes = make('ol', { class: 'mistakes' });
    this.attempt = make('button', { type: 'button', class: 'primary', text: 'Try it with this agent' });
    this.restore = make('button', { type: 'button', text: 'Back to the run’s world' });
    byId('world-body').replaceChildren(
      make('div', { class: 'editor' }, this.gutter, this.text),
      make('div', { class: 'editor-foot' }, this.verdict, make('div', { class: 'editor-buttons' }, this.restore, this.attempt)),
      this.mistakes,
      makeSaving(() => this.text.value, () => store.known.program),
      make('p', { class: 'read-only quiet', text: 'This link is read-only: worlds can be tried here, and saved with the operator’s link.' }),
    );
    this.listen();
    store.on(['about'], () => this.load());
    store.on(['checked'], () => this.judge());
    store.on(['refusal'], () => this.refuse());
    store.on(['preview'], () => this.showPreview());
  }

  listen() {
    this.text.addEventListener('input', () => {
      this.numberLines();
      this.keep();
      this.verdict.dataset.verdict = 'none';
      write(this.verdict, 'Checking …');
      clearTimeout(this.timer);
      this.timer = setTimeout(() => this.check(false), PATIENCE);
    });
    this.text.addEventListener('scroll', () => { this.gutter.scrollTop = this.text.scrollTop; });
    this.text.addEventListener('keydown', (event) => {
      // Tab must leave the editor: the keyboard alone has to reach every control. Two spaces are typed by hand.
      if (event.key === 'Enter' && (event.ctrlKey || event.metaKey)) this.check(true);
    });
    this.attempt.addEventListener('click', () => this.check(true));
    this.restore.addEventListener('click', () => {
      this.text.value = this.original;
      this.numberLines();
      this.keep();
      if (this.store.known.preview) this.session.source('checkpoint');
      this.check(false);
    });
    this.mistakes.addEventListener('click', (event) => {
      const line = Number(/** @type {HTMLElement} */ (event.target).closest('button')?.dataset.line ?? 0);
      if (line) this.go(line);
    });
  }

  load() {
    const { about, run } = this.store.known;
    if (!about?.world) return; // the run is gone or no town, but not what somebody has written
    this.original = about.text ?? '';
    this.draft = `townlet-draft ${run}`;
    this.text.value = kept(this.draft) ?? this.original;
    this.numberLines();
    this.store.set({ checked: null });
    write(byId('world-name'), about.world.description);
    if (this.text.value !== this.original) setTimeout(() => this.check(false), PATIENCE * 8); // once the run is on show
  }

  /** What is written survives a visit to another run and a reload of the page. */
  keep() {
    try {
      if (this.text.value === this.original) sessionStorage.removeItem(this.draft);
      else sessionStorage.setItem(this.draft, this.text.value);
    } catch { /* a browser that keeps nothing can still edit */ }
  }

  /** @param {boolean} preview */
  check(preview) {
    this.number += 1;
    if (preview) this.store.set({ trying: true });
    this.session.world(this.text.value, this.number, preview);
  }

  /** What the server found, if it is about the text as it is now. */
  judge() {
    const { checked } = this.store.known;
    this.restore.hidden = this.text.value === this.original && !this.store.known.preview;
    if (!checked) {
      write(this.verdict, 'Change something: it is checked while you type.');
      this.verdict.dataset.verdict = 'none';
      this.mistakes.replaceChildren();
      this.numberLines();
      return;
    }
    if (checked.number !== this.number) return;
    const bad = checked.mistakes;
    this.verdict.dataset.verdict = bad.length ? 'wrong' : 'right';
    write(this.verdict, bad.length ? many(bad.length, 'mistake') : checked.world ? 'The agent plays in it now.' : 'This world can be played.');
    this.attempt.disabled = bad.length > 0;
    this.mistakes.replaceChildren(...bad.slice(0, 12).map((one) => make('li', {}, make('button', { type: 'button', 'data-line': one.line },
      make('b', { text: one.line ? `line ${one.line}` : 'world' }), make('span', { text: one.what }),
      one.fix ? make('small', { text: one.fix }) : null))));
    this.numberLines(new Set(bad.map((one) => one.line)));
  }

  /** The text is a world, but not one that this agent can live in. */
  refuse() {
    const { refusal } = this.store.known;
    if (!refusal) return;
    this.verdict.dataset.verdict = 'wrong';
    write(this.verdict, `It cannot be tried: ${refusal.what}${refusal.fix ? ` (${refusal.fix})` : ''}.`);
  }

  showPreview() {
    const on = this.store.known.preview;
    this.restore.hidden = this.text.value === this.original && !on;
    document.body.toggleAttribute('data-preview', on);
  }

  /** @param {Set<number>} [wrong] */
  numberLines(wrong = new Set()) {
    const lines = this.text.value.split('\n').length;
    const rows = document.createDocumentFragment();
    for (let line = 1; line <= lines; line += 1) {
      rows.append(make('span', { class: wrong.has(line) ? 'wrong' : null, text: String(line) }));
    }
    this.gutter.replaceChildren(rows);
    this.gutter.scrollTop = this.text.scrollTop;
  }

  /** @param {number} line */
  go(line) {
    const lines = this.text.value.split('\n');
    const from = lines.slice(0, line - 1).reduce((sum, one) => sum + one.length + 1, 0);
    this.text.focus();
    this.text.setSelectionRange(from, from + (lines[line - 1]?.length ?? 0));
    const height = this.text.scrollHeight / Math.max(1, lines.length);
    this.text.scrollTop = Math.max(0, (line - 6) * height);
  }
}

/** @param {string} key */
function kept(key) {
  try {
    return sessionStorage.getItem(key);
  } catch {
    return null;
  }
}
