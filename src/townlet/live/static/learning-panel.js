/** The "Learning" panel: summary, curves, curriculum stages and alerts. */

import { Chart } from './chart.js';
import { byId, el, setText } from './dom.js';
import { formatCompact, formatCount, formatNumber, labelsFor, plural, runKind } from './format.js';

/** @typedef {import('./state.js').Store} Store */

/** Small charts; of each group the first available metric is drawn. */
/** @type {{names: string[], title: Record<string, string>}[]} */
const SMALL_CHARTS = [
  { names: ['loss', 'policy_loss'], title: { loss: 'Loss', policy_loss: 'Policy loss' } },
  { names: ['epsilon', 'normalized_entropy', 'entropy', 'temperature'], title: { epsilon: 'Exploration ε', normalized_entropy: 'Entropy', entropy: 'Entropy', temperature: 'Temperature' } },
  { names: ['stage'], title: { stage: 'Stage' } },
  { names: ['intrinsic_weight'], title: { intrinsic_weight: 'Intrinsic weight' } },
  { names: ['mean_q', 'value_loss'], title: { mean_q: 'Mean Q', value_loss: 'Value loss' } },
  { names: ['grad_norm', 'approx_kl'], title: { grad_norm: 'Gradient norm', approx_kl: 'KL per update' } },
  { names: ['steps_per_second'], title: { steps_per_second: 'Steps per second' } },
];

export class LearningPanel {
  /** @param {Store} store */
  constructor(store) {
    this.store = store;
    this.summary = el('div', { class: 'summary', hidden: true });
    this.alerts = el('div', { class: 'alerts' });
    this.smallCharts = el('div', { class: 'small-charts' });
    this.more = el('details', { class: 'more-charts', hidden: true }, el('summary', { text: 'More curves, for those who know the terms' }), this.smallCharts);
    this.waiting = el('p', { class: 'muted' });
    this.measured = el('p', { class: 'muted measured', hidden: true });
    this.main = new Chart('', [
      { label: 'training', color: '--accent', fill: true },
      { label: 'evaluation', color: '--second', marks: true },
      { label: 'random agent', color: '--muted', dash: [5, 4], width: 1.3 },
      { label: 'solved', color: '--well', dash: [2, 3], width: 1.5 },
      { label: 'goal of this recipe', color: '--well', dash: [7, 4], width: 1.5 },
    ], Math.round(Math.min(340, Math.max(190, innerHeight * 0.24))), true);
    this.solvedLegend = el('li', { class: 'solved', hidden: true });
    this.goalLegend = el('li', { class: 'goal', hidden: true });
    this.legend = el('ul', { class: 'legend' }, el('li', { class: 'train', text: 'training' }),
      el('li', { class: 'test', text: 'evaluation' }), el('li', { class: 'random', text: 'random agent' }), this.solvedLegend, this.goalLegend);
    /** @type {Map<string, Chart>} */
    this.small = new Map();
    byId('learning-body').replaceChildren(this.summary, this.waiting, this.main.box, this.legend, this.measured, this.more, makeStageLog(store), this.alerts);
    let waits = 0;
    store.on(['series', 'evaluations', 'runs', 'run', 'about'], () => {
      // Metrics arrive in bursts: draw once.
      clearTimeout(waits);
      waits = setTimeout(() => this.draw(), 60);
    });
    store.on(['theme'], () => { this.main.redraw(); for (const chart of this.small.values()) chart.redraw(); });
    store.on(['about'], () => this.updateLabels());
    store.on(['alerts'], () => this.showAlerts());
    store.on(['status'], () => this.showSummary());
  }

  /** Labels of this kind of run, the threshold at which it counts as solved, and the goal of its recipe. */
  updateLabels() {
    const { state } = this.store;
    this.main.setTitle(labelsFor(state).curve, runKind(state) === 'town');
    const threshold = state.about?.threshold ?? null;
    this.solvedLegend.hidden = threshold === null;
    setText(this.solvedLegend, threshold === null ? '' : `solved at ${formatNumber(threshold)}`);
    const goal = ownGoal(state.about);
    this.goalLegend.hidden = goal === null;
    setText(this.goalLegend, goal === null ? '' : `goal of this recipe: ${formatNumber(goal)}`);
  }

  draw() {
    const { series, evaluations, runs, run, about } = this.store.state;
    const labels = labelsFor(this.store.state);
    const trained = [...(series.get(labels.series) ?? [])];
    const evaluated = evaluations.filter((one) => Number.isFinite(one[labels.evaluation])).map((one) => /** @type {[number, number]} */ ([one.env_steps, one[labels.evaluation]]));
    const xs = [...trained, ...evaluated].map(([x]) => x);
    /** @param {number | null | undefined} value @returns {[number, number][]} */
    const flat = (value) => (typeof value === 'number' && xs.length ? [[Math.min(...xs), value], [Math.max(...xs), value]] : []);
    this.waiting.hidden = xs.length > 0;
    this.main.box.hidden = this.legend.hidden = !xs.length;
    this.showMeasured();
    this.main.setData([trained, evaluated, flat(runs?.find((one) => one.name === run)?.random), flat(about?.threshold), flat(ownGoal(about))]);
    for (const { names, title } of SMALL_CHARTS) {
      const name = names.find((one) => (series.get(one)?.size ?? 0) > 1);
      const points = name ? [...(series.get(name) ?? [])] : [];
      const informative = name && (name !== 'intrinsic_weight' || points.some(([, v]) => v !== points[0][1]));
      for (const other of names) if (other !== name || !informative) this.removeChart(other);
      if (!name || !informative) continue;
      if (!this.small.has(name)) {
        const label = title[name];
        const chart = new Chart(label, [{ label, color: '--third', fill: true, width: 1.5 }], innerHeight > 950 ? 120 : 84, name !== 'mean_q');
        this.small.set(name, chart);
        this.smallCharts.append(chart.box);
        this.more.hidden = false;
      }
      this.small.get(name)?.setData([points]);
    }
  }

