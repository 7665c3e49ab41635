/** The "All agents" panel: every agent of the folder in the same towns, ordered by lifetime. */

import { ApiError, request } from './api.js';
import { byId, el, setText } from './dom.js';
import { formatCount, formatPercent, humanize, plural } from './format.js';
import { toast } from './notifications.js';

/** @typedef {import('./types.js').Tournament} Tournament */

const POLL = 500; // milliseconds, while agents play
const LOOK = 10_000; // milliseconds between looks for a tournament that another page has started

/** @param {import('./state.js').Store} store */
export function initTournamentPanel(store) {
  const button = el('button', { type: 'button', class: 'operator-only', text: 'Let all agents play' });
  const note = el('p', { class: 'muted', text: 'All agents of this folder, a random agent and the planner play 50 episodes each in this town.' });
  const about = el('p', { class: 'muted', role: 'status', hidden: true });
  const table = el('table', { class: 'tournament', hidden: true });
  byId('tournament-body').replaceChildren(note, button, about, table);
  let timer = 0;

  /** @param {Tournament | null} tournament of the run on screen */
  const show = (tournament) => {
    about.hidden = table.hidden = tournament === null;
    button.disabled = tournament !== null && !tournament.over;
    if (!tournament) {
      setText(button, 'Let all agents play');
      return;
    }
    setText(button, tournament.over ? 'Play again' : `${plural(tournament.lines.length, 'agent')} done …`);
    setText(about, tournament.problem ? `The tournament has ended early: ${tournament.problem}.`
      : `Lifetime is the mean of ${tournament.episodes} episodes of at most ${formatCount(tournament.limit)} steps: each agent plays with its best checkpoint, tries nothing at random, and starts in the same situations. The Learning panel shows other lifetimes: its summary is that of the last checkpoint, the episodes of its curve end at ${formatCount(store.state.about?.world?.max_steps ?? tournament.limit)} steps, and in training the agent tries things at random.`);
    table.replaceChildren(
      el('thead', {}, el('tr', {}, el('th', { text: 'Agent' }), el('th', { class: 'number', text: 'Lifetime' }), el('th'),
        el('th', { class: 'number', text: 'Reaches the limit' }), el('th', { text: 'Dies of' }))),
      el('tbody', {}, ...tournament.lines.map((line) => row(line, tournament.limit, line.run !== null && line.run === store.state.run))),
    );
  };
  /** Show the newest tournament, and look again: soon while it is played, or if the server did not answer then. */
  const look = async () => {
    clearTimeout(timer);
    const { run } = store.state;
    let soon = button.disabled;
    if (run && !document.hidden) {
      const newest = await request(`api/tournaments?run=${encodeURIComponent(run)}`).catch(() => undefined);
      if (run !== store.state.run) return; // another look is underway
      if (newest !== undefined) {
        const tournament = 'id' in newest ? newest : null;
        show(tournament);
        soon = tournament !== null && !tournament.over;
      }
    }
    clearTimeout(timer);
    timer = setTimeout(look, soon ? POLL : LOOK);
  };
  button.addEventListener('click', async () => {
    button.disabled = true;
    try {
      show(await request('api/tournaments', { run: store.state.run }));
    } catch (error) {
      button.disabled = false;
      toast(error instanceof Error ? error.message : String(error), error instanceof ApiError ? error.fix : '');
    }
    void look();
  });
  store.on(['run'], () => {
    show(null);
    void look();
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
