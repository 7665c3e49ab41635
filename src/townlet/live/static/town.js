/** One town on a canvas: ground and places are drawn when they change, the agent on every picture. */

import { make, write } from './dom.js';
import { drawFigure } from './figure.js';
import { count, figure, percent, spaced } from './format.js';
import { aspect, floorOf, ground, standing } from './ground.js';
import { calm, darkness, drawLight } from './light.js';
import { layersOf, overlayOf } from './overlay.js';
import { drawGround, drawPlaces } from './scenery.js';
import { stepsASecond } from './state.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./playback.js').Playback} Playback
 * @typedef {import('./types.js').Moment} Moment
 */

const TRAIL = 26; // moments
const FLOAT = 1.5; // seconds that a gain hangs in the air
const WORTH = 0.04; // of a meter, before a change is worth a word

export class Town {
  /** @param {Store} store @param {Playback} playback @param {0 | 1} side */
  constructor(store, playback, side) {
    this.store = store;
    this.playback = playback;
    this.side = side;
    this.canvas = make('canvas', { class: 'town-canvas', role: 'img', 'aria-label': 'The town' });
    this.caption = make('p', { class: 'stage-caption' });
    this.end = make('div', { class: 'end-card', hidden: true });
    this.hint = make('div', { class: 'stage-hint', hidden: true });
    this.box = make('div', { class: 'stage', 'data-side': side },
      make('div', { class: 'stage-frame' }, this.canvas, this.end, this.hint), this.caption);
    this.below = document.createElement('canvas'); // tiles
    this.above = document.createElement('canvas'); // places
    this.drawn = ''; // what these two show
    this.dirty = true;
    this.width = this.height = this.feet = 0;
    /** @type {{text: string, good: boolean, x: number, y: number, left: number}[]} */
    this.floating = [];
    this.floated = -1;
    this.still = matchMedia('(prefers-reduced-motion: reduce)');
    new ResizeObserver(() => { this.dirty = true; }).observe(this.box);
    store.on(['world', 'theme', 'overlay', 'maps', 'compare', 'view'], () => { this.drawn = ''; this.dirty = true; });
  }

  get world() {
    return this.store.known.world;
  }

  /** A picture, if anything changed. @param {number} seconds since the last one */
  tick(seconds) {
    if (this.still.matches) this.playback.jump();
    const moved = this.playback.advance(seconds);
    const floats = this.floating.length > 0;
    for (const one of this.floating) one.left -= seconds;
    this.floating = this.floating.filter((one) => one.left > 0);
    if (!(moved || floats || this.dirty) || !this.world) return;
    this.dirty = false;
    this.draw();
  }

