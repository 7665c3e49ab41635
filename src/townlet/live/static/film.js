/** One episode as the server rolls it out: columns that grow, a row for each moment. */

/**
 * @typedef {import('./types.js').EpisodePart} EpisodePart
 * @typedef {import('./types.js').EpisodeAbout} EpisodeAbout
 */

export class Film {
  /** @param {string} run @param {string} key */
  constructor(run, key) {
    this.path = `api/runs/${encodeURIComponent(run)}/episodes/${key}`;
    /** @type {EpisodeAbout | null} */
    this.about = null;
    this.known = 0; // moments
    this.drawn = 0; // pictures of them
    this.unseen = ''; // why there are none
    this.problem = '';
    /** @type {EpisodePart['ended']} */
    this.ended = null;
    /** @type {string[]} */
    this.outputsAre = [];
    /** @type {(number | null)[][]} */
    this.obs = [];
    /** @type {(number | null)[][]} */
    this.actions = [];
    /** @type {Record<string, (number | null)[][]>} */
    this.outputs = {};
    /** @type {(number | null)[]} */
    this.rewards = [];
    /** @type {number[]} what was won with each step and before */
    this.returns = [];
    /** @type {(number | null)[]} */
    this.values = [];
    /** @type {(number | null)[]} */
    this.advantages = [];
  }

  /** From where on to ask: the last moment again, since its step was not made yet. */
  get since() {
    return Math.max(0, this.known - 1);
  }

  get over() {
    return this.ended !== null || Boolean(this.problem);
  }

  /** Steps that were made. */
  get steps() {
    return this.rewards.length;
  }

  /** @param {EpisodePart} part */
  take(part) {
    const { since } = part;
    if (part.about) this.about = part.about;
    this.outputsAre = part.outputs_are;
    put(this.obs, since, part.obs);
    put(this.actions, since, part.actions);
    put(this.rewards, since, part.rewards);
    for (const name of part.outputs_are) put(this.outputs[name] ??= [], since, part.outputs[name]);
    for (let step = since; step < this.rewards.length; step += 1) this.returns[step] = (this.returns[step - 1] ?? 0) + (this.rewards[step] ?? 0);
    this.values = part.values;
    this.advantages = part.advantages;
    this.known = part.known;
    this.drawn = part.drawn;
    this.unseen = part.unseen;
    this.problem = part.problem;
    this.ended = part.ended;
  }

  /** @param {number} moment */
  frame(moment) {
    return `${this.path}/frames/${moment}.jpg`;
  }

  /** What the agent saw, as a picture. @param {number} block @param {number} moment */
  seen(block, moment) {
    return `${this.path}/seen/${block}/${moment}.png`;
  }

  /** The action of a step in words, or null after the last. @param {number} step */
  did(step) {
    const action = this.actions[step], about = this.about;
    if (!action || !about) return null;
    if (about.chosen === 'one') return about.actions[action[0] ?? 0] ?? String(action[0]);
    return action.map((value) => (value === null ? '–' : Number(value.toFixed(3)).toString().replace('-', '−'))).join(', ');
  }

  /** How it ended, in words. */
  get end() {
    const words = { terminated: 'The environment ended the episode.', truncated: 'The limit of steps ended the episode.', stopped: 'It was stopped here: longer episodes are not rolled out.' };
    return this.ended ? words[this.ended] : '';
  }
}

/**
 * @template T
 * @param {T[]} column @param {number} since @param {T[]} part
 */
function put(column, since, part) {
  part.forEach((value, k) => { column[since + k] = value; });
}
