/** The "Evidence" panel: the gain over the reference policy, and the parts of observations that matter. */

import { Bars } from './decide-charts.js';
import { byId, el, setText } from './dom.js';
import { formatCount, formatNumber, formatSigned } from './format.js';

/** @typedef {import('./decide-types.js').Stats} Stats */

export class EvidencePanel {
  constructor() {
    this.title = el('h3', {});
    this.gain = el('p', { class: 'headline', id: 'gain' });
    this.interval = el('p', { class: 'muted', id: 'gain-interval' });
    this.parts = new Bars('Influence of each namespace on predicted rewards');
    byId('evidence-body').append(el('div', {}, this.title, this.gain, this.interval), this.parts.box);
  }

  /** @param {Stats} stats */
  show({ evidence: { reference, gain, parts } }) {
    byId('evidence').hidden = !reference;
    setText(this.title, `Compared with: ${reference}`);
    const { value = null, low = null, high = null } = gain ?? {};
    let direction = '', headline = 'Too early to say';
    if (value !== null && low !== null && high !== null) {
      headline = `No clear difference, ${formatSigned(value)}`;
      if (low > 0) [direction, headline] = ['up', `Better by ${formatNumber(value)} per decision`];
      if (high < 0) [direction, headline] = ['down', `Worse by ${formatNumber(-value)} per decision`];
    }
    this.gain.dataset.direction = direction;
    setText(this.gain, headline);
    setText(this.interval, gain && low !== null && high !== null
      ? `95% interval: ${formatSigned(low)} to ${formatSigned(high)}, from the last ${formatCount(gain.count)} rewards (SNIPS).`
      : 'The comparison needs rewards, and is made with every 20th version.');
    const entries = Object.entries(parts).sort((a, b) => b[1] - a[1]), most = Math.max(1e-9, ...entries.map(([, size]) => size));
    this.parts.show(entries.map(([name, size]) => ({ name, share: size / most, text: formatNumber(size, 2), title: `Ignoring ${name} changes predicted rewards by ${formatNumber(size, 3)} on average` })));
  }
}
