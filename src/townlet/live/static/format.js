/** Formatting of numbers and names, and labels by kind of run. */

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

/** 12,345 @param {number} value */
export const formatCount = (value) => whole.format(value);

/** 1.2M @param {number} value */
export const formatCompact = (value) => short.format(value);

/** 43% @param {number} fraction */
export const formatPercent = (fraction) => `${Math.round(fraction * 100)}%`;

/** $42.50 @param {number} dollars */
export const formatMoney = (dollars) => `$${dollars.toFixed(dollars >= 100 || Number.isInteger(dollars) ? 0 : 2)}`;

/** 1.2 × 10⁻⁶ @param {number} value */
function formatTiny(value) {
  const [factor, power] = value.toExponential(1).split('e-');
  return `${Number(factor)} × 10⁻${[...power].map((digit) => '⁰¹²³⁴⁵⁶⁷⁸⁹'[Number(digit)]).join('')}`;
}

/** A number with the given significant digits, small ones with two. @param {number} value @param {number} digits */
export function formatNumber(value, digits = 3) {
  if (!Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size >= 1e5) return formatCompact(value);
  if (size >= 100) return value.toFixed(0).replace('-', '−');
  if (size !== 0 && size < 1e-5) return formatTiny(value).replace('-', '−');
  return Number(value.toPrecision(size < 1e-3 ? 2 : digits)).toString().replace('-', '−');
}

/** +0.12 or −0.30 @param {number} value @param {number} digits */
export function formatSigned(value, digits = 2) {
  const size = Math.abs(value).toFixed(Math.abs(value) >= 10 ? 1 : digits);
  return Number(size) === 0 ? size : (value < 0 ? '−' : '+') + size;
}

/** 07:00 @param {number} hour */
export const formatHour = (hour) => `${String(hour).padStart(2, '0')}:00`;

/** "LuxuryBed" as "Luxury bed". @param {string} name */
export function humanize(name) {
  const words = name.replace(/[_-]+/g, ' ').replace(/([a-z0-9])([A-Z])/g, '$1 $2').split(' ');
  return words.map((word, k) => (k && /^[A-Z][a-z]/.test(word) ? word.toLowerCase() : word)).join(' ');
}

/** Initials for affordances without an icon. @param {string} name */
export function initials(name) {
  const words = humanize(name).split(' ').filter(Boolean);
  if (words.length > 1) return (words[0][0] + words[1][0]).toUpperCase();
  return name.slice(0, 2);
}

/** Label of an action. @param {string} action */
export function actionLabel(action) {
  if (action === 'INTERACT') return 'use';
  if (action.startsWith('INTERACT ')) return `use ${humanize(action.slice(9)).toLowerCase()}`;
  return action.toLowerCase();
}

/** 1 step, 2 steps. @param {number} number @param {string} noun */
export const plural = (number, noun) => `${formatCount(number)} ${noun}${number === 1 ? '' : 's'}`;

/** Names as a list in prose: “A, B, and C”. @param {string[]} names */
export const listOf = (names) => new Intl.ListFormat('en').format(names);

/**
 * The lesson of a run; or else the name of a published run, which people gave it, and the recipe of others.
 * @param {import('./types.js').RunSummary} summary
 */
export function runTitle(summary) {
  return summary.lesson ?? ((summary.state !== 'published' && summary.recipe) || summary.name);
}

/** Label of a run's state. @param {import('./types.js').RunState} state */
export const stateLabel = (state) => (state === 'running' ? 'training' : state);

/** @type {Record<import('./types.js').RunState, string>} */
const STATE_SENTENCES = {
  running: 'The run is training.',
  finished: 'The run is finished.',
  stopped: 'The run was stopped by its program.',
  interrupted: 'The run was interrupted.',
  diverged: 'The run has diverged.',
  published: 'The run was published.',
  damaged: 'The run is damaged.',
};

/** A run's state as a sentence. @param {import('./types.js').RunState} state */
export const stateSentence = (state) => STATE_SENTENCES[state];

/** Label of a cause of an episode's end. @param {string} cause */
export const causeLabel = (cause) => (cause === 'time' ? 'reached the limit' : `no ${humanize(cause)}`);

/** Color category of a cause: time, index of the lethal meter, or other. @param {string} cause @param {import('./types.js').World | undefined} world */
export function causeCategory(cause, world) {
  if (cause === 'time') return cause;
  const place = world?.meters.filter((meter) => meter.lethal).findIndex((meter) => meter.name === cause) ?? -1;
  return place >= 0 && place < 3 ? String(place) : 'other';
}

/**
 * @typedef {object} RunLabels
 * @property {string} curve title of the main curve
 * @property {string} series metric of that curve in training
 * @property {'length' | 'return'} evaluation column of that curve in evaluations
 * @property {(cause: string) => string} endedBy label of a cause
 */

/** @type {Record<'town' | 'gym', RunLabels>} */
const LABELS = {
  town: { curve: 'Episode length (steps)', series: 'episode_length', evaluation: 'length', endedBy: causeLabel },
  gym: {
    curve: 'Episode return', series: 'episode_return', evaluation: 'return',
    endedBy: (cause) => (cause === 'time' ? 'reached the limit' : 'terminated'),
  },
};

/** Kind of the watched run. @param {import('./state.js').AppState} state */
export const runKind = (state) => state.about?.kind ?? 'town';

/** @param {import('./state.js').AppState} state */
export const labelsFor = (state) => LABELS[runKind(state)];

/** A text as a sentence: it begins with a capital and ends with a period. @param {string} text */
export const sentence = (text) => text.charAt(0).toUpperCase() + text.slice(1) + (/[.!?:]$/.test(text) ? '' : '.');
