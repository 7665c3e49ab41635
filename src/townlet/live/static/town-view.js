/** One town of the page: its canvas, floating texts, caption and end card. */

import { el, pixelRatio, setText } from './dom.js';
import { FloatingTexts } from './floating-texts.js';
import { formatCount, formatPercent, humanize } from './format.js';
import { aspectRatio, cellCenter, floorOf, layoutGrid, ringPosition } from './grid.js';
import { playbackSpeed } from './state.js';
import { TownPainter } from './town-painter.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./playback.js').Playback} Playback
 * @typedef {import('./types.js').Timestep} Timestep
 */

const MAX_FLOATING_SPEED = 15; // steps per second up to which changes of meters are shown beside the agent

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
    this.floating = new FloatingTexts();
    /** @type {number | undefined} */
    this.episode = undefined; // on screen
    this.reducedMotion = matchMedia('(prefers-reduced-motion: reduce)');
    /** Called with the name of an affordance that was clicked. */
    this.onPlace = (/** @type {string} */ _name) => {};
    this.canvas.addEventListener('click', (event) => {
      const name = this.placeUnder(event);
      if (name) this.onPlace(name);
    });
    this.canvas.addEventListener('pointermove', (event) => {
      const name = this.placeUnder(event);
      this.canvas.style.cursor = name ? 'pointer' : '';
      this.canvas.title = name ? humanize(name) : '';
    });
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
    const floats = this.floating.tick(seconds);
    if (!(moved || floats || this.dirty) || !this.world) return;
    this.dirty = false;
    this.draw();
  }

  draw() {
    const { painter, world } = this;
    if (!world || !this.resize(world.size)) return;
    const speed = playbackSpeed(this.store.state, this.playback.start);
    const here = painter.paint(speed, leastText());
    const timestep = this.playback.current();
    if (this.playback.start?.episode !== this.episode) {
      this.episode = this.playback.start?.episode;
      this.floating = new FloatingTexts();
    }
    if (!here || !timestep) return;
    this.agentY = here.y;
    if (!this.reducedMotion.matches && speed <= MAX_FLOATING_SPEED) {
      const before = this.playback.timesteps.get(timestep.age - 1), g = layoutGrid(world.size, painter.width, painter.height);
      this.floating.add(painter.ctx, world.meters, timestep, before, here, g, painter.labelBoxes);
    }
    this.floating.draw(painter.ctx);
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
    if (this.painter.resize(width, height, pixelRatio(this.canvas))) this.floating = new FloatingTexts();
    this.canvas.style.height = `${height}px`;
    return true;
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
