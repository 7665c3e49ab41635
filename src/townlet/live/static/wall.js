/** Many rows of training at once, each a tiny town with a dot. */

import { byId, write } from './dom.js';
import { compact } from './format.js';

/** @typedef {import('./state.js').Store} Store */

const WIDE = 54; // pixels of one town
const COLOURS = { well: '#3f9a67', low: '#d99a1f', critical: '#d2453d' };

/** @param {Store} store */
export function showWall(store) {
  const canvas = /** @type {HTMLCanvasElement} */ (byId('wall-canvas'));
  const panel = byId('wall');
  const draw = () => {
    const { wall, about, status } = store.known;
    const shown = Boolean(wall && about && status?.state === 'training');
    panel.hidden = !shown;
    if (!shown || !wall || !about) return;
    paint(canvas, wall, about.world);
    write(byId('wall-note'), `${wall.cell.length} at ${compact(wall.env_steps)} steps`);
    const near = wall.alive.filter((value) => value < 0.2).length;
    canvas.setAttribute('aria-label', `${wall.cell.length} towns in training; ${near} agents are near death.`);
  };
  store.on(['wall', 'status', 'theme', 'about', 'view'], draw);
  new ResizeObserver(draw).observe(panel);
}

/** So many beside each other that rows are full, and towns about as wide as a finger. @param {number} many @param {number} width */
function columnsFor(many, width) {
  let best = Math.max(1, Math.round(width / WIDE)), least = 0.75;
  for (let across = 1; across <= many; across += 1) {
    const off = Math.abs(Math.log(width / across / WIDE));
    if (many % across === 0 && off < least) { best = across; least = off; }
  }
  return Math.min(many, best);
}

/** @param {HTMLCanvasElement} canvas @param {import('./types.js').Wall} wall @param {import('./types.js').World} world */
function paint(canvas, wall, world) {
  const width = canvas.clientWidth;
  if (width < 40) return;
  const many = wall.cell.length;
  const across = columnsFor(many, width);
  const side = width / across;
  const height = Math.ceil(many / across) * side;
  const ratio = Math.min(2, devicePixelRatio || 1);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const pen = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  const style = getComputedStyle(canvas);
  const tile = style.getPropertyValue('--tile'), mark = style.getPropertyValue('--place-mark');
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  const columns = world.size[0] ?? 1, rows = world.size[1] ?? 1;
  const cell = (side - 8) / Math.max(columns, rows);
  for (let k = 0; k < many; k += 1) {
    const left = (k % across) * side + 4, top = Math.floor(k / across) * side + 4;
    pen.fillStyle = tile;
    pen.beginPath();
    pen.roundRect(left - 2, top - 2, side - 4, side - 4, 5);
    pen.fill();
    const alive = wall.alive[k];
    pen.fillStyle = mark;
    for (const place of world.affordances) {
      if (place.cell === null || !world.size.length) continue;
      const inside = place.cell % (columns * rows);
      pen.fillRect(left + (inside % columns) * cell + cell * 0.2, top + Math.floor(inside / columns) * cell + cell * 0.2, cell * 0.6, cell * 0.6);
    }
    const inside = wall.cell[k] % Math.max(1, columns * rows);
    const x = world.size.length ? left + ((inside % columns) + 0.5) * cell : left + side / 2 - 4;
    const y = world.size.length ? top + (Math.floor(inside / columns) + 0.5) * cell : top + side / 2 - 4;
    pen.fillStyle = alive < 0.2 ? COLOURS.critical : alive < 0.3 ? COLOURS.low : COLOURS.well;
    pen.beginPath();
    pen.arc(x, y, Math.max(2.6, cell * 0.62), 0, 2 * Math.PI);
    pen.fill();
    pen.fillRect(left, top + side - 9.5, Math.max(2, (side - 8) * Math.min(1, wall.age[k] / world.max_steps)), 2);
  }
}
