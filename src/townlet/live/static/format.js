/** Numbers and names as people read them. */

const whole = new Intl.NumberFormat('en', { maximumFractionDigits: 0 });
const short = new Intl.NumberFormat('en', { notation: 'compact', maximumFractionDigits: 1 });

/** 12,345 @param {number} value */
export const count = (value) => whole.format(value);

/** 1.2M @param {number} value */
export const compact = (value) => short.format(value);

/** 43 % @param {number} share */
export const percent = (share) => `${Math.round(share * 100)}%`;

/** $42.50 @param {number} dollars */
export const money = (dollars) => `$${dollars.toFixed(dollars >= 100 || Number.isInteger(dollars) ? 0 : 2)}`;

/** A figure with as many digits as it needs. @param {number} value @param {number} digits */
export function figure(value, digits = 3) {
  if (!Number.isFinite(value)) return '–';
  const size = Math.abs(value);
  if (size >= 1e5) return compact(value);
  if (size >= 100) return value.toFixed(0).replace('-', '−');
  if (size !== 0 && size < 1e-3) return value.toExponential(1).replace(/-/g, '−');
  return Number(value.toPrecision(digits)).toString().replace('-', '−');
}

/** +0.12 or −0.30 @param {number} value @param {number} digits */
export function signed(value, digits = 2) {
  const size = Math.abs(value).toFixed(Math.abs(value) >= 10 ? 1 : digits);
  return Number(size) === 0 ? size : (value < 0 ? '−' : '+') + size;
}

/** 07:00, whatever the length of a day. @param {number} hour */
export const clock = (hour) => `${String(hour).padStart(2, '0')}:00`;

/** "LuxuryBed" as "Luxury bed". @param {string} name */
export function spaced(name) {
  const words = name.replace(/[_-]+/g, ' ').replace(/([a-z0-9])([A-Z])/g, '$1 $2').split(' ');
  return words.map((word, k) => (k && /^[A-Z][a-z]/.test(word) ? word.toLowerCase() : word)).join(' ');
}

/** "Luxury bed" as "Lu", for places nobody drew. @param {string} name */
export function monogram(name) {
  const words = spaced(name).split(' ').filter(Boolean);
  if (words.length > 1) return (words[0][0] + words[1][0]).toUpperCase();
  return name.slice(0, 2);
}

/** An action as a person says it. @param {string} action */
export function spoken(action) {
  if (action === 'INTERACT') return 'use';
  if (action.startsWith('INTERACT ')) return `use ${spaced(action.slice(9)).toLowerCase()}`;
  return action.toLowerCase();
}

/** 1 step, 2 steps. @param {number} number @param {string} noun */
export const many = (number, noun) => `${count(number)} ${noun}${number === 1 ? '' : 's'}`;

/** How a run stands, as a person says it. @param {import('./types.js').State} state */
export const stateInWords = (state) => (state === 'running' ? 'training' : state);

/** What ended a life. @param {string} cause */
export const endedBy = (cause) => (cause === 'time' ? 'lived to the limit' : `no ${spaced(cause)}`);

/** Which colour a cause has: time, the place of a deadly need among them, or other. @param {string} cause @param {import('./types.js').World | undefined} world */
export function causeKind(cause, world) {
  if (cause === 'time') return cause;
  const place = world?.meters.filter((meter) => meter.lethal).findIndex((meter) => meter.name === cause) ?? -1;
  return place >= 0 && place < 3 ? String(place) : 'other';
}
