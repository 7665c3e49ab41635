/** One town of the page: its canvas, floating texts, caption and end card. */

import { el, pixelRatio, setText } from './dom.js';
import { formatCount, formatPercent, humanize } from './format.js';
import { aspectRatio, cellCenter, floorOf, layoutGrid, ringPosition } from './grid.js';
import { playbackSpeed } from './state.js';
import { themeStyle, TownPainter } from './town-painter.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./playback.js').Playback} Playback
 * @typedef {import('./types.js').Timestep} Timestep
 */

const FLOAT_SECONDS = 1.5; // lifetime of a floating text
const MIN_CHANGE = 0.04; // of a meter; smaller changes are not shown

/** Smallest font size on the map in pixels; 0: names may be smaller, to fit their cells. */
const leastText = () => (document.body.hasAttribute('data-present') ? 12 : 0);

export class TownView {
  /** @param {Store} store @param {Playback} playback @param {0 | 1} side */
  constructor(store, playback, side) {
    this.store = store;
    this.playback = playback;
    this.side = side;
    this.canvas = el('canvas', { class: 'town-canvas', role: 'img', 'aria-label': 'The town' });
    this.caption = el('p', { class: 'town-caption' });
    this.endCard = el('div', { class: 'end-card', hidden: true });
    this.hint = el('div', { class: 'town-hint', hidden: true });
    this.box = el('div', { class: 'town-view', 'data-side': side },
      el('div', { class: 'town-frame' }, this.canvas, this.endCard, this.hint), this.caption);
    this.painter = new TownPainter(store, playback, side, this.canvas);
    this.dirty = true;
    this.agentY = 0;
    /** @type {{text: string, good: boolean, x: number, y: number, left: number}[]} */
    this.floatingTexts = [];
    this.lastFloatedAge = -1;
    this.reducedMotion = matchMedia('(prefers-reduced-motion: reduce)');
    /** Called with the name of an affordance that was clicked. */
    this.onPlace = (/** @type {string} */ _name) => {};
    this.canvas.addEventListener('click', (event) => {
      const name = this.placeUnder(event);
      if (name) this.onPlace(name);
    });
    this.canvas.addEventListener('pointermove', (event) => { this.canvas.style.cursor = this.placeUnder(event) ? 'pointer' : ''; });
    new ResizeObserver(() => { this.dirty = true; }).observe(this.box);
    store.on(['world', 'theme', 'overlay', 'maps', 'agents', 'view'], () => { this.painter.invalidate(); this.dirty = true; });
  }

  get world() {
    return this.store.state.world;
  }

  /** The affordance under the pointer; the page may be zoomed. @param {MouseEvent} event */
  placeUnder(event) {
    const box = this.canvas.getBoundingClientRect();
    return this.placeAt(((event.clientX - box.left) * this.painter.width) / box.width, ((event.clientY - box.top) * this.painter.height) / box.height);
  }

  /** The affordance at a point of the canvas. @param {number} x @param {number} y @returns {string | null} */
  placeAt(x, y) {
    const { world } = this;
    if (!world || !this.playback.start) return null;
    const { width, height } = this.painter, g = layoutGrid(world.size, width, height);
    const cells = this.painter.affordanceCells();
    const timestep = this.playback.current();
    const k = cells.findIndex((cell, index) => {
      if (g.hasMap && floorOf(g, cell) !== (timestep ? this.painter.floor(timestep) : 0)) return false;
      const at = g.hasMap ? cellCenter(g, cell) : ringPosition(g, index, cells.length);
      return Math.abs(at.x - x) < g.cell / 2 && Math.abs(at.y - y) < g.cell / 2;
    });
    return world.affordances[k]?.name ?? null;
  }

  /** Draw if anything changed. @param {number} seconds since the last call */
  tick(seconds) {
    if (this.reducedMotion.matches) this.playback.skipAnimation();
    const moved = this.playback.advance(seconds);
    const floats = this.floatingTexts.length > 0;
    for (const one of this.floatingTexts) one.left -= seconds;
    this.floatingTexts = this.floatingTexts.filter((one) => one.left > 0);
    if (!(moved || floats || this.dirty) || !this.world) return;
    this.dirty = false;
    this.draw();
  }

  draw() {
    const { painter, world } = this;
    if (!world || !this.resize(world.size)) return;
    const here = painter.paint(playbackSpeed(this.store.state, this.playback.start), leastText());
    const timestep = this.playback.current();
    if (!here || !timestep) return;
    this.agentY = here.y;
    this.addFloatingTexts(here, timestep);
    this.drawFloatingTexts(layoutGrid(world.size, painter.width, painter.height).cell);
    painter.paintVeil();
    updateCanvasLabel(this.canvas, timestep, world, this.playback);
  }

