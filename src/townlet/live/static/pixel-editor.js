/** Drawing of an icon, 12 × 12 pixels, with mouse, finger or keyboard. */

import { el, setText } from './dom.js';
import { blankDrawing, COLORS, drawingText, parseDrawing, SIDE, TRANSPARENT } from './drawings.js';

const ZOOM = 20; // pixels of the canvas per pixel of the icon
/** @type {Record<string, [number, number]>} */
const ARROWS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

export class PixelEditor {
  /** @param {(icon: string) => void} change called after each stroke; '' if all pixels are transparent */
  constructor(change) {
    this.change = change;
    this.pixels = blankDrawing();
    this.place = ''; // whose icon it is
    this.letter = 'r';
    this.tool = 'pen';
    this.cursor = [0, 0]; // column and row, for the keyboard
    this.drawing = false; // a stroke is underway
    this.canvas = el('canvas', {
      id: 'field-drawing', width: SIDE * ZOOM, height: SIDE * ZOOM, tabindex: 0, role: 'application', 'aria-roledescription': 'drawing',
      'aria-label': `Icon, ${SIDE} by ${SIDE} pixels. Arrow keys move, Space paints, Delete erases.`,
    });
    this.status = el('output', { class: 'pixel-status' });
    this.swatches = el('div', { class: 'pixel-colors', role: 'group', 'aria-label': 'Color' }, ...Object.entries(COLORS).map(([letter, { name, color }]) => {
      const button = el('button', { type: 'button', 'data-letter': letter, 'aria-label': name, title: name });
      button.style.background = color;
      return button;
    }));
    const tools = [['pen', 'Draw'], ['fill', 'Fill'], ['eraser', 'Erase']].map(([name, text]) => el('button', { type: 'button', 'data-tool': name, text }));
    this.tools = el('div', { class: 'segmented', role: 'group', 'aria-label': 'Tool' }, ...tools);
    const clear = el('button', { type: 'button', text: 'Clear' });
    this.box = el('details', { class: 'pixel-editor' }, el('summary', { text: 'Draw an icon' }),
      el('div', { class: 'pixel-body' }, this.canvas, el('div', { class: 'pixel-tools' }, this.swatches, this.tools, clear, this.status)));
    this.swatches.addEventListener('click', (event) => this.choose(event, 'letter'));
    this.tools.addEventListener('click', (event) => this.choose(event, 'tool'));
    clear.addEventListener('click', () => {
      this.pixels = blankDrawing();
      this.finish();
    });
    this.canvas.addEventListener('pointerdown', (event) => this.onPointerDown(event));
    this.canvas.addEventListener('pointermove', (event) => { if (this.drawing) this.strokeTo(this.pixelAt(event)); });
    for (const end of ['pointerup', 'pointercancel']) this.canvas.addEventListener(end, () => { if (this.drawing) this.finish(); });
    this.canvas.addEventListener('keydown', (event) => this.onKey(event));
    for (const type of ['focus', 'blur']) this.canvas.addEventListener(type, () => this.draw());
    this.showChoice();
  }

  /** Show the icon of a place; a drawing is open for changes. @param {string} place @param {string} icon */
  show(place, icon) {
    const pixels = parseDrawing(icon);
    if (place !== this.place) this.box.open = pixels !== null;
    this.place = place;
    this.pixels = pixels ?? blankDrawing();
    this.draw();
  }

  /** @param {Event} event @param {'letter' | 'tool'} what */
  choose(event, what) {
    const chosen = /** @type {HTMLElement} */ (event.target).dataset[what];
    if (!chosen) return;
    this[what] = chosen;
    if (what === 'letter' && this.tool === 'eraser') this.tool = 'pen';
    this.showChoice();
  }

  showChoice() {
    for (const [box, what] of /** @type {[HTMLElement, 'letter' | 'tool'][]} */ ([[this.swatches, 'letter'], [this.tools, 'tool']])) {
      for (const one of /** @type {NodeListOf<HTMLElement>} */ (box.querySelectorAll('button'))) one.setAttribute('aria-pressed', String(one.dataset[what] === this[what]));
    }
  }

