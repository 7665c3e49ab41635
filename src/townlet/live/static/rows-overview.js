/** The rows overview: every training row as a tiny town with a dot. */

import { byId, setText } from './dom.js';
import { formatCompact } from './format.js';
import { RECORDED_ROWS } from './session.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./types.js').World} World
 * @typedef {{left: number, top: number, side: number}} Tile position of one town
 */

const TOWN_WIDTH = 54; // pixels of one town
const COLORS = { well: '#3f9a67', low: '#d99a1f', critical: '#d2453d' };

/**
 * @param {Store} store
 * @param {import('./session.js').Session} session
 * @param {import('./playback.js').Playback} playback the main playback
 */
export function initRowsOverview(store, session, playback) {
  const canvas = /** @type {HTMLCanvasElement} */ (byId('rows-canvas'));
  const panel = byId('rows-overview');
  const draw = () => {
    const { rowsOverview, about, status, source } = store.state;
    const shown = Boolean(rowsOverview && about?.world && status?.state === 'running');
    panel.hidden = !shown;
    if (!shown || !rowsOverview || !about?.world) return;
    paint(canvas, rowsOverview, about.world, source === 'training' ? playback.start?.row ?? -1 : -1);
    setText(byId('rows-note'), `the first ${rowsOverview.cell.length}, after ${formatCompact(rowsOverview.env_steps)} steps`);
    byId('rows-stages').hidden = !rowsOverview.stage;
    const near = rowsOverview.lowest_meter.filter((value) => value < 0.2).length;
    canvas.setAttribute('aria-label', `The first ${rowsOverview.cell.length} parallel towns; ${near} agents are in critical condition.`);
  };
  store.on(['rowsOverview', 'status', 'theme', 'about', 'view'], draw);
  new ResizeObserver(draw).observe(panel);

  /** The row under the pointer, if its episodes are recorded. @param {MouseEvent} event */
  const rowAt = (event) => {
    const across = columnsFor(store.state.rowsOverview?.cell.length ?? 1, canvas.clientWidth);
    const side = canvas.clientWidth / across;
    const row = Math.floor(event.offsetY / side) * across + Math.floor(event.offsetX / side);
    return row < RECORDED_ROWS ? row : null;
  };
  canvas.addEventListener('pointermove', (event) => {
    const row = rowAt(event);
    canvas.style.cursor = row === null ? '' : 'pointer';
    canvas.title = row === null ? '' : `Watch the latest episode of town ${row}`;
  });
  canvas.addEventListener('click', (event) => {
    const row = rowAt(event);
    if (row !== null) session.selectRow(row);
  });
}

/** Number of columns that fills the last row and keeps towns near TOWN_WIDTH. @param {number} count @param {number} width */
function columnsFor(count, width) {
  let best = Math.max(1, Math.round(width / TOWN_WIDTH)), leastDeviation = 0.75;
  for (let columns = 1; columns <= count; columns += 1) {
    const deviation = Math.abs(Math.log(width / columns / TOWN_WIDTH));
    if (count % columns === 0 && deviation < leastDeviation) { best = columns; leastDeviation = deviation; }
  }
  return Math.min(count, best);
}

/** @param {HTMLCanvasElement} canvas @param {import('./types.js').RowsOverview} overview @param {World} world @param {number} chosen */
function paint(canvas, overview, world, chosen) {
  const width = canvas.clientWidth;
  if (width < 40) return;
  const count = overview.cell.length;
  const columns = columnsFor(count, width);
  const side = width / columns;
  const height = Math.ceil(count / columns) * side;
  const ratio = Math.min(2, devicePixelRatio || 1);
  if (canvas.width !== Math.round(width * ratio) || canvas.height !== Math.round(height * ratio)) {
    canvas.width = Math.round(width * ratio);
    canvas.height = Math.round(height * ratio);
    canvas.style.height = `${height}px`;
  }
  const ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  const style = getComputedStyle(canvas);
  ctx.setTransform(ratio, 0, 0, ratio, 0, 0);
  ctx.clearRect(0, 0, width, height);
  for (let k = 0; k < count; k += 1) {
    const plot = { left: (k % columns) * side + 4, top: Math.floor(k / columns) * side + 4, side };
    paintTown(ctx, plot, world, overview, k, style);
    if (overview.stage) paintStage(ctx, plot, overview.stage[k], style);
    if (k === chosen) {
      ctx.strokeStyle = style.getPropertyValue('--accent');
      ctx.lineWidth = 2;
      ctx.beginPath();
      ctx.roundRect(plot.left - 2, plot.top - 2, side - 4, side - 4, 5);
      ctx.stroke();
    }
  }
}

/**
 * @param {CanvasRenderingContext2D} ctx @param {Tile} plot @param {World} world
 * @param {import('./types.js').RowsOverview} overview @param {number} k @param {CSSStyleDeclaration} style
 */
function paintTown(ctx, { left, top, side }, world, overview, k, style) {
  const columns = world.size[0] ?? 1, rows = world.size[1] ?? 1;
  const cell = (side - 8) / Math.max(columns, rows);
  ctx.fillStyle = style.getPropertyValue('--tile');
  ctx.beginPath();
  ctx.roundRect(left - 2, top - 2, side - 4, side - 4, 5);
  ctx.fill();
  ctx.fillStyle = style.getPropertyValue('--place-mark');
  for (const place of world.affordances) {
    if (place.cell === null || !world.size.length) continue;
    const inside = place.cell % (columns * rows);
    ctx.fillRect(left + (inside % columns) * cell + cell * 0.2, top + Math.floor(inside / columns) * cell + cell * 0.2, cell * 0.6, cell * 0.6);
  }
  const inside = overview.cell[k] % Math.max(1, columns * rows);
  const x = world.size.length ? left + ((inside % columns) + 0.5) * cell : left + side / 2 - 4;
  const y = world.size.length ? top + (Math.floor(inside / columns) + 0.5) * cell : top + side / 2 - 4;
  const lowest = overview.lowest_meter[k];
  ctx.fillStyle = lowest < 0.2 ? COLORS.critical : lowest < 0.3 ? COLORS.low : COLORS.well;
  ctx.beginPath();
  ctx.arc(x, y, Math.max(2.6, cell * 0.62), 0, 2 * Math.PI);
  ctx.fill();
  ctx.fillRect(left, top + side - 9.5, Math.max(2, (side - 8) * Math.min(1, overview.age[k] / world.max_steps)), 2);
}

/** @param {CanvasRenderingContext2D} ctx @param {Tile} plot @param {number} stage @param {CSSStyleDeclaration} style */
function paintStage(ctx, { left, top, side }, stage, style) {
  const size = 13;
  ctx.fillStyle = style.getPropertyValue('--third');
  ctx.beginPath();
  ctx.roundRect(left + side - 6 - size, top - 2, size, size, [0, 5, 0, 5]);
  ctx.fill();
  ctx.fillStyle = style.getPropertyValue('--on-accent');
  ctx.font = '600 10px system-ui, sans-serif';
  ctx.textAlign = 'center';
  ctx.textBaseline = 'middle';
  ctx.fillText(String(stage), left + side - 6 - size / 2, top - 1.5 + size / 2);
}
