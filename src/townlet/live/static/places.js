/** Every place with what a visit changes, costs and takes. */

import { byId, make } from './dom.js';
import { clock, many, money, spaced } from './format.js';
import { colourOf, placeSign } from './icons.js';

/** @param {import('./state.js').Store} store */
export function showPlaces(store) {
  store.on(['world'], () => {
    const { world } = store.known;
    byId('places-body').replaceChildren(make('ul', { class: 'places' }, ...(world?.affordances ?? []).map((place) => {
      const badge = make('span', { class: 'badge' }, placeSign(place.name, 20));
      badge.style.background = colourOf(place.name);
      const facts = [];
      if (world?.dollars) facts.push(place.price > 0 ? money(place.price) : place.price < 0 ? `pays ${money(-place.price)}` : 'free');
      if (place.ticks > 1) facts.push(many(place.ticks, 'step'));
      if (world?.temporal && place.hours) facts.push(`${clock(place.hours[0])}–${clock(place.hours[1])}`);
      const effects = Object.entries(place.effects).sort((a, b) => b[1] - a[1]);
      return make('li', {}, badge, make('div', {},
        make('strong', { text: spaced(place.name) }), make('small', { text: facts.join(' · ') }),
        make('p', {}, ...effects.map(([meter, by]) => {
          const cash = meter === world?.currency && world.dollars > 0;
          return make('span', { class: by > 0 ? 'gain' : 'loss', text: `${by > 0 ? '+' : '−'}${cash ? money(Math.abs(by) * world.dollars) : Math.round(Math.abs(by) * 100)} ${spaced(meter)}` });
        }))));
    })));
  });
}
