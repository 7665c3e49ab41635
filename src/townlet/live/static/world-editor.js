/** World editor: a map, a form and the YAML beside them, always in step; checked, judged, tried, trained and saved. */

import { ApiError, request } from './api.js';
import { byId, el, setText } from './dom.js';
import { humanize, plural, sentence } from './format.js';
import { affordanceColor, affordanceIcon, icon } from './icons.js';
import { WorldForm } from './world-form.js';
import { WorldMap } from './world-map.js';
import { YamlEditor } from './yaml-editor.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./session.js').Session} Session
 * @typedef {import('./types.js').WorldChange} WorldChange
 * @typedef {import('./types.js').PlaceSpec} PlaceSpec
 * @typedef {import('./world-form.js').Selection} Selection
 */

const CHECK_DELAY = 120; // milliseconds after the last key
const MAX_HISTORY = 100; // texts that can be restored

export class WorldEditor {
  /** @param {Store} store @param {Session} session @param {import('./training-control.js').TrainingControl} trainings */
  constructor(store, session, trainings) {
    this.store = store;
    this.session = session;
    this.number = 0; // of the last check
    this.timer = 0;
    this.original = '';
    this.draftKey = ''; // key of the draft in sessionStorage
    /** @type {string[]} */
    this.history = []; // texts, oldest first
    this.at = 0; // index of the current one
    /** @type {Selection} */
    this.selection = { kind: 'world' };
    /** @type {{change: WorldChange, selection?: Selection}[]} */
    this.queue = []; // changes that wait for the answer to the one before: each needs its text
    this.awaited = 0; // number of the change that was sent; 0: none
    /** @type {Selection | null} */
    this.nextSelection = null; // selected once the change has been made
    /** @type {Partial<PlaceSpec>[]} */
    this.palette = [];
    this.undoButton = el('button', { type: 'button', class: 'round-button', 'aria-label': 'Undo', title: 'Undo' }, icon('undo'));
    this.redoButton = el('button', { type: 'button', class: 'round-button', 'aria-label': 'Redo', title: 'Redo' }, icon('redo'));
    this.restoreButton = el('button', { type: 'button', text: 'Start over' });
    this.tryButton = el('button', { type: 'button', class: 'primary', text: 'Try it with this agent' });
    this.result = el('p', { class: 'check-result', id: 'world-check-result', role: 'status' });
    this.verdict = el('div', { class: 'verdict', role: 'status' });
    this.differences = el('div', { class: 'differences', hidden: true });
    this.errors = el('ol', { class: 'error-list' });
    this.paletteBox = el('div', { class: 'palette', role: 'group', 'aria-label': 'Places to add' });
    this.yaml = new YamlEditor(() => this.onType(), () => this.check(true));
    this.map = new WorldMap({
      select: (name) => this.select({ kind: 'place', name }),
      move: (name, cell) => this.change({ op: 'set', path: ['affordances', name, 'cell'], value: cell }),
      remove: (name) => this.remove(name),
      add: (entry, cell) => this.add(entry, cell),
    });
    this.form = new WorldForm((path, value) => this.change({ op: 'set', path, value }), (name) => this.remove(name),
      (name, to) => this.rename(name, to), (selection) => this.select(selection));
    this.build(trainings);
    store.on(['about'], () => this.load());
    store.on(['worldChecked'], () => this.showResult());
    store.on(['worldVerdict'], () => this.showVerdict());
    store.on(['previewError'], () => this.showPreviewError());
    store.on(['refused'], () => this.onRefused());
    store.on(['link'], () => this.forgetChanges());
    store.on(['preview'], () => document.body.toggleAttribute('data-preview', store.state.preview));
    store.on(['view'], () => { if (store.state.view === 'world') void this.loadPalette(); });
  }

  /** @param {import('./training-control.js').TrainingControl} trainings */
  build(trainings) {
    this.undoButton.addEventListener('click', () => this.restore(this.at - 1));
    this.redoButton.addEventListener('click', () => this.restore(this.at + 1));
    this.restoreButton.addEventListener('click', () => this.setText(this.original));
    this.tryButton.addEventListener('click', () => this.check(true));
    this.errors.addEventListener('click', (event) => {
      const line = Number(/** @type {HTMLElement} */ (event.target).closest('button')?.dataset.line ?? 0);
      if (line) this.yaml.goToLine(line);
    });
    const saveForm = makeSaveForm(() => this.yaml.value, () => this.store.state.program);
    const trainForm = trainings.makeForm(() => this.yaml.value);
    byId('world-body').replaceChildren(
      el('div', { class: 'editor-bar' },
        el('div', { class: 'buttons' }, this.undoButton, this.redoButton, this.restoreButton), this.result, this.tryButton),
      this.differences,
      el('div', { class: 'editor-columns' },
        el('div', { class: 'editor-map' }, this.map.box, el('h3', { text: 'Add a place' }), this.paletteBox),
        el('div', { class: 'editor-form' }, this.form.box),
        el('div', { class: 'editor-text' }, el('h3', { text: 'The same world as text (YAML)' }), this.yaml.box, this.errors)),
      this.verdict, trainForm, saveForm,
      el('p', { class: 'read-only muted', text: 'This link is read-only: you can build worlds and try them, but only the operator’s link can train in them and save them.' }),
    );
  }

