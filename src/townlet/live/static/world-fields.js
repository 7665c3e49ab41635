/** The settings that the world editor offers, each with what it does. */

import { humanize } from './format.js';

/**
 * @typedef {object} Field
 * @property {string[]} path below the selected thing
 * @property {string} label
 * @property {string} help what it does, in a sentence
 * @property {'share' | 'money' | 'integer' | 'switch' | 'hours' | 'effects' | 'text' | 'icon' | 'name'} kind
 * @property {number} [min] @property {number} [max] @property {number} [step]
 */

/** @type {Field[]} */
export const PLACE_FIELDS = [
  { path: ['name'], label: 'Name', help: 'Other signs than letters, digits, spaces and dashes are left out. Places of the town that you extend keep their names.', kind: 'name' },
  { path: ['icon'], label: 'Icon', help: 'Shown on the map: a picture of the list, any emoji, or your own drawing.', kind: 'icon' },
  { path: ['price'], label: 'Price per step', help: 'What each step of using it costs. If it is too high, agents run out of money.', kind: 'money', min: 0, max: 0.3, step: 0.005 },
  { path: ['ticks'], label: 'Steps to use it', help: 'How many steps a complete use takes.', kind: 'integer', min: 1, max: 12, step: 1 },
  { path: ['hours'], label: 'Opening hours', help: 'When it can be used, in a town with time of day.', kind: 'hours' },
  { path: ['each_tick'], label: 'Effect of each step', help: 'How much each meter rises or falls with every step of using it.', kind: 'effects', min: -0.5, max: 0.5, step: 0.01 },
  { path: ['at_end'], label: 'Extra effect at the end', help: 'What a complete use adds with its last step: a reason to finish.', kind: 'effects', min: -0.5, max: 0.5, step: 0.01 },
];

/** @type {Field[]} */
export const METER_FIELDS = [
  { path: ['start'], label: 'At the start', help: 'How full it is when a life begins.', kind: 'share', min: 0, max: 1, step: 0.05 },
  { path: ['decay'], label: 'Loss per step', help: 'How fast it empties by itself. Twice as much makes life about twice as hard.', kind: 'share', min: 0, max: 0.05, step: 0.0005 },
  { path: ['move'], label: 'Extra loss by moving', help: 'What a step across the map costs in addition.', kind: 'share', min: 0, max: 0.05, step: 0.0005 },
  { path: ['wait'], label: 'Extra loss by waiting', help: 'What resting costs in addition; it has to be less than moving.', kind: 'share', min: 0, max: 0.05, step: 0.0005 },
];

/** @type {Field[]} */
export const WORLD_FIELDS = [
  { path: ['description'], label: 'Description', help: 'A sentence about this world. Without one, it is made from map and places.', kind: 'text' },
  { path: ['max_steps'], label: 'Step limit', help: 'An episode ends after this many steps, even if the agent is well.', kind: 'integer', min: 50, max: 3000, step: 50 },
  { path: ['clock', 'temporal'], label: 'Time of day', help: 'Places have opening hours, and using one takes several steps.', kind: 'switch' },
];

/** The place or meter, and the setting that a path names, such as "Cinema, opening hours"; '' if the editor has none. @param {string[]} path */
export function settingLabel([section, name, key]) {
  if (section !== 'affordances' && section !== 'meters') return WORLD_FIELDS.find((field) => field.path[0] === section)?.label ?? '';
  const field = (section === 'meters' ? METER_FIELDS : PLACE_FIELDS).find((one) => one.path[0] === key);
  return name ? [humanize(name), ...(field ? [field.label.toLowerCase()] : [])].join(', ') : '';
}

/** A valid name of a place: letters, digits, spaces and dashes; '' if the text has no letter. @param {string} text */
export const placeName = (text) => text.normalize('NFKD').replace(/[^\w -]/g, '').replace(/^[^A-Za-z]+/, '').trim().slice(0, 40);

/** Icons offered for places, each with the name of its picture. @type {[string, string][]} */
export const ICONS = [
  ['🏫', 'School'], ['📚', 'Library'], ['🏛', 'Museum'], ['🎬', 'Cinema'], ['🎵', 'Music'], ['🎨', 'Art'], ['🌳', 'Park'], ['🏊', 'Pool'],
  ['⚽', 'Football'], ['🚲', 'Bicycle'], ['🎯', 'Games'], ['🛒', 'Shop'], ['🍕', 'Pizzeria'], ['🍦', 'Ice cream'], ['☕', 'Café'], ['🏥', 'Hospital'],
];
