/** The "Places" panel: effects, price, duration and opening hours of each affordance. */

import { byId, el } from './dom.js';
import { formatHour, plural, formatMoney, humanize } from './format.js';
import { affordanceColor, affordanceIcon } from './icons.js';

/** @param {import('./state.js').Store} store */
export function initAffordancesPanel(store) {
  store.on(['world'], () => {
    const { world } = store.state;
    byId('affordances-body').replaceChildren(el('ul', { class: 'affordances' }, ...(world?.affordances ?? []).map((place) => {
      const badge = el('span', { class: 'badge' }, affordanceIcon(place, 20));
      badge.style.background = affordanceColor(place);
      const facts = [];
      if (world?.dollars) facts.push(place.price > 0 ? formatMoney(place.price) : place.price < 0 ? `pays ${formatMoney(-place.price)}` : 'free');
      if (place.ticks > 1) facts.push(plural(place.ticks, 'step'));
      if (world?.temporal && place.hours) facts.push(`${formatHour(place.hours[0])}–${formatHour(place.hours[1])}`);
      const effects = Object.entries(place.effects).sort((a, b) => b[1] - a[1]);
      return el('li', {}, badge, el('div', {},
        el('strong', { text: humanize(place.name) }), el('small', { text: facts.join(' · ') }),
        el('p', {}, ...effects.map(([meter, by]) => {
          const cash = meter === world?.currency && world.dollars > 0;
          return el('span', { class: by > 0 ? 'gain' : 'loss', text: `${by > 0 ? '+' : '−'}${cash ? formatMoney(Math.abs(by) * world.dollars) : Math.round(Math.abs(by) * 100)} ${humanize(meter)}` });
        }))));
    })));
  });
}
