/** Transitions between affordances: the panel for all of training, and the overlay for one episode. */

import { byId, el, setText, svg } from './dom.js';
import { formatCompact, formatCount, formatPercent, humanize } from './format.js';
import { cellCenter, floorOf, ringPosition } from './grid.js';
import { affordanceColor, affordanceIcon } from './icons.js';

/**
 * @typedef {{from: string, to: string, times: number, share: number}} Transition share of all transitions from there
 * @typedef {{name: string, uses: number, x: number, y: number, r: number, side: number, labelY: number}} GraphNode side of its label, −1 … 1
 * @typedef {import('./icons.js').IconSource[]} Affordances
 */

const MAX_ARROWS = 22; // the table lists more
const MAX_TABLE_ROWS = 40;
const CHAR_WIDTH = 7; // pixels
const LABEL_HEIGHT = 14; // pixels between labels of one side
const NARROW = 520; // pixels

/** Transitions, most frequent first. @param {[string, string, number][]} transitions @returns {Transition[]} */
function rankTransitions(transitions) {
  /** @type {Map<string, number>} */
  const left = new Map();
  for (const [from, , times] of transitions) left.set(from, (left.get(from) ?? 0) + times);
  return transitions.map(([from, to, times]) => ({ from, to, times, share: times / (left.get(from) || 1) })).sort((a, b) => b.times - a.times);
}

/** Order on the ring that puts frequently connected nodes next to each other. @param {Transition[]} transitions */
function ringOrder(transitions) {
  const names = new Set(transitions.flatMap((transition) => [transition.from, transition.to]));
  /** @type {string[]} */
  const order = [];
  /** @param {string} a @param {string} b */
  const between = (a, b) => transitions.filter((transition) => (transition.from === a && transition.to === b) || (transition.from === b && transition.to === a)).reduce((sum, transition) => sum + transition.times, 0);
  let here = transitions[0]?.from;
  while (here) {
    order.push(here);
    names.delete(here);
    const last = here;
    here = [...names].sort((a, b) => between(last, b) - between(last, a))[0];
  }
  return order;
}

/** @param {Transition[]} transitions @param {number} width @param {number} height @returns {Map<string, GraphNode>} */
function layoutNodes(transitions, width, height) {
  const order = ringOrder(transitions);
  const uses = order.map((name) => transitions.filter((transition) => transition.to === name).reduce((sum, transition) => sum + transition.times, 0));
  const most = Math.max(1, ...uses);
  const scale = width < NARROW ? 0.7 : 1;
  const radii = uses.map((times) => scale * (10 + 10 * Math.sqrt(times / most)));
  const round = radii.reduce((sum, r) => sum + r, 0); // larger nodes need more of the ring
  const longest = Math.max(...order.map((name) => name.length));
  const wide = Math.max(60, width / 2 - 30 - longest * CHAR_WIDTH), high = Math.max(60, height / 2 - 40);
  const angleAt = ellipseAngles(wide, high);
  let before = -radii[0] / 2;
  const nodes = order.map((name, k) => {
    const angle = angleAt((before + radii[k] / 2) / round);
    before += radii[k];
    return { name, uses: uses[k], side: Math.cos(angle), x: width / 2 + wide * Math.cos(angle), y: height / 2 + high * Math.sin(angle), r: radii[k], labelY: 0 };
  });
  for (const node of nodes) node.labelY = node.y + (isBeside(node) ? 4 : node.y < height / 2 ? -node.r - 7 : node.r + 15);
  for (const side of [-1, 1]) separateLabels(nodes.filter((node) => isBeside(node) && Math.sign(node.side) === side));
  return new Map(nodes.map((node) => [node.name, node]));
}

