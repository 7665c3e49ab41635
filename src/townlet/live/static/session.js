/** User commands as messages to the server. */

import { hasHuman, latestPolicy } from './agent-choice.js';

/**
 * @typedef {import('./state.js').Store} Store
 * @typedef {import('./api.js').Connection} Connection
 */

const DEFAULT_SPEED = 5; // steps per second; the server's default
const OVERVIEW_ROWS = 64;

export const RECORDED_ROWS = 4; // rows of training whose episodes are recorded

/** @param {import('./types.js').AgentChoice[]} a @param {import('./types.js').AgentChoice[]} b */
const isSameAgents = (a, b) => JSON.stringify(a) === JSON.stringify(b);

export class Session {
  /** @param {Store} store @param {Connection} connection */
  constructor(store, connection) {
    this.store = store;
    this.connection = connection;
    /** Whether the end of the episode is on screen. */
    this.atEnd = () => false;
    this.serverAgents = [latestPolicy()]; // the agents that play on the server now, to send only changes
    /** @type {import('./types.js').AgentChoice[] | null} */
    this.previousAgents = null; // until the first episode of other agents arrives: the server may refuse them
    this.questions = 0; // asked so far
    this.questionSide = 0; // of the last one
  }

  /**
   * A new connection: subscribe as before, and return to the moment on screen.
   * @param {number | null} seed of the town, if an agent plays @param {number} timestep since the start of the episode
   */
  resume(seed, timestep) {
    const { playing, preview, source, agents } = this.store.state;
    this.resetServerState();
    this.subscribe();
    if (preview || source === 'training' || source === 'none' || hasHuman(agents)) return;
    if (source === 'checkpoint') {
      if (seed === null) return;
      this.send({ type: 'reset', seed });
    }
    if (!playing) {
      this.store.set({ playing });
      this.send({ type: 'pause' });
    }
    this.seek(timestep);
  }

  /** A new connection or another run: the server is in its initial state and sends all checkpoints again. */
  resetServerState() {
    this.serverAgents = [latestPolicy()];
    this.previousAgents = null;
    this.store.set({ checkpoints: [], asking: false, previewPending: false });
  }

  /** @param {object} message */
  send(message) {
    this.connection.send(message);
  }

  /** Subscribe to the chosen run and source. */
  subscribe() {
    const { run, source, speed, preview, about, recording } = this.store.state;
    if (!run) return;
    if (preview) this.store.set({ preview: false, world: about?.world ?? null });
    this.store.set({ playing: source !== 'checkpoint' || !hasHuman(this.store.state.agents), detached: false, row: null, pace: source === 'training' ? 'live' : 'own' });
    // Other agents than the latest policy are requested at once, instead of an episode of that policy.
    const others = source === 'checkpoint' && !isSameAgents(this.store.state.agents, this.serverAgents);
    this.send({ type: 'subscribe', run, source: others ? 'none' : source, rows: OVERVIEW_ROWS });
    if (source === 'checkpoint') this.syncAgents();
    if (source === 'recording' && recording !== null) this.send({ type: 'select', recording });
    if ((source === 'checkpoint' || source === 'recording') && speed !== DEFAULT_SPEED) this.send({ type: 'set_speed', speed });
  }

  /** Send changed agents. */
  syncAgents() {
    const { agents } = this.store.state;
    if (!isSameAgents(agents, this.serverAgents)) {
      this.send({ type: 'watch', agents });
      this.previousAgents ??= this.serverAgents;
    }
    this.serverAgents = agents;
  }

  /** The server refused something; if these were other agents, the ones before still play. */
  onRefused() {
    if (!this.previousAgents) return;
    this.serverAgents = this.previousAgents;
    this.previousAgents = null;
    this.store.set({ agents: this.serverAgents, side: Math.min(this.store.state.side, this.serverAgents.length - 1) });
  }

  /** @param {import('./types.js').Source} source @param {number | null} [recording] */
  setSource(source, recording = null) {
    this.store.set({ source, recording, ...(source === 'checkpoint' ? {} : { agents: this.store.state.agents.slice(0, 1), side: 0 }) });
    this.subscribe();
  }

  /** Using the controls detaches this viewer from the shared playback of training. */
  detach() {
    if (this.store.state.source === 'training') this.store.set({ detached: true });
  }

