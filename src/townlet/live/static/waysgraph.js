/** Which place agents used after which, over all of training: a graph, and the same as a table. */

import { byId, make, svg } from './dom.js';
import { compact, count, percent, spaced } from './format.js';
import { colourOf, placeSign } from './icons.js';

/**
 * @typedef {{from: string, to: string, times: number, share: number}} Way share: of all ways that begin there
 * @typedef {{name: string, uses: number, x: number, y: number, r: number, side: number}} Spot side: of its name, −1 … 1
 */

const DRAWN = 22; // ways in the picture, and some more; the table has all that matter
const LISTED = 40;
const LETTER = 7; // pixels of a letter beside a place, at most

/** All ways, most used first. @param {[string, string, number][]} transitions @returns {Way[]} */
function waysIn(transitions) {
  /** @type {Map<string, number>} */
  const left = new Map();
  for (const [from, , times] of transitions) left.set(from, (left.get(from) ?? 0) + times);
  return transitions.map(([from, to, times]) => ({ from, to, times, share: times / (left.get(from) || 1) })).sort((a, b) => b.times - a.times);
}

/** Places in a ring so that those with much between them are neighbours. @param {Way[]} ways */
function inOrder(ways) {
  const names = new Set(ways.flatMap((way) => [way.from, way.to]));
  /** @type {string[]} */
  const order = [];
  /** @param {string} a @param {string} b */
  const between = (a, b) => ways.filter((way) => (way.from === a && way.to === b) || (way.from === b && way.to === a)).reduce((sum, way) => sum + way.times, 0);
  let here = ways[0]?.from;
  while (here) {
    order.push(here);
    names.delete(here);
    const last = here;
    here = [...names].sort((a, b) => between(last, b) - between(last, a))[0];
  }
  return order;
}

/** @param {Way[]} ways @param {number} width @param {number} height @returns {Map<string, Spot>} */
function placed(ways, width, height) {
  const order = inOrder(ways);
  const uses = order.map((name) => ways.filter((way) => way.to === name).reduce((sum, way) => sum + way.times, 0));
  const most = Math.max(1, ...uses);
  const radii = uses.map((times) => 10 + 10 * Math.sqrt(times / most));
  const round = radii.reduce((sum, r) => sum + r, 0); // large ones need more of the ring
  const longest = Math.max(...order.map((name) => name.length));
  const wide = Math.max(60, width / 2 - 30 - longest * LETTER), high = Math.max(60, height / 2 - 40);
  let before = -radii[0] / 2;
  return new Map(order.map((name, k) => {
    const angle = ((before + radii[k] / 2) / round) * 2 * Math.PI - Math.PI / 2;
    before += radii[k];
    return [name, { name, uses: uses[k], side: Math.cos(angle), x: width / 2 + wide * Math.cos(angle), y: height / 2 + high * Math.sin(angle), r: radii[k] }];
  }));
}

/** The most used ways, and the most used one from each place, so that none stands alone. @param {Way[]} walked */
function worthDrawing(walked) {
  const first = new Map([...walked].reverse().map((way) => [way.from, way]));
  return walked.filter((way, k) => k < DRAWN || first.get(way.from) === way);
}

/**
 * @param {Way} way @param {Spot} a @param {Spot} b
 * @param {number} most @param {{x: number, y: number}} centre
 */
function arrow(way, a, b, most, centre) {
  const weight = way.times / most, wide = 1 + 7 * weight;
  // All bend inwards, away from names, and there further than back, so that the two can be told apart.
  const half = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  const inwards = (half.x - centre.x) * (b.y - a.y) - (half.y - centre.y) * (b.x - a.x) > 0 ? 1 : -1;
  const bend = inwards > 0 ? 0.14 : -0.34;
  const mid = { x: half.x - (b.y - a.y) * bend, y: half.y + (b.x - a.x) * bend };
  const angle = Math.atan2(b.y - mid.y, b.x - mid.x), head = 5 + wide;
  // The line ends where the head begins, and the head at the rim of the place.
  const tip = { x: b.x - Math.cos(angle) * (b.r + 2), y: b.y - Math.sin(angle) * (b.r + 2) };
  const end = { x: tip.x - Math.cos(angle) * head, y: tip.y - Math.sin(angle) * head };
  const wing = [-1, 1].map((side) => `${end.x + Math.sin(angle) * side * head * 0.6},${end.y - Math.cos(angle) * side * head * 0.6}`);
  const title = svg('title');
  title.textContent = `${spaced(way.from)} → ${spaced(way.to)}: ${count(way.times)} times, ${percent(way.share)} of what followed ${spaced(way.from)}`;
  return svg('g', { class: 'way', 'data-from': way.from, 'data-to': way.to, opacity: (0.3 + 0.6 * Math.sqrt(weight)).toFixed(2) }, title,
    svg('path', { d: `M${a.x},${a.y}Q${mid.x},${mid.y} ${end.x},${end.y}`, 'stroke-width': wide.toFixed(1) }),
    svg('polygon', { points: `${tip.x},${tip.y} ${wing.join(' ')}` }));
}

