/** What is decided: where on the map, or which action, of which type, and how sure. */

import { Bars, Columns } from './decide-bars.js';
import { byId, make, write } from './dom.js';
import { count, percent, spaced } from './format.js';

/**
 * @typedef {import('./decide-types.js').Stats} Stats
 * @typedef {import('./decide-types.js').Actions} Actions
 * @typedef {import('./decide-types.js').ActionMap} ActionMap
 */

const COLOURS = ['second', 'accent', 'third', 'plum'];

/** An action as this domain calls it: on a map by its chunk and type, else by its number. @param {number} action @param {Actions} actions */
export function actionName(action, actions) {
  if (actions.kind === 'bars') return actions.labels?.[action] ?? `${actions.noun ?? 'action'} ${action}`;
  const chunks = actions.values.length * (actions.values[0]?.length ?? 1);
  const type = Object.keys(actions.types ?? {})[Math.floor(action / chunks)];
  return `${type ? `${spaced(type)} in ` : ''}chunk ${action % chunks}`;
}

export class ActionsPanel {
  constructor() {
    this.map = new HeatMap();
    this.columns = new Columns('How often each action', 'action');
    this.types = new Bars('By type');
    this.confidence = new Columns('Confidence', 'confidence');
    byId('actions-body').append(this.map.box, this.columns.box, this.types.box, this.confidence.box);
  }

  /** @param {Stats} stats */
  show({ decisions }) {
    const { actions, confidence, recent } = decisions;
    const isMap = actions.kind === 'map';
    this.map.box.hidden = !isMap;
    this.columns.box.hidden = isMap;
    const sent = actions.values.flat().reduce((sum, many) => sum + many, 0);
    write(byId('actions-note'), sent ? `the last ${count(sent)} that were sent` : 'none was sent yet');
    if (actions.kind === 'map') {
      this.map.show(actions, recent.filter((one) => one.send).at(-1)?.action ?? -1);
      this.showTypes(actions);
    } else {
      const { values, labels } = actions;
      const most = values.indexOf(Math.max(...values));
      this.columns.show(values, labels ?? values.map((_, k) => String(k)), (k) => `${actionName(k, actions)}: ${count(values[k])}`,
        `How often each of ${values.length} actions was sent lately. The most frequent is ${actionName(most, actions)}.`);
      write(this.columns.title, `How often each ${actions.noun ?? 'action'} was sent`);
      this.types.show([]);
    }
    const all = Math.max(1, confidence.reduce((sum, many) => sum + many, 0));
    const sure = confidence.reduce((sum, many, k) => sum + many * (k + 0.5), 0) / all / confidence.length;
    this.confidence.show(confidence, ['unsure', 'certain'], (k) => `${percent(k / confidence.length)} to ${percent((k + 1) / confidence.length)} sure: ${count(confidence[k])}`,
      `How sure the policy was of its last decisions: ${percent(sure)} in the mean.`);
  }

  /** @param {ActionMap} actions */
  showTypes({ types }) {
    const all = Object.values(types ?? {}).reduce((sum, many) => sum + many, 0);
    this.types.show(Object.entries(types ?? {}).map(([name, many], k) => ({
      name: spaced(name), share: many / Math.max(1, all), text: all ? percent(many / all) : '–', title: count(many), kind: COLOURS[k % COLOURS.length],
    })));
  }
}

/** How often something was sent to each chunk; the darker, the more. The ring is the latest. */
class HeatMap {
  constructor() {
    this.canvas = make('canvas', { class: 'heat-map', role: 'img' });
    this.most = make('span', { text: '0' });
    this.box = make('figure', { class: 'heat' }, this.canvas,
      make('p', { class: 'overlay-note heat-note' }, make('span', { text: '0' }), make('i'), this.most, make('span', { class: 'here', text: 'the latest' })));
    /** @type {ActionMap | null} */
    this.actions = null;
    this.latest = -1;
    this.canvas.addEventListener('pointermove', (event) => this.tell(event));
    new ResizeObserver(() => this.paint()).observe(this.box);
  }

  /** @param {ActionMap} actions @param {number} latest action, or −1 */
  show(actions, latest) {
    this.actions = actions;
    this.latest = latest;
    const flat = actions.values.flat(), most = Math.max(...flat);
    write(this.most, `${count(most)} in a chunk`);
    const busy = flat.filter(Boolean).length;
    this.canvas.setAttribute('aria-label', most ? `Map of decisions: ${busy} of ${flat.length} chunks were chosen lately, most often chunk ${flat.indexOf(most)}.` : 'Map of decisions: none yet.');
    this.paint();
  }

  /** @param {PointerEvent} event */
  tell(event) {
    const rows = this.actions?.values ?? [], across = rows[0]?.length ?? 1;
    const side = this.canvas.clientWidth / across;
    const x = Math.min(across - 1, Math.floor(event.offsetX / side)), z = Math.min(rows.length - 1, Math.floor(event.offsetY / side));
    this.canvas.title = `Chunk ${z * across + x} (${x}, ${z}): ${count(rows[z]?.[x] ?? 0)} decisions`;
  }

  paint() {
    const width = this.canvas.clientWidth, rows = this.actions?.values ?? [];
    if (width < 40 || !rows.length) return;
    const across = rows[0].length, side = width / across, ratio = Math.min(2, devicePixelRatio || 1);
    if (this.canvas.width !== Math.round(width * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(side * rows.length * ratio);
    }
    const pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext('2d'));
    const style = getComputedStyle(this.canvas), most = Math.max(1, ...rows.flat());
    const gap = Math.max(0.5, side * 0.05), round = side * 0.2;
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    pen.clearRect(0, 0, width, side * rows.length);
    rows.forEach((row, z) => row.forEach((many, x) => {
      pen.beginPath();
      pen.roundRect(x * side + gap, z * side + gap, side - 2 * gap, side - 2 * gap, round);
      pen.fillStyle = style.getPropertyValue('--tile');
      pen.fill();
      if (!many) return;
      pen.globalAlpha = 0.12 + 0.88 * Math.sqrt(many / most); // the root lets rare chunks be seen beside frequent ones
      pen.fillStyle = style.getPropertyValue('--heat');
      pen.fill();
      pen.globalAlpha = 1;
    }));
    if (this.latest < 0) return;
    const chunk = this.latest % (across * rows.length);
    pen.strokeStyle = style.getPropertyValue('--ink');
    pen.lineWidth = 1.8;
    pen.beginPath();
    pen.roundRect((chunk % across) * side + gap, Math.floor(chunk / across) * side + gap, side - 2 * gap, side - 2 * gap, round);
    pen.stroke();
  }
}
