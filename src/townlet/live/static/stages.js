/** The curriculum: how many rows are in each stage, and why each of them is where it is. */

import { make } from './dom.js';
import { compact, many } from './format.js';

/** @typedef {import('./state.js').Store} Store */

/** How many rows are in each stage, from stage 1; of rows on the wall, or of those whose changes are known. @param {Store} store */
function inStages(store) {
  const { wall, stages } = store.known;
  const rows = wall?.stage ?? [...stages.values()].map((change) => change.to_stage);
  const counts = Array.from({ length: Math.max(0, ...rows, ...[...stages.values()].map((change) => change.from_stage)) }, () => 0);
  for (const stage of rows) counts[stage - 1] += 1;
  return counts;
}

/** @param {Store} store */
export function makeStages(store) {
  const bar = make('div', { class: 'stage-bar', role: 'img' });
  const summary = make('summary');
  const reasons = make('ul', { class: 'stage-reasons', tabindex: 0, 'aria-label': 'Last change of stage of each row' });
  const details = make('details', {}, summary, reasons);
  const box = make('div', { class: 'stage-log', hidden: true }, make('h3', { text: 'Stages of the curriculum' }), bar, details);
  let drawn = '';

  const count = () => {
    const counts = inStages(store);
    box.hidden = !counts.length;
    const key = counts.join();
    if (key === drawn) return; // the wall comes several times in a second
    drawn = key;
    bar.replaceChildren(...counts.map((rows, k) => {
      const part = make('span', { 'data-rows': rows, title: `Stage ${k + 1}: ${many(rows, 'row')}` }, make('b', { text: String(k + 1) }), make('small', { text: rows ? many(rows, 'row') : '' }));
      part.style.flexGrow = String(rows);
      return part;
    }));
    bar.setAttribute('aria-label', counts.map((rows, k) => `stage ${k + 1}: ${many(rows, 'row')}`).join(', '));
  };
  const explain = () => {
    const changes = [...store.known.stages.values()].sort((a, b) => b.env_steps - a.env_steps || a.row - b.row);
    details.hidden = !changes.length;
    const [last] = changes;
    if (last) summary.textContent = `Row ${last.row} went ${last.reason.split(':')[0]} last. Why`;
    reasons.replaceChildren(...changes.map((change) => make('li', {},
      make('b', { text: `Row ${change.row}` }), make('span', { text: change.reason }), make('small', { text: `after ${compact(change.env_steps)} steps` }))));
  };
  store.on(['wall', 'stages', 'run'], count);
  store.on(['stages', 'run'], explain);
  return box;
}
