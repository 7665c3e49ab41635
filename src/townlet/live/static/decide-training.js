/** The "Training", "Gate" and "Experience" panels. */

import { Bars, formatDuration, RecentChart, Tiles } from './decide-charts.js';
import { byId, el, setText } from './dom.js';
import { formatCount, formatNumber, formatPercent, formatSigned, humanize } from './format.js';

/** @typedef {import('./decide-types.js').Stats} Stats */

/** @param {number | null} value */
const formatOptional = (value) => (value === null ? '–' : formatNumber(value));
/** @param {number | null} share */
const formatOptionalPercent = (share) => (share === null ? '–' : formatPercent(share));

/** @type {Record<string, string>} */
const VERDICTS = { promote: 'promoted', hold: 'held', refuse: 'refused' };

/** Fraction of promoted versions since the last start. @param {Record<string, number>} verdicts */
function promotionRate({ promote = 0, hold = 0, refuse = 0 }) {
  return formatOptionalPercent(promote + hold + refuse ? promote / (promote + hold + refuse) : null);
}

export class TrainingPanel {
  constructor() {
    this.tiles = new Tiles({
      step: 'total steps', pace: 'steps/s', seconds: 'mean time per step', batch: 'batch size', learned: 'batch reward', failed: 'failed rounds',
      newest: 'newest version', held_out: 'held-out decisions', passed: 'promotion rate',
    });
    this.loss = new RecentChart('Loss', [{ name: 'loss', label: 'loss', color: '--third', fill: true }], 184, false);
    this.entropy = new RecentChart('Entropy', [{ name: 'entropy', label: 'entropy', color: '--second', fill: true }], 184);
    this.evaluated = el('p', { class: 'muted', id: 'verdicts' });
    byId('training-body').append(this.tiles.box, el('div', { class: 'small-charts' }, this.loss.box, this.entropy.box), this.evaluated);
  }

  /** @param {Stats} stats */
  show({ training, service, curves, versions, buffer }) {
    const state = byId('training-state');
    let label = 'running', style = 'running';
    if (!training.enabled) [label, style] = ['learning is off', 'none'];
    else if (!training.running) [label, style] = ['stopped', 'damaged'];
    else if (training.steps_per_second === 0) [label, style] = ['waiting for experience', 'none'];
    if (training.enabled && !training.validate) label += ', without validation';
    setText(state, label);
    state.dataset.state = style;
    this.tiles.show({
      step: formatCount(training.step ?? 0), pace: formatNumber(training.steps_per_second, 2), batch: formatOptional(training.batch),
      seconds: training.means.step_seconds === null ? '–' : `${formatNumber(1000 * training.means.step_seconds, 2)} ms`,
      learned: training.reward === null ? '–' : formatSigned(training.reward), newest: formatCount(versions.versions.at(-1)?.version ?? 0),
      held_out: formatCount(buffer.held_out), passed: promotionRate(training.verdicts),
      failed: formatCount(training.failed),
    }, { failed: training.failed > 0 });
    this.loss.show(curves, service.now);
    this.entropy.show(curves, service.now);
    const evaluated = Object.entries(training.verdicts).map(([name, times]) => `${formatCount(times)} ${VERDICTS[name] ?? name}`);
    let summary = 'No version has been evaluated yet.';
    if (evaluated.length) summary = `Versions since the last start: ${evaluated.join(', ')}.`;
    else if (versions.history.length) summary = 'No version has been evaluated since the last start; earlier ones are listed below.';
    setText(this.evaluated, summary);
    this.evaluated.title = training.problem;
  }

  redraw() {
    this.loss.redraw();
    this.entropy.redraw();
  }
}

export class GatePanel {
  constructor() {
    this.tiles = new Tiles({ passes: 'recent pass rate', ever: 'overall pass rate', agrees: 'agreement, last 100 training steps', agreed: 'overall agreement' });
    this.curve = new RecentChart('Pass rate', [{ name: 'pass_rate', label: 'pass rate', color: '--well', fill: true }], 104);
    this.reasons = new Bars('Reasons (total)');
    this.components = new Bars('Components of the estimate (mean of the last 1,000)', true);
    byId('gate-body').append(this.tiles.box, this.curve.box, this.reasons.box, this.components.box);
  }