  /** What the lifetimes in the curve are: those of the tournament are measured in another way. */
  showMeasured() {
    const { evaluations } = this.store.state;
    const last = evaluations.at(-1);
    this.measured.hidden = this.main.box.hidden || runKind(this.store.state) !== 'town';
    setText(this.measured, `Training: the mean lifetime of the episodes that ended since the last point, in which the agent also tries things at random.${last
      ? ` Evaluation: the mean of ${last.episodes} episodes of the agent as it was then, always from the same situations and for at most ${formatCount(last.limit)} steps, without trying things at random.` : ''}`);
  }

  /** @param {string} name */
  removeChart(name) {
    this.small.get(name)?.box.remove();
    this.small.delete(name);
  }

  showAlerts() {
    // only the newest of each kind
    const newest = [...new Map(this.store.state.alerts.map((alert) => [alert.name, alert])).values()].reverse();
    const lines = newest.map((alert) => el('div', { class: 'alert' },
      el('strong', { text: alert.message }),
      alert.tip ? el('span', { text: alert.tip }) : null,
      el('small', { text: `after ${formatCompact(alert.env_steps)} steps` })));
    const [first, ...rest] = lines;
    this.alerts.replaceChildren(...(first ? [first] : []), ...(rest.length
      ? [el('details', {}, el('summary', { text: `${plural(rest.length, 'more alert')}` }), ...rest)] : []));
  }

  showSummary() {
    const { status } = this.store.state;
    // Sentences with commands are meant for the terminal.
    const lines = status && status.state !== 'running' ? status.summary.filter((line) => !line.includes('`')) : [];
    this.summary.hidden = !lines.length;
    const key = lines.join('\n');
    if (this.summary.dataset.key === key) return;
    this.summary.dataset.key = key;
    const chief = lines.slice(0, 4), rest = lines.slice(4);
    const more = el('details', {}, el('summary', { text: 'More' }), ...rest.map((line) => el('p', { text: line })));
    this.summary.replaceChildren(...chief.map((line) => el('p', { text: line })), ...(rest.length ? [more] : []));
    setText(this.waiting, !status ? '' : status.state === 'running' ? 'The first metrics appear after a few thousand steps.' : 'This run has no metrics.');
  }
}

/** The goal of the recipe if it differs from the threshold. @param {import('./types.js').RunInfo | null} about */
function ownGoal(about) {
  const goal = about?.goal ?? null;
  return goal === about?.threshold ? null : goal;
}

/** Number of rows in each stage, from stage 1; all rows began at the same one. @param {Store} store @returns {number[]} */
function rowsPerStage(store) {
  const { about, stages } = store.state;
  if (!about?.curriculum) return [];
  const { rows, first_stage } = about.curriculum, changes = [...stages.values()];
  const highest = Math.max(first_stage, ...changes.flatMap((change) => [change.from_stage, change.to_stage]));
  const counts = Array.from({ length: highest }, () => 0);
  counts[first_stage - 1] = rows - changes.length;
  for (const change of changes) counts[change.to_stage - 1] += 1;
  return counts;
}

/** @param {Store} store */
export function makeStageLog(store) {
  const bar = el('div', { class: 'stage-bar', role: 'img' });
  const summary = el('summary');
  const reasons = el('ul', { class: 'stage-reasons', tabindex: 0, 'aria-label': 'Last stage change of each town' });
  const details = el('details', {}, summary, reasons);
  const box = el('div', { class: 'stage-log', hidden: true }, el('h3', { text: 'Curriculum stages' }), bar, details);
  let drawn = '';

  const count = () => {
    const counts = rowsPerStage(store);
    box.hidden = !counts.length;
    const key = counts.join();
    if (key === drawn) return;
    drawn = key;
    bar.replaceChildren(...counts.map((rows, k) => {
      const part = el('span', { 'data-rows': rows, title: `Stage ${k + 1}: ${plural(rows, 'town')}` }, el('b', { text: String(k + 1) }), el('small', { text: rows ? plural(rows, 'town') : '' }));
      part.style.flexGrow = String(rows);
      return part;
    }));
    bar.setAttribute('aria-label', counts.map((rows, k) => `stage ${k + 1}: ${plural(rows, 'town')}`).join(', '));
  };
  const explain = () => {
    const changes = [...store.state.stages.values()].sort((a, b) => b.env_steps - a.env_steps || a.row - b.row);
    details.hidden = !changes.length;
    const [last] = changes;
    if (last) summary.textContent = `Latest change: town ${last.row}, ${last.reason.split(':')[0]}. Show reasons`;
    reasons.replaceChildren(...changes.map((change) => el('li', {},
      el('b', { text: `Town ${change.row}` }), el('span', { text: change.reason }), el('small', { text: `after ${formatCompact(change.env_steps)} steps` }))));
  };
  store.on(['about', 'stages', 'run'], count);
  store.on(['stages', 'run'], explain);
  return box;
}
