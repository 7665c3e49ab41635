/** Changes of meters beside the agent: each has a place of its own, and fades. */

import { boxAround, isFree } from './labels.js';

/**
 * @typedef {import('./labels.js').Box} Box
 * @typedef {{meter: string, text: string, good: boolean, x: number, y: number, box: Box, left: number}} FloatingText y is its middle
 */

const SECONDS = 1.5; // lifetime
const MIN_CHANGE = 0.04; // of a meter; smaller changes are not shown
const MAX_CHANGES = 3; // of one step
const FONT = '600 12px system-ui, sans-serif';
const LINE = 15; // pixels
const LINES = 4; // above the agent, and below it

export class FloatingTexts {
  constructor() {
    /** @type {FloatingText[]} */
    this.texts = [];
    this.lastAge = -1;
  }

  /** Let time pass; returns whether there are texts. @param {number} seconds */
  tick(seconds) {
    const any = this.texts.length > 0;
    for (const one of this.texts) one.left -= seconds;
    this.texts = this.texts.filter((one) => one.left > 0);
    return any;
  }

  /**
   * Add the largest changes of a step, where neither places nor other changes are.
   * @param {CanvasRenderingContext2D} ctx @param {import('./types.js').Meter[]} meters
   * @param {import('./types.js').Timestep} timestep @param {import('./types.js').Timestep | undefined} before
   * @param {{x: number, y: number}} here the agent @param {import('./grid.js').Grid} g @param {Box[]} labels
   */
  add(ctx, meters, timestep, before, here, g, labels) {
    if (timestep.age === this.lastAge) return;
    this.lastAge = timestep.age;
    if (!before) return;
    const changes = meters.map(({ name }, m) => ({ meter: name, by: timestep.meters[m] - before.meters[m] }))
      .filter(({ by }) => Math.abs(by) >= MIN_CHANGE).sort((a, b) => Math.abs(b.by) - Math.abs(a.by)).slice(0, MAX_CHANGES);
    ctx.font = FONT;
    for (const { meter, by } of changes) {
      this.texts = this.texts.filter((one) => one.meter !== meter); // a meter has one text
      const text = `${by > 0 ? '+' : '−'}${Math.round(Math.abs(by) * 100)} ${meter}`;
      const place = this.findPlace(ctx.measureText(text).width + 6, here, g, labels);
      if (place) this.texts.push({ meter, text, good: by > 0, left: SECONDS, ...place });
    }
  }

  /**
   * The nearest free place above the agent, beside it or below it.
   * @param {number} width @param {{x: number, y: number}} here @param {import('./grid.js').Grid} g @param {Box[]} labels
   */
  findPlace(width, here, g, labels) {
    const taken = [...labels, ...this.texts.map((one) => one.box)];
    const aside = (g.cell + width) / 2;
    const lines = Array.from({ length: LINES }, (_, k) => g.cell * 0.5 + LINE * (k + 0.5));
    const shifts = [...lines.map((up) => [0, -up]), [aside, 0], [-aside, 0], ...lines.map((down) => [0, down]),
      ...lines.flatMap((up) => [[aside, -up], [-aside, -up], [aside, up], [-aside, up]])];
    for (const [right, down] of shifts) {
      const x = Math.min(g.width - width / 2, Math.max(width / 2, here.x + right)), y = here.y + down;
      const box = boxAround(x, y - LINE / 2, width, LINE);
      if (box.top >= 0 && box.bottom <= g.height && isFree(box, taken)) return { x, y, box };
    }
    return null;
  }

  /** @param {CanvasRenderingContext2D} ctx */
  draw(ctx) {
    const style = getComputedStyle(ctx.canvas);
    ctx.save();
    ctx.font = FONT;
    ctx.textAlign = 'center';
    ctx.textBaseline = 'middle';
    ctx.lineJoin = 'round';
    ctx.lineWidth = 4;
    ctx.strokeStyle = style.getPropertyValue('--panel');
    for (const { text, good, x, y, left } of this.texts) {
      ctx.globalAlpha = Math.min(1, left * 2.2);
      ctx.fillStyle = style.getPropertyValue(good ? '--good-text' : '--bad-text');
      ctx.strokeText(text, x, y);
      ctx.fillText(text, x, y);
    }
    ctx.restore();
  }
}
