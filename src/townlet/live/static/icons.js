/** Icons of affordances, actions and buttons: stroked paths on a 24 × 24 grid. */

import { svg } from './dom.js';
import { drawingElement, drawPixels, parseDrawing } from './drawings.js';
import { initials } from './format.js';

/** @typedef {Pick<import('./types.js').Affordance, 'name' | 'icon'>} IconSource name and icon of an affordance, from its world file */

/** Colors by purpose. */
const HOME = '#4f74bd', FOOD = '#c26a1c', WORK = '#80694c', FUN = '#3b8659', CARE = '#bb4a66', OTHER = '#6c7080';
const DRAWN = '#e6dbc3'; // behind drawings: every color of theirs is visible on it

/**
 * Paths that replace emoji, by the `icon` of an affordance in its world file; any other icon is a drawing or a text.
 * @type {Record<string, {path: string, color: string}>}
 */
const GLYPHS = {
  '🛏': { color: HOME, path: 'M3 19V7M3 15.5h18V19M21 15.5V13a3 3 0 0 0-3-3h-7.5v5.5M6.8 9.2a1.8 1.8 0 1 0 .01 0' },
  '🛌': { color: HOME, path: 'M3 20v-8M3 17.5h18V20M21 17.5V16a2.5 2.5 0 0 0-2.5-2.5H3M8 10l-.8-5 2.6 2L12 3.5 14.2 7l2.6-2L16 10z' },
  '🚿': { color: HOME, path: 'M5 21V7a3.5 3.5 0 0 1 7 0v1M8 12a4 4 0 0 1 8 0zM9 15v1.2M12 15v1.2M15 15v1.2M9 19v1.2M12 19v1.2M15 19v1.2' },
  '🍲': { color: FOOD, path: 'M4.5 11h15v4a5 5 0 0 1-5 5h-5a5 5 0 0 1-5-5zM2.5 13h2M19.5 13h2M9.5 8c0-1.7 1.3-1.7 1.3-3.6M13.6 8c0-1.7 1.3-1.7 1.3-3.6' },
  '🍔': { color: FOOD, path: 'M4 10.2a8 5.6 0 0 1 16 0zM3.8 14c2 1.3 3.4-1.2 5.5 0s3.4 1.2 5.5 0 3.4-1.2 5.4 0M4 17.4h16a2.8 2.8 0 0 1-2.8 2.8H6.8A2.8 2.8 0 0 1 4 17.4z' },
  '🍽': { color: FOOD, path: 'M6 3v6a2.5 2.5 0 0 0 5 0V3M8.5 3v18M16.5 21V3c3 1.7 3.5 6.5 2.5 10h-2.5' },
  '☕': { color: FOOD, path: 'M5 9.5h11V15a4.5 4.5 0 0 1-4.5 4.5h-2A4.5 4.5 0 0 1 5 15zM16 11h1.7a2.4 2.4 0 0 1 0 4.8H16M8.7 6.8c0-1.5 1.1-1.5 1.1-3.2M12.3 6.8c0-1.5 1.1-1.5 1.1-3.2' },
  '💼': { color: WORK, path: 'M5 8h14a1.5 1.5 0 0 1 1.5 1.5v8A1.5 1.5 0 0 1 19 19H5a1.5 1.5 0 0 1-1.5-1.5v-8A1.5 1.5 0 0 1 5 8zM9 8V5.3h6V8M3.5 13h17M12 12v2' },
  '🔨': { color: WORK, path: 'M13 4.5l6.5 6.5-2.7 2.7-6.5-6.5zM12.3 9.2L4 17.5 6.5 20l8.3-8.3' },
  '🏋': { color: FUN, path: 'M9 12h6M7.5 7v10M16.5 7v10M4.5 9.2v5.6M19.5 9.2v5.6' },
  '🍺': { color: FUN, path: 'M5 6h14l-7 8zM12 14v5.5M8.5 19.5h7M16.5 3l-2.3 5.4' },
  '🌳': { color: FUN, path: 'M12 3l5 7h-2.3l3.8 6H5.5l3.8-6H7zM12 16v5' },
  '🎯': { color: FUN, path: 'M7.5 8h9a4.7 4.7 0 0 1 .8 9.2c-1.8.3-2.6-2-4.3-2h-2c-1.7 0-2.5 2.3-4.3 2A4.7 4.7 0 0 1 7.5 8zM8.5 10.3v3.4M6.8 12h3.4M15.5 11.2v.01M17.3 13v.01' },
  '🛋': { color: CARE, path: 'M4 5h10.5v7H9l-3 2.8V12H4zM17 9h3v7.2h-2V19l-3-2.8h-4.5V15' },
  '🩺': { color: CARE, path: 'M5.5 4v4.5a4.2 4.2 0 0 0 8.4 0V4M9.7 12.7V15a4.6 4.6 0 0 0 9.1 0v-1.3M18.8 9.7a2 2 0 1 0 .01 0M4.5 4h2M12.9 4h2' },
  '🏥': { color: CARE, path: 'M5 20.5V4h14v16.5M3 20.5h18M12 6.5v6M9 9.5h6M10 20.5V16.5h4v4' },
  '⭐': { color: OTHER, path: 'M12 3.5l2.6 5.6 6 .7-4.5 4.1 1.2 6L12 17l-5.3 2.9 1.2-6-4.5-4.1 6-.7z' },
  '🏫': { color: HOME, path: 'M4 20V11l8-5 8 5v9M3 20h18M10 20v-5h4v5M12 6V2.5h4v2.2h-4M7.5 13.5v2M16.5 13.5v2' },
  '🏛': { color: HOME, path: 'M3 9.5L12 4l9 5.5zM5.5 9.5V18M10 9.5V18M14 9.5V18M18.5 9.5V18M3.5 18h17M2.5 21h19' },
  '📚': { color: FUN, path: 'M4 5h4v15H4zM8 5h4v15H8zM13 6l3.8-1 3.6 14-3.8 1zM4 9h8' },
  '🎬': { color: FUN, path: 'M3.5 9.5h17V20h-17zM3.5 9.5L3 6l16.5-3 .6 3.5zM8 5l2 3.6M13 4.2l2 3.6' },
  '🏊': { color: FUN, path: 'M3 17c1.5-1.3 3-1.3 4.5 0s3 1.3 4.5 0 3-1.3 4.5 0 3 1.3 4.5 0M3 21c1.5-1.3 3-1.3 4.5 0s3 1.3 4.5 0 3-1.3 4.5 0 3 1.3 4.5 0M8 14V5.5a2.2 2.2 0 0 1 4.4 0M15 14V5.5a2.2 2.2 0 0 1 4.4 0M8 8.5h7M8 11.5h7' },
  '⚽': { color: FUN, path: 'M12 3a9 9 0 1 0 .01 0M12 8.5l3.5 2.5-1.3 4H9.8l-1.3-4zM12 8.5V3M15.5 11l5-1.5M14.2 15l3 4M9.8 15l-3 4M8.5 11l-5-1.5' },
  '🎵': { color: FUN, path: 'M9 17.5V5l10-2v12.5M6.5 15a2.5 2.5 0 1 0 .01 0M16.5 13a2.5 2.5 0 1 0 .01 0' },
  '🎨': { color: FUN, path: 'M12 3.5a8.5 8.5 0 1 0 0 17c1.6 0 2-1 1.6-2.2-.5-1.5.4-2.8 2-2.8H18a2.6 2.6 0 0 0 2.5-2.6C20.5 7.4 16.7 3.5 12 3.5zM8 9v.01M12 7.2v.01M16 9v.01M7 13v.01' },
  '🚲': { color: FUN, path: 'M6 12.5a4 4 0 1 0 .01 0M18 12.5a4 4 0 1 0 .01 0M6 16.5L9.5 9h6l2.5 7.5M9.5 9l3.5 7.5H6M15.5 9l-.8-3H17M8 9h3' },
  '🛒': { color: FOOD, path: 'M2.5 4H5l2.6 11h10L20 7H6M9 18a1.3 1.3 0 1 0 .01 0M16.5 18a1.3 1.3 0 1 0 .01 0' },
  '🍕': { color: FOOD, path: 'M3 7c5.5-3.6 12.5-3.6 18 0l-9 14.5zM4.5 9.5c4.7-2.7 10.3-2.7 15 0M11 13v.01M13.5 11.5v.01M12 17v.01' },
  '🍦': { color: FOOD, path: 'M7.5 11a4.5 4.5 0 1 1 9 0M6.5 11h11L12 21.5zM9.5 15h5' },
};

