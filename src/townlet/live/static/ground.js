/** Where things are on the canvas: worlds with one, two or three axes, and worlds without a map. */

/**
 * @typedef {{x: number, y: number}} Point
 * @typedef {object} Ground
 * @property {number} cell side of a cell
 * @property {number} columns
 * @property {number} rows
 * @property {number} left
 * @property {number} top
 * @property {number} floors
 * @property {boolean} mapped
 * @property {number} width
 * @property {number} height
 */

/** How a world lies in a box. @param {number[]} size @param {number} width @param {number} height @returns {Ground} */
export function ground(size, width, height) {
  const columns = size[0] ?? 0;
  const rows = size.length > 1 ? size[1] : 1;
  const floors = size.length > 2 ? size[2] : 1;
  const pad = Math.max(6, Math.min(width, height) * 0.018);
  const cell = columns ? Math.min((width - 2 * pad) / columns, (height - 2 * pad) / rows, 150) : Math.min(width, height) / 6;
  return {
    cell, columns, rows, floors, mapped: size.length > 0, width, height,
    left: (width - cell * columns) / 2, top: (height - cell * rows) / 2,
  };
}

/** How high the canvas should be for this world, as a share of its width. @param {number[]} size */
export function aspect(size) {
  if (size.length === 1) return 0.42;
  if (size.length >= 2) return Math.min(1.1, Math.max(0.5, size[1] / size[0]));
  return 0.92;
}

/** @param {Ground} g @param {number} cell */
export const floorOf = (g, cell) => (g.mapped ? Math.floor(cell / (g.columns * g.rows)) : 0);

/** The middle of a cell on its floor. @param {Ground} g @param {number} cell @returns {Point} */
export function middle(g, cell) {
  const inside = cell % (g.columns * g.rows);
  const x = inside % g.columns;
  const y = Math.floor(inside / g.columns);
  return { x: g.left + (x + 0.5) * g.cell, y: g.top + (y + 0.5) * g.cell };
}

/** Places of a world without a map stand in a ring. @param {Ground} g @param {number} k @param {number} places */
export function onRing(g, k, places) {
  const angle = (k / Math.max(1, places)) * 2 * Math.PI - Math.PI / 2;
  return {
    x: g.width / 2 + Math.cos(angle) * (g.width / 2 - g.cell * 0.62),
    y: g.height / 2 + Math.sin(angle) * (g.height / 2 - g.cell * 0.66),
  };
}

/**
 * Where the agent is at a moment; without a map, beside the place it uses or in the middle.
 * @param {Ground} g
 * @param {import('./types.js').Moment} moment
 * @param {string[]} actions
 * @param {number} places
 * @returns {Point}
 */
export function standing(g, moment, actions, places) {
  if (g.mapped) return middle(g, moment.cell);
  const centre = { x: g.width / 2, y: g.height / 2 };
  if (moment.action === null || !(actions[moment.action] ?? '').startsWith('INTERACT')) return centre;
  const place = onRing(g, moment.action, places);
  return { x: centre.x + (place.x - centre.x) * 0.62, y: centre.y + (place.y - centre.y) * 0.62 };
}
