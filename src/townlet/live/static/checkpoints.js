/** The checkpoints of a run as choices of a list. */

import { make } from './dom.js';
import { compact, figure } from './format.js';

/**
 * The latest and the best, whichever they are at the time, then each by itself, newest first.
 * @param {import('./types.js').Checkpoint[]} checkpoints @param {string} [prefix] @param {string} [noun]
 */
export function checkpointOptions(checkpoints, prefix = '', noun = ' checkpoint') {
  const named = [...checkpoints].sort((a, b) => b.env_steps - a.env_steps);
  return [
    make('option', { value: 'latest', text: `${prefix}latest${noun}` }),
    make('option', { value: 'best', text: `${prefix}best${noun}` }),
    ...named.map((one) => make('option', {
      value: one.name, text: `${prefix}${prefix ? '' : 'after '}${compact(one.env_steps)} steps${one.score === null ? '' : `, score ${figure(one.score)}`}${one.best ? ' ★ best' : ''}`,
    })),
  ];
}
