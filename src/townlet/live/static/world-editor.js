/** World editor: a map, a form and the YAML beside them, always in step; checked, judged, tried, trained and saved. */

import { request } from './api.js';
import { byId, el, setText } from './dom.js';
import { icon } from './icons.js';
import { dropEmpty, paletteButtons } from './palette.js';
import { makeSaveForm } from './save-form.js';
import { TextHistory } from './text-history.js';
import { WorldForm } from './world-form.js';
import { WorldMap } from './world-map.js';
import { WorldResults } from './world-results.js';
import { YamlEditor } from './yaml-editor.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./session.js').Session} Session
 * @typedef {import('./types.js').WorldChange} WorldChange
 * @typedef {import('./types.js').PlaceSpec} PlaceSpec
 * @typedef {import('./world-form.js').Selection} Selection
 */

const NEW_PLACE = 'Spot'; // name of a place that was not in the palette
const CHECK_DELAY = 120; // milliseconds after the last key

export class WorldEditor {
  /** @param {Store} store @param {Session} session @param {import('./training-control.js').TrainingControl} trainings */
  constructor(store, session, trainings) {
    this.store = store;
    this.session = session;
    this.number = 0; // of the last check
    this.timer = 0;
    this.history = new TextHistory();
    /** @type {import('./types.js').AgentChoice[]} */
    this.checkedFor = []; // agents for whom the text was checked
    this.previewNext = false; // the world is to be tried once all changes have been made
    /** @type {Selection} */
    this.selection = { kind: 'world' };
    /** @type {{change: WorldChange, selection?: Selection}[]} */
    this.queue = []; // changes that wait for the answer to the one before: each needs its text
    this.awaited = 0; // number of the change that was sent; 0: none
    /** @type {{change: WorldChange, selection?: Selection} | null} */
    this.sent = null; // that change
    /** @type {Selection | null} */
    this.nextSelection = null; // selected once the change has been made
    this.undoButton = el('button', { type: 'button', class: 'round-button', 'aria-label': 'Undo', title: 'Undo' }, icon('undo'));
    this.redoButton = el('button', { type: 'button', class: 'round-button', 'aria-label': 'Redo', title: 'Redo' }, icon('redo'));
    this.restoreButton = el('button', { type: 'button', text: 'Start over' });
    this.tryButton = el('button', { type: 'button', class: 'primary', text: 'Try it with this agent' });
    this.results = new WorldResults((line) => this.yaml.goToLine(line));
    this.paletteBox = el('div', { class: 'palette', role: 'group', 'aria-label': 'Places to add' });
    this.yaml = new YamlEditor(() => this.onType(), () => this.check(true));
    this.map = new WorldMap({
      select: (name) => this.select({ kind: 'place', name }),
      move: (name, cell) => this.change({ op: 'set', path: ['affordances', name, 'cell'], value: cell }),
      remove: (name) => this.remove(name),
      add: (entry, cell) => this.add(entry, cell),
    });
    this.form = new WorldForm((path, value) => this.set(path, value), (name) => this.remove(name),
      (name, to) => this.rename(name, to), (selection) => this.select(selection));
    this.build(trainings);
    store.on(['about'], () => this.load());
    store.on(['worldChecked'], () => this.showResult());
    store.on(['worldVerdict'], () => {
      const { worldVerdict } = store.state;
      if (worldVerdict?.number === this.number) this.results.showVerdict(worldVerdict);
    });
    store.on(['previewError'], () => { if (store.state.previewError) this.results.showPreviewError(store.state.previewError); });
    store.on(['refused'], () => this.onRefused());
    store.on(['link'], () => this.onLink());
    store.on(['agents', 'view'], () => this.onAgents());
    store.on(['preview'], () => document.body.toggleAttribute('data-preview', store.state.preview));
    store.on(['view'], () => { if (store.state.view === 'world') void this.loadPalette(); });
  }

  /** @param {import('./training-control.js').TrainingControl} trainings */
  build(trainings) {
    this.undoButton.addEventListener('click', () => this.restore(-1));
    this.redoButton.addEventListener('click', () => this.restore(1));
    this.restoreButton.addEventListener('click', () => this.setText(this.history.original));
    this.tryButton.addEventListener('click', () => this.check(true));
    const saveForm = makeSaveForm(() => this.yaml.value, () => this.store.state.program, trainings);
    byId('world-body').replaceChildren(
      el('div', { class: 'editor-bar' },
        el('div', { class: 'buttons' }, this.undoButton, this.redoButton, this.restoreButton), this.results.result, this.tryButton),
      this.results.differences,
      el('div', { class: 'editor-columns' },
        el('div', { class: 'editor-map' }, this.map.box, el('h3', { text: 'Add a place' }), this.paletteBox),
        el('div', { class: 'editor-form' }, this.form.box),
        el('div', { class: 'editor-text' }, el('h3', { text: 'The same world as text (YAML)' }), this.yaml.box, this.results.errors)),
      this.results.verdict, saveForm,
      el('p', { class: 'read-only muted', text: 'This link is read-only: you can build worlds and try them, but only the operator’s link can train in them and save them.' }),
    );
  }

  /** Show the text of another run's world, or the draft that was made from it. */
  load() {
    const { about, run } = this.store.state;
    if (!about?.world) return; // keep the text of a run that is gone
    this.forgetChanges();
    this.yaml.value = this.history.open(about.text ?? '', `townlet-draft ${run}`);
    this.selection = { kind: 'world' };
    this.store.set({ worldChecked: null, worldVerdict: null });
    setText(byId('world-name'), about.world.description);
    setTimeout(() => this.check(false), CHECK_DELAY * 4); // after the run has opened
  }

