/** The map of the world editor: places are dragged with a pointer, or moved with the arrow keys. */

import { el, setText } from './dom.js';
import { humanize } from './format.js';
import { affordanceColor, affordanceIcon } from './icons.js';

/**
 * @typedef {import('./types.js').PlaceSpec} PlaceSpec
 * @typedef {import('./types.js').WorldSpec} WorldSpec
 * @typedef {object} MapActions
 * @property {(name: string) => void} select
 * @property {(name: string, cell: number[]) => void} move
 * @property {(name: string) => void} remove
 * @property {(entry: Partial<PlaceSpec>, cell: number[] | null) => void} add
 */

const MAX_CELLS = 1600; // of a floor that is drawn
const DRAG_START = 5; // pixels that a pointer moves before it drags
/** @type {Record<string, [number, number]>} */
const ARROWS = { ArrowUp: [0, -1], ArrowDown: [0, 1], ArrowLeft: [-1, 0], ArrowRight: [1, 0] };

export class WorldMap {
  /** @param {MapActions} actions */
  constructor(actions) {
    this.actions = actions;
    /** @type {WorldSpec | null} */
    this.spec = null;
    this.floor = 0;
    this.dragging = false; // the map is drawn again after that
    this.grid = el('div', { class: 'map-grid', role: 'group', 'aria-label': 'Map of the world' });
    this.floors = el('div', { class: 'segmented', role: 'group', 'aria-label': 'Floor', hidden: true });
    this.note = el('p', { class: 'muted', hidden: true });
    this.box = el('div', { class: 'world-map' }, this.floors, this.grid, this.note);
    this.floors.addEventListener('click', (event) => {
      const floor = /** @type {HTMLElement} */ (event.target).dataset.floor;
      if (floor === undefined) return;
      this.floor = Number(floor);
      this.draw();
    });
  }

  /** Whether places have cells that can be chosen. */
  get hasCells() {
    return this.spec !== null && this.spec.map.kind === 'grid' && this.spec.map.layout === 'fixed' && !this.isTooLarge;
  }

  get isTooLarge() {
    const [columns, rows] = this.spec?.map.size ?? [1];
    return columns * (rows ?? 1) > MAX_CELLS;
  }

  /** @param {WorldSpec} spec @param {string | null} selected */
  show(spec, selected) {
    this.spec = spec;
    this.selected = selected;
    this.draw();
  }

  draw() {
    const { spec } = this;
    if (!spec || this.dragging) return;
    const [columns, rows, floors] = [spec.map.size[0] ?? 1, spec.map.size[1] ?? 1, spec.map.size[2] ?? 1];
    this.floor = Math.min(this.floor, floors - 1);
    const held = /** @type {HTMLElement | null} */ (document.activeElement)?.dataset.place;
    this.floors.hidden = !this.hasCells || floors === 1;
    this.floors.replaceChildren(...Array.from({ length: floors }, (_, k) => el('button', { type: 'button', 'data-floor': k, 'aria-pressed': String(k === this.floor), text: `Floor ${k}` })));
    this.note.hidden = this.hasCells;
    setText(this.note, this.isTooLarge ? 'This map is too large to be drawn: set the cells of places in the text.' : spec.map.kind === 'grid' ? 'In this world all places move to new cells in every episode.' : 'This world has no map: every place can be used from anywhere.');
    this.grid.classList.toggle('list', !this.hasCells);
    this.grid.style.gridTemplateColumns = this.hasCells ? `repeat(${columns}, minmax(0, 1fr))` : '';
    if (!this.hasCells) {
      this.grid.replaceChildren(...spec.affordances.map((place) => this.placeButton(place)));
    } else {
      const cells = [];
      for (let y = 0; y < rows; y += 1) {
        for (let x = 0; x < columns; x += 1) {
          const cell = el('div', { class: (x + y) % 2 ? 'map-cell other' : 'map-cell', 'data-cell': this.cell(x, y).join() });
          const place = spec.affordances.find((one) => one.cell?.join() === cell.dataset.cell);
          if (place) cell.append(this.placeButton(place));
          cells.push(cell);
        }
      }
      this.grid.replaceChildren(...cells);
    }
    if (held) /** @type {HTMLElement | null} */ (this.grid.querySelector(`[data-place="${CSS.escape(held)}"]`))?.focus();
  }

  /** Coordinates of a cell of this floor, as many as the map has axes. @param {number} x @param {number} y */
  cell(x, y) {
    return [x, y, this.floor].slice(0, this.spec?.map.size.length ?? 2);
  }

