/** The shown life as one strip over the scrubber: how near death it was at each moment, and which places were used. */

import { make } from './dom.js';
import { level } from './agent.js';
import { colourOf } from './icons.js';

const HEIGHT = 16;

export class Lifeline {
  constructor() {
    this.canvas = make('canvas', { class: 'lifeline', role: 'img', 'aria-label': 'This life so far: green where all deadly needs were well, red where one was nearly empty; dots are visits of places' });
    this.drawn = '';
  }

  /**
   * @param {import('./playback.js').Playback} playback
   * @param {import('./types.js').World} world
   * @param {number} first @param {number} last ages at its ends
   * @param {string} theme
   */
  draw(playback, world, first, last, theme) {
    const width = this.canvas.clientWidth;
    const key = [playback.start?.episode, playback.moments.size, width, last, theme].join();
    if (key === this.drawn || width < 20) return;
    this.drawn = key;
    const ratio = Math.min(2, devicePixelRatio || 1);
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = HEIGHT * ratio;
    const pen = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext('2d'));
    const style = getComputedStyle(this.canvas);
    const colours = { well: style.getPropertyValue('--well'), low: style.getPropertyValue('--low'), critical: style.getPropertyValue('--critical') };
    const cells = playback.start?.cell_of ?? [];
    pen.setTransform(ratio, 0, 0, ratio, 0, 0);
    // The thumb of a slider does not reach its ends; the strip lines up with its middle.
    const inset = 8, step = (width - 2 * inset) / Math.max(1, last - first);
    let used = -1, usedAt = -99;
    for (const moment of playback.all()) {
      const x = inset + (moment.age - first) * step;
      const lowest = Math.min(...moment.meters.filter((_, m) => world.meters[m]?.lethal), 1);
      const action = moment.action === null ? '' : world.actions[moment.action] ?? '';
      pen.fillStyle = colours[level(lowest)];
      pen.globalAlpha = 0.75;
      pen.fillRect(x - step / 2, HEIGHT - 4, Math.max(1, step + 0.4), 4);
      pen.globalAlpha = 1;
      if (!action.startsWith('INTERACT')) continue;
      const place = world.size.length ? cells.indexOf(moment.cell) : moment.action ?? -1;
      if (place < 0 || (place === used && x - usedAt < 7)) continue;
      used = place;
      usedAt = x;
      pen.fillStyle = colourOf(world.affordances[place]?.name ?? '');
      pen.beginPath();
      pen.arc(x, 5, 3.2, 0, 2 * Math.PI);
      pen.fill();
    }
  }
}