  async loadPalette() {
    if (this.paletteBox.firstElementChild) return;
    const entries = await request('api/palette').catch(() => []);
    this.paletteBox.replaceChildren(...paletteButtons(entries, this.map, (entry, cell) => this.add(entry, cell)));
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
    clearTimeout(this.timer);
    this.number += 1;
    this.awaited = this.number;
    this.sent = next;
    this.nextSelection = next.selection ?? null;
    this.results.showUnderway();
    this.session.checkWorld(this.yaml.value, this.number, false, next.change);
  }

  /** The text was replaced: changes of the text before no longer apply. */
  forgetChanges() {
    this.queue = [];
    this.awaited = 0;
    this.sent = null;
    this.nextSelection = null;
    this.previewNext = false;
  }

  /** A change was sent with a text that is no longer the current one, or got lost: it is made again. */
  takeBackChange() {
    if (this.awaited && this.sent) this.queue.unshift(this.sent);
    this.awaited = 0;
    this.sent = null;
  }

  /** The server refused a change: show the world of the text again. */
  onRefused() {
    const { refused } = this.store.state;
    if (!this.awaited || (refused && refused.number !== null && refused.number !== this.awaited)) return;
    this.forgetChanges();
    this.check(false);
  }

  /** The connection was lost, or is open again. */
  onLink() {
    this.takeBackChange();
    if (this.store.state.link === 'open') this.sendChange();
  }

  /** Whether the world can be tried depends on who plays: check it again for other agents. */
  onAgents() {
    const { agents, view } = this.store.state;
    if (view !== 'world' || !this.spec || agents === this.checkedFor) return;
    queueMicrotask(() => this.check(false)); // once the server knows the agents
  }

  /** @param {Partial<PlaceSpec>} entry @param {number[] | null} cell */
  add(entry, cell) {
    const { spec } = this;
    if (!spec || (this.map.hasCells && !cell)) return;
    const names = new Set(spec.affordances.map((place) => place.name));
    const base = entry.name || NEW_PLACE;
    let name = base;
    for (let k = 2; names.has(name); k += 1) name = `${base}${k}`;
    const lethal = spec.lethal[0];
    const effect = entry.name ? {} : { each_tick: { [spec.meters.find((meter) => meter.name === 'mood')?.name ?? lethal]: 0.1 } };
    const added = { ...dropEmpty(entry), ...effect, name, ...(cell ? { cell } : {}) };
    // At once, so that the next one gets another name and cell.
    spec.affordances.push({ icon: '', cell, ticks: 1, price: 0, hours: null, each_tick: {}, at_end: {}, ...added });
    this.map.draw();
    this.change({ op: 'add', section: 'affordances', entry: added }, { kind: 'place', name });
  }

  /** @param {string[]} path @param {any} value */
  set(path, value) {
    const place = this.spec?.affordances.find((one) => one.name === path[1]);
    if (place && path[2] === 'icon') { // at once, so that the next stroke of a drawing adds to it
      place.icon = value ?? '';
      this.map.draw();
    }
    this.change({ op: 'set', path, value });
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
    this.history.remember(this.yaml.value);
    this.takeBackChange();
    this.number += 1; // answers about the text before are ignored
    this.results.showChecking();
    clearTimeout(this.timer);
    this.timer = setTimeout(() => (this.queue.length ? this.sendChange() : this.check(false)), CHECK_DELAY);
  }

  /** @param {string} text */
  setText(text) {
    this.forgetChanges();
    this.yaml.value = text;
    this.history.remember(this.yaml.value);
    this.check(false);
  }

  /** Go back or forward in the history. @param {-1 | 1} by */
  restore(by) {
    const text = this.history.go(by);
    if (text !== null) this.setText(text);
  }

  /** Check the text; with `preview`, try it once all changes have been made. @param {boolean} preview */
  check(preview) {
    if (this.awaited || this.queue.length) {
      this.previewNext ||= preview;
      return;
    }
    clearTimeout(this.timer);
    this.number += 1;
    this.checkedFor = this.store.state.agents;
    this.results.showUnderway();
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
      this.results.clear();
      this.showHistory();
      return;
    }
    if (worldChecked.number !== this.number) return;
    if (worldChecked.text !== null) {
      this.yaml.value = worldChecked.text;
      this.history.remember(this.yaml.value);
    }
    this.awaited = 0;
    this.sent = null;
    if (this.queue.length && !worldChecked.errors.length) { // what is on screen is newer
      this.sendChange();
      return;
    }
    const bad = worldChecked.errors;
    this.results.showErrors(bad);
    this.yaml.numberLines(new Set(bad.map((one) => one.line)));
    this.form.showErrors(bad);
    if (worldChecked.spec) { // an invalid world has none: the fields keep what was entered
      this.map.spec = worldChecked.spec;
      this.form.description = worldChecked.description;
      setText(byId('world-name'), worldChecked.description);
      this.selection = this.nextSelection ?? this.selection;
      this.showSpec();
    }
    this.results.showDifferences(worldChecked);
    this.tryButton.disabled = bad.length > 0 || worldChecked.differences.length > 0;
    this.showHistory();
    const { previewNext } = this;
    this.forgetChanges();
    if (previewNext && !bad.length) this.check(true);
  }

  showHistory() {
    this.undoButton.disabled = !this.history.canGo(-1);
    this.redoButton.disabled = !this.history.canGo(1);
    this.restoreButton.disabled = this.yaml.value === this.history.original;
  }

  showSpec() {
    const { spec, selection } = this;
    if (!spec) return;
    this.map.show(spec, selection.kind === 'place' ? selection.name : null);
    this.form.show(spec, selection);
  }
}

/** Whether both changes set the same value. @param {WorldChange} a @param {WorldChange} b */
const isSameSetting = (a, b) => a.op === 'set' && b.op === 'set' && a.path.join('\n') === b.path.join('\n');