  /** @param {Stats} stats */
  show({ gate, training, curves, service }) {
    byId('gate').hidden = !Object.keys(gate.components).length; // this gate has nothing to estimate
    setText(byId('gate-note'), `settings hash ${gate.hash}${training.validate ? '' : ', not used in training'}`);
    this.tiles.show({
      passes: formatOptionalPercent(gate.pass_rate), ever: formatOptionalPercent(gate.pass_rate_lifetime), agrees: formatOptionalPercent(training.means.agreement), agreed: formatOptionalPercent(training.agreement_lifetime),
    });
    this.curve.show(curves, service.now);
    const reasons = Object.entries(gate.reasons).sort((a, b) => b[1] - a[1]);
    const all = reasons.reduce((sum, [, times]) => sum + times, 0);
    this.reasons.show(reasons.map(([name, times]) => ({ name: humanize(name), share: times / all, text: formatPercent(times / all), title: `${formatCount(times)} decisions` })));
    const parts = Object.entries(gate.components), most = Math.max(1e-9, ...parts.map(([, mean]) => Math.abs(mean)));
    this.components.show(all ? parts.map(([name, mean]) => ({ name: humanize(name), share: mean / most, text: formatNumber(mean, 2) })) : []);
  }

  redraw() {
    this.curve.redraw();
  }
}

/** Status of every decision; the counts always add up to the number of decisions. */
const STATUSES = /** @type {const} */ (['joined', 'pending', 'expired', 'not_executed']);
/** @type {Record<string, string>} */
const STATUS_TITLES = {
  joined: 'the outcome is known', pending: 'the outcome is awaited', expired: 'no outcome was reported in time',
  not_executed: 'not sent by the gate, or not executed by the game',
};

export class BufferPanel {
  constructor() {
    this.use = new Bars('Replay buffer');
    this.parts = STATUSES.map((name) => el('i', { 'data-place': name }));
    this.sum = el('p', { class: 'sum', id: 'sum-rule' });
    this.total = el('b');
    this.terms = STATUSES.map((name) => el('b', { 'data-term': name }));
    this.sum.append(this.total, ' decisions = ', ...STATUSES.flatMap((name, k) => [
      el('span', { class: 'term', 'data-place': name, title: STATUS_TITLES[name] }, this.terms[k], ` ${humanize(name)}`), k < STATUSES.length - 1 ? ' + ' : '']));
    this.ages = new Bars('Age of pending decisions');
    this.tiles = new Tiles({ completed: 'joined or failed', held_out: 'held out', waited: 'not sent (wait)', failed: 'failed in the game', duplicates: 'duplicate reports', late: 'late or unknown reports' });
    byId('buffer-body').append(this.use.box, el('div', {}, el('h3', { text: 'Status of all decisions' }),
      el('div', { class: 'stack', 'aria-hidden': 'true' }, ...this.parts), this.sum), this.ages.box, this.tiles.box);
  }

  /** @param {Stats} stats */
  show({ buffer }) {
    this.use.show([{ name: 'buffer', share: buffer.use, text: `${formatCount(buffer.size)} of ${formatCount(buffer.capacity)}`, title: `${formatPercent(buffer.use)} of the replay buffer`, kind: 'third' }]);
    setText(this.total, formatCount(buffer.decisions));
    STATUSES.forEach((name, k) => {
      this.parts[k].style.flexGrow = String(buffer[name]);
      setText(this.terms[k], formatCount(buffer[name]));
    });
    const limit = buffer.expire_after;
    this.ages.show([
      { name: 'oldest', share: buffer.oldest_pending / limit, text: formatDuration(buffer.oldest_pending), kind: buffer.oldest_pending > 0.8 * limit ? 'low' : 'second', title: `They expire after ${formatDuration(limit)}` },
      { name: 'mean', share: buffer.mean_pending / limit, text: formatDuration(buffer.mean_pending), kind: 'second' },
      { name: 'limit', share: 1, text: formatDuration(limit), kind: 'quiet' },
    ]);
    this.tiles.show({
      completed: formatCount(buffer.completed), held_out: formatCount(buffer.held_out), waited: formatCount(buffer.waited), failed: formatCount(buffer.failed),
      duplicates: formatCount(buffer.duplicates), late: formatCount(buffer.late + buffer.unknown),
    });
  }
}
