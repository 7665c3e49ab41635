/** Connection state, alarms, and the invitation to connect the first game. */

import { illustration } from './empty.js';
import { formatDuration } from './decide-charts.js';
import { byId, el, setText } from './dom.js';
import { announce } from './notifications.js';

/** @typedef {import('./decide-types.js').Stats} Stats */

const SLOW = 1200; // milliseconds before "connecting" is shown
const SILENT = 5; // seconds without stats on an open connection

export class ServiceStatus {
  /** @param {() => void} reconnect reconnects without waiting for the timer */
  constructor(reconnect) {
    this.reconnectNow = reconnect;
    /** @type {'connecting' | 'open' | 'away'} */
    this.link = 'connecting';
    this.lastMessage = performance.now();
    this.hasStats = false; // stats have arrived
    this.slow = false;
    this.argument = '';
    setTimeout(() => { this.slow = true; this.draw(); }, SLOW);
    setInterval(() => this.draw(), 1000);
    byId('invitation-copy').addEventListener('click', async () => {
      const copied = navigator.clipboard?.writeText(byId('invitation-command').textContent ?? '');
      await copied?.then(() => setText(byId('invitation-copy'), 'Copied'), () => {}); // without clipboard access the text can still be selected
    });
  }

  /** @param {'open' | 'away'} link @param {number} attempt */
  onConnectionChange(link, attempt) {
    if (link === 'away' && attempt === 1) announce('Connection lost. Reconnecting.');
    if (link === 'open' && this.link === 'away' && this.hasStats) announce('Reconnected.');
    this.link = link;
    this.lastMessage = performance.now();
    this.draw();
  }

  /** @param {Stats} stats */
  show(stats) {
    this.lastMessage = performance.now();
    this.hasStats = true;
    const { domain, argument, uptime_seconds: uptime, gate_only: gateOnly, version } = stats.service;
    this.argument = argument;
    setText(byId('domain'), domain);
    setText(byId('uptime'), `up for ${formatDuration(uptime)}`);
    this.label = version ? `version ${version} serving` : 'no version yet';
    if (gateOnly) this.label = 'gate only';
    if (!stats.training.enabled) this.label += ', learning is off';
    this.draw();
    showAlarms(stats);
    this.showInvitation(stats);
  }

  draw() {
    const silent = Math.round((performance.now() - this.lastMessage) / 1000);
    const lost = this.link === 'away', stalled = this.link === 'open' && this.hasStats && silent >= SILENT;
    let phase = this.hasStats ? 'ready' : 'connecting', label = this.label ?? 'connecting', status = this.hasStats ? 'running' : 'none';
    if (lost || stalled) [label, status] = [lost ? 'offline' : 'no data', 'away'];
    if (lost && !this.hasStats) phase = 'away';
    document.body.dataset.phase = phase;
    const state = byId('status');
    setText(state, label);
    state.dataset.state = status;
    byId('banner').hidden = !(this.hasStats && (lost || stalled));
    setText(byId('banner-text'), lost
      ? `The service has stopped or does not answer. Start it again with “townlet decide serve ${this.argument}” in the same folder; the page reconnects automatically and shows the last data until then.`
      : `No data from the service for ${silent} s. The page shows the last data.`);
    document.body.toggleAttribute('data-stale', lost || stalled);
    this.showEmptyState(phase);
  }

  /** @param {string} phase */
  showEmptyState(phase) {
    const box = byId('empty');
    box.hidden = phase === 'ready' || (phase === 'connecting' && !this.slow);
    if (box.dataset.key === phase) return; // unchanged: do not interrupt readers or screen readers
    box.dataset.key = phase;
    if (phase === 'away') {
      const again = el('button', { type: 'button', class: 'primary', text: 'Try now' });
      again.addEventListener('click', this.reconnectNow);
      box.replaceChildren(illustration(), el('h2', { text: 'The service is offline' }),
        el('p', { text: 'Start it again with “townlet decide serve”; this page reconnects automatically.' }), again);
    } else if (phase === 'connecting') {
      box.replaceChildren(illustration(), el('h2', { text: 'Connecting' }), el('p', { text: 'Waiting for the service …' }));
    }
  }

  /** Before the first decision: how to connect a game or a simulation. @param {Stats} stats */
  showInvitation(stats) {
    byId('invitation').hidden = stats.buffer.decisions > 0;
    const address = new URL('ws', location.href);
    address.protocol = location.protocol === 'https:' ? 'wss:' : 'ws:';
    setText(byId('invitation-text'), `Games connect to ${address.href}. To try the service, run simulated games:`);
    setText(byId('invitation-command'), `townlet decide simulate ${stats.service.argument} --url ${address.href}`);
  }
}

/** Alarms with their remedies. @param {Stats} stats */
function showAlarms({ alarms, service }) {
  const box = byId('alarms');
  document.title = `${alarms.length ? '⚠ ' : ''}${service.domain} · Townlet decision service`;
  box.hidden = !alarms.length;
  // Keep existing elements, so that screen readers announce only new alarms.
  const key = alarms.map((alarm) => `${alarm.name} ${alarm.critical}`).join();
  if (box.dataset.key !== key) {
    box.dataset.key = key;
    box.replaceChildren(...alarms.map((alarm) => el('div', { class: 'alert', 'data-alarm': alarm.name, 'data-critical': alarm.critical },
      el('strong'), el('span'), el('small', { 'aria-live': 'off' }))));
  }
  alarms.forEach((alarm, k) => {
    const [what, fix, since] = box.children[k].children;
    setText(what, alarm.what);
    setText(fix, alarm.fix);
    setText(since, `for ${formatDuration(service.now - alarm.since)}`);
  });
}
