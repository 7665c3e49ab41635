/** The trainer, the gate, and what there is to learn from. */

import { Bars, Tiles } from './decide-bars.js';
import { lasting, Recently } from './decide-time.js';
import { byId, make, write } from './dom.js';
import { count, figure, percent, signed, spaced } from './format.js';

/** @typedef {import('./decide-types.js').Stats} Stats */

/** @param {number | null} value */
const known = (value) => (value === null ? '–' : figure(value));
/** @param {number | null} share */
const shared = (share) => (share === null ? '–' : percent(share));

/** @type {Record<string, string>} */
const VERDICTS = { promote: 'promoted', hold: 'held', refuse: 'refused', keep: 'kept', roll_back: 'rolled back' };

/** Since the last start. @param {Record<string, number>} verdicts */
function promoted({ promote = 0, hold = 0, refuse = 0 }) {
  return shared(promote + hold + refuse ? promote / (promote + hold + refuse) : null);
}

export class TrainingPanel {
  constructor() {
    this.tiles = new Tiles({
      step: 'steps ever', pace: 'steps a second', seconds: 'a step takes', batch: 'in a batch', learned: 'reward of the batch', failed: 'failed',
      newest: 'newest version', judged_by: 'held out to judge', passed: 'promoted of judged',
    });
    this.loss = new Recently('Loss', [{ name: 'loss', label: 'loss', colour: '--third', fill: true }], 184, false);
    this.entropy = new Recently('Entropy', [{ name: 'entropy', label: 'entropy', colour: '--second', fill: true }], 184);
    this.judged = make('p', { class: 'quiet', id: 'verdicts' });
    byId('training-body').append(this.tiles.box, make('div', { class: 'small-charts' }, this.loss.box, this.entropy.box), this.judged);
  }

  /** @param {Stats} stats */
  show({ training, service, curves, versions, buffer }) {
    const state = byId('training-state');
    const waits = training.running && training.steps_per_second === 0;
    write(state, !training.running ? 'stopped' : waits ? 'waiting for experience' : 'running');
    state.dataset.state = !training.running ? 'damaged' : waits ? 'none' : 'running';
    this.tiles.show({
      step: count(training.step ?? 0), pace: figure(training.steps_per_second, 2), batch: known(training.batch),
      seconds: training.steps ? `${figure(1000 * training.step_seconds, 2)} ms` : '–',
      learned: training.reward === null ? '–' : signed(training.reward), newest: count(versions.versions.at(-1)?.version ?? 0),
      judged_by: count(buffer.held_out), passed: promoted(training.verdicts),
      failed: training.restarts ? `${count(training.failed)}, ${count(training.restarts)} restarts` : count(training.failed),
    }, { failed: training.failed + training.restarts > 0 });
    this.loss.show(curves, service.now);
    this.entropy.show(curves, service.now);
    const judged = Object.entries(training.verdicts).map(([name, times]) => `${count(times)} ${VERDICTS[name] ?? name}`);
    write(this.judged, judged.length ? `Versions since the last start: ${judged.join(', ')}.`
      : versions.chapters.length ? 'No version was judged since the last start; below is what was before.' : 'No version was judged yet.');
    this.judged.title = training.problem;
  }

  recolour() {
    this.loss.recolour();
    this.entropy.recolour();
  }
}

export class GatePanel {
  constructor() {
    this.tiles = new Tiles({ passes: 'passes lately', ever: 'passes ever', agrees: 'agrees, last step', agreed: 'agrees, ever' });
    this.curve = new Recently('Pass rate', [{ name: 'pass_rate', label: 'pass rate', colour: '--well', fill: true }], 104);
    this.reasons = new Bars('Reasons, ever');
    this.components = new Bars('Parts of the estimate, in the mean of the last 1,000', true);
    byId('gate-body').append(this.tiles.box, this.curve.box, this.reasons.box, this.components.box);
  }

