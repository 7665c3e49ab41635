/**
 * Icons that people draw: 12 lines of 12 letters in the world file, one letter per pixel.
 * The text is never inserted into the page: it is parsed to pixels, and only colors of the palette are drawn.
 */

import { svg } from './dom.js';

export const SIDE = 12; // pixels
export const TRANSPARENT = '.';
const MAX_CACHED = 200; // icons

/** Colors by letter, as in town/world/icons.py. @type {Record<string, {name: string, color: string}>} */
export const COLORS = {
  k: { name: 'black', color: '#24262d' }, w: { name: 'white', color: '#ffffff' }, a: { name: 'gray', color: '#8f96a3' },
  r: { name: 'red', color: '#dd3f3b' }, o: { name: 'orange', color: '#f08a24' }, y: { name: 'yellow', color: '#f7d02c' },
  g: { name: 'green', color: '#58b54b' }, d: { name: 'dark green', color: '#1f6b46' }, c: { name: 'light blue', color: '#5cc4ee' },
  b: { name: 'blue', color: '#2f62d9' }, v: { name: 'violet', color: '#8b53c8' }, t: { name: 'brown', color: '#8a5a34' },
};

/** Pixels without a color. @returns {string[][]} */
export const blankDrawing = () => Array.from({ length: SIDE }, () => Array(SIDE).fill(TRANSPARENT));

/** Letters of the pixels by row, or null if the icon is not a drawing. @param {string | undefined} icon @returns {string[][] | null} */
export function parseDrawing(icon) {
  if (!icon?.includes('\n')) return null;
  const rows = icon.replace(/\n$/, '').split('\n').map((row) => [...row]);
  const valid = rows.length === SIDE && rows.every((row) => row.length === SIDE && row.every((letter) => letter === TRANSPARENT || Object.hasOwn(COLORS, letter)));
  return valid ? rows : null;
}

/** Text of a drawing for the world file; empty if it has no pixels. @param {string[][]} pixels */
export function drawingText(pixels) {
  return pixels.flat().some((letter) => letter !== TRANSPARENT) ? pixels.map((row) => `${row.join('')}\n`).join('') : '';
}

/** @type {Map<string, HTMLCanvasElement>} */
const canvases = new Map();

/** Draw an icon's pixels into a square; false if the icon is not a drawing. @param {CanvasRenderingContext2D} ctx @param {string} icon @param {number} x @param {number} y @param {number} side */
export function drawPixels(ctx, icon, x, y, side) {
  const pixels = parseDrawing(icon);
  if (!pixels) return false;
  if (canvases.size > MAX_CACHED) canvases.clear();
  const cached = canvases.get(icon) ?? rasterize(pixels);
  canvases.set(icon, cached);
  ctx.save();
  ctx.imageSmoothingEnabled = false;
  ctx.drawImage(cached, x, y, side, side);
  ctx.restore();
  return true;
}

/** @param {string[][]} pixels */
function rasterize(pixels) {
  const canvas = document.createElement('canvas');
  canvas.width = canvas.height = SIDE;
  const ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d'));
  pixels.forEach((row, y) => row.forEach((letter, x) => {
    if (letter === TRANSPARENT) return;
    ctx.fillStyle = COLORS[letter].color;
    ctx.fillRect(x, y, 1, 1);
  }));
  return canvas;
}

/** The pixels as an element with one path per color. @param {string[][]} pixels @param {number} side */
export function drawingElement(pixels, side) {
  const paths = Object.entries(COLORS).flatMap(([letter, { color }]) => {
    const d = pixels.flatMap((row, y) => row.map((one, x) => (one === letter ? `M${x} ${y}h1v1h-1z` : ''))).join('');
    return d ? [svg('path', { d, fill: color })] : [];
  });
  return svg('svg', { viewBox: `0 0 ${SIDE} ${SIDE}`, width: side, height: side, class: 'drawn-icon', 'shape-rendering': 'crispEdges', 'aria-hidden': 'true' }, ...paths);
}