const ICONS = {
  play: 'M7 4.5v15l12-7.5z', pause: 'M8 5v14M16 5v14', forward: 'M5 5v14l9-7zM18 5v14', back: 'M19 5v14l-9-7zM6 5v14',
  again: 'M5 12a7 7 0 1 0 2.2-5.1M7.5 3v4.2h4.2', down: 'M6 9l6 6 6-6', sun: 'M12 8a4 4 0 1 0 .01 0M12 2.5V5M12 19v2.5M2.5 12H5M19 12h2.5M5.3 5.3L7 7M17 17l1.7 1.7M18.7 5.3L17 7M7 17l-1.7 1.7',
  moon: 'M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10z', save: 'M12 4v11M7.5 11l4.5 4.5 4.5-4.5M5 20h14',
  record: 'M12 7a5 5 0 1 0 .01 0', layers: 'M12 4l8 4-8 4-8-4zM4 12l8 4 8-4M4 16l8 4 8-4', check: 'M5 12.5l4.5 4.5L19 7.5',
  auto: 'M12 3a9 9 0 1 0 .01 0M12 3v18M12 5a7 7 0 0 1 0 14', up: 'M12 19V5M6 11l6-6 6 6', arrowdown: 'M12 5v14M6 13l6 6 6-6',
  left: 'M19 12H5M11 6l-6 6 6 6', right: 'M5 12h14M13 6l6 6-6 6', wait: 'M6 12h.01M12 12h.01M18 12h.01', use: 'M12 5v14M5 12h14',
  film: 'M4 6h16v12H4zM8 6v12M16 6v12M4 10h4M4 14h4M16 10h4M16 14h4', link: 'M10 14a4 4 0 0 0 5.6 0l3-3a4 4 0 0 0-5.6-5.6l-1.5 1.5M14 10a4 4 0 0 0-5.6 0l-3 3a4 4 0 0 0 5.6 5.6l1.5-1.5',
  undo: 'M9 7L4 12l5 5M4 12h10a5 5 0 0 1 0 10h-3', redo: 'M15 7l5 5-5 5M20 12H10a5 5 0 0 0 0 10h3', speaker: 'M5 9v6h4l5 4V5L9 9zM17 9a4 4 0 0 1 0 6', mute: 'M5 9v6h4l5 4V5L9 9zM17 9.5l4 5M21 9.5l-4 5',
  book: 'M12 6c-2-1.5-5-2-8-1.5v13c3-.5 6 0 8 1.5 2-1.5 5-2 8-1.5v-13C17 4 14 4.5 12 6zM12 6v13',
  present: 'M3 4h18v12H3zM12 16v4M8 20h8', people: 'M9 5a3 3 0 1 0 .01 0M3 19v-1a4 4 0 0 1 4-4h4a4 4 0 0 1 4 4v1M16 5.2a3 3 0 0 1 0 5.6M18 14.3a4 4 0 0 1 3 3.7v1',
  above: 'M6 13l6-6 6 6M6 19l6-6 6 6', below: 'M6 5l6 6 6-6M6 11l6 6 6-6',
};