  toggle() {
    const { source, row, playing } = this.store.state;
    // At the end of a single episode, play it again.
    const over = (source === 'recording' || row !== null) && this.atEnd();
    if (over) this.seek(0);
    this.detach();
    this.store.set({ playing: over || !playing });
    this.send({ type: this.store.state.playing ? 'play' : 'pause' });
  }

  /** @param {number} by */
  step(by) {
    this.detach();
    this.store.set({ playing: false });
    this.send({ type: 'step', by });
  }

  /** @param {number} timestep */
  seek(timestep) {
    this.detach();
    this.send({ type: 'seek', timestep: Math.max(0, Math.round(timestep)) });
  }

  /** @param {number} speed */
  setSpeed(speed) {
    this.detach();
    this.store.set({ speed, pace: 'own' });
    this.send({ type: 'set_speed', speed });
  }

  reset() {
    if (this.store.state.source === 'recording') this.seek(0);
    else {
      this.detach();
      this.send({ type: 'reset' });
    }
    if (!this.store.state.playing && !hasHuman(this.store.state.agents)) {
      this.store.set({ playing: true });
      this.send({ type: 'play' });
    }
  }

  /** Choose the agent of a side; null leaves only the other one. @param {number} side @param {import('./types.js').AgentChoice | null} agent */
  setAgent(side, agent) {
    const agents = [...this.store.state.agents];
    if (agent) agents[side] = agent;
    else agents.splice(side, 1);
    this.setAgents(agents);
  }

  /** @param {import('./types.js').AgentChoice[]} agents */
  setAgents(agents) {
    const human = agents.findIndex((agent) => agent.kind === 'human'); // who plays sees the own meters
    this.store.set({ agents, side: human >= 0 ? human : Math.min(this.store.state.side, agents.length - 1), answer: null });
    if (human >= 0) this.store.set({ playing: false });
    if (this.store.state.source !== 'checkpoint') this.setSource('checkpoint');
    else this.syncAgents();
  }

  /** Probability of random actions of all policies. @param {number} epsilon */
  setEpsilon(epsilon) {
    this.store.set({ agents: this.store.state.agents.map((agent) => (agent.kind === 'policy' ? { ...agent, epsilon } : agent)) });
    this.syncAgents();
  }

  /** Show the moment that a link names: agents, seed of the town, and step. @param {import('./share.js').Moment} moment */
  openMoment({ agents, seed, step }) {
    if (!agents) return;
    this.setAgents(agents);
    if (seed === null) return;
    this.send({ type: 'reset', seed });
    if (step === null) return;
    this.step(0);
    this.seek(step);
  }

  /** The viewer's own action. @param {number} action */
  act(action) {
    this.send({ type: 'act', action });
  }

  /** Ask why the agent does not do something else at a timestep. @param {number} timestep since the start of the episode @param {{action?: number, affordance?: string}} about */
  ask(timestep, about) {
    if (this.store.state.link !== 'open') return;
    this.questions += 1;
    this.questionSide = this.store.state.side;
    if (this.store.state.playing) this.toggle();
    this.store.set({ asking: true, answer: null });
    this.send({ type: 'ask', number: this.questions, side: this.store.state.side, timestep, ...about });
  }

  /** Another episode is on a side: an answer about the one before no longer fits. @param {number} side */
  onEpisodeStart(side) {
    this.previousAgents = null;
    if (side !== this.questionSide || !(this.store.state.answer || this.store.state.asking)) return;
    this.questions += 1; // an answer that is still computed is ignored
    this.store.set({ answer: null, asking: false });
  }

  /** Show the latest episode of a training row; null: follow all rows. @param {number | null} row */
  selectRow(row) {
    if (row === null || this.store.state.source !== 'training') this.setSource('training');
    if (row === null) return;
    this.store.set({ row, detached: true, playing: true, pace: 'own' });
    this.send({ type: 'select', row });
    if (this.store.state.speed !== DEFAULT_SPEED) this.send({ type: 'set_speed', speed: this.store.state.speed });
  }

  /** @param {string} text @param {number} number @param {boolean} preview @param {import('./types.js').WorldChange | null} [change] */
  checkWorld(text, number, preview, change = null) {
    this.send({ type: 'edit_world', text, number, preview, change });
  }

  /** The server now plays an edited world. @param {import('./types.js').World} world */
  showPreview(world) {
    this.store.set({ source: 'checkpoint', world, preview: true, playing: true, detached: false, row: null, pace: 'own', view: 'watch' });
    this.syncAgents();
    this.send({ type: 'set_speed', speed: this.store.state.speed });
    this.send({ type: 'play' });
  }
}
