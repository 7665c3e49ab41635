/** In which order places were used in the shown life: an arc from each to the next, the wider the more often. */

import { floorOf, middle, onRing } from './ground.js';

/**
 * How often one place was used after another, as "from to".
 * @param {import('./playback.js').Playback} playback
 * @param {import('./types.js').World} world
 * @returns {Map<string, number>}
 */
export function waysOf(playback, world) {
  const cells = playback.start?.cell_of ?? [];
  /** @type {Map<string, number>} */
  const ways = new Map();
  let last = -1;
  for (const moment of playback.all()) {
    const action = moment.action === null ? '' : world.actions[moment.action] ?? '';
    if (!action.startsWith('INTERACT')) continue;
    // The agent uses the place it stands on, and using does not move it.
    const place = world.size.length ? cells.indexOf(moment.cell) : moment.action ?? -1;
    if (place >= 0 && last >= 0 && place !== last) ways.set(`${last} ${place}`, (ways.get(`${last} ${place}`) ?? 0) + 1);
    if (place >= 0) last = place;
  }
  return ways;
}

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {import('./ground.js').Ground} g
 * @param {import('./scenery.js').Scene} scene
 */
export function drawWays(pen, g, scene) {
  const ways = scene.ways ?? new Map();
  const most = Math.max(1, ...ways.values());
  pen.save();
  pen.strokeStyle = pen.fillStyle = scene.style.getPropertyValue(scene.colour);
  pen.lineCap = 'round';
  for (const [way, times] of ways) {
    const [from, to] = way.split(' ').map(Number);
    if (g.mapped && (floorOf(g, scene.cells[from]) !== scene.floor || floorOf(g, scene.cells[to]) !== scene.floor)) continue;
    const a = g.mapped ? middle(g, scene.cells[from]) : onRing(g, from, scene.cells.length);
    const b = g.mapped ? middle(g, scene.cells[to]) : onRing(g, to, scene.cells.length);
    const bend = 0.18, far = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const mid = { x: (a.x + b.x) / 2 - (b.y - a.y) * bend, y: (a.y + b.y) / 2 + (b.x - a.x) * bend };
    // The arc ends before the sign of the place, so that its point is seen.
    const stop = Math.min(0.45, (g.cell * 0.4) / far);
    const end = { x: b.x + (mid.x - b.x) * stop * 2, y: b.y + (mid.y - b.y) * stop * 2 };
    pen.globalAlpha = 0.35 + 0.55 * (times / most);
    pen.lineWidth = 1.5 + 4 * (times / most);
    pen.beginPath();
    pen.moveTo(a.x, a.y);
    pen.quadraticCurveTo(mid.x, mid.y, end.x, end.y);
    pen.stroke();
    const angle = Math.atan2(b.y - mid.y, b.x - mid.x), size = 5 + pen.lineWidth;
    pen.beginPath();
    pen.moveTo(end.x + Math.cos(angle) * size, end.y + Math.sin(angle) * size);
    pen.lineTo(end.x + Math.cos(angle + 2.4) * size, end.y + Math.sin(angle + 2.4) * size);
    pen.lineTo(end.x + Math.cos(angle - 2.4) * size, end.y + Math.sin(angle - 2.4) * size);
    pen.fill();
  }
  pen.restore();
}