/** @param {IconSource | undefined} place */
export const affordanceColor = (place) => glyph(place?.icon)?.color ?? (parseDrawing(place?.icon) ? DRAWN : OTHER);

/** The path for an emoji, also with a variation selector. @param {string | undefined} emoji */
const glyph = (emoji = '') => (Object.hasOwn(GLYPHS, emoji) ? GLYPHS[emoji] : GLYPHS[emoji.replace('\uFE0F', '')]);

/** Text for an affordance without a drawing, and its font size on the 24 × 24 grid. @param {IconSource} place */
function textIcon(place) {
  const text = place.icon.includes('\n') ? initials(place.name) : place.icon || initials(place.name);
  return { text, size: Math.min(17, 28 / [...text].length) };
}

/** @type {Map<string, Path2D>} */
const paths = new Map();

/**
 * Draw an affordance's icon, or its initials if it has none.
 * @param {CanvasRenderingContext2D} ctx
 * @param {IconSource} place
 * @param {number} x left @param {number} y top @param {number} side
 */
export function drawAffordanceIcon(ctx, place, x, y, side) {
  const found = glyph(place.icon);
  if (!found) {
    if (drawPixels(ctx, place.icon, x - side * 0.14, y - side * 0.14, side * 1.28)) return;
    const { text, size } = textIcon(place);
    ctx.save();
    ctx.fillStyle = ctx.strokeStyle;
    ctx.font = `600 ${(side * size) / 24}px system-ui, sans-serif`;
    ctx.textAlign = 'center';
    ctx.textBaseline = 'middle';
    ctx.fillText(text, x + side / 2, y + side * 0.54);
    ctx.restore();
    return;
  }
  if (!paths.has(place.icon)) paths.set(place.icon, new Path2D(found.path));
  ctx.save();
  ctx.translate(x, y);
  ctx.scale(side / 24, side / 24);
  ctx.lineWidth = 1.9;
  ctx.lineCap = ctx.lineJoin = 'round';
  ctx.stroke(/** @type {Path2D} */ (paths.get(place.icon)));
  ctx.restore();
}