/** The angle at a share of an ellipse's length, from the top on. @param {number} wide @param {number} high @returns {(share: number) => number} */
function ellipseAngles(wide, high) {
  const parts = 360, lengths = [0];
  for (let k = 1; k <= parts; k += 1) {
    const angle = (2 * Math.PI * (k - 0.5)) / parts - Math.PI / 2;
    lengths.push(lengths[k - 1] + Math.hypot(wide * Math.sin(angle), high * Math.cos(angle)));
  }
  return (share) => {
    const at = lengths.findIndex((length) => length >= share * lengths[parts]);
    return (2 * Math.PI * at) / parts - Math.PI / 2;
  };
}

/** Whether the label is beside the node, not above or below it. @param {GraphNode} node */
const isBeside = (node) => Math.abs(node.side) > 0.2;

/** Move labels of one side apart. @param {GraphNode[]} nodes */
function separateLabels(nodes) {
  nodes.sort((a, b) => a.labelY - b.labelY);
  nodes.forEach((node, k) => { if (k) node.labelY = Math.max(node.labelY, nodes[k - 1].labelY + LABEL_HEIGHT); });
}

/** The most frequent transitions, and at least one from each node. @param {Transition[]} walked */
function visibleTransitions(walked) {
  const first = new Map([...walked].reverse().map((transition) => [transition.from, transition]));
  return walked.filter((transition, k) => k < MAX_ARROWS || first.get(transition.from) === transition);
}

/**
 * @param {Transition} transition @param {GraphNode} a @param {GraphNode} b
 * @param {number} most @param {{x: number, y: number}} center
 */
function drawArrow(transition, a, b, most, center) {
  const weight = transition.times / most, wide = 1.4 + 6.6 * weight;
  // Curves bend inwards, away from labels, by different amounts for the two directions.
  const half = { x: (a.x + b.x) / 2, y: (a.y + b.y) / 2 };
  const inwards = (half.x - center.x) * (b.y - a.y) - (half.y - center.y) * (b.x - a.x) > 0 ? 1 : -1;
  const bend = inwards > 0 ? 0.14 : -0.34;
  const mid = { x: half.x - (b.y - a.y) * bend, y: half.y + (b.x - a.x) * bend };
  const angle = Math.atan2(b.y - mid.y, b.x - mid.x), head = 5 + wide;
  // The line ends at the arrow head, and the head at the rim of the node.
  const tip = { x: b.x - Math.cos(angle) * (b.r + 2), y: b.y - Math.sin(angle) * (b.r + 2) };
  const end = { x: tip.x - Math.cos(angle) * head, y: tip.y - Math.sin(angle) * head };
  const wing = [-1, 1].map((side) => `${end.x + Math.sin(angle) * side * head * 0.6},${end.y - Math.cos(angle) * side * head * 0.6}`);
  const title = svg('title');
  title.textContent = `${humanize(transition.from)} → ${humanize(transition.to)}: ${formatCount(transition.times)} times, ${formatPercent(transition.share)} of all transitions from ${humanize(transition.from)}`;
  return svg('g', { class: 'transition', 'data-from': transition.from, 'data-to': transition.to, opacity: (0.6 + 0.4 * Math.sqrt(weight)).toFixed(2) }, title,
    svg('path', { d: `M${a.x},${a.y}Q${mid.x},${mid.y} ${end.x},${end.y}`, 'stroke-width': wide.toFixed(1) }),
    svg('polygon', { points: `${tip.x},${tip.y} ${wing.join(' ')}` }));
}

/** @param {GraphNode} spot @param {Affordances} affordances */
function drawNode(spot, affordances) {
  const { x, y, r, side, name, labelY } = spot;
  const title = svg('title');
  title.textContent = `${humanize(name)}: used ${formatCount(spot.uses)} times after another affordance`;
  const place = affordances.find((one) => one.name === name) ?? { name, icon: '' };
  const sign = affordanceIcon(place, r * 1.25);
  sign.setAttribute('x', String(x - r * 0.625));
  sign.setAttribute('y', String(y - r * 0.625));
  const beside = isBeside(spot);
  const label = svg('text', {
    x: beside ? x + Math.sign(side) * (r + 6) : x, y: labelY,
    'text-anchor': beside ? (side > 0 ? 'start' : 'end') : 'middle',
  });
  label.textContent = humanize(name);
  return svg('g', { class: 'node', 'data-name': name }, title, svg('circle', { cx: x, cy: y, r, fill: affordanceColor(place) }), sign, label);
}

