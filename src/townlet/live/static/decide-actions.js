/** The "Decisions" panel: actions by location or count, by type, and by confidence. */

import { Bars, Columns } from './decide-charts.js';
import { byId, el, setText } from './dom.js';
import { formatCount, formatPercent, humanize } from './format.js';

/**
 * @typedef {import('./decide-types.js').Stats} Stats
 * @typedef {import('./decide-types.js').Actions} Actions
 * @typedef {import('./decide-types.js').ActionMap} ActionMap
 */

const COLORS = ['second', 'accent', 'third', 'plum'];

/** Name of an action in this domain: type and chunk on a map, otherwise its label or number. @param {number} action @param {Actions} actions */
export function actionName(action, actions) {
  if (actions.kind === 'bars') return actions.labels?.[action] ?? `${actions.noun ?? 'action'} ${action}`;
  const chunks = actions.values.length * (actions.values[0]?.length ?? 1);
  const type = Object.keys(actions.types ?? {})[Math.floor(action / chunks)];
  return `${type ? `${humanize(type)} in ` : ''}chunk ${action % chunks}`;
}

export class ActionsPanel {
  constructor() {
    this.map = new HeatMap();
    this.columns = new Columns('Actions', 'action');
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
    setText(byId('actions-note'), sent ? `last ${formatCount(sent)} sent` : 'none sent yet');
    if (actions.kind === 'map') {
      this.map.show(actions, recent.filter((one) => one.send).at(-1)?.action ?? -1);
      this.showTypes(actions);
    } else {
      const { values, labels } = actions;
      const most = values.indexOf(Math.max(...values));
      this.columns.show(values, labels ?? values.map((_, k) => String(k)), (k) => `${actionName(k, actions)}: ${formatCount(values[k])}`,
        `Recent counts of ${values.length} actions. The most frequent is ${actionName(most, actions)}.`);
      setText(this.columns.title, `Count of each ${actions.noun ?? 'action'} sent`);
      this.types.show([]);
    }
    const all = Math.max(1, confidence.reduce((sum, many) => sum + many, 0));
    const sure = confidence.reduce((sum, many, k) => sum + many * (k + 0.5), 0) / all / confidence.length;
    this.confidence.show(confidence, ['low', 'high'], (k) => `${formatPercent(k / confidence.length)} to ${formatPercent((k + 1) / confidence.length)} confidence: ${formatCount(confidence[k])}`,
      `Confidence of recent decisions: ${formatPercent(sure)} on average.`);
  }

  /** @param {ActionMap} actions */
  showTypes({ types }) {
    const all = Object.values(types ?? {}).reduce((sum, many) => sum + many, 0);
    this.types.show(Object.entries(types ?? {}).map(([name, many], k) => ({
      name: humanize(name), share: many / Math.max(1, all), text: all ? formatPercent(many / all) : '–', title: formatCount(many), kind: COLORS[k % COLORS.length],
    })));
  }
}

/** Heat map of decisions per chunk; the outlined chunk is the latest. */
class HeatMap {
  constructor() {
    this.canvas = el('canvas', { class: 'heat-map', role: 'img' });
    this.most = el('span', { text: '0' });
    this.box = el('figure', { class: 'heat' }, this.canvas,
      el('p', { class: 'overlay-note heat-note' }, el('span', { text: '0' }), el('i'), this.most, el('span', { class: 'latest', text: 'latest' })));
    /** @type {ActionMap | null} */
    this.actions = null;
    this.latest = -1;
    this.canvas.addEventListener('pointermove', (event) => this.showTitle(event));
    new ResizeObserver(() => this.paint()).observe(this.box);
  }

  /** @param {ActionMap} actions @param {number} latest action, or −1 */
  show(actions, latest) {
    this.actions = actions;
    this.latest = latest;
    const flat = actions.values.flat(), most = Math.max(...flat);
    setText(this.most, `${formatCount(most)} in a chunk`);
    const busy = flat.filter(Boolean).length;
    this.canvas.setAttribute('aria-label', most ? `Map of decisions: ${busy} of ${flat.length} chunks were chosen recently, most often chunk ${flat.indexOf(most)}.` : 'Map of decisions: none yet.');
    this.paint();
  }

  /** @param {PointerEvent} event */
  showTitle(event) {
    const rows = this.actions?.values ?? [], across = rows[0]?.length ?? 1;
    const side = this.canvas.clientWidth / across;
    const x = Math.min(across - 1, Math.floor(event.offsetX / side)), z = Math.min(rows.length - 1, Math.floor(event.offsetY / side));
    this.canvas.title = `Chunk ${z * across + x} (${x}, ${z}): ${formatCount(rows[z]?.[x] ?? 0)} decisions`;
  }

  paint() {
    const width = this.canvas.clientWidth, rows = this.actions?.values ?? [];
    if (width < 40 || !rows.length) return;
    const across = rows[0].length, side = width / across, ratio = Math.min(2, devicePixelRatio || 1);
    if (this.canvas.width !== Math.round(width * ratio)) {
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(side * rows.length * ratio);
    }
    const ctx = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext('2d'));
    const style = getComputedStyle(this.canvas), most = Math.max(1, ...rows.flat());
    const gap = Math.max(0.5, side * 0.05), round = side * 0.2;
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    ctx.clearRect(0, 0, width, side * rows.length);
    rows.forEach((row, z) => row.forEach((many, x) => {
      ctx.beginPath();
      ctx.roundRect(x * side + gap, z * side + gap, side - 2 * gap, side - 2 * gap, round);
      ctx.fillStyle = style.getPropertyValue('--tile');
      ctx.fill();
      if (!many) return;
      ctx.globalAlpha = 0.12 + 0.88 * Math.sqrt(many / most); // square root keeps rare chunks visible
      ctx.fillStyle = style.getPropertyValue('--heat');
      ctx.fill();
      ctx.globalAlpha = 1;
    }));
    if (this.latest < 0) return;
    const chunk = this.latest % (across * rows.length);
    ctx.strokeStyle = style.getPropertyValue('--ink');
    ctx.lineWidth = 1.8;
    ctx.beginPath();
    ctx.roundRect((chunk % across) * side + gap, Math.floor(chunk / across) * side + gap, side - 2 * gap, side - 2 * gap, round);
    ctx.stroke();
  }
}