/** @param {string} path @param {number} side */
function svgIcon(path, side) {
  return svg(
    'svg',
    { viewBox: '0 0 24 24', width: side, height: side, fill: 'none', stroke: 'currentColor', 'stroke-width': 2,
      'stroke-linecap': 'round', 'stroke-linejoin': 'round', 'aria-hidden': 'true' },
    svg('path', { d: path }),
  );
}

/** Icon of an affordance as an element. @param {IconSource} place @param {number} side */
export function affordanceIcon(place, side = 18) {
  const found = glyph(place.icon);
  if (found) return svgIcon(found.path, side);
  const drawing = parseDrawing(place.icon);
  if (drawing) return drawingElement(drawing, side);
  const { text, size } = textIcon(place);
  const label = svg('text', { x: 12, y: 12 + size * 0.36, 'text-anchor': 'middle', 'font-size': size, 'font-weight': 600, fill: 'currentColor' });
  label.textContent = text;
  return svg('svg', { viewBox: '0 0 24 24', width: side, height: side, 'aria-hidden': 'true' }, label);
}

/** Icon of a button. @param {string} name @param {number} side */
export const icon = (name, side = 18) => svgIcon(ICONS[/** @type {keyof typeof ICONS} */ (name)] ?? '', side);

/** Icon of an action. @param {string} action */
export function actionIcon(action) {
  const names = /** @type {Record<string, string>} */ ({ UP: 'up', DOWN: 'arrowdown', LEFT: 'left', RIGHT: 'right', ABOVE: 'above', BELOW: 'below', WAIT: 'wait' });
  const found = icon(names[action] ?? 'use', 14);
  if (action === 'WAIT') found.setAttribute('stroke-width', '3.5'); // dots
  return found;
}
