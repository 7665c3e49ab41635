/** The "All agents" panel: every agent of the folder in the same towns, ordered by lifetime. */

import { ApiError, request } from './api.js';
import { byId, el, setText } from './dom.js';
import { formatCount, formatPercent, humanize } from './format.js';
import { toast } from './notifications.js';

/** @typedef {import('./types.js').Tournament} Tournament */

const POLL = 500; // milliseconds

/** @param {import('./state.js').Store} store */
export function initTournamentPanel(store) {
  const button = el('button', { type: 'button', class: 'operator-only', text: 'Let all agents play' });
  const note = el('p', { class: 'muted', text: 'All agents of this folder, a random agent and the planner play 50 episodes each in this town, with the same seeds and four times the step limit.' });
  const table = el('table', { class: 'tournament', hidden: true });
  byId('tournament-body').replaceChildren(note, button, table);
  let current = '';

  /** @param {Tournament} tournament */
  const show = (tournament) => {
    table.hidden = false;
    button.disabled = !tournament.over;
    setText(button, tournament.over ? 'Play again' : `${tournament.lines.length} agents have played …`);
    table.replaceChildren(
      el('thead', {}, el('tr', {}, el('th', { text: 'Agent' }), el('th', { class: 'number', text: 'Lifetime' }), el('th'),
        el('th', { class: 'number', text: 'Reaches the limit' }), el('th', { text: 'Dies of' }))),
      el('tbody', {}, ...tournament.lines.map((line) => row(line, tournament.limit, line.run !== null && line.run === store.state.run))),
    );
  };
  const poll = async () => {
    const id = current;
    const tournament = await request(`api/tournaments/${id}`).catch(() => null);
    if (!tournament || id !== current) return;
    show(tournament);
    if (!tournament.over) setTimeout(poll, POLL);
  };
  button.addEventListener('click', async () => {
    button.disabled = true;
    try {
      const tournament = await request('api/tournaments', { run: store.state.run, text: null });
      current = tournament.id;
      show(tournament);
      setTimeout(poll, POLL);
    } catch (error) {
      button.disabled = false;
      toast(error instanceof Error ? error.message : String(error), error instanceof ApiError ? error.fix : '');
    }
  });
  store.on(['run'], () => {
    current = '';
    table.hidden = true;
    button.disabled = false;
    setText(button, 'Let all agents play');
  });
}

/** @param {import('./types.js').TournamentLine} line @param {number} limit @param {boolean} own */
function row(line, limit, own) {
  const name = el('th', { scope: 'row', text: line.label });
  if (line.mean === undefined || line.low === undefined || line.high === undefined) {
    return el('tr', {}, name, el('td', { colspan: 4, class: 'muted', text: `cannot play here: ${line.problem ?? ''}` }));
  }
  const span = el('i'), mark = el('b');
  span.style.left = `${(line.low / limit) * 100}%`;
  span.style.width = `${Math.max(0.5, ((line.high - line.low) / limit) * 100)}%`;
  mark.style.left = `${(line.mean / limit) * 100}%`;
  return el('tr', { class: own ? 'own' : null }, name,
    el('td', { class: 'number', text: formatCount(Math.round(line.mean)), title: `95% interval ${Math.round(line.low)} to ${Math.round(line.high)} steps` }),
    el('td', { class: 'interval' }, el('div', { class: 'interval-bar' }, span, mark)),
    el('td', { class: 'number', text: formatPercent(line.reached ?? 0) }),
    el('td', { text: line.dies_of ? humanize(line.dies_of) : '' }));
}
