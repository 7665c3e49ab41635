/** One town on a canvas: static layers are cached, the agent is drawn every frame. */

import { el, pixelRatio, setText } from './dom.js';
import { drawAgent } from './agent-sprite.js';
import { FloatingTexts } from './floating-texts.js';
import { formatCount, formatPercent, humanize } from './format.js';
import { aspectRatio, cellCenter, floorOf, layoutGrid, agentPosition, ringPosition } from './grid.js';
import { overlayLayers, activeOverlay } from './overlay.js';
import { darkness, drawAffordances, drawBackground, drawDaylight, lightStrength } from './town-scene.js';
import { playbackSpeed } from './state.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./playback.js').Playback} Playback
 * @typedef {import('./types.js').Timestep} Timestep
 */

const TRAIL_LENGTH = 26; // timesteps
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
    this.background = document.createElement('canvas'); // layer with the tiles
    this.affordances = document.createElement('canvas'); // layer with the affordances
    this.layersKey = ''; // cache key of both layers
    this.dirty = true;
    this.width = this.height = this.agentY = 0;
    this.floating = new FloatingTexts();
    /** @type {import('./labels.js').Box[]} */
    this.labelBoxes = []; // of icons and names of places
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
    store.on(['world', 'theme', 'overlay', 'maps', 'agents', 'view'], () => { this.layersKey = ''; this.dirty = true; });
  }

  get world() {
    return this.store.state.world;
  }

  /** The affordance under the pointer; the page may be zoomed. @param {MouseEvent} event */
  placeUnder(event) {
    const box = this.canvas.getBoundingClientRect();
    return this.placeAt(((event.clientX - box.left) * this.width) / box.width, ((event.clientY - box.top) * this.height) / box.height);
  }

  /** The affordance at a point of the canvas. @param {number} x @param {number} y @returns {string | null} */
  placeAt(x, y) {
    const { world } = this;
    if (!world || !this.playback.start) return null;
    const g = layoutGrid(world.size, this.width, this.height);
    const cells = this.affordanceCells();
    const timestep = this.playback.current();
    const k = cells.findIndex((cell, index) => {
      if (g.hasMap && floorOf(g, cell) !== (timestep ? this.floor(timestep) : 0)) return false;
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
    const world = this.world;
    if (!world || !this.resize(world.size)) return;
    const ctx = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext('2d'));
    const g = layoutGrid(world.size, this.width, this.height);
    const timestep = this.playback.current();
    const ratio = this.canvas.width / this.width;
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    this.refreshLayers(g, timestep, ratio);
    if (this.playback.start?.episode !== this.episode) {
      this.episode = this.playback.start?.episode;
      this.floating = new FloatingTexts();
    }
    ctx.drawImage(this.background, 0, 0);
    if (world.temporal && timestep) {
      ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
      const depth = Number(getComputedStyle(this.canvas).getPropertyValue('--night'));
      drawDaylight(ctx, g, world, this.hour(timestep), this.affordanceCells(), this.lightStrength, depth, this.floor(timestep));
      ctx.setTransform(1, 0, 0, 1, 0, 0);
    }
    ctx.drawImage(this.affordances, 0, 0);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (!timestep) return;
    const { next, part } = this.playback.upcoming();
    const here = this.interpolate(g, timestep, next, part);
    this.agentY = here.y;
    this.drawTrail(ctx, g, here);
    const inUse = (/** @type {Timestep} */ one) => one.using < this.affordanceCells().length;
    let using = inUse(timestep) ? timestep : null;
    if (!using && next && part > 0 && inUse(next)) using = next;
    const ticks = using ? world.affordances[using.using]?.ticks ?? 1 : 1;
    drawAgent(ctx, here, g.cell, {
      side: this.side,
      dead: this.playback.over && this.playback.end?.cause !== 'time',
      mood: this.lowestMeter(timestep),
      facing: next ? Math.sign(this.interpolate(g, next, null, 0).x - here.x) : 0,
      bob: next && this.isMoving(timestep, next) ? Math.abs(Math.sin(part * Math.PI)) : 0,
      ring: using && ticks > 1 ? Math.min(1, (using.progress + (using === timestep ? part : part - 1)) / ticks) : 0,
    });
    if (!this.reducedMotion.matches && playbackSpeed(this.store.state, this.playback.start) <= MAX_FLOATING_SPEED) {
      this.floating.add(ctx, world.meters, timestep, this.playback.timesteps.get(timestep.age - 1), here, g, this.labelBoxes);
    }
    this.floating.draw(ctx);
    if (this.playback.over && this.playback.end?.cause !== 'time') {
      ctx.fillStyle = getComputedStyle(this.canvas).getPropertyValue('--veil');
      ctx.fillRect(0, 0, this.width, this.height);
    }
    updateCanvasLabel(this.canvas, timestep, world, this.playback);
  }

  /** Fit the canvas to its box; false while hidden. @param {number[]} size */
  resize(size) {
    const frame = /** @type {HTMLElement} */ (this.canvas.parentElement);
    const width = frame.clientWidth;
    if (width < 40) return false;
    const limit = Math.max(260, innerHeight - (innerWidth < 700 ? 330 : 318));
    const height = Math.min(width * aspectRatio(size), limit);
    const ratio = pixelRatio(this.canvas);
    if (width !== this.width || height !== this.height || this.canvas.width !== Math.round(width * ratio)) {
      this.width = width;
      this.height = height;
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.height = `${height}px`;
      this.layersKey = '';
      this.floating = new FloatingTexts();
    }
    return true;
  }

  /** @param {import('./grid.js').Grid} g @param {Timestep | null} timestep @param {number} ratio */
  refreshLayers(g, timestep, ratio) {
    const world = /** @type {import('./types.js').World} */ (this.world);
    const cells = this.affordanceCells();
    const hour = timestep ? timestep.hour : 12;
    const open = world.affordances.map((a) => (a.open_at[hour % a.open_at.length] ? 1 : 0)).join('');
    const floor = timestep ? this.floor(timestep) : 0;
    const overlay = activeOverlay(this.store.state);
    const night = world.temporal && timestep !== null && darkness(hour, world.day) * this.lightStrength > 0.5;
    const grown = overlay === 'visits' || overlay === 'transitions' ? `${this.playback.start?.episode} ${this.playback.timesteps.size}` : '';
    const key = [open, night, floor, cells.join(), overlay, grown].join('|');
    if (key === this.layersKey && this.background.width === this.canvas.width && this.background.height === this.canvas.height) return;
    this.layersKey = key;
    const scene = { cells, hour, floor, ...overlayLayers(this.store.state, this.playback), night, leastText: leastText(), style: getComputedStyle(this.canvas) };
    const contexts = [this.background, this.affordances].map((layer) => {
      layer.width = this.canvas.width;
      layer.height = this.canvas.height;
      const ctx = /** @type {CanvasRenderingContext2D} */ (layer.getContext('2d'));
      ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
      return ctx;
    });
    drawBackground(contexts[0], g, scene);
    this.labelBoxes = drawAffordances(contexts[1], g, world, scene);
  }

  /** Strength of the daylight at the current speed. */
  get lightStrength() {
    return lightStrength(playbackSpeed(this.store.state, this.playback.start));
  }

  /** Cell of each affordance in this episode. @returns {number[]} */
  affordanceCells() {
    const given = this.playback.start?.cell_of;
    return given?.length ? given : (this.world?.affordances ?? []).map((a) => a.cell ?? -1);
  }

  /** @param {Timestep} timestep */
  floor(timestep) {
    return this.world ? floorOf(layoutGrid(this.world.size, 1, 1), timestep.cell) : 0;
  }

  /** Hour with the animated fraction of the next. @param {Timestep} timestep */
  hour(timestep) {
    return timestep.hour + this.playback.upcoming().part;
  }

  /** @param {Timestep} timestep */
  lowestMeter(timestep) {
    const lethal = timestep.meters.filter((_, m) => this.world?.meters[m]?.lethal);
    return Math.min(1, ...(lethal.length ? lethal : timestep.meters));
  }

  /** @param {Timestep} a @param {Timestep} b */
  isMoving(a, b) {
    return this.world?.size.length ? a.cell !== b.cell : a.action !== b.action;
  }

  /**
   * @param {import('./grid.js').Grid} g
   * @param {Timestep} timestep @param {Timestep | null} next @param {number} part
   */
  interpolate(g, timestep, next, part) {
    const world = /** @type {import('./types.js').World} */ (this.world);
    const a = agentPosition(g, timestep, world.actions, this.affordanceCells().length);
    if (!next || part <= 0) return a;
    const b = agentPosition(g, next, world.actions, this.affordanceCells().length);
    // Do not animate across a wrapped edge or between floors.
    if (g.hasMap && Math.hypot(a.x - b.x, a.y - b.y) > g.cell * 1.6) return part < 0.5 ? a : b;
    const eased = part * part * (3 - 2 * part);
    return { x: a.x + (b.x - a.x) * eased, y: a.y + (b.y - a.y) * eased };
  }

  /** @param {CanvasRenderingContext2D} ctx @param {import('./grid.js').Grid} g @param {{x: number, y: number}} here */
  drawTrail(ctx, g, here) {
    const world = /** @type {import('./types.js').World} */ (this.world);
    const past = this.playback.recent(TRAIL_LENGTH);
    const floor = past.length ? floorOf(g, past[past.length - 1].cell) : 0;
    const points = past.filter((m) => floorOf(g, m.cell) === floor).map((m) => agentPosition(g, m, world.actions, this.affordanceCells().length));
    points.push(here);
    ctx.save();
    ctx.lineCap = 'round';
    ctx.strokeStyle = getComputedStyle(this.canvas).getPropertyValue(this.side ? '--second' : '--accent');
    for (let k = 1; k < points.length; k += 1) {
      const a = points[k - 1], b = points[k];
      const far = Math.hypot(a.x - b.x, a.y - b.y);
      if (far < 0.5 || (g.hasMap && far > g.cell * 1.6)) continue;
      ctx.globalAlpha = 0.7 * (k / points.length) ** 1.5;
      ctx.lineWidth = g.cell * (0.05 + 0.09 * (k / points.length));
      ctx.beginPath();
      ctx.moveTo(a.x, a.y + g.cell * 0.2);
      ctx.lineTo(b.x, b.y + g.cell * 0.2);
      ctx.stroke();
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
    this.endCard.classList.toggle('high', this.agentY > this.height * 0.5); // do not cover the agent
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
