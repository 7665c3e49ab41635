/** What can be laid over the town: visits and ways of the shown life, visits and novelty of all of training. */

import { make } from './dom.js';
import { announce } from './notices.js';
import { waysOf } from './ways.js';

/**
 * @typedef {'none' | 'visits' | 'ways' | 'trained' | 'novelty'} Overlay
 * @typedef {import('./state.js').Known} Known
 * @typedef {{heat: Map<number, number> | null, colour: string, ways: Map<string, number> | null}} Layers heat: 0 … 1
 */

const WORDS = {
  none: 'Nothing on the town', visits: 'Visits in this life', ways: 'Ways between places in this life',
  trained: 'Visits in all of training', novelty: 'How new each tile still is to the agent',
};
const ENDS = { none: ['', ''], visits: ['once', 'often'], ways: ['once', 'often'], trained: ['seldom', 'often'], novelty: ['well known', 'new'] };
const COLOUR = { none: '--heat', visits: '--heat', ways: '--third', trained: '--second', novelty: '--third' };

/** Those that there is something to show for. @param {Known} known @returns {Overlay[]} */
function offered({ world, maps }) {
  if (!world?.size.length) return ['none', 'ways'];
  // Maps of training belong to the run's world: on another map they would lie.
  const fits = maps?.visits.length === world.size.reduce((cells, side) => cells * side, 1);
  const trained = fits && maps.visits.some(Boolean);
  return ['none', 'visits', 'ways', ...(trained ? /** @type {Overlay[]} */ (['trained']) : []),
    ...(fits && maps.novelty ? /** @type {Overlay[]} */ (['novelty']) : [])];
}

/** The chosen one, if it is offered now. @param {Known} known @returns {Overlay} */
export const overlayOf = (known) => (offered(known).includes(known.overlay) ? known.overlay : 'none');

/** In words. @param {Known} known */
export const overlayInWords = (known) => WORDS[overlayOf(known)];

/** The next one, and after the last nothing. @param {import('./state.js').Store} store */
export function nextOverlay(store) {
  const all = offered(store.known);
  store.set({ overlay: all[(all.indexOf(overlayOf(store.known)) + 1) % all.length] });
  announce(overlayInWords(store.known));
}

/** What is drawn. @param {Known} known @param {import('./playback.js').Playback} playback @returns {Layers} */
export function layersOf(known, playback) {
  const overlay = overlayOf(known), { maps, world } = known;
  const layers = { heat: null, colour: COLOUR[overlay], ways: null };
  if (overlay === 'ways' && world) return { ...layers, ways: waysOf(playback, world) };
  if (overlay === 'visits') return { ...layers, heat: shares(playback.visits) };
  if (overlay === 'trained') return { ...layers, heat: shares(new Map(maps?.visits.map((times, cell) => [cell, times]))) };
  if (overlay === 'novelty') return { ...layers, heat: spread(maps?.novelty ?? []) };
  return layers;
}

/** Counts as shares of the highest; the root keeps seldom ones visible. @param {Map<number, number>} counts */
function shares(counts) {
  const most = Math.max(1, ...counts.values());
  return new Map([...counts].filter(([, times]) => times > 0).map(([cell, times]) => [cell, Math.sqrt(times / most)]));
}

/** Values between the lowest and the highest. @param {(number | null)[]} values */
function spread(values) {
  const known = values.filter((value) => value !== null);
  const low = Math.min(...known), high = Math.max(...known);
  return new Map(values.flatMap((value, cell) => (value === null ? [] : [/** @type {[number, number]} */ ([cell, (value - low) / (high - low || 1)])])));
}

/** What the colours mean, under the town. @param {import('./state.js').Store} store @param {HTMLElement} note */
export function showOverlay(store, note) {
  store.on(['overlay', 'maps', 'world'], () => {
    const overlay = overlayOf(store.known);
    note.hidden = overlay === 'none';
    const swatch = make('i', { 'aria-hidden': 'true' });
    swatch.style.setProperty('--colour', `var(${COLOUR[overlay]})`);
    note.replaceChildren(make('strong', { text: WORDS[overlay] }), make('span', { text: ENDS[overlay][0] }), swatch, make('span', { text: ENDS[overlay][1] }));
  });
}