  /** The first cell without a place, near the middle. @returns {number[] | null} */
  freeCell() {
    const { spec } = this;
    if (!spec || !this.hasCells) return null;
    const taken = new Set(spec.affordances.map((place) => place.cell?.join()));
    const [columns, rows] = [spec.map.size[0], spec.map.size[1] ?? 1];
    const all = Array.from({ length: columns * rows }, (_, k) => [k % columns, Math.floor(k / columns)]);
    all.sort((a, b) => Math.hypot(a[0] - columns / 2, a[1] - rows / 2) - Math.hypot(b[0] - columns / 2, b[1] - rows / 2));
    const free = all.find(([x, y]) => !taken.has(this.cell(x, y).join()));
    return free ? this.cell(free[0], free[1]) : null;
  }

  /** @param {PlaceSpec} place */
  placeButton(place) {
    const badge = el('span', { class: 'badge' }, affordanceIcon(place, 24));
    badge.style.background = affordanceColor(place);
    const label = humanize(place.name), name = el('span', { class: 'map-name', text: label });
    name.style.setProperty('--longest', String(Math.max(...label.split(' ').map((word) => word.length))));
    const button = el('button', {
      type: 'button', class: 'map-place', 'data-place': place.name, 'aria-pressed': String(place.name === this.selected),
      title: `${label}: drag to move, Delete to remove`,
    }, badge, name);
    button.addEventListener('click', () => this.actions.select(place.name));
    button.addEventListener('keydown', (event) => this.onKey(event, place));
    this.makeDraggable(button, (cell) => this.move(place, cell));
    return button;
  }

  /** @param {KeyboardEvent} event @param {PlaceSpec} place */
  onKey(event, place) {
    if (event.key === 'Delete' || event.key === 'Backspace') {
      event.preventDefault();
      this.actions.remove(place.name);
      return;
    }
    const by = ARROWS[event.key];
    if (!by || !place.cell || !this.spec) return;
    event.preventDefault();
    event.stopPropagation();
    // Skip taken cells.
    const taken = new Set(this.spec.affordances.map((one) => one.cell?.join()));
    for (let k = 1; ; k += 1) {
      const [x, y] = [place.cell[0] + k * by[0], (place.cell[1] ?? 0) + k * by[1]];
      if (x < 0 || y < 0 || x >= this.spec.map.size[0] || y >= (this.spec.map.size[1] ?? 1)) return;
      if (taken.has(this.cell(x, y).join())) continue;
      this.move(place, this.cell(x, y));
      return;
    }
  }

  /** Draw a place in another cell at once, and change the world. @param {PlaceSpec} place @param {number[]} cell */
  move(place, cell) {
    place.cell = cell;
    this.draw();
    this.actions.move(place.name, cell);
  }

  /** Let an element be dragged onto a free cell. @param {HTMLElement} element @param {(cell: number[]) => void} drop */
  makeDraggable(element, drop) {
    element.style.touchAction = 'none';
    element.addEventListener('pointerdown', (down) => {
      if (down.button !== 0 || !this.hasCells) return;
      let dragging = false;
      /** @param {PointerEvent} move */
      const onMove = (move) => {
        const [x, y] = [move.clientX - down.clientX, move.clientY - down.clientY];
        if (!dragging && Math.hypot(x, y) < DRAG_START) return;
        if (!dragging) {
          this.dragging = dragging = true;
          element.classList.add('dragged');
        }
        element.style.translate = `${x}px ${y}px`;
        this.markTarget(this.cellAt(move, element));
      };
      const stop = () => {
        removeEventListener('pointermove', onMove);
        removeEventListener('pointerup', onUp);
        removeEventListener('pointercancel', stop);
        this.dragging = false;
        element.classList.remove('dragged');
        element.style.translate = '';
        this.markTarget(null);
      };
      /** @param {PointerEvent} up */
      const onUp = (up) => {
        const cell = dragging ? this.cellAt(up, element) : null;
        stop();
        if (dragging) {
          suppressClick(element);
          this.draw();
        }
        if (cell?.dataset.cell && !cell.firstElementChild) drop(cell.dataset.cell.split(',').map(Number));
      };
      addEventListener('pointermove', onMove);
      addEventListener('pointerup', onUp);
      addEventListener('pointercancel', stop);
    });
  }

  /** The cell under a pointer. @param {PointerEvent} event @param {HTMLElement} dragged @returns {HTMLElement | null} */
  cellAt(event, dragged) {
    dragged.style.pointerEvents = 'none';
    const found = document.elementFromPoint(event.clientX, event.clientY);
    dragged.style.pointerEvents = '';
    return /** @type {HTMLElement | null} */ (found?.closest('.map-cell') ?? null);
  }

  /** @param {HTMLElement | null} cell */
  markTarget(cell) {
    for (const one of this.grid.querySelectorAll('.target')) one.classList.remove('target');
    if (cell && !cell.firstElementChild) cell.classList.add('target');
  }
}

/** A drag that ends on the dragged element is no click. @param {HTMLElement} element */
function suppressClick(element) {
  const stop = (/** @type {Event} */ event) => event.stopImmediatePropagation();
  element.addEventListener('click', stop, { capture: true, once: true });
  setTimeout(() => element.removeEventListener('click', stop, { capture: true }), 0);
}
