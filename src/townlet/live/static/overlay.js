/** Overlays on the town: visits and transitions of the episode, visits and novelty over all of training. */

import { el } from './dom.js';
import { formatPercent } from './format.js';
import { announce } from './notifications.js';
import { episodeTransitions } from './transitions.js';

/**
 * @typedef {'none' | 'visits' | 'transitions' | 'training' | 'novelty'} Overlay
 * @typedef {import('./state.js').AppState} AppState
 * @typedef {{heat: Map<number, number> | null, color: string, transitions: Map<string, number> | null}} Layers heat: 0 … 1
 */

const LABELS = {
  none: 'none', visits: 'Visits in this episode', transitions: 'Transitions in this episode',
  training: 'Visits over all of training', novelty: 'Novelty of each cell to the agent',
};
const SCALE_ENDS = { none: ['', ''], visits: ['once', 'often'], transitions: ['once', 'often'], training: ['rarely', 'often'], novelty: ['familiar', 'novel'] };
const COLORS = { none: '--heat', visits: '--heat', transitions: '--third', training: '--second', novelty: '--third' };

/** Overlays with data. @param {AppState} state @returns {Overlay[]} */
function availableOverlays({ world, maps }) {
  if (!world?.size.length) return ['none', 'transitions'];
  // Maps of training fit only the run's own world.
  const fits = maps?.visits.length === world.size.reduce((cells, side) => cells * side, 1);
  const training = fits && maps.visits.some(Boolean);
  return ['none', 'visits', 'transitions', ...(training ? /** @type {Overlay[]} */ (['training']) : []),
    ...(fits && maps.novelty ? /** @type {Overlay[]} */ (['novelty']) : [])];
}

/** The chosen overlay, if it is available. @param {AppState} state @returns {Overlay} */
export const activeOverlay = (state) => (availableOverlays(state).includes(state.overlay) ? state.overlay : 'none');

/** Label of the active overlay. @param {AppState} state */
export function overlayLabel(state) {
  const overlay = activeOverlay(state), counted = state.maps?.counted ?? 1;
  return overlay === 'training' && counted < 1 ? `Visits in ${formatPercent(counted)} of the steps of training` : LABELS[overlay];
}

/** Switch to the next overlay. @param {import('./state.js').Store} store */
export function nextOverlay(store) {
  const all = availableOverlays(store.state);
  store.set({ overlay: all[(all.indexOf(activeOverlay(store.state)) + 1) % all.length] });
  announce(overlayLabel(store.state));
}

/** The layers to draw. @param {AppState} state @param {import('./playback.js').Playback} playback @returns {Layers} */
export function overlayLayers(state, playback) {
  const overlay = activeOverlay(state), { maps, world } = state;
  const layers = { heat: null, color: COLORS[overlay], transitions: null };
  if (overlay === 'transitions' && world) return { ...layers, transitions: episodeTransitions(playback, world) };
  if (overlay === 'visits') return { ...layers, heat: normalizeCounts(playback.visits) };
  if (overlay === 'training') return { ...layers, heat: normalizeCounts(new Map(maps?.visits.map((times, cell) => [cell, times]))) };
  if (overlay === 'novelty') return { ...layers, heat: normalizeValues(maps?.novelty ?? []) };
  return layers;
}

/** Counts relative to the highest; the square root keeps rare ones visible. @param {Map<number, number>} counts */
function normalizeCounts(counts) {
  const most = Math.max(1, ...counts.values());
  return new Map([...counts].filter(([, times]) => times > 0).map(([cell, times]) => [cell, Math.sqrt(times / most)]));
}

/** Values scaled to 0 … 1. @param {(number | null)[]} values */
function normalizeValues(values) {
  const finite = values.filter((value) => value !== null);
  const low = Math.min(...finite), high = Math.max(...finite);
  return new Map(values.flatMap((value, cell) => (value === null ? [] : [/** @type {[number, number]} */ ([cell, (value - low) / (high - low || 1)])])));
}

/** Legend below the town. @param {import('./state.js').Store} store @param {HTMLElement} note */
export function initOverlayNote(store, note) {
  store.on(['overlay', 'maps', 'world'], () => {
    const overlay = activeOverlay(store.state);
    note.hidden = overlay === 'none';
    const swatch = el('i', { 'aria-hidden': 'true' });
    swatch.style.setProperty('--color', `var(${COLORS[overlay]})`);
    note.replaceChildren(el('strong', { text: overlayLabel(store.state) }), el('span', { text: SCALE_ENDS[overlay][0] }), swatch, el('span', { text: SCALE_ENDS[overlay][1] }));
  });
}