/** @param {Spot} spot */
function node(spot) {
  const { x, y, r, side, name } = spot;
  const title = svg('title');
  title.textContent = `${spaced(name)}: used ${count(spot.uses)} times after another place`;
  const sign = placeSign(name, r * 1.25);
  sign.setAttribute('x', String(x - r * 0.625));
  sign.setAttribute('y', String(y - r * 0.625));
  const beside = Math.abs(side) > 0.2;
  const words = svg('text', {
    x: beside ? x + Math.sign(side) * (r + 6) : x, y: beside ? y + 4 : y + (y < r * 3 ? -r - 7 : r + 15),
    'text-anchor': beside ? (side > 0 ? 'start' : 'end') : 'middle',
  });
  words.textContent = spaced(name);
  return svg('g', { class: 'spot', 'data-name': name }, title, svg('circle', { cx: x, cy: y, r, fill: colourOf(name) }), sign, words);
}

/** @param {Way[]} ways @param {number} width */
function picture(ways, width) {
  const height = Math.round(Math.min(430, Math.max(270, width * 0.56)));
  const walked = ways.filter((way) => way.from !== way.to);
  const spots = placed(walked, width, height);
  const most = Math.max(1, walked[0]?.times ?? 1);
  /** @param {string} name */
  const at = (name) => /** @type {Spot} */ (spots.get(name));
  const lines = worthDrawing(walked).reverse().map((way) => arrow(way, at(way.from), at(way.to), most, { x: width / 2, y: height / 2 }));
  const told = walked.slice(0, 5).map((way) => `${spaced(way.from)} to ${spaced(way.to)}, ${percent(way.share)}`).join('; ');
  return svg('svg', { class: 'ways-graph', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': `Ways between places. Most used: ${told}. All are in the table below.` },
    ...lines, ...[...spots.values()].map(node));
}

/** @param {Way[]} ways */
function table(ways) {
  const head = make('tr', {}, ...['From', 'To', 'Times', 'Of what followed'].map((text) => make('th', { scope: 'col', text })));
  return make('table', {}, make('thead', {}, head), make('tbody', {}, ...ways.slice(0, LISTED).map((way) => make('tr', {},
    make('td', { text: spaced(way.from) }), make('td', { text: way.from === way.to ? 'the same again' : spaced(way.to) }),
    make('td', { text: compact(way.times) }), make('td', { text: percent(way.share) })))));
}

/** @param {import('./state.js').Store} store */
export function showWays(store) {
  const body = byId('ways-body');
  const drawing = make('div', { class: 'ways-picture' });
  const none = make('p', { class: 'quiet', text: 'No two places were used one after the other yet.' });
  const listed = make('div', { class: 'ways-table', tabindex: 0, role: 'region', 'aria-label': 'Ways between places as a table' });
  const details = make('details', {}, make('summary', { text: 'As a table' }), listed);
  body.replaceChildren(none, drawing, details);
  let drawn = '';
  const draw = () => {
    byId('ways').hidden = (store.known.about?.world?.affordances.length ?? 0) < 2;
    const ways = waysIn(store.known.maps?.transitions ?? []);
    const width = body.clientWidth;
    const key = `${store.known.run} ${width} ${JSON.stringify(ways.map((way) => way.times))}`;
    if (key === drawn || width < 40) return;
    drawn = key;
    const some = ways.some((way) => way.from !== way.to);
    none.hidden = some;
    drawing.hidden = details.hidden = !some;
    drawing.replaceChildren(...(some ? [picture(ways, width)] : []));
    listed.replaceChildren(table(ways));
  };
  drawing.addEventListener('pointerover', (event) => highlight(drawing, /** @type {Element} */ (event.target)));
  drawing.addEventListener('pointerleave', () => highlight(drawing, null));
  store.on(['maps', 'about', 'view'], draw);
  new ResizeObserver(draw).observe(body);
}

/** Only the ways of the place under the pointer. @param {HTMLElement} drawing @param {Element | null} target */
function highlight(drawing, target) {
  const name = target?.closest('.spot')?.getAttribute('data-name');
  for (const way of drawing.querySelectorAll('.way')) {
    way.classList.toggle('dim', Boolean(name) && way.getAttribute('data-from') !== name && way.getAttribute('data-to') !== name);
  }
}
