/** What a run trains in, and how one speaks of it: in a town lives are lived, elsewhere returns are won. */

/**
 * @typedef {object} Words
 * @property {string} episode
 * @property {string} episodes
 * @property {string} curve title of the curve that matters
 * @property {string} series its name among the figures of training
 * @property {'length' | 'return'} tested its name among those of an evaluation
 * @property {string} ends title of how they ended
 * @property {(cause: string) => string} endedBy
 */

import { endedBy } from './format.js';

/** @type {Record<'town' | 'gym', Words>} */
const WORDS = {
  town: { episode: 'life', episodes: 'lives', curve: 'Life length in steps', series: 'episode_length', tested: 'length', ends: 'How lives ended', endedBy },
  gym: {
    episode: 'episode', episodes: 'episodes', curve: 'Return of an episode', series: 'episode_return', tested: 'return', ends: 'How episodes ended',
    endedBy: (cause) => (cause === 'time' ? 'reached the limit' : 'came to an end'),
  },
};

/** The kind of the run that is looked at. @param {import('./state.js').Known} known */
export const kindOf = (known) => known.about?.kind ?? 'town';

/** @param {import('./state.js').Known} known */
export const wordsOf = (known) => WORDS[kindOf(known)];
