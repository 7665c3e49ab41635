/** Sharing: the episode on screen as GIF, and a link that opens the moment on screen. */

import { latestPolicy } from './agent-choice.js';
import { el } from './dom.js';
import { gifButton } from './gif.js';
import { icon } from './icons.js';
import { announce, toast } from './notifications.js';
import { townGif } from './town-gif.js';

/**
 * @typedef {import('./types.js').AgentChoice} AgentChoice
 * @typedef {{run: string | null, agents: AgentChoice[] | null, seed: number | null, step: number | null}} Moment
 */

/** An agent as text: policy:best, policy:best@run-name, random. @param {AgentChoice} agent */
function agentText(agent) {
  if (agent.kind !== 'policy') return agent.kind;
  return `policy:${agent.checkpoint}${agent.run ? `@${agent.run}` : ''}${agent.epsilon ? `~${agent.epsilon}` : ''}`;
}

/** @param {string} text @returns {AgentChoice | null} */
function parseAgent(text) {
  if (text === 'random' || text === 'planner' || text === 'human') return { kind: text };
  const found = /^policy:([\w.-]+)(?:@([\w.-]+))?(?:~([\d.]+))?$/.exec(text);
  return found ? { ...latestPolicy(), kind: 'policy', checkpoint: found[1], run: found[2] ?? null, epsilon: Math.min(1, Number(found[3] ?? 0)) } : null;
}

/** An agent with the checkpoint that plays: `latest` and `best` are others after more training. @param {AgentChoice} agent @param {import('./types.js').EpisodeStart | null} start */
export const playedAgent = (agent, start) => (agent.kind === 'policy' && start?.checkpoint ? { ...agent, checkpoint: start.checkpoint } : agent);

/** The fragment of a link to a moment. @param {string} run @param {AgentChoice[]} agents @param {number} seed @param {number} step */
export function momentFragment(run, agents, seed, step) {
  const fields = new URLSearchParams({ run, agents: agents.map(agentText).join(','), seed: String(seed), step: String(step) });
  return `#${fields}`;
}

/** What the fragment of this page's address asks for. @param {string} hash @returns {Moment} */
export function parseMoment(hash) {
  const fields = new URLSearchParams(hash.slice(1));
  const agents = (fields.get('agents') ?? '').split(',').map(parseAgent).filter((agent) => agent !== null).slice(0, 2);
  /** @param {string} name */
  const number = (name) => (/^\d{1,12}$/.test(fields.get(name) ?? '') ? Number(fields.get(name)) : null);
  return { run: fields.get('run'), agents: agents.length ? agents : null, seed: number('seed'), step: number('step') };
}

export class ShareButtons {
  /** @param {import('./state.js').Store} store @param {import('./playback.js').Playback[]} playbacks */
  constructor(store, playbacks) {
    this.store = store;
    this.playbacks = playbacks;
    this.link = el('button', { type: 'button', class: 'round-button toggle', 'aria-label': 'Copy a link to this moment', title: 'Copy a link that opens this moment' }, icon('link'));
    this.link.addEventListener('click', () => void this.copyLink());
    this.buttons = [gifButton(() => townGif(store, playbacks)), this.link];
    // An edited world has no address.
    store.on(['source', 'preview'], () => { this.link.hidden = store.state.source !== 'checkpoint' || store.state.preview; });
  }

  get playback() {
    return this.playbacks[this.store.state.side];
  }

  async copyLink() {
    const { run, agents } = this.store.state;
    const { start } = this.playback;
    if (!run || !start || start.seed === null) return;
    const fragment = momentFragment(run, agents.map((agent, side) => playedAgent(agent, this.playbacks[side].start)), start.seed, Math.floor(this.playback.position + 1e-6));
    history.replaceState(null, '', fragment);
    // Browsers allow copying only on secure pages and on this machine.
    const copied = await (navigator.clipboard?.writeText(location.href) ?? Promise.reject(new Error('not available'))).then(() => true, () => false);
    const where = copied ? 'Link copied' : 'The link is in the address bar';
    announce(`${where}.`);
    toast(where, 'it opens this moment for everyone who can open this page');
  }
}
