/** Draws a timestep of a town on a canvas: static layers are cached, the agent is drawn every time. */

import { drawAgent } from './agent-sprite.js';
import { floorOf, layoutGrid, agentPosition } from './grid.js';
import { overlayLayers, activeOverlay } from './overlay.js';
import { darkness, drawAffordances, drawBackground, drawDaylight, lightStrength } from './town-scene.js';

/**
 * @typedef {import('./grid.js').Point} Point
 * @typedef {import('./playback.js').Playback} Playback
 * @typedef {import('./types.js').Timestep} Timestep
 */

const TRAIL_LENGTH = 26; // timesteps

/** The theme's colors. */
export const themeStyle = () => getComputedStyle(document.documentElement);

export class TownPainter {
  /** @param {{state: import('./state.js').AppState}} store @param {Playback} playback @param {0 | 1} side @param {HTMLCanvasElement} canvas */
  constructor(store, playback, side, canvas) {
    this.store = store;
    this.playback = playback;
    this.side = side;
    this.canvas = canvas;
    this.ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
    this.background = document.createElement('canvas'); // layer with the tiles
    this.affordances = document.createElement('canvas'); // layer with the affordances
    this.layersKey = ''; // cache key of both layers
    this.width = this.height = 0;
    /** @type {import('./labels.js').Box[]} */
    this.labelBoxes = []; // of icons and names of places
  }

  get world() {
    return this.store.state.world;
  }

  /** Draw the layers again although nothing else changed, such as after a change of the theme. */
  invalidate() {
    this.layersKey = '';
  }

  /**
   * Returns whether the size has changed.
   * @param {number} width @param {number} height in CSS pixels @param {number} ratio canvas pixels per CSS pixel
   */
  resize(width, height, ratio) {
    if (width === this.width && height === this.height && this.canvas.width === Math.round(width * ratio)) return false;
    this.width = width;
    this.height = height;
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.invalidate();
    return true;
  }

  /**
   * Draw the position of the playback; returns where the agent is.
   * @param {number} speed in steps per second @param {number} leastText smallest font size in pixels
   * @returns {Point | null}
   */
  paint(speed, leastText) {
    const { ctx, world } = this, timestep = this.playback.current();
    if (!world) return null;
    const g = layoutGrid(world.size, this.width, this.height);
    const ratio = this.canvas.width / this.width, light = lightStrength(speed), style = themeStyle();
    const { next, part } = this.playback.upcoming();
    const here = timestep && this.interpolate(g, timestep, next, part);
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    this.refreshLayers(g, timestep, ratio, light, leastText);
    ctx.drawImage(this.background, 0, 0);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (world.temporal && timestep) {
      const night = Number(style.getPropertyValue('--night'));
      drawDaylight(ctx, g, world, timestep.hour + part, this.affordanceCells(), light, night, this.floor(timestep));
    }
    if (here) this.drawTrail(g, here, style); // below the names of the places
    ctx.setTransform(1, 0, 0, 1, 0, 0);
    ctx.drawImage(this.affordances, 0, 0);
    ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (timestep && here) this.paintAgent(g, timestep, here);
    return here;
  }

  /** @param {import('./grid.js').Grid} g @param {Timestep} timestep @param {Point} here */
  paintAgent(g, timestep, here) {
    const { next, part } = this.playback.upcoming();
    const inUse = (/** @type {Timestep} */ one) => one.using < this.affordanceCells().length;
    let using = inUse(timestep) ? timestep : null;
    if (!using && next && part > 0 && inUse(next)) using = next;
    const ticks = using ? this.world?.affordances[using.using]?.ticks ?? 1 : 1;
    drawAgent(this.ctx, here, g.cell, {
      side: this.side,
      dead: this.playback.died,
      mood: this.lowestMeter(timestep),
      facing: next ? Math.sign(this.interpolate(g, next, null, 0).x - here.x) : 0,
      bob: next && this.isMoving(timestep, next) ? Math.abs(Math.sin(part * Math.PI)) : 0,
      ring: using && ticks > 1 ? Math.min(1, (using.progress + (using === timestep ? part : part - 1)) / ticks) : 0,
    });
  }

  /** Darken the town of an agent that died. */
  paintVeil() {
    if (!this.playback.died) return;
    this.ctx.fillStyle = themeStyle().getPropertyValue('--veil');
    this.ctx.fillRect(0, 0, this.width, this.height);
  }

  /** @param {import('./grid.js').Grid} g @param {Timestep | null} timestep @param {number} ratio @param {number} light @param {number} leastText */
  refreshLayers(g, timestep, ratio, light, leastText) {
    const world = /** @type {import('./types.js').World} */ (this.world);
    const cells = this.affordanceCells();
    const hour = timestep ? timestep.hour : 12;
    const open = world.affordances.map((a) => (a.open_at[hour % a.open_at.length] ? 1 : 0)).join('');
    const floor = timestep ? this.floor(timestep) : 0;
    const overlay = activeOverlay(this.store.state);
    const night = world.temporal && timestep !== null && darkness(hour, world.day) * light > 0.5;
    const grown = overlay === 'visits' || overlay === 'transitions' ? `${this.playback.start?.episode} ${this.playback.timesteps.size}` : '';
    const key = [open, night, floor, cells.join(), overlay, grown].join('|');
    if (key === this.layersKey && this.background.width === this.canvas.width && this.background.height === this.canvas.height) return;
    this.layersKey = key;
    const scene = { cells, hour, floor, ...overlayLayers(this.store.state, this.playback), night, leastText, style: themeStyle() };
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

  /** Cell of each affordance in this episode. @returns {number[]} */
  affordanceCells() {
    const given = this.playback.start?.cell_of;
    return given?.length ? given : (this.world?.affordances ?? []).map((a) => a.cell ?? -1);
  }

  /** @param {Timestep} timestep */
  floor(timestep) {
    return this.world ? floorOf(layoutGrid(this.world.size, 1, 1), timestep.cell) : 0;
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

  /** @param {import('./grid.js').Grid} g @param {Point} here @param {CSSStyleDeclaration} style */
  drawTrail(g, here, style) {
    const { ctx } = this, world = /** @type {import('./types.js').World} */ (this.world);
    const past = this.playback.recent(TRAIL_LENGTH);
    const floor = past.length ? floorOf(g, past[past.length - 1].cell) : 0;
    const points = past.filter((m) => floorOf(g, m.cell) === floor).map((m) => agentPosition(g, m, world.actions, this.affordanceCells().length));
    points.push(here);
    ctx.save();
    ctx.lineCap = 'round';
    ctx.strokeStyle = style.getPropertyValue(this.side ? '--second' : '--accent');
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
}