  /** Fit the canvas to its box; false while hidden. @param {number[]} size */
  resize(size) {
    const frame = /** @type {HTMLElement} */ (this.canvas.parentElement);
    const width = frame.clientWidth;
    if (width < 40) return false;
    const limit = Math.max(260, innerHeight - (innerWidth < 700 ? 330 : 318));
    const height = Math.min(width * aspectRatio(size), limit);
    this.painter.resize(width, height, pixelRatio(this.canvas));
    this.canvas.style.height = `${height}px`;
    return true;
  }

  /** Float the largest meter changes above the agent. @param {{x: number, y: number}} here @param {Timestep} timestep */
  addFloatingTexts(here, timestep) {
    if (timestep.age === this.lastFloatedAge || this.reducedMotion.matches || playbackSpeed(this.store.state, this.playback.start) > 15) return;
    const before = this.playback.timesteps.get(timestep.age - 1);
    this.lastFloatedAge = timestep.age;
    if (!before || !this.world) return;
    const changes = timestep.meters.map((value, m) => ({ by: value - before.meters[m], name: this.world?.meters[m]?.name ?? '' }))
      .filter((c) => Math.abs(c.by) >= MIN_CHANGE).sort((a, b) => Math.abs(b.by) - Math.abs(a.by)).slice(0, 3);
    changes.forEach((c, k) => this.floatingTexts.push({
      text: `${c.by > 0 ? '+' : '−'}${Math.round(Math.abs(c.by) * 100)} ${c.name}`, good: c.by > 0,
      x: here.x, y: here.y - 15 * k, left: FLOAT_SECONDS,
    }));
  }

  /** @param {number} cell side of a cell */
  drawFloatingTexts(cell) {
    const { ctx, width } = this.painter, style = themeStyle();
    ctx.save();
    ctx.font = '600 12px system-ui, sans-serif';
    ctx.textAlign = 'center';
    ctx.lineJoin = 'round';
    for (const one of this.floatingTexts) {
      const gone = 1 - one.left / FLOAT_SECONDS;
      const half = ctx.measureText(one.text).width / 2 + 4;
      const x = Math.min(width - half, Math.max(half, one.x));
      const y = Math.max(14, one.y - cell * 0.5 - 26 * gone);
      ctx.globalAlpha = Math.min(1, one.left * 2.2);
      ctx.lineWidth = 4;
      ctx.strokeStyle = style.getPropertyValue('--panel');
      ctx.fillStyle = style.getPropertyValue(one.good ? '--good-text' : '--bad-text');
      ctx.strokeText(one.text, x, y);
      ctx.fillText(one.text, x, y);
    }
    ctx.restore();
  }

  /** Update the caption and the end card. */
  updateCaption() {
    const { start, over, end } = this.playback;
    const timestep = this.playback.current();
    const compared = this.store.state.agents.length > 1;
    if (compared && start && timestep) {
      const low = this.world?.meters.map((m, k) => ({ m, value: timestep.meters[k] })).filter((x) => x.m.lethal)
        .map((x) => `${x.m.name} ${formatPercent(x.value)}`).join(', ');
      setText(this.caption, `${start.name}, ${start.label}. Step ${formatCount(timestep.age)}${low ? `; ${low}` : ''}`);
    }
    this.caption.hidden = !compared;
    const shown = over && end ? `${end.episode}` : '';
    if (this.endCard.dataset.shown === shown) return;
    this.endCard.dataset.shown = shown;
    this.endCard.hidden = !shown;
    this.dirty = true;
    if (!end || !shown) return;
    this.endCard.classList.toggle('survived', end.cause === 'time');
    this.endCard.classList.toggle('high', this.agentY > this.painter.height * 0.5); // do not cover the agent
    const name = this.playback.start?.name ?? 'The agent';
    const title = end.cause === 'time' ? `${name} survived to the limit of ${formatCount(end.length)} steps` : `${name} died at step ${formatCount(end.length)}: no ${humanize(end.cause)} left`;
    this.endCard.replaceChildren(
      el('strong', { text: title }),
      ...end.certificate.slice(1).map((line) => el('span', { text: line })),
    );
  }
}

/**
 * Describe the canvas to screen readers, every ten steps.
 * @param {HTMLCanvasElement} canvas @param {Timestep} timestep
 * @param {import('./types.js').World} world @param {Playback} playback
 */
function updateCanvasLabel(canvas, timestep, world, playback) {
  if (timestep.age % 10) return;
  const here = (playback.start?.cell_of ?? []).indexOf(timestep.cell);
  const place = here >= 0 && world.size.length ? ` at ${humanize(world.affordances[here]?.name ?? '')}` : '';
  canvas.setAttribute('aria-label', `World ${world.name}: step ${timestep.age}${place ? `, the agent is${place}` : ''}.`);
}