/** @param {Transition[]} transitions @param {number} width @param {Affordances} affordances */
function drawGraph(transitions, width, affordances) {
  const height = width < NARROW ? 420 : Math.round(Math.min(430, Math.max(300, width * 0.56)));
  const walked = transitions.filter((transition) => transition.from !== transition.to);
  const spots = layoutNodes(walked, width, height);
  const most = Math.max(1, walked[0]?.times ?? 1);
  /** @param {string} name */
  const at = (name) => /** @type {GraphNode} */ (spots.get(name));
  const lines = visibleTransitions(walked).reverse().map((transition) => drawArrow(transition, at(transition.from), at(transition.to), most, { x: width / 2, y: height / 2 }));
  const summary = walked.slice(0, 5).map((transition) => `${humanize(transition.from)} to ${humanize(transition.to)}, ${formatPercent(transition.share)}`).join('; ');
  return svg('svg', { class: 'transitions-graph', viewBox: `0 0 ${width} ${height}`, width, height, role: 'img', 'aria-label': `From place to place. Most frequent: ${summary}. The table below lists the most frequent ones.` },
    ...lines, ...[...spots.values()].map((spot) => drawNode(spot, affordances)));
}

/** @param {Transition[]} transitions */
function makeTable(transitions) {
  const head = el('tr', {}, ...['From', 'To', 'Count', 'Share of transitions from there'].map((text) => el('th', { scope: 'col', text })));
  return el('table', {}, el('thead', {}, head), el('tbody', {}, ...transitions.slice(0, MAX_TABLE_ROWS).map((transition) => el('tr', {},
    el('td', { text: humanize(transition.from) }), el('td', { text: transition.from === transition.to ? 'the same' : humanize(transition.to) }),
    el('td', { text: formatCompact(transition.times) }), el('td', { text: formatPercent(transition.share) })))));
}

/** @param {import('./state.js').Store} store */
export function initTransitionsPanel(store) {
  const body = byId('transitions-body');
  const drawing = el('div', { class: 'transitions-picture' });
  const none = el('p', { class: 'muted', text: 'No transitions between affordances yet.' });
  const listed = el('div', { class: 'scroll-table', tabindex: 0, role: 'region', 'aria-label': 'From place to place, as a table' });
  const details = el('details', {}, el('summary', { text: 'Show as table' }), listed);
  const coverage = el('p', { class: 'muted' });
  body.replaceChildren(none, drawing, coverage, details);
  let drawn = '';
  const draw = () => {
    const affordances = store.state.about?.world?.affordances ?? [];
    byId('transitions').hidden = affordances.length < 2;
    const transitions = rankTransitions(store.state.maps?.transitions ?? []);
    const counted = store.state.maps?.counted ?? 1;
    coverage.hidden = counted >= 1;
    setText(coverage, `Counted in ${formatPercent(counted)} of the steps of training.`);
    const width = body.clientWidth;
    const key = `${store.state.run} ${width} ${JSON.stringify(transitions.map((transition) => transition.times))}`;
    if (key === drawn || width < 40) return;
    drawn = key;
    const some = transitions.some((transition) => transition.from !== transition.to);
    none.hidden = some;
    drawing.hidden = details.hidden = !some;
    drawing.replaceChildren(...(some ? [drawGraph(transitions, width, affordances)] : []));
    listed.replaceChildren(makeTable(transitions));
  };
  drawing.addEventListener('pointerover', (event) => highlight(drawing, /** @type {Element} */ (event.target)));
  drawing.addEventListener('pointerleave', () => highlight(drawing, null));
  store.on(['maps', 'about', 'view'], draw);
  new ResizeObserver(draw).observe(body);
}

