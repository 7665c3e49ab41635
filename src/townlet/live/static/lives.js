/** How lives ended: as they end in training, over all of it, in the last test, and those that were shown. */

import { byId, make, write } from './dom.js';
import { causeKind, compact, count, percent } from './format.js';
import { kindOf, wordsOf } from './kinds.js';
import { makeStrip } from './strip.js';

const SHOWN = 6; // ends of lives that were shown

/** @param {import('./state.js').Store} store @param {import('./session.js').Session} session */
export function showLives(store, session) {
  const trained = make('div', { class: 'tally' });
  const tested = make('div', { class: 'tally' });
  const title = make('h3', { text: 'Lives you saw' });
  const list = make('ul', { class: 'ends' });
  const none = make('p', { class: 'quiet', text: 'No life has ended while you watched.' });
  byId('lives-body').replaceChildren(makeStrip(store, session), trained, tested, title, none, list);

  /** @param {string} cause */
  const kind = (cause) => causeKind(cause, store.known.about?.world);
  store.on(['maps', 'run'], () => {
    const words = wordsOf(store.known);
    tally(trained, store.known.maps?.causes ?? {}, kind, words, (lives) => `All of training, ${count(lives)} ${words.episodes}`);
  });
  store.on(['evaluations', 'run'], () => {
    const last = store.known.evaluations.at(-1), words = wordsOf(store.known);
    tally(tested, last?.causes ?? {}, kind, words, (lives) => `Last test, ${count(lives)} ${words.episodes}, after ${compact(last?.env_steps ?? 0)} steps`);
  });
  store.on(['about'], () => {
    write(byId('lives-title'), wordsOf(store.known).ends);
    title.hidden = kindOf(store.known) !== 'town';
    none.hidden = title.hidden || store.known.ends.length > 0;
  });
  store.on(['ends'], () => {
    none.hidden = title.hidden || store.known.ends.length > 0;
    list.replaceChildren(...[...store.known.ends].reverse().slice(0, SHOWN).map(({ who, end }) => make('li', { 'data-cause': kind(end.cause) },
      make('strong', { text: end.certificate[0] ?? `Ended at step ${end.length}: ${end.cause}` }),
      ...end.certificate.slice(1).map((line) => make('span', { text: line })),
      make('small', { text: who }))));
  });
}

/**
 * What ended lives, most often first.
 * @param {HTMLElement} box @param {Record<string, number>} causes
 * @param {(cause: string) => string} kind @param {import('./kinds.js').Words} words @param {(lives: number) => string} title
 */
function tally(box, causes, kind, words, title) {
  const sorted = Object.entries(causes).sort((a, b) => b[1] - a[1]);
  const all = sorted.reduce((sum, [, lives]) => sum + lives, 0);
  box.hidden = !all;
  box.replaceChildren(make('h3', { text: title(all) }), ...sorted.map(([cause, lives]) => {
    const bar = make('i');
    bar.style.width = `${(lives / all) * 100}%`;
    return make('div', { class: 'cause', 'data-cause': kind(cause), title: `${count(lives)} ${words.episodes}` },
      make('span', { text: words.endedBy(cause) }), make('div', { class: 'bar' }, bar), make('b', { text: share(lives / all) }));
  }));
}

/** Never 0% of something that there was. @param {number} part */
const share = (part) => (part < 0.005 ? '<1%' : percent(part));