  /** @param {PointerEvent} event @returns {[number, number]} column and row */
  pixelAt(event) {
    const box = this.canvas.getBoundingClientRect();
    const within = (/** @type {number} */ share) => Math.min(SIDE - 1, Math.max(0, Math.floor(share * SIDE)));
    return [within((event.clientX - box.left) / box.width), within((event.clientY - box.top) / box.height)];
  }

  /** @param {PointerEvent} event */
  onPointerDown(event) {
    if (event.button !== 0) return;
    this.canvas.setPointerCapture(event.pointerId);
    this.drawing = true;
    this.cursor = this.pixelAt(event);
    this.use(this.cursor);
  }

  /** Paint all pixels from the last one to this one: a fast pointer skips some. @param {[number, number]} to */
  strokeTo(to) {
    if (this.tool === 'fill') return;
    const [x, y] = this.cursor, steps = Math.max(Math.abs(to[0] - x), Math.abs(to[1] - y));
    for (let k = 1; k <= steps; k += 1) this.use([Math.round(x + ((to[0] - x) * k) / steps), Math.round(y + ((to[1] - y) * k) / steps)]);
    this.cursor = to;
  }

  /** @param {KeyboardEvent} event */
  onKey(event) {
    const by = ARROWS[event.key], paint = event.key === ' ' || event.key === 'Enter', erase = event.key === 'Delete' || event.key === 'Backspace';
    if (!by && !paint && !erase) return;
    event.preventDefault();
    event.stopPropagation(); // these keys also control playback
    if (by) this.cursor = this.cursor.map((at, axis) => Math.min(SIDE - 1, Math.max(0, at + by[axis])));
    else this.use(this.cursor, erase ? 'eraser' : this.tool);
    if (by) this.draw();
    else this.finish();
    const [column, row] = this.cursor;
    setText(this.status, `Column ${column + 1}, row ${row + 1}: ${COLORS[this.pixels[row][column]]?.name ?? 'transparent'}`);
  }

  /** Use a tool on a pixel. @param {number[]} at @param {string} tool */
  use([column, row], tool = this.tool) {
    const letter = tool === 'eraser' ? TRANSPARENT : this.letter;
    if (tool === 'fill') this.fill(column, row, this.pixels[row][column], letter);
    else this.pixels[row][column] = letter;
    this.draw();
  }

  /** Replace the color of a pixel, and of all that are connected to it. @param {number} column @param {number} row @param {string} before @param {string} after */
  fill(column, row, before, after) {
    if (before === after || this.pixels[row]?.[column] !== before) return;
    this.pixels[row][column] = after;
    for (const [x, y] of Object.values(ARROWS)) this.fill(column + x, row + y, before, after);
  }

  finish() {
    this.drawing = false;
    this.draw();
    this.change(drawingText(this.pixels));
  }

  draw() {
    const ctx = /** @type {CanvasRenderingContext2D} */ (this.canvas.getContext('2d'));
    ctx.clearRect(0, 0, SIDE * ZOOM, SIDE * ZOOM);
    this.pixels.forEach((row, y) => row.forEach((letter, x) => {
      if (letter === TRANSPARENT) return;
      ctx.fillStyle = COLORS[letter].color;
      ctx.fillRect(x * ZOOM, y * ZOOM, ZOOM, ZOOM);
    }));
    ctx.strokeStyle = 'rgba(120, 120, 130, 0.35)';
    ctx.lineWidth = 1;
    ctx.beginPath();
    for (let k = 1; k < SIDE; k += 1) {
      ctx.moveTo(k * ZOOM, 0);
      ctx.lineTo(k * ZOOM, SIDE * ZOOM);
      ctx.moveTo(0, k * ZOOM);
      ctx.lineTo(SIDE * ZOOM, k * ZOOM);
    }
    ctx.stroke();
    if (document.activeElement !== this.canvas) return;
    const [x, y] = this.cursor;
    for (const [color, width] of /** @type {[string, number][]} */ ([['#ffffff', 5], ['#24262d', 2]])) { // visible on every color
      ctx.strokeStyle = color;
      ctx.lineWidth = width;
      ctx.strokeRect(x * ZOOM + 2, y * ZOOM + 2, ZOOM - 4, ZOOM - 4);
    }
  }
}
