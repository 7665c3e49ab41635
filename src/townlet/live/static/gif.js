/** Animated GIFs that the page draws: the button, the encoding in a worker, and what all of them have in common. */

import { el } from './dom.js';
import { download } from './export.js';
import { formatPercent } from './format.js';
import { icon } from './icons.js';
import { announce, toast } from './notifications.js';

/**
 * @typedef {object} GifSource what to draw
 * @property {string} file name of the file
 * @property {number} width
 * @property {number} height
 * @property {number} pictures
 * @property {(ctx: CanvasRenderingContext2D, k: number) => void | Promise<void>} draw
 */

const MAX_PICTURES = 200;
const PICTURE_TIME = 100; // milliseconds
const END_TIME = 2000; // milliseconds for which the last picture stays
export const PICTURES_PER_SECOND = 1000 / PICTURE_TIME;
export const CAPTION_HEIGHT = 48; // pixels

/** As many evenly spaced values as a GIF has pictures, with the first and the last one. @template T @param {T[]} values */
export function selectPictures(values) {
  if (values.length <= MAX_PICTURES) return values;
  return Array.from({ length: MAX_PICTURES }, (_, k) => values[Math.round((k * (values.length - 1)) / (MAX_PICTURES - 1))]);
}

/** Name of a file. @param {(string | number)[]} parts */
export function gifName(...parts) {
  const words = parts.map((part) => String(part).toLowerCase().replace(/[^\p{L}\p{N}]+/gu, '-').slice(0, 24).replace(/^-+|-+$/g, ''));
  return `${words.filter(Boolean).join('-')}.gif`;
}

/** Why an episode is too short for a GIF, or ''. @param {number} steps */
export function tooShort(steps) {
  if (steps >= 2) return '';
  return `This episode has ${steps === 1 ? 'only 1 step' : 'no steps'} so far. A GIF needs at least 2.`;
}

/**
 * Draw two lines of text above a picture.
 * @param {CanvasRenderingContext2D} ctx @param {CSSStyleDeclaration} style @param {{left: number, width: number}} place
 * @param {{title: string, note: string, detail: string}} texts `note` is right of the title
 */
export function drawCaption(ctx, style, { left, width }, { title, note, detail }) {
  ctx.fillStyle = style.getPropertyValue('--panel');
  ctx.fillRect(left, 0, width, CAPTION_HEIGHT);
  ctx.textBaseline = 'alphabetic';
  ctx.font = '13px system-ui, sans-serif';
  ctx.fillStyle = style.getPropertyValue('--muted');
  ctx.textAlign = 'right';
  ctx.fillText(note, left + width - 12, 20, width / 2);
  const room = width - 36 - Math.min(width / 2, ctx.measureText(note).width);
  ctx.textAlign = 'left';
  ctx.fillText(detail, left + 12, 39, width - 24);
  ctx.font = '600 15px system-ui, sans-serif';
  ctx.fillStyle = style.getPropertyValue('--ink');
  ctx.fillText(fitText(ctx, title, room), left + 12, 20, room);
}

/** As many clauses of a text as fit. @param {CanvasRenderingContext2D} ctx @param {string} text @param {number} room */
function fitText(ctx, text, room) {
  const clauses = text.split(', ');
  while (clauses.length > 1 && ctx.measureText(clauses.join(', ')).width > room) clauses.pop();
  return clauses.join(', ');
}

/** The button that saves a GIF. @param {() => GifSource | string | Promise<GifSource>} source or why there is nothing to save */
export function gifButton(source) {
  const button = el('button', { type: 'button', class: 'round-button toggle' });
  const reset = () => {
    button.replaceChildren(icon('film'));
    button.setAttribute('aria-label', 'Save as GIF');
    button.title = 'Save the steps played so far as an animated GIF';
    button.removeAttribute('aria-busy');
    button.disabled = false;
  };
  const show = (/** @type {number} */ share) => {
    const text = `Drawing GIF, ${formatPercent(share)}`;
    button.textContent = text;
    button.setAttribute('aria-busy', 'true');
    button.setAttribute('aria-label', text);
  };
  const save = async () => {
    const found = await source();
    if (typeof found === 'string') {
      toast('No GIF was saved', found);
      return;
    }
    download(await encode(found, show), found.file);
    announce('The GIF was saved.');
    toast(`The GIF was saved as ${found.file}`);
  };
  reset();
  button.addEventListener('click', async () => {
    button.disabled = true;
    await save().catch((error) => toast('The GIF could not be made', error instanceof Error ? error.message : String(error)));
    reset();
  });
  return button;
}

/** Draw and encode one picture after another; the page stays responsive. @param {GifSource} source @param {(share: number) => void} progress */
async function encode({ width, height, pictures, draw }, progress) {
  const worker = new Worker(new URL('./gif-worker.js', import.meta.url), { type: 'module' });
  const canvas = el('canvas', { width, height });
  const ctx = /** @type {CanvasRenderingContext2D} */ (canvas.getContext('2d', { alpha: false, willReadFrequently: true }));
  announce('The GIF is being drawn.');
  try {
    for (let k = 0; k < pictures; k += 1) {
      progress(k / pictures);
      await draw(ctx, k);
      const pixels = ctx.getImageData(0, 0, width, height).data.buffer;
      await request(worker, { pixels, width, height, delay: k === pictures - 1 ? END_TIME : PICTURE_TIME }, [pixels]);
    }
    return new Blob([await request(worker, null, [])], { type: 'image/gif' });
  } finally {
    worker.terminate();
  }
}

/** @param {Worker} worker @param {import('./gif-worker.js').Picture | null} message @param {Transferable[]} transfer @returns {Promise<any>} */
function request(worker, message, transfer) {
  return new Promise((resolve, reject) => {
    worker.onmessage = ({ data }) => resolve(data);
    worker.onerror = () => reject(new Error('The page could not encode it. Reload the page and try again.'));
    worker.postMessage(message, transfer);
  });
}
