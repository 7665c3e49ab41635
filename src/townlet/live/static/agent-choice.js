/** Choice of the agent on one side: this run's policies with a slider through its snapshots, other runs, or scripted agents. */

import { el, setText } from './dom.js';
import { formatCompact, formatNumber, runTitle } from './format.js';

/**
 * @typedef {import('./types.js').AgentChoice} AgentChoice
 * @typedef {import('./types.js').Checkpoint} Checkpoint
 * @typedef {import('./state.js').AppState} AppState
 */

const THIS_RUN = 'this';
const RUN = 'run:'; // prefix of the values of other runs
const LATEST = { name: 'latest', text: 'as it is now' };
const BEST = { name: 'best', text: 'at its best' };

/** The agent that plays unless another one is chosen. @returns {AgentChoice} */
export const latestPolicy = () => ({ kind: 'policy', run: null, checkpoint: 'latest', epsilon: 0 });

/** Whether the viewer plays. @param {AgentChoice[]} agents */
export const hasHuman = (agents) => agents.some((agent) => agent.kind === 'human');

/** Policies of the run from its first steps on, then its best and its newest one. @param {Checkpoint[]} checkpoints */
function sliderStops(checkpoints) {
  const saved = [...checkpoints].sort((a, b) => a.env_steps - b.env_steps).map((one) => ({
    name: one.name,
    text: one.env_steps === 0 ? 'before any training' : `after ${formatCompact(one.env_steps)} steps${one.score === null ? '' : `, score ${formatNumber(one.score)}`}`,
  }));
  return [...saved, ...(checkpoints.some((one) => one.best) ? [BEST] : []), LATEST];
}

export class AgentChooser {
  /**
   * @param {string} label @param {boolean} optional whether no agent can be chosen
   * @param {(agent: AgentChoice | null) => void} choose
   */
  constructor(label, optional, choose) {
    this.choose = choose;
    this.optional = optional;
    /** @type {AgentChoice | null} */
    this.agent = optional ? null : latestPolicy();
    /** @type {{name: string, text: string}[]} */
    this.stops = [LATEST];
    this.select = el('select', { 'aria-label': label });
    this.slider = el('input', { type: 'range', min: 0, step: 1, 'aria-label': `${label}: training progress` });
    this.text = el('output', { class: 'slider-text' });
    this.sliderBox = el('label', { class: 'slider-stop' }, this.slider, this.text);
    this.box = el('div', { class: 'agent-choice' }, this.select, this.sliderBox);
    this.select.addEventListener('change', () => this.onSelect());
    this.slider.addEventListener('input', () => this.showStop(Number(this.slider.value)));
    this.slider.addEventListener('change', () => this.choose(this.policy(this.stops[Number(this.slider.value)].name)));
  }

  /** @param {string} checkpoint @param {string | null} [run] @returns {AgentChoice} */
  policy(checkpoint, run = null) {
    const epsilon = this.agent?.kind === 'policy' ? this.agent.epsilon : 0;
    return { kind: 'policy', run, checkpoint, epsilon };
  }

  onSelect() {
    const { value } = this.select;
    if (!value) this.choose(null);
    else if (value === THIS_RUN) this.choose(this.policy('latest'));
    else if (value.startsWith(RUN)) this.choose(this.policy('best', value.slice(RUN.length)));
    else this.choose({ kind: /** @type {'random'} */ (value) });
  }

  /** @param {AppState} state @param {AgentChoice | null} agent */
  show(state, agent) {
    this.agent = agent;
    const others = (state.runs ?? []).filter((run) => run.name !== state.run && run.kind === 'town' && run.checkpoints && run.state !== 'damaged');
    const options = [
      this.optional ? el('option', { value: '', text: 'compare with …' }) : null,
      el('option', { value: THIS_RUN, text: 'this agent' }),
      el('optgroup', { label: 'Other agents' }, ...others.map((run) => el('option', {
        value: RUN + run.name, text: `${runTitle(run)}${run.shipped ? ' (comes with Townlet)' : run.best === null ? '' : `, best ${formatNumber(run.best)}`}`,
      }))),
      el('optgroup', { label: 'Without learning' }, el('option', { value: 'random', text: 'random agent' }),
        el('option', { value: 'planner', text: 'planner (knows the rules)' }), el('option', { value: 'human', text: 'you, with the keyboard' })),
    ];
    this.select.replaceChildren(...options.filter((option) => option !== null));
    const own = agent?.kind === 'policy' && !agent.run;
    this.select.value = !agent ? '' : own ? THIS_RUN : agent.kind === 'policy' ? RUN + agent.run : agent.kind;
    this.sliderBox.hidden = !own;
    if (!own) return;
    this.stops = sliderStops(state.checkpoints);
    const at = this.stops.findIndex((one) => one.name === agent.checkpoint);
    this.slider.max = String(this.stops.length - 1);
    if (document.activeElement !== this.slider || at !== Number(this.slider.value)) this.slider.value = String(at < 0 ? this.stops.length - 1 : at);
    this.showStop(Number(this.slider.value));
  }

  /** @param {number} at */
  showStop(at) {
    const text = this.stops[at]?.text ?? '';
    setText(this.text, text);
    this.slider.setAttribute('aria-valuetext', text);
  }
}
