/** The palette of the world editor: places that are added by a click, or by dragging them onto the map. */

import { el } from './dom.js';
import { humanize } from './format.js';
import { affordanceColor, affordanceIcon } from './icons.js';

/** @typedef {Partial<import('./types.js').PlaceSpec>} Entry */

/** @type {Entry} */
const OWN = { name: '', icon: '⭐', ticks: 1, each_tick: {}, at_end: {} };

/** A button for each place. @param {Entry[]} entries @param {import('./world-map.js').WorldMap} map @param {(entry: Entry, cell: number[] | null) => void} add */
export function paletteButtons(entries, map, add) {
  return [OWN, ...entries].map((entry) => {
    const label = entry.name ? humanize(entry.name) : 'A place of your own';
    const badge = el('span', { class: 'badge' }, affordanceIcon({ name: entry.name ?? '', icon: entry.icon ?? '' }, 18));
    badge.style.background = affordanceColor({ name: '', icon: entry.icon ?? '' });
    const button = el('button', { type: 'button', class: 'palette-place', title: `${label}: click, or drag it onto the map` }, badge, el('span', { text: label }));
    button.addEventListener('click', () => add(entry, map.freeCell()));
    map.makeDraggable(button, (cell) => add(entry, cell));
    return button;
  });
}

/** A place without settings that have their default value. @param {Entry} entry */
export function dropEmpty(entry) {
  return Object.fromEntries(Object.entries(entry).filter(([, value]) => value !== null && JSON.stringify(value) !== '{}'));
}
