/** An episode that the server is rolling out: columns with a row per timestep. */

/**
 * @typedef {import('./types.js').GymEpisodePart} GymEpisodePart
 * @typedef {import('./types.js').GymEpisodeInfo} GymEpisodeInfo
 */

export class GymEpisode {
  /** @param {string} run @param {string} key */
  constructor(run, key) {
    this.path = `api/runs/${encodeURIComponent(run)}/episodes/${key}`;
    /** @type {GymEpisodeInfo | null} */
    this.about = null;
    this.known = 0; // timesteps
    this.frameCount = 0; // available frames
    this.renderProblem = ''; // why there are no frames
    this.error = '';
    /** @type {GymEpisodePart['ended']} */
    this.ended = null;
    /** @type {string[]} */
    this.outputKinds = [];
    /** @type {(number | null)[][]} */
    this.obs = [];
    /** @type {[number, number][]} lowest and highest value of each number of the observation so far */
    this.ranges = [];
    /** @type {(number | null)[][]} */
    this.actions = [];
    /** @type {Record<string, (number | null)[][]>} */
    this.outputs = {};
    /** @type {(number | null)[]} */
    this.rewards = [];
    /** @type {number[]} return up to each step */
    this.returns = [];
    /** @type {(number | null)[]} */
    this.values = [];
    /** @type {(number | null)[]} */
    this.advantages = [];
  }

  /** Timestep to request next: the last one again, because its step has not been taken yet. */
  get since() {
    return Math.max(0, this.known - 1);
  }

  get over() {
    return this.ended !== null || Boolean(this.error);
  }

  /** Number of steps. */
  get steps() {
    return this.rewards.length;
  }

  /** @param {GymEpisodePart} part */
  append(part) {
    const { since } = part;
    if (part.about) this.about = part.about;
    this.outputKinds = part.output_kinds;
    writeColumn(this.obs, since, part.obs);
    for (const obs of part.obs) this.extendRanges(obs);
    writeColumn(this.actions, since, part.actions);
    writeColumn(this.rewards, since, part.rewards);
    for (const name of part.output_kinds) writeColumn(this.outputs[name] ??= [], since, part.outputs[name]);
    for (let step = since; step < this.rewards.length; step += 1) this.returns[step] = (this.returns[step - 1] ?? 0) + (this.rewards[step] ?? 0);
    this.values = part.values;
    this.advantages = part.advantages;
    this.known = part.known;
    this.frameCount = part.frames;
    this.renderProblem = part.render_problem;
    this.error = part.error;
    this.ended = part.ended;
  }

  /** @param {(number | null)[]} obs */
  extendRanges(obs) {
    obs.forEach((value, k) => {
      if (value === null) return;
      const [low, high] = this.ranges[k] ?? [value, value];
      this.ranges[k] = [Math.min(low, value), Math.max(high, value)];
    });
  }

  /** @param {number} timestep */
  frameUrl(timestep) {
    return `${this.path}/frames/${timestep}.jpg`;
  }

  /** Image observation of the agent. @param {number} block @param {number} timestep */
  observationUrl(block, timestep) {
    return `${this.path}/observations/${block}/${timestep}.png`;
  }

  /** The action of a step as text, or null after the last. @param {number} step */
  actionText(step) {
    const action = this.actions[step], about = this.about;
    if (!action || !about) return null;
    if (about.discrete) return about.actions[action[0] ?? 0] ?? String(action[0]);
    return action.map((value) => (value === null ? '–' : Number(value.toFixed(3)).toString().replace('-', '−'))).join(', ');
  }

  /** How it ended. */
  get endText() {
    const texts = { terminated: 'The environment terminated the episode.', truncated: 'The step limit truncated the episode.', stopped: 'Stopped here: the inspector limits the length of an episode.' };
    return this.ended ? texts[this.ended] : '';
  }
}

/**
 * @template T
 * @param {T[]} column @param {number} since @param {T[]} part
 */
function writeColumn(column, since, part) {
  part.forEach((value, k) => { column[since + k] = value; });
}
