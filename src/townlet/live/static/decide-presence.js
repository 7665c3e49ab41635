/** Whether the service is there, what is wrong with it, and what to do when nobody plays. */

import { street } from './blank.js';
import { lasting } from './decide-time.js';
import { byId, make, write } from './dom.js';
import { announce } from './notices.js';

/** @typedef {import('./decide-types.js').Stats} Stats */

const SLOW = 1200; // milliseconds after which one is told that one waits
const SILENT = 5; // seconds without a word from a service that is connected

export class Presence {
  /** @param {() => void} hurry tries to connect now */
  constructor(hurry) {
    this.hurry = hurry;
    /** @type {'connecting' | 'open' | 'away'} */
    this.link = 'connecting';
    this.heard = performance.now();
    this.known = false; // whether there is something to see
    this.slow = false;
    this.domain = '';
    setTimeout(() => { this.slow = true; this.draw(); }, SLOW);
    setInterval(() => this.draw(), 1000);
    byId('invitation-copy').addEventListener('click', async () => {
      const copied = navigator.clipboard?.writeText(byId('invitation-command').textContent ?? '');
      await copied?.then(() => write(byId('invitation-copy'), 'Copied'), () => {}); // else it can be marked by hand
    });
  }

  /** @param {'open' | 'away'} link @param {number} attempt */
  changed(link, attempt) {
    if (link === 'away' && attempt === 1) announce('The service is gone. Trying again.');
    if (link === 'open' && this.link === 'away' && this.known) announce('The service is back.');
    this.link = link;
    this.heard = performance.now();
    this.draw();
  }

  /** @param {Stats} stats */
  show(stats) {
    this.heard = performance.now();
    this.known = true;
    const { domain, up_seconds: up, gate_only: alone, version } = stats.service;
    this.domain = domain;
    write(byId('domain'), domain);
    write(byId('up'), `up for ${lasting(up)}`);
    this.words = alone ? 'gate only' : version ? `version ${version} decides` : 'no version yet';
    this.draw();
    showAlarms(stats);
    this.invite(stats);
  }

  draw() {
    const silent = Math.round((performance.now() - this.heard) / 1000);
    const lost = this.link === 'away', mute = this.link === 'open' && this.known && silent >= SILENT;
    const phase = this.known ? 'ready' : lost ? 'away' : 'connecting';
    document.body.dataset.phase = phase;
    const state = byId('state');
    write(state, lost ? 'offline' : mute ? 'silent' : this.words ?? 'connecting');
    state.dataset.state = lost || mute ? 'away' : this.known ? 'running' : 'none';
    byId('banner').hidden = !(this.known && (lost || mute));
    write(byId('banner-text'), lost
      ? `The service has ended or does not answer. Start it again with “townlet decide serve ${this.domain}” in the same folder: the page goes on by itself. What you see is the last that came.`
      : `The service has said nothing for ${silent} s. What you see is the last that came.`);
    document.body.toggleAttribute('data-stale', lost || mute);
    this.blank(phase);
  }

  /** @param {string} phase */
  blank(phase) {
    const blank = byId('blank');
    blank.hidden = phase === 'ready' || (phase === 'connecting' && !this.slow);
    if (blank.dataset.key === phase) return; // whoever reads it or listens to it is not disturbed
    blank.dataset.key = phase;
    if (phase === 'away') {
      const again = make('button', { type: 'button', class: 'primary', text: 'Try now' });
      again.addEventListener('click', this.hurry);
      blank.replaceChildren(street(), make('h2', { text: 'The service is away' }),
        make('p', { text: 'Start it again with “townlet decide serve”; this page comes back by itself.' }), again);
    } else if (phase === 'connecting') {
      blank.replaceChildren(street(), make('h2', { text: 'Asking the service' }), make('p', { text: 'Connecting …' }));
    }
  }

  /** Before the first decision: how a game comes here, or a simulated one. @param {Stats} stats */
  invite(stats) {
    byId('invitation').hidden = stats.buffer.decisions > 0;
    const address = new URL('ws', location.href);
    address.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
    write(byId('invitation-text'), `Games connect to ${address.href}. To see the service work, let simulated ones play:`);
    write(byId('invitation-command'), `townlet decide simulate ${stats.service.domain} --url ${address.href}`);
  }
}

/** In words, with what can be done. @param {Stats} stats */
function showAlarms({ alarms, service }) {
  const box = byId('alarms');
  document.title = `${alarms.length ? '⚠ ' : ''}${service.domain} · Townlet decides`;
  box.hidden = !alarms.length;
  // What is said already is not said again to those who listen: only its age is written anew.
  const key = alarms.map((alarm) => `${alarm.name} ${alarm.grave}`).join();
  if (box.dataset.key !== key) {
    box.dataset.key = key;
    box.replaceChildren(...alarms.map((alarm) => make('div', { class: 'alert', 'data-alarm': alarm.name, 'data-grave': alarm.grave },
      make('strong'), make('span'), make('small', { 'aria-live': 'off' }))));
  }
  alarms.forEach((alarm, k) => {
    const [what, fix, since] = box.children[k].children;
    write(what, alarm.what);
    write(fix, alarm.fix);
    write(since, `for ${lasting(service.now - alarm.since)}`);
  });
}
