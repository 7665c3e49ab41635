/** The hour as light: clear by day, warm at its ends, blue by night with lit places. */

import { floorOf, middle, onRing } from './ground.js';

/** How dark it is, 0 … 1, where noon is half a day. @param {number} hour @param {number} day */
export function darkness(hour, day) {
  const sun = -Math.cos((hour / day) * 2 * Math.PI); // −1 at midnight, 1 at noon
  return Math.min(1, Math.max(0, (0.35 - sun) / 0.9)) ** 1.4;
}

/** How warm the light is: high around dawn and dusk. @param {number} hour @param {number} day */
function warmth(hour, day) {
  const sun = -Math.cos((hour / day) * 2 * Math.PI);
  return Math.exp(-((sun - 0.05) ** 2) / 0.06);
}

/** How much of the light is shown: the faster hours go by, the fainter, since nobody likes flicker. @param {number} speed */
export const calm = (speed) => Math.min(1, 7 / Math.max(1, speed)) ** 0.7;

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {import('./ground.js').Ground} g
 * @param {import('./types.js').World} world
 * @param {number} hour
 * @param {number[]} cells
 * @param {number} strength 0 … 1
 * @param {number} depth how much of the ground midnight hides: a dark page needs less
 * @param {number} floor
 */
export function drawLight(pen, g, world, hour, cells, strength, depth, floor) {
  const dark = darkness(hour, world.day) * strength;
  const warm = warmth(hour, world.day) * strength;
  pen.save();
  if (warm > 0.02) {
    pen.fillStyle = `rgba(255, 158, 77, ${0.15 * warm})`;
    pen.fillRect(0, 0, g.width, g.height);
  }
  if (dark > 0.02) {
    pen.fillStyle = `rgba(18, 26, 66, ${depth * dark})`;
    pen.fillRect(0, 0, g.width, g.height);
    pen.globalCompositeOperation = 'lighter';
    cells.forEach((cell, k) => {
      const place = world.affordances[k];
      if (!place || (g.mapped && floorOf(g, cell) !== floor)) return;
      if (!place.open_at[Math.floor(hour) % place.open_at.length]) return;
      const at = g.mapped ? middle(g, cell) : onRing(g, k, cells.length);
      const y = at.y - g.cell * 0.1;
      const glow = pen.createRadialGradient(at.x, y, 0, at.x, y, g.cell * 0.8);
      glow.addColorStop(0, `rgba(255, 205, 130, ${0.34 * dark})`);
      glow.addColorStop(1, 'rgba(255, 205, 130, 0)');
      pen.fillStyle = glow;
      pen.fillRect(at.x - g.cell, y - g.cell, g.cell * 2, g.cell * 2);
    });
  }
  pen.restore();
}