  draw() {
    const world = this.world;
    if (!world || !this.fit(world.size)) return;
    const pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext('2d'));
    const g = ground(world.size, this.width, this.height);
    const moment = this.playback.moment();
    const ratio = this.canvas.width / this.width;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    this.refreshLayers(g, moment, ratio);
    pen.drawImage(this.below, 0, 0);
    if (world.temporal && moment) {
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      const depth = Number(getComputedStyle(this.canvas).getPropertyValue('--night'));
      drawLight(pen, g, world, this.hour(moment), this.places(), this.strength, depth, this.floor(moment));
      pen.setTransform(1, 0, 0, 1, 0, 0);
    }
    pen.drawImage(this.above, 0, 0);
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    if (!moment) return;
    const { next, part } = this.playback.coming();
    const here = this.between(g, moment, next, part);
    this.feet = here.y;
    this.drawTrail(pen, g, here);
    const using = moment.using < this.places().length ? moment : next && next.using < this.places().length && part > 0 ? next : null;
    const ticks = using ? world.affordances[using.using]?.ticks ?? 1 : 1;
    drawFigure(pen, here, g.cell, {
      side: this.side,
      dead: this.playback.over && this.playback.end?.cause !== 'time',
      mood: this.lowest(moment),
      facing: next ? Math.sign(this.between(g, next, null, 0).x - here.x) : 0,
      bob: next && this.moves(moment, next) ? Math.abs(Math.sin(part * Math.PI)) : 0,
      ring: using && ticks > 1 ? Math.min(1, (using.progress + (using === moment ? part : part - 1)) / ticks) : 0,
    });
    this.floatGains(here, moment);
    this.drawFloating(pen, g);
    if (this.playback.over && this.playback.end?.cause !== 'time') {
      pen.fillStyle = getComputedStyle(this.canvas).getPropertyValue('--veil');
      pen.fillRect(0, 0, this.width, this.height);
    }
    canvasLabel(this.canvas, moment, world, this.playback);
  }

  /** The canvas in the size of its box; false while it has none. @param {number[]} size */
  fit(size) {
    const frame = /** @type {HTMLElement} */ (this.canvas.parentElement);
    const width = frame.clientWidth;
    if (width < 40) return false;
    const limit = Math.max(260, innerHeight - (innerWidth < 700 ? 330 : 318));
    const height = Math.min(width * aspect(size), limit);
    const ratio = Math.min(2, devicePixelRatio || 1);
    if (width !== this.width || height !== this.height || this.canvas.width !== Math.round(width * ratio)) {
      this.width = width;
      this.height = height;
      this.canvas.width = Math.round(width * ratio);
      this.canvas.height = Math.round(height * ratio);
      this.canvas.style.height = `${height}px`;
      this.drawn = '';
    }
    return true;
  }

  /** @param {import('./ground.js').Ground} g @param {Moment | null} moment @param {number} ratio */
  refreshLayers(g, moment, ratio) {
    const world = /** @type {import('./types.js').World} */ (this.world);
    const cells = this.places();
    const hour = moment ? moment.hour : 12;
    const open = world.affordances.map((a) => (a.open_at[hour % a.open_at.length] ? 1 : 0)).join('');
    const floor = moment ? this.floor(moment) : 0;
    const overlay = overlayOf(this.store.known);
    const night = world.temporal && moment !== null && darkness(hour, world.day) * this.strength > 0.5;
    const grown = overlay === 'visits' || overlay === 'ways' ? `${this.playback.start?.episode} ${this.playback.moments.size}` : '';
    const key = [open, night, floor, cells.join(), overlay, grown].join('|');
    if (key === this.drawn && this.below.width === this.canvas.width && this.below.height === this.canvas.height) return;
    this.drawn = key;
    const scene = { cells, hour, floor, ...layersOf(this.store.known, this.playback), night, style: getComputedStyle(this.canvas) };
    const pens = [this.below, this.above].map((layer) => {
      layer.width = this.canvas.width;
      layer.height = this.canvas.height;
      const pen = /** @type {CanvasRenderingContext2D} */ (layer.getContext('2d'));
      pen.setTransform(ratio, 0, 0, ratio, 0, 0);
      return pen;
    });
    drawGround(pens[0], g, scene);
    drawPlaces(pens[1], g, world, scene);
  }

  /** Of the light of the hour. */
  get strength() {
    return calm(stepsASecond(this.store.known, this.playback.start));
  }

  /** Where each place stands in this life. @returns {number[]} */
  places() {
    const given = this.playback.start?.cell_of;
    return given?.length ? given : (this.world?.affordances ?? []).map((a) => a.cell ?? -1);
  }

  /** @param {Moment} moment */
  floor(moment) {
    return this.world ? floorOf(ground(this.world.size, 1, 1), moment.cell) : 0;
  }

  /** The hour with a part of the next. @param {Moment} moment */
  hour(moment) {
    return moment.hour + this.playback.coming().part;
  }

  /** @param {Moment} moment */
  lowest(moment) {
    const lethal = moment.meters.filter((_, m) => this.world?.meters[m]?.lethal);
    return Math.min(1, ...(lethal.length ? lethal : moment.meters));
  }

  /** @param {Moment} a @param {Moment} b */
  moves(a, b) {
    return this.world?.size.length ? a.cell !== b.cell : a.action !== b.action;
  }

  /**
   * @param {import('./ground.js').Ground} g
   * @param {Moment} moment @param {Moment | null} next @param {number} part
   */
  between(g, moment, next, part) {
    const world = /** @type {import('./types.js').World} */ (this.world);
    const a = standing(g, moment, world.actions, this.places().length);
    if (!next || part <= 0) return a;
    const b = standing(g, next, world.actions, this.places().length);
    // Across the edge of a world that wraps, or to another floor, nobody slides.
    if (g.mapped && Math.hypot(a.x - b.x, a.y - b.y) > g.cell * 1.6) return part < 0.5 ? a : b;
    const eased = part * part * (3 - 2 * part);
    return { x: a.x + (b.x - a.x) * eased, y: a.y + (b.y - a.y) * eased };
  }

  /** @param {CanvasRenderingContext2D} pen @param {import('./ground.js').Ground} g @param {{x: number, y: number}} here */
  drawTrail(pen, g, here) {
    const world = /** @type {import('./types.js').World} */ (this.world);
    const past = this.playback.lately(TRAIL);
    const floor = past.length ? floorOf(g, past[past.length - 1].cell) : 0;
    const points = past.filter((m) => floorOf(g, m.cell) === floor).map((m) => standing(g, m, world.actions, this.places().length));
    points.push(here);
    pen.save();
    pen.lineCap = 'round';
    pen.strokeStyle = getComputedStyle(this.canvas).getPropertyValue(this.side ? '--second' : '--accent');
    for (let k = 1; k < points.length; k += 1) {
      const a = points[k - 1], b = points[k];
      const far = Math.hypot(a.x - b.x, a.y - b.y);
      if (far < 0.5 || (g.mapped && far > g.cell * 1.6)) continue;
      pen.globalAlpha = 0.7 * (k / points.length) ** 1.5;
      pen.lineWidth = g.cell * (0.05 + 0.09 * (k / points.length));
      pen.beginPath();
      pen.moveTo(a.x, a.y + g.cell * 0.2);
      pen.lineTo(b.x, b.y + g.cell * 0.2);
      pen.stroke();
    }
    pen.restore();
  }

  /** What a step gave or took is said above the agent. @param {{x: number, y: number}} here @param {Moment} moment */
  floatGains(here, moment) {
    if (moment.age === this.floated || this.still.matches || stepsASecond(this.store.known, this.playback.start) > 15) return;
    const before = this.playback.moments.get(moment.age - 1);
    this.floated = moment.age;
    if (!before || !this.world) return;
    const changes = moment.meters.map((value, m) => ({ by: value - before.meters[m], name: this.world?.meters[m]?.name ?? '' }))
      .filter((c) => Math.abs(c.by) >= WORTH).sort((a, b) => Math.abs(b.by) - Math.abs(a.by)).slice(0, 3);
    changes.forEach((c, k) => this.floating.push({
      text: `${c.by > 0 ? '+' : '−'}${Math.round(Math.abs(c.by) * 100)} ${c.name}`, good: c.by > 0,
      x: here.x, y: here.y - 15 * k, left: FLOAT,
    }));
  }

  /** @param {CanvasRenderingContext2D} pen @param {import('./ground.js').Ground} g */
  drawFloating(pen, g) {
    const style = getComputedStyle(this.canvas);
    pen.save();
    pen.font = '600 12px system-ui, sans-serif';
    pen.textAlign = 'center';
    pen.lineJoin = 'round';
    for (const one of this.floating) {
      const gone = 1 - one.left / FLOAT;
      const half = pen.measureText(one.text).width / 2 + 4;
      const x = Math.min(this.width - half, Math.max(half, one.x));
      const y = Math.max(14, one.y - g.cell * 0.5 - 26 * gone);
      pen.globalAlpha = Math.min(1, one.left * 2.2);
      pen.lineWidth = 4;
      pen.strokeStyle = style.getPropertyValue('--panel');
      pen.fillStyle = style.getPropertyValue(one.good ? '--good-text' : '--bad-text');
      pen.strokeText(one.text, x, y);
      pen.fillText(one.text, x, y);
    }
    pen.restore();
  }

  /** Words around the canvas: who it is, and how it ended. */
  tell() {
    const { start, over, end } = this.playback;
    const moment = this.playback.moment();
    const compared = this.store.known.compare !== null;
    if (compared && start && moment) {
      const low = this.world?.meters.map((m, k) => ({ m, value: moment.meters[k] })).filter((x) => x.m.lethal)
        .map((x) => `${x.m.name} ${percent(x.value)}`).join(', ');
      write(this.caption, `${start.who}. Step ${count(moment.age)}${low ? `; ${low}` : ''}`);
    }
    this.caption.hidden = !compared;
    const shown = over && end ? `${end.episode}` : '';
    if (this.end.dataset.shown === shown) return;
    this.end.dataset.shown = shown;
    this.end.hidden = !shown;
    this.dirty = true;
    if (!end || !shown) return;
    this.end.classList.toggle('survived', end.cause === 'time');
    this.end.classList.toggle('high', this.feet > this.height * 0.5); // never over the one it is about
    const title = end.cause === 'time' ? `Lived to the limit of ${count(end.length)} steps` : `Died at step ${count(end.length)}: no ${spaced(end.cause)} left`;
    this.end.replaceChildren(
      make('strong', { text: title }),
      ...end.certificate.slice(1).map((line) => make('span', { text: line })),
      make('span', { class: 'quiet', text: `Reward of the whole life: ${figure(end.reward)}` }),
    );
  }
}

/**
 * What the picture shows, for those who do not see it; changed at most once in a while.
 * @param {HTMLCanvasElement} canvas @param {Moment} moment
 * @param {import('./types.js').World} world @param {Playback} playback
 */
function canvasLabel(canvas, moment, world, playback) {
  if (moment.age % 10) return;
  const here = (playback.start?.cell_of ?? []).indexOf(moment.cell);
  const place = here >= 0 && world.size.length ? ` at ${spaced(world.affordances[here]?.name ?? '')}` : '';
  canvas.setAttribute('aria-label', `The town of ${world.name}: the agent is ${moment.age} steps old${place}.`);
}
