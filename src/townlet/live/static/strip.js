/** The lives of training as they end: what happens now, at a glance, and the way to the latest life of a row. */

import { make, write } from './dom.js';
import { causeKind, count, endedBy } from './format.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./types.js').Lived} Lived
 */

const BARS = 30;
const LEAST = 7; // per cent of the height that a bar has at least, so that the shortest life is seen

/** @param {Store} store @param {import('./session.js').Session} session */
export function makeStrip(store, session) {
  const title = make('h3');
  const bars = Array.from({ length: BARS }, () => make('i'));
  // Bars move on several times in a second: for who listens the picture is one, and nothing is announced.
  const strip = make('div', { class: 'strip', role: 'img' }, ...bars);
  const rows = make('div', { class: 'strip-rows', role: 'group', 'aria-label': 'The latest life of a row of training' });
  const box = make('div', { class: 'lived', hidden: true }, title, strip, rows);
  /** @type {Map<number, HTMLButtonElement>} */
  const buttons = new Map();

  /** @param {Event} event */
  const choose = (event) => {
    const row = /** @type {HTMLElement} */ (event.target).closest('[data-row]')?.getAttribute('data-row');
    if (row) session.row(Number(row));
  };
  strip.addEventListener('click', choose);
  rows.addEventListener('click', choose);

  const show = () => {
    const { lived, status, about, row } = store.known;
    box.hidden = !lived.length;
    if (!lived.length) return;
    write(title, status?.state === 'running' ? 'Lives in training, as they end' : 'The last lives of training');
    const most = about?.world?.max_steps ?? Math.max(...lived.map((one) => one.length));
    bars.forEach((bar, k) => draw(bar, lived[lived.length - BARS + k], most, about?.world));
    const reached = lived.filter((one) => one.cause === 'time').length;
    strip.setAttribute('aria-label', `The last lives in training: ${reached} of ${lived.length} reached the limit of ${count(most)} steps.`);
    const latest = new Map(lived.map((one) => [one.row, one]));
    for (const one of [...latest.values()].sort((a, b) => a.row - b.row)) {
      const button = buttons.get(one.row) ?? add(one.row);
      tell(button, one, row === one.row);
    }
    for (const [other, button] of buttons) if (!latest.has(other)) button.hidden = true;
  };

  /** @param {number} row */
  const add = (row) => {
    const button = make('button', { type: 'button', 'data-row': row }, make('b', { text: `Row ${row}` }), make('span'));
    buttons.set(row, button);
    rows.append(...[...buttons].sort(([a], [b]) => a - b).map(([, one]) => one));
    return button;
  };
  store.on(['lived', 'status', 'row'], show);
  return box;
}

/** @param {HTMLElement} bar @param {Lived | undefined} life @param {number} most @param {import('./types.js').World | undefined} world */
function draw(bar, life, most, world) {
  bar.hidden = !life;
  if (!life) return;
  bar.style.height = `${Math.min(100, LEAST + ((100 - LEAST) * life.length) / most)}%`;
  bar.dataset.cause = causeKind(life.cause, world);
  bar.dataset.row = String(life.row);
  bar.title = `Row ${life.row}: ${count(life.length)} steps, ${endedBy(life.cause)}`;
}

/** @param {HTMLButtonElement} button @param {Lived} life @param {boolean} chosen */
function tell(button, life, chosen) {
  button.hidden = false;
  button.setAttribute('aria-pressed', String(chosen));
  write(/** @type {Element} */ (button.lastElementChild), `${count(life.length)} · ${life.cause === 'time' ? 'the limit' : endedBy(life.cause)}`);
  button.title = `Watch the latest life of row ${life.row}`;
}
