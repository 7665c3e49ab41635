/** Many rows of training at once, each a tiny town with a dot. */

import { byId, write } from './dom.js';
import { compact } from './format.js';
import { WATCHED } from './session.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./types.js').World} World
 * @typedef {{left: number, top: number, side: number}} Plot where one town lies
 */

const WIDE = 54; // pixels of one town
const COLOURS = { well: '#3f9a67', low: '#d99a1f', critical: '#d2453d' };

/**
 * @param {Store} store
 * @param {import('./session.js').Session} session
 * @param {import('./playback.js').Playback} playback what is shown large
 */
export function showWall(store, session, playback) {
  const canvas = /** @type {HTMLCanvasElement} */ (byId('wall-canvas'));
  const panel = byId('wall');
  const draw = () => {
    const { wall, about, status, source } = store.known;
    const shown = Boolean(wall && about?.world && status?.state === 'running');
    panel.hidden = !shown;
    if (!shown || !wall || !about?.world) return;
    paint(canvas, wall, about.world, source === 'training' ? playback.start?.row ?? -1 : -1);
    write(byId('wall-note'), `${wall.cell.length} at ${compact(wall.env_steps)} steps`);
    byId('wall-stages').hidden = !wall.stage;
    const near = wall.alive.filter((value) => value < 0.2).length;
    canvas.setAttribute('aria-label', `${wall.cell.length} towns in training; ${near} agents are near death.`);
  };
  store.on(['wall', 'status', 'theme', 'about', 'view'], draw);
  new ResizeObserver(draw).observe(panel);

  /** The row under the pointer, if its lives can be shown. @param {MouseEvent} event */
  const rowAt = (event) => {
    const across = columnsFor(store.known.wall?.cell.length ?? 1, canvas.clientWidth);
    const side = canvas.clientWidth / across;
    const row = Math.floor(event.offsetY / side) * across + Math.floor(event.offsetX / side);
    return row < WATCHED ? row : null;
  };
  canvas.addEventListener('pointermove', (event) => {
    const row = rowAt(event);
    canvas.style.cursor = row === null ? '' : 'pointer';
    canvas.title = row === null ? '' : `Watch the latest life of row ${row}`;
  });
  canvas.addEventListener('click', (event) => {
    const row = rowAt(event);
    if (row !== null) session.row(row);
  });
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

/** @param {HTMLCanvasElement} canvas @param {import('./types.js').Wall} wall @param {World} world @param {number} chosen */
function paint(canvas, wall, world, chosen) {
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
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, width, height);
  for (let k = 0; k < many; k += 1) {
    const plot = { left: (k % across) * side + 4, top: Math.floor(k / across) * side + 4, side };
    paintTown(pen, plot, world, wall, k, style);
    if (wall.stage) paintStage(pen, plot, wall.stage[k], style);
    if (k === chosen) {
      pen.strokeStyle = style.getPropertyValue('--accent');
      pen.lineWidth = 2;
      pen.beginPath();
      pen.roundRect(plot.left - 2, plot.top - 2, side - 4, side - 4, 5);
      pen.stroke();
    }
  }
}

/**
 * @param {CanvasRenderingContext2D} pen @param {Plot} plot @param {World} world
 * @param {import('./types.js').Wall} wall @param {number} k @param {CSSStyleDeclaration} style
 */
function paintTown(pen, { left, top, side }, world, wall, k, style) {
  const columns = world.size[0] ?? 1, rows = world.size[1] ?? 1;
  const cell = (side - 8) / Math.max(columns, rows);
  pen.fillStyle = style.getPropertyValue('--tile');
  pen.beginPath();
  pen.roundRect(left - 2, top - 2, side - 4, side - 4, 5);
  pen.fill();
  pen.fillStyle = style.getPropertyValue('--place-mark');
  for (const place of world.affordances) {
    if (place.cell === null || !world.size.length) continue;
    const inside = place.cell % (columns * rows);
    pen.fillRect(left + (inside % columns) * cell + cell * 0.2, top + Math.floor(inside / columns) * cell + cell * 0.2, cell * 0.6, cell * 0.6);
  }
  const inside = wall.cell[k] % Math.max(1, columns * rows);
  const x = world.size.length ? left + ((inside % columns) + 0.5) * cell : left + side / 2 - 4;
  const y = world.size.length ? top + (Math.floor(inside / columns) + 0.5) * cell : top + side / 2 - 4;
  const alive = wall.alive[k];
  pen.fillStyle = alive < 0.2 ? COLOURS.critical : alive < 0.3 ? COLOURS.low : COLOURS.well;
  pen.beginPath();
  pen.arc(x, y, Math.max(2.6, cell * 0.62), 0, 2 * Math.PI);
  pen.fill();
  pen.fillRect(left, top + side - 9.5, Math.max(2, (side - 8) * Math.min(1, wall.age[k] / world.max_steps)), 2);
}

/** @param {CanvasRenderingContext2D} pen @param {Plot} plot @param {number} stage @param {CSSStyleDeclaration} style */
function paintStage(pen, { left, top, side }, stage, style) {
  const size = 13;
  pen.fillStyle = style.getPropertyValue('--third');
  pen.beginPath();
  pen.roundRect(left + side - 6 - size, top - 2, size, size, [0, 5, 0, 5]);
  pen.fill();
  pen.fillStyle = style.getPropertyValue('--on-accent');
  pen.font = '600 10px system-ui, sans-serif';
  pen.textAlign = 'center';
  pen.textBaseline = 'middle';
  pen.fillText(String(stage), left + side - 6 - size / 2, top - 1.5 + size / 2);
}
