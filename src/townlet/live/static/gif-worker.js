/** Worker that encodes pictures as a GIF. Each picture contains only the pixels that changed, with a palette of their colors. */

import { GIFEncoder, nearestColorIndex, quantize } from './vendor/gifenc/gifenc.esm.js';

/** @typedef {import('./vendor/gifenc/gifenc.esm.js').Color} Color */
/** @typedef {{pixels: ArrayBuffer, width: number, height: number, delay: number}} Picture delay in milliseconds */

const UNCHANGED = 0; // palette index of pixels that stay as they are
const MAX_COLORS = 255; // further ones in a palette
const MAX_EXACT = 160; // colors that are kept exactly although there are too many

const gif = GIFEncoder();
let previous = new Uint32Array(); // pixels of the picture before

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

/** Append a picture; its pixels are opaque. @param {Picture} picture */
function write({ pixels, width, height, delay }) {
  const colors = new Uint32Array(pixels), before = previous.length ? previous : new Uint32Array(colors.length);
  const counts = countChanged(colors, before);
  const palette = choosePalette(counts);
  const indices = new Map([...counts.keys()].map((color) => [color, 1 + nearestColorIndex(palette, channels(color))]));
  const index = new Uint8Array(colors.length).fill(UNCHANGED);
  let last = 0, found = UNCHANGED; // neighbors often have the same color
  for (let k = 0; k < colors.length; k += 1) {
    const color = colors[k];
    if (color === before[k]) continue;
    if (color !== last) [last, found] = [color, indices.get(color) ?? UNCHANGED];
    index[k] = found;
  }
  gif.writeFrame(index, width, height, { palette: [[0, 0, 0], ...palette], delay, transparent: true, transparentIndex: UNCHANGED, dispose: 1 });
  previous = colors;
}

/** How many changed pixels have each color. @param {Uint32Array} colors @param {Uint32Array} before */
function countChanged(colors, before) {
  /** @type {Map<number, number>} */
  const counts = new Map();
  let last = 0, count = 0;
  for (let k = 0; k < colors.length; k += 1) {
    const color = colors[k];
    if (color === before[k]) continue;
    if (color !== last) {
      if (count) counts.set(last, count);
      last = color;
      count = counts.get(color) ?? 0;
    }
    count += 1;
  }
  return count ? counts.set(last, count) : counts;
}

/** The colors themselves if they fit; else the most frequent ones, which fill areas, and averages of the others. @param {Map<number, number>} counts @returns {Color[]} */
function choosePalette(counts) {
  const colors = [...counts].sort((a, b) => b[1] - a[1]).map(([color]) => color);
  if (colors.length <= MAX_COLORS) return colors.map(channels);
  const others = new Uint8Array(Uint32Array.from(colors.slice(MAX_EXACT)).buffer);
  return [...colors.slice(0, MAX_EXACT).map(channels), ...quantize(others, MAX_COLORS - MAX_EXACT)];
}

/** Red, green and blue of a pixel. @param {number} color @returns {Color} */
const channels = (color) => [color & 255, (color >> 8) & 255, (color >> 16) & 255];