  /** @param {Stats} stats */
  show({ gate, training, curves, service }) {
    write(byId('gate-note'), `settings ${gate.hash}`);
    this.tiles.show({
      passes: shared(gate.pass_rate), ever: shared(gate.pass_rate_ever), agrees: shared(training.agreement), agreed: shared(training.agreement_ever),
    });
    this.curve.show(curves, service.now);
    const reasons = Object.entries(gate.reasons).sort((a, b) => b[1] - a[1]);
    const all = reasons.reduce((sum, [, times]) => sum + times, 0);
    this.reasons.show(reasons.map(([name, times]) => ({ name: spaced(name), share: times / all, text: percent(times / all), title: `${count(times)} decisions` })));
    const parts = Object.entries(gate.components), most = Math.max(1e-9, ...parts.map(([, mean]) => Math.abs(mean)));
    this.components.show(all ? parts.map(([name, mean]) => ({ name: spaced(name), share: mean / most, text: figure(mean, 2) })) : []);
  }

  recolour() {
    this.curve.recolour();
  }
}

/** Where all decisions are; their sum is the number of decisions, at every moment. */
const PLACES = /** @type {const} */ (['joined', 'pending', 'expired', 'not_executed']);
/** @type {Record<string, string>} */
const MEANING = {
  joined: 'it is known what came of them', pending: 'what came of them is still to come', expired: 'nobody told in time what came of them',
  not_executed: 'the gate said wait, or they could not be carried out',
};

export class BufferPanel {
  constructor() {
    this.use = new Bars('To learn from');
    this.parts = PLACES.map((name) => make('i', { 'data-place': name }));
    this.sum = make('p', { class: 'sum', id: 'sum-rule' });
    this.total = make('b');
    this.terms = PLACES.map((name) => make('b', { 'data-term': name }));
    this.sum.append(this.total, ' decisions = ', ...PLACES.flatMap((name, k) => [
      make('span', { class: 'term', 'data-place': name, title: MEANING[name] }, this.terms[k], ` ${spaced(name)}`), k < PLACES.length - 1 ? ' + ' : '']));
    this.ages = new Bars('How long outcomes are waited for');
    this.tiles = new Tiles({ completed: 'completed', held_out: 'held out to judge', waited: 'told to wait', unsent: 'not carried out', duplicates: 'reported twice', late: 'too late or unknown' });
    byId('buffer-body').append(this.use.box, make('div', {}, make('h3', { text: 'Where every decision is' }),
      make('div', { class: 'stack', 'aria-hidden': 'true' }, ...this.parts), this.sum), this.ages.box, this.tiles.box);
  }

  /** @param {Stats} stats */
  show({ buffer }) {
    this.use.show([{ name: 'buffer', share: buffer.use, text: `${count(buffer.size)} of ${count(buffer.capacity)}`, title: `${percent(buffer.use)} of the replay buffer`, kind: 'third' }]);
    write(this.total, count(buffer.decisions));
    PLACES.forEach((name, k) => {
      this.parts[k].style.flexGrow = String(buffer[name]);
      write(this.terms[k], count(buffer[name]));
    });
    const limit = buffer.expire_after;
    this.ages.show([
      { name: 'oldest', share: buffer.oldest_pending / limit, text: lasting(buffer.oldest_pending), kind: buffer.oldest_pending > 0.8 * limit ? 'low' : 'second', title: `They expire after ${lasting(limit)}` },
      { name: 'mean', share: buffer.mean_pending / limit, text: lasting(buffer.mean_pending), kind: 'second' },
      { name: 'limit', share: 1, text: lasting(limit), kind: 'quiet' },
    ]);
    this.tiles.show({
      completed: count(buffer.completed), held_out: count(buffer.held_out), waited: count(buffer.waited), unsent: count(buffer.failed),
      duplicates: count(buffer.duplicates), late: count(buffer.late + buffer.unknown),
    });
  }
}
