/** Worker that encodes pictures as a GIF. Each picture contains only the pixels that changed, with a palette of their colors. */

import { GIFEncoder, nearestColorIndex, quantize } from './vendor/gifenc/gifenc.esm.js';

/** @typedef {import('./vendor/gifenc/gifenc.esm.js').Color} Color */
/** @typedef {{pixels: ArrayBuffer, width: number, height: number, delay: number}} Picture delay in milliseconds */

const UNCHANGED = 0; // palette index of pixels that stay as they are
const MAX_COLORS = 255; // further ones in a palette
const MAX_FLAT = 128; // colors that are kept exactly although there are too many
const FLAT_SHARE = 0.002; // of the changed pixels; colors of larger areas are kept exactly

const gif = GIFEncoder();
/** @type {Uint32Array | null} */
let previous = null;

self.onmessage = (/** @type {MessageEvent<Picture | null>} */ { data }) => {
  if (data) {
    write(data);
    self.postMessage(null);
    return;
  }
  gif.finish();
  const bytes = gif.bytes();
  self.postMessage(bytes, { transfer: [bytes.buffer] });
};

/** Append a picture. @param {Picture} picture */
function write({ pixels, width, height, delay }) {
  const colors = new Uint32Array(pixels);
  const counts = countChanged(colors, previous);
  const palette = choosePalette(counts);
  const indices = new Map([...counts.keys()].map((color) => [color, 1 + nearestColorIndex(palette, channels(color))]));
  const index = new Uint8Array(colors.length).fill(UNCHANGED);
  for (let k = 0; k < colors.length; k += 1) if (colors[k] !== previous?.[k]) index[k] = indices.get(colors[k]) ?? UNCHANGED;
  gif.writeFrame(index, width, height, { palette: [[0, 0, 0], ...palette], delay, transparent: true, transparentIndex: UNCHANGED, dispose: 1 });
  previous = colors;
}

/** How many changed pixels have each color. @param {Uint32Array} colors @param {Uint32Array | null} before */
function countChanged(colors, before) {
  /** @type {Map<number, number>} */
  const counts = new Map();
  for (let k = 0; k < colors.length; k += 1) if (colors[k] !== before?.[k]) counts.set(colors[k], (counts.get(colors[k]) ?? 0) + 1);
  return counts;
}

/** The colors themselves if they fit; else those of large areas, and averages of the others. @param {Map<number, number>} counts @returns {Color[]} */
function choosePalette(counts) {
  if (counts.size <= MAX_COLORS) return [...counts.keys()].map(channels);
  let total = 0;
  for (const count of counts.values()) total += count;
  const flat = [...counts].filter(([, count]) => count > FLAT_SHARE * total).sort((a, b) => b[1] - a[1]).slice(0, MAX_FLAT).map(([color]) => color);
  const kept = new Set(flat), others = [...counts.keys()].filter((color) => !kept.has(color));
  return [...flat.map(channels), ...quantize(new Uint8Array(Uint32Array.from(others).buffer), MAX_COLORS - flat.length)];
}

/** Red, green and blue of a pixel. @param {number} color @returns {Color} */
const channels = (color) => [color & 255, (color >> 8) & 255, (color >> 16) & 255];
