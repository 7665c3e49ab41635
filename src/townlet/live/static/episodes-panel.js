/** The "How episodes ended" panel: recent training episodes, causes of all training and of the last evaluation. */

import { byId, el, setText } from './dom.js';
import { causeCategory, causeLabel, formatCompact, formatCount, formatPercent, labelsFor, runKind } from './format.js';

const MAX_SHOWN = 6; // watched episodes listed

/** @param {import('./state.js').Store} store @param {import('./session.js').Session} session */
export function initEpisodesPanel(store, session) {
  const trained = el('div', { class: 'bar-list' });
  const tested = el('div', { class: 'bar-list' });
  const title = el('h3', { text: 'Episodes you watched' });
  const list = el('ul', { class: 'episode-ends' });
  const none = el('p', { class: 'muted', text: 'No episode has ended while you watched.' });
  byId('episodes-body').replaceChildren(makeEpisodeBars(store, session), trained, tested, title, none, list);

  /** @param {string} cause */
  const kind = (cause) => causeCategory(cause, store.state.about?.world);
  store.on(['maps', 'run'], () => {
    const labels = labelsFor(store.state);
    showCauses(trained, store.state.maps?.causes ?? {}, kind, labels, (count) => `All of training, ${formatCount(count)} episodes`);
  });
  store.on(['evaluations', 'run'], () => {
    const last = store.state.evaluations.at(-1), labels = labelsFor(store.state);
    showCauses(tested, last?.causes ?? {}, kind, labels, (count) => `Last evaluation, ${formatCount(count)} episodes, after ${formatCompact(last?.env_steps ?? 0)} steps`);
  });
  store.on(['about'], () => {
    title.hidden = runKind(store.state) !== 'town';
    none.hidden = title.hidden || store.state.episodeEnds.length > 0;
  });
  store.on(['episodeEnds'], () => {
    none.hidden = title.hidden || store.state.episodeEnds.length > 0;
    list.replaceChildren(...[...store.state.episodeEnds].reverse().slice(0, MAX_SHOWN).map(({ label, end }) => el('li', { 'data-cause': kind(end.cause) },
      el('strong', { text: end.certificate[0] ?? `Ended at step ${end.length}: ${end.cause}` }),
      ...end.certificate.slice(1).map((line) => el('span', { text: line })),
      el('small', { text: label }))));
  });
}

/**
 * Bars of causes, most frequent first.
 * @param {HTMLElement} box @param {Record<string, number>} causes
 * @param {(cause: string) => string} kind @param {import('./format.js').RunLabels} labels @param {(count: number) => string} title
 */
function showCauses(box, causes, kind, labels, title) {
  const sorted = Object.entries(causes).sort((a, b) => b[1] - a[1]);
  const all = sorted.reduce((sum, [, count]) => sum + count, 0);
  box.hidden = !all;
  box.replaceChildren(el('h3', { text: title(all) }), ...sorted.map(([cause, count]) => {
    const bar = el('i');
    bar.style.width = `${(count / all) * 100}%`;
    return el('div', { class: 'bar-row', 'data-cause': kind(cause), title: `${formatCount(count)} episodes` },
      el('span', { text: labels.endedBy(cause) }), el('div', { class: 'bar' }, bar), el('b', { text: formatShare(count / all) }));
  }));
}

/** A share that is never rounded to 0%. @param {number} part */
const formatShare = (part) => (part < 0.005 ? '<1%' : formatPercent(part));

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./types.js').TrainingEpisode} TrainingEpisode
 */

const MAX_BARS = 30;
const MIN_HEIGHT = 7; // percent, so that the shortest episode is visible

/** @param {Store} store @param {import('./session.js').Session} session */
export function makeEpisodeBars(store, session) {
  const title = el('h3');
  const bars = Array.from({ length: MAX_BARS }, () => el('i'));
  // Bars change several times a second: one image to screen readers, without announcements.
  const strip = el('div', { class: 'episode-bars', role: 'img' }, ...bars);
  const rows = el('div', { class: 'row-buttons', role: 'group', 'aria-label': 'Latest episode of a town of the training' });
  const box = el('div', { class: 'training-episodes', hidden: true }, title, strip, rows);
  /** @type {Map<number, HTMLButtonElement>} */
  const buttons = new Map();

  /** @param {Event} event */
  const choose = (event) => {
    const row = /** @type {HTMLElement} */ (event.target).closest('[data-row]')?.getAttribute('data-row');
    if (row) session.selectRow(Number(row));
  };
  strip.addEventListener('click', choose);
  rows.addEventListener('click', choose);

  const show = () => {
    const { trainingEpisodes: episodes, status, about, row } = store.state;
    box.hidden = !episodes.length;
    if (!episodes.length) return;
    setText(title, status?.state === 'running' ? 'Training episodes as they end' : 'Latest training episodes');
    const most = about?.world?.max_steps ?? Math.max(...episodes.map((one) => one.length));
    bars.forEach((bar, k) => drawBar(bar, episodes[episodes.length - MAX_BARS + k], most, about?.world));
    const reached = episodes.filter((one) => one.cause === 'time').length;
    strip.setAttribute('aria-label', `Latest training episodes: ${reached} of ${episodes.length} reached the limit of ${formatCount(most)} steps.`);
    const latest = new Map(episodes.map((one) => [one.row, one]));
    for (const one of [...latest.values()].sort((a, b) => a.row - b.row)) {
      const button = buttons.get(one.row) ?? add(one.row);
      updateButton(button, one, row === one.row);
    }
    for (const [other, button] of buttons) if (!latest.has(other)) button.hidden = true;
  };

  /** @param {number} row */
  const add = (row) => {
    const button = el('button', { type: 'button', 'data-row': row }, el('b', { text: `Town ${row}` }), el('span'));
    buttons.set(row, button);
    rows.append(...[...buttons].sort(([a], [b]) => a - b).map(([, one]) => one));
    return button;
  };
  store.on(['trainingEpisodes', 'status', 'row'], show);
  return box;
}

/** @param {HTMLElement} bar @param {TrainingEpisode | undefined} episode @param {number} most @param {import('./types.js').World | undefined} world */
function drawBar(bar, episode, most, world) {
  bar.hidden = !episode;
  if (!episode) return;
  bar.style.height = `${Math.min(100, MIN_HEIGHT + ((100 - MIN_HEIGHT) * episode.length) / most)}%`;
  bar.dataset.cause = causeCategory(episode.cause, world);
  bar.dataset.row = String(episode.row);
  bar.title = `Town ${episode.row}: ${formatCount(episode.length)} steps, ${causeLabel(episode.cause)}`;
}

/** @param {HTMLButtonElement} button @param {TrainingEpisode} episode @param {boolean} chosen */
function updateButton(button, episode, chosen) {
  button.hidden = false;
  button.setAttribute('aria-pressed', String(chosen));
  setText(/** @type {Element} */ (button.lastElementChild), `${formatCount(episode.length)} · ${episode.cause === 'time' ? 'limit' : causeLabel(episode.cause)}`);
  button.title = `Watch the latest episode of town ${episode.row}`;
}
