/** How lives ended: those that were shown, and what the last test counted. */

import { byId, make } from './dom.js';
import { compact, count, percent, spaced } from './format.js';

/** @param {import('./state.js').Store} store */
export function showLives(store) {
  const body = byId('lives-body');
  const tally = make('div', { class: 'tally' });
  const list = make('ul', { class: 'ends' });
  const none = make('p', { class: 'quiet', text: 'No life has ended while you watched.' });
  body.replaceChildren(tally, none, list);

  store.on(['evaluations', 'run'], () => {
    const last = store.known.evaluations.at(-1);
    const causes = /** @type {[string, number][]} */ (Object.entries(last?.causes ?? {}).sort((a, b) => b[1] - a[1]));
    const all = causes.reduce((sum, [, many]) => sum + many, 0);
    tally.hidden = !all;
    if (!last || !all) return;
    tally.replaceChildren(
      make('h3', { text: `Last test, ${count(all)} lives, after ${compact(last.env_steps)} steps` }),
      ...causes.map(([cause, many]) => {
        const bar = make('i');
        bar.style.width = `${(many / all) * 100}%`;
        return make('div', { class: `cause${cause === 'time' ? ' time' : ''}` }, make('span', { text: cause === 'time' ? 'lived to the limit' : `no ${spaced(cause)}` }),
          make('div', { class: 'bar' }, bar), make('b', { text: percent(many / all) }));
      }),
    );
  });
  store.on(['ends'], () => {
    none.hidden = store.known.ends.length > 0;
    list.replaceChildren(...[...store.known.ends].reverse().slice(0, 6).map(({ who, end }) => make('li', { class: end.cause === 'time' ? 'time' : null },
      make('strong', { text: end.certificate[0] ?? `Ended at step ${end.length}: ${end.cause}` }),
      ...end.certificate.slice(1).map((line) => make('span', { text: line })),
      make('small', { text: who }))));
  });
}