  /** Show the text of another run's world, or the draft that was made from it. */
  load() {
    const { about, run } = this.store.state;
    if (!about?.world) return; // keep the text of a run that is gone
    this.original = about.text ?? '';
    this.draftKey = `townlet-draft ${run}`;
    this.yaml.value = loadDraft(this.draftKey) ?? this.original;
    this.history = [this.yaml.value];
    this.at = 0;
    this.selection = { kind: 'world' };
    this.store.set({ worldChecked: null, worldVerdict: null });
    setText(byId('world-name'), about.world.description);
    setTimeout(() => this.check(false), CHECK_DELAY * 4); // after the run has opened
  }

  async loadPalette() {
    if (this.palette.length) return;
    this.palette = await request('api/palette').catch(() => []);
    const own = { name: '', icon: '⭐', ticks: 1, each_tick: {}, at_end: {} };
    this.paletteBox.replaceChildren(...[own, ...this.palette].map((entry) => {
      const label = entry.name ? humanize(entry.name) : 'A place of your own';
      const badge = el('span', { class: 'badge' }, affordanceIcon({ name: entry.name ?? '', icon: entry.icon ?? '' }, 18));
      badge.style.background = affordanceColor({ name: '', icon: entry.icon ?? '' });
      const button = el('button', { type: 'button', class: 'palette-place', title: `${label}: click, or drag it onto the map` }, badge, el('span', { text: label }));
      button.addEventListener('click', () => this.add(entry, this.map.freeCell()));
      this.map.makeDraggable(button, (cell) => this.add(entry, cell));
      return button;
    }));
  }

  // Changes

  /** @param {Selection} selection */
  select(selection) {
    this.selection = selection;
    this.showSpec();
  }

  /** Let the server change the text; changes are made one after another. @param {WorldChange} change @param {Selection} [selection] afterwards */
  change(change, selection) {
    const last = this.queue.at(-1);
    if (last && isSameSetting(last.change, change)) this.queue.pop();
    this.queue.push({ change, selection });
    this.sendChange();
  }

  sendChange() {
    const next = this.awaited ? undefined : this.queue.shift();
    if (!next) return;
    this.number += 1;
    this.awaited = this.number;
    this.nextSelection = next.selection ?? null;
    this.showUnderway();
    this.session.checkWorld(this.yaml.value, this.number, false, next.change);
  }

  /** The text was replaced or the connection lost: changes of the text before no longer apply. */
  forgetChanges() {
    this.queue = [];
    this.awaited = 0;
    this.nextSelection = null;
  }

  /** The server refused a change: show the world of the text again. */
  onRefused() {
    if (!this.awaited) return;
    this.forgetChanges();
    this.check(false);
  }

  /** @param {Partial<PlaceSpec>} entry @param {number[] | null} cell */
  add(entry, cell) {
    const { spec } = this;
    if (!spec || (this.map.hasCells && !cell)) return;
    const names = new Set(spec.affordances.map((place) => place.name));
    const base = entry.name || 'MyPlace';
    let name = base;
    for (let k = 2; names.has(name); k += 1) name = `${base}${k}`;
    const lethal = spec.lethal[0];
    const effect = entry.name ? {} : { each_tick: { [spec.meters.find((meter) => meter.name === 'mood')?.name ?? lethal]: 0.1 } };
    this.change({ op: 'add', section: 'affordances', entry: { ...dropEmpty(entry), ...effect, name, ...(cell ? { cell } : {}) } }, { kind: 'place', name });
  }

  /** @param {string} name */
  remove(name) {
    this.change({ op: 'remove', section: 'affordances', name }, { kind: 'world' });
  }

  /** @param {string} name @param {string} to */
  rename(name, to) {
    if (to && to !== name) this.change({ op: 'rename', section: 'affordances', name, to }, { kind: 'place', name: to });
  }

  onType() {
    this.remember();
    this.forgetChanges();
    this.number += 1; // answers about the text before are ignored
    this.result.dataset.verdict = 'none';
    setText(this.result, 'Checking …');
    clearTimeout(this.timer);
    this.timer = setTimeout(() => this.check(false), CHECK_DELAY);
  }

  /** @param {string} text */
  setText(text) {
    this.yaml.value = text;
    this.remember();
    this.check(false);
  }

