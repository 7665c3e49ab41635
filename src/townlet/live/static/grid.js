/** Geometry of the town on the canvas: maps with one to three axes, and worlds without a map. */

/**
 * @typedef {{x: number, y: number}} Point
 * @typedef {object} Grid
 * @property {number} cell side of a cell
 * @property {number} columns
 * @property {number} rows
 * @property {number} left
 * @property {number} top
 * @property {number} floors
 * @property {boolean} hasMap
 * @property {number} width
 * @property {number} height
 */

/** Fit a world into a box. @param {number[]} size @param {number} width @param {number} height @returns {Grid} */
export function layoutGrid(size, width, height) {
  const columns = size[0] ?? 0;
  const rows = size.length > 1 ? size[1] : 1;
  const floors = size.length > 2 ? size[2] : 1;
  const pad = Math.max(6, Math.min(width, height) * 0.018);
  const cell = columns ? Math.min((width - 2 * pad) / columns, (height - 2 * pad) / rows, 150) : Math.min(width, height) / 6;
  return {
    cell, columns, rows, floors, hasMap: size.length > 0, width, height,
    left: (width - cell * columns) / 2, top: (height - cell * rows) / 2,
  };
}

/** Height of the canvas relative to its width. @param {number[]} size */
export function aspectRatio(size) {
  if (size.length === 1) return 0.42;
  if (size.length >= 2) return Math.min(1.1, Math.max(0.5, size[1] / size[0]));
  return 0.92;
}

/** @param {Grid} g @param {number} cell */
export const floorOf = (g, cell) => (g.hasMap ? Math.floor(cell / (g.columns * g.rows)) : 0);

/** Center of a cell. @param {Grid} g @param {number} cell @returns {Point} */
export function cellCenter(g, cell) {
  const inside = cell % (g.columns * g.rows);
  const x = inside % g.columns;
  const y = Math.floor(inside / g.columns);
  return { x: g.left + (x + 0.5) * g.cell, y: g.top + (y + 0.5) * g.cell };
}

/** Position of an affordance in a world without a map: on a ring. @param {Grid} g @param {number} k @param {number} places */
export function ringPosition(g, k, places) {
  const angle = (k / Math.max(1, places)) * 2 * Math.PI - Math.PI / 2;
  return {
    x: g.width / 2 + Math.cos(angle) * (g.width / 2 - g.cell * 0.62),
    y: g.height / 2 + Math.sin(angle) * (g.height / 2 - g.cell * 0.66),
  };
}

/**
 * Position of the agent; without a map, next to the affordance in use or in the center.
 * @param {Grid} g
 * @param {import('./types.js').Timestep} timestep
 * @param {string[]} actions
 * @param {number} places
 * @returns {Point}
 */
export function agentPosition(g, timestep, actions, places) {
  if (g.hasMap) return cellCenter(g, timestep.cell);
  const center = { x: g.width / 2, y: g.height / 2 };
  if (timestep.action === null || !(actions[timestep.action] ?? '').startsWith('INTERACT')) return center;
  const place = ringPosition(g, timestep.action, places);
  return { x: center.x + (place.x - center.x) * 0.62, y: center.y + (place.y - center.y) * 0.62 };
}
