/** Where texts on the town go: no two of them overlap. */

/**
 * @typedef {{left: number, top: number, right: number, bottom: number}} Box
 * @typedef {{text: string, x: number, y: number, size: number, width: number, box: Box}} Label y is the top of the text
 */

const GAP = 1; // pixels between texts
const MIN_SIZE = 7.5; // pixels
const SHORTEST = 3; // characters
const CONDENSED = 1.2; // width of a text, relative to the room into which it is condensed; a longer one is shortened

/** @param {number} size */
export const labelFont = (size) => `500 ${size}px system-ui, sans-serif`;

/** A box around a text that is centered at x. @param {number} x @param {number} top @param {number} width @param {number} height @returns {Box} */
export const boxAround = (x, top, width, height) => ({ left: x - width / 2, top, right: x + width / 2, bottom: top + height });

/** @param {Box} box @param {Box[]} others */
export const isFree = (box, others) => others.every((one) => box.right + GAP <= one.left || one.right + GAP <= box.left
  || box.bottom + GAP <= one.top || one.bottom + GAP <= box.top);

/**
 * The name of a place: below its icon, or else above it; smaller or shorter if there is not enough room.
 * @param {CanvasRenderingContext2D} ctx @param {string} name
 * @param {{x: number, below: number, above: number, room: number, cell: number, page: number}} at
 *   `below` and `above`: the ends of the icon; `room`: maximum width; `page`: width of the canvas
 * @param {number} least smallest size of the text; if it is given, long names are condensed instead
 * @param {Box[]} taken boxes of other labels @returns {Label | null} null if there is no room at all
 */
export function placeName(ctx, name, { x, below, above, room, cell, page }, least, taken) {
  const largest = Math.max(least, Math.min(13, Math.max(8.5, cell * 0.175)));
  for (const limit of [room, Math.min(room, cell * 0.96)]) {
    ctx.font = labelFont(largest);
    const natural = ctx.measureText(name).width;
    const size = natural > limit ? Math.max(least, MIN_SIZE, (largest * limit) / natural) : largest;
    ctx.font = labelFont(size);
    const text = least ? name : shorten(ctx, name, limit * CONDENSED);
    const width = Math.min(ctx.measureText(text).width, limit);
    const center = Math.min(page - width / 2, Math.max(width / 2, x));
    for (const top of [below + cell * 0.045, above - cell * 0.045 - size]) {
      const box = boxAround(center, top, width, size * 1.1);
      if (top >= 0 && isFree(box, taken)) return { text, x: center, y: top, size, width, box };
    }
  }
  return null;
}

/** The beginning of a text that is not wider than a limit. @param {CanvasRenderingContext2D} ctx @param {string} text @param {number} limit */
function shorten(ctx, text, limit) {
  let shown = text;
  for (let length = text.length - 1; ctx.measureText(shown).width > limit && length >= SHORTEST; length -= 1) {
    shown = `${text.slice(0, length).trimEnd()}…`;
  }
  return shown;
}