  /** Keep the current text for undo, and as a draft across reloads. */
  remember() {
    if (this.history[this.at] !== this.yaml.value) {
      this.history = [...this.history.slice(0, this.at + 1), this.yaml.value].slice(-MAX_HISTORY);
      this.at = this.history.length - 1;
    }
    try {
      if (this.yaml.value === this.original) sessionStorage.removeItem(this.draftKey);
      else sessionStorage.setItem(this.draftKey, this.yaml.value);
    } catch { /* storage disabled */ }
  }

  /** Go back or forward in the history. @param {number} at */
  restore(at) {
    if (!(at in this.history)) return;
    this.at = at;
    this.yaml.value = this.history[at];
    this.remember();
    this.check(false);
  }

  /** @param {boolean} preview */
  check(preview) {
    this.number += 1;
    this.forgetChanges();
    this.showUnderway();
    if (preview) this.store.set({ previewPending: true });
    this.session.checkWorld(this.yaml.value, this.number, preview);
  }

  // Answers of the server

  get spec() {
    return this.map.spec;
  }

  /** Show the answer of the server, if it is about the current text. */
  showResult() {
    const { worldChecked } = this.store.state;
    if (!worldChecked) {
      setText(this.result, '');
      this.errors.replaceChildren();
      this.showHistory();
      return;
    }
    if (worldChecked.number !== this.number) return;
    if (worldChecked.text !== null) {
      this.yaml.value = worldChecked.text;
      this.remember();
      this.selection = this.nextSelection ?? this.selection;
    }
    this.awaited = 0;
    if (this.queue.length && !worldChecked.errors.length) { // what is on screen is newer
      this.sendChange();
      return;
    }
    const bad = worldChecked.errors;
    this.result.dataset.verdict = bad.length ? 'wrong' : 'right';
    setText(this.result, bad.length ? plural(bad.length, 'error') : 'This world is valid.');
    this.errors.replaceChildren(...bad.slice(0, 12).map((one) => el('li', {}, el('button', { type: 'button', 'data-line': one.line },
      el('b', { text: one.line ? `line ${one.line}` : 'world' }), el('span', { text: one.what }),
      one.fix ? el('small', { text: one.fix }) : null))));
    this.yaml.numberLines(new Set(bad.map((one) => one.line)));
    if (worldChecked.spec) this.map.spec = worldChecked.spec;
    this.showSpec();
    this.showDifferences(worldChecked.differences, bad.length > 0);
    if (bad.length) this.verdict.replaceChildren();
    this.showHistory();
    this.queue = [];
  }

  /** The verdict on screen is about an earlier text. */
  showUnderway() {
    if (!this.verdict.firstElementChild) return;
    this.verdict.dataset.verdict = 'none';
    setText(this.verdict.firstElementChild, 'Scripted agents are playing in it …');
  }

  showHistory() {
    this.undoButton.disabled = this.at === 0;
    this.redoButton.disabled = this.at >= this.history.length - 1;
    this.restoreButton.disabled = this.yaml.value === this.original;
  }

  showSpec() {
    const { spec, selection } = this;
    if (!spec) return;
    this.map.show(spec, selection.kind === 'place' ? selection.name : null);
    this.form.show(spec, selection);
  }

  /** Say before trying that this agent cannot play here. @param {string[]} differences @param {boolean} invalid */
  showDifferences(differences, invalid) {
    const fits = !differences.length;
    this.tryButton.disabled = invalid || !fits;
    this.differences.hidden = fits || invalid;
    this.differences.replaceChildren(
      el('strong', { text: 'This agent cannot play in your world: it has learned to see and do other things.' }),
      el('ul', {}, ...differences.map((text) => el('li', { text }))),
      el('p', { text: 'Train a new one in it: see “Train an agent here” below.' }));
  }

  showVerdict() {
    const { worldVerdict } = this.store.state;
    if (!worldVerdict || worldVerdict.number !== this.number) return;
    this.verdict.dataset.verdict = worldVerdict.livable ? 'right' : 'wrong';
    this.verdict.replaceChildren(el('strong', { text: worldVerdict.livable ? 'An agent can live here.' : 'Hardly anything can live here.' }),
      ...worldVerdict.sentences.map((text) => el('p', { text })));
  }

  /** Show why the agent cannot play in this world. */
  showPreviewError() {
    const { previewError } = this.store.state;
    if (!previewError) return;
    this.result.dataset.verdict = 'wrong';
    setText(this.result, `The agent cannot play in it: ${previewError.what}${previewError.fix ? ` (${previewError.fix})` : ''}.`);
  }
}

/** Whether both changes set the same value. @param {WorldChange} a @param {WorldChange} b */
const isSameSetting = (a, b) => a.op === 'set' && b.op === 'set' && a.path.join('\n') === b.path.join('\n');

/** A place without settings that have their default value. @param {Partial<PlaceSpec>} entry */
function dropEmpty(entry) {
  return Object.fromEntries(Object.entries(entry).filter(([, value]) => value !== null && JSON.stringify(value) !== '{}'));
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