/** Highlight the transitions of the node under the pointer. @param {HTMLElement} drawing @param {Element | null} target */
function highlight(drawing, target) {
  const name = target?.closest('.node')?.getAttribute('data-name');
  for (const transition of drawing.querySelectorAll('.transition')) {
    transition.classList.toggle('dim', Boolean(name) && transition.getAttribute('data-from') !== name && transition.getAttribute('data-to') !== name);
  }
}

/**
 * Transitions in the watched episode, counted by "from to".
 * @param {import('./playback.js').Playback} playback
 * @param {import('./types.js').World} world
 * @returns {Map<string, number>}
 */
export function episodeTransitions(playback, world) {
  const cells = playback.start?.cell_of ?? [];
  /** @type {Map<string, number>} */
  const transitions = new Map();
  let last = -1;
  for (const timestep of playback.all()) {
    const action = timestep.action === null ? '' : world.actions[timestep.action] ?? '';
    if (!action.startsWith('INTERACT')) continue;
    // The agent uses the affordance of its cell and stays there.
    const place = world.size.length ? cells.indexOf(timestep.cell) : timestep.action ?? -1;
    if (place >= 0 && last >= 0 && place !== last) transitions.set(`${last} ${place}`, (transitions.get(`${last} ${place}`) ?? 0) + 1);
    if (place >= 0) last = place;
  }
  return transitions;
}

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {import('./grid.js').Grid} g
 * @param {import('./town-scene.js').Scene} scene
 */
export function drawTransitions(ctx, g, scene) {
  const transitions = scene.transitions ?? new Map();
  const most = Math.max(1, ...transitions.values());
  ctx.save();
  ctx.strokeStyle = ctx.fillStyle = scene.style.getPropertyValue(scene.color);
  ctx.lineCap = 'round';
  for (const [transition, times] of transitions) {
    const [from, to] = transition.split(' ').map(Number);
    if (g.hasMap && (floorOf(g, scene.cells[from]) !== scene.floor || floorOf(g, scene.cells[to]) !== scene.floor)) continue;
    const a = g.hasMap ? cellCenter(g, scene.cells[from]) : ringPosition(g, from, scene.cells.length);
    const b = g.hasMap ? cellCenter(g, scene.cells[to]) : ringPosition(g, to, scene.cells.length);
    const bend = 0.18, far = Math.hypot(b.x - a.x, b.y - a.y) || 1;
    const mid = { x: (a.x + b.x) / 2 - (b.y - a.y) * bend, y: (a.y + b.y) / 2 + (b.x - a.x) * bend };
    // End the arc before the icon, so that the arrow head is visible.
    const stop = Math.min(0.45, (g.cell * 0.4) / far);
    const end = { x: b.x + (mid.x - b.x) * stop * 2, y: b.y + (mid.y - b.y) * stop * 2 };
    ctx.globalAlpha = 0.35 + 0.55 * (times / most);
    ctx.lineWidth = 1.5 + 4 * (times / most);
    ctx.beginPath();
    ctx.moveTo(a.x, a.y);
    ctx.quadraticCurveTo(mid.x, mid.y, end.x, end.y);
    ctx.stroke();
    const angle = Math.atan2(b.y - mid.y, b.x - mid.x), size = 5 + ctx.lineWidth;
    ctx.beginPath();
    ctx.moveTo(end.x + Math.cos(angle) * size, end.y + Math.sin(angle) * size);
    ctx.lineTo(end.x + Math.cos(angle + 2.4) * size, end.y + Math.sin(angle + 2.4) * size);
    ctx.lineTo(end.x + Math.cos(angle - 2.4) * size, end.y + Math.sin(angle - 2.4) * size);
    ctx.fill();
  }
  ctx.restore();
}
