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
  show({ evidence: { reference, gain, parts }, buffer: { pending } }) {
    byId('evidence').hidden = !reference;
    setText(this.title, `Compared with: ${reference}`);
    const { value = null, low = null, high = null } = gain ?? {};
    let direction = '', headline = 'Too early to say';
    let details = 'The comparison needs rewards, and is made with every 20th version.';
    if (gain && low !== null && low === high) { // as long as all rewards are equal, for example those of clicks
      details = `The last ${formatCount(gain.count)} rewards do not tell the two apart, and ${formatCount(pending)} decisions are pending.`;
    } else if (gain && value !== null && low !== null && high !== null) {
      details = `95% interval: ${formatSigned(low)} to ${formatSigned(high)}, from the last ${formatCount(gain.count)} rewards.`;
      headline = `No clear difference, ${formatSigned(value)}`;
      if (low > 0) [direction, headline] = ['up', `Better by ${formatNumber(value)} per decision`];
      if (high < 0) [direction, headline] = ['down', `Worse by ${formatNumber(-value)} per decision`];
    }
    this.gain.dataset.direction = direction;
    setText(this.gain, headline);
    setText(this.interval, details);
    const entries = Object.entries(parts).sort((a, b) => b[1] - a[1]), most = Math.max(1e-9, ...entries.map(([, size]) => size));
    this.parts.show(entries.map(([name, size]) => ({ name, share: size / most, text: formatNumber(size, 2), title: `With another ${name}, predicted rewards change by ${formatNumber(size, 3)} on average` })));
  }
}
