/** The page, put together: messages go into the store and the playbacks, and panels draw what they listen to. */

import { AgentPanel } from './agent.js';
import { showBlank, showHint } from './blank.js';
import { Connection } from './connection.js';
import { Controls } from './controls.js';
import { byId, write } from './dom.js';
import { explainPanels, prepareHelp } from './explain.js';
import { clock, player } from './format.js';
import { sign } from './icons.js';
import { listenToKeys } from './keys.js';
import { LearningPanel } from './learning.js';
import { showLives } from './lives.js';
import { announce, toast } from './notices.js';
import { showPlaces } from './places.js';
import { Playback } from './playback.js';
import { ranked, showRuns } from './runs.js';
import { Session } from './session.js';
import { nothingKnown, Store } from './state.js';
import { followTheme } from './theme.js';
import { Town } from './town.js';
import { showChoices } from './views.js';
import { showWall } from './wall.js';
import { WorldPanel } from './world.js';

/** @typedef {import('./types.js').FromServer} FromServer */

const PROTOCOL = 1; // the version that this page speaks
const PANEL = 70; // milliseconds between two pictures of the agent panel
const LOOK = 15000; // milliseconds between two looks at the list of runs
const EMPTY = 3000; // the same while there is none

const store = new Store(nothingKnown());
const playbacks = [new Playback(), new Playback()];
const connection = new Connection(hear, (link, attempt) => {
  store.set({ link });
  if (link === 'away' && attempt === 1) announce('The server is gone. Trying again.');
});
const session = new Session(store, connection);
session.ended = () => playbacks[0].over;
const towns = [new Town(store, playbacks[0], 0), new Town(store, playbacks[1], 1)];
/** @type {AgentPanel | null} */
let agent = null;
const linked = new URLSearchParams(location.hash.slice(1)).get('run');
/** @type {string | null} */
let given = null; // the run that the server was started for
let greeted = false; // it has said hello, so it hears what is asked
let asked = 0; // counts questions about a run, so that a late answer about another one is dropped

/** @param {string} path */
async function ask(path) {
  const answer = await fetch(path);
  const body = await answer.json();
  if (!answer.ok) throw new Error(body.what ?? `the server answered ${answer.status}`);
  return body;
}

/** The list of runs, and the first one to show. */
async function lookAtRuns() {
  if (store.known.link === 'away') return;
  try {
    store.set({ runs: await ask('api/runs') });
  } catch {
    return; // the banner says already that nobody answers
  }
  const { runs, run } = store.known;
  if (!run && runs?.length && greeted) {
    /** @param {string | null} name */
    const named = (name) => runs.find((line) => line.name === name);
    const first = named(linked) ?? runs.find((line) => isTraining(line.state)) ?? named(given) ?? ranked(runs)[0];
    await choose(first.name);
  }
}

/** Another run: everything that was known of the last one is forgotten. @param {string} run */
async function choose(run) {
  asked += 1;
  const question = asked;
  const fresh = nothingKnown();
  store.set({
    run, about: null, status: null, checkpoints: [], series: new Map(), evaluations: [], alerts: [], stages: [], ends: [],
    wall: null, checked: null, compare: null, side: 0, checkpoint: fresh.checkpoint, epsilon: fresh.epsilon,
  });
  for (const playback of playbacks) Object.assign(playback, new Playback());
  history.replaceState(null, '', `#run=${encodeURIComponent(run)}`);
  try {
    const about = await ask(`api/runs/${encodeURIComponent(run)}`);
    if (question !== asked) return;
    agent = new AgentPanel(about.world);
    store.set({ about });
  } catch (error) {
    toast(`This run cannot be shown: ${error instanceof Error ? error.message : error}`);
    return;
  }
  const line = store.known.runs?.find((one) => one.name === run);
  const source = isTraining(line?.state) ? 'training' : line?.checkpoints ? 'checkpoint' : store.known.about?.recordings.length ? 'recording' : 'training';
  store.set({ source });
  session.forget();
  session.subscribe();
}

/** @param {string | undefined} state */
const isTraining = (state) => state === 'training' || state === 'running';

/** @param {FromServer} message */
function hear(message) {
  switch (message.type) {
    case 'hello': return welcome(message);
    case 'run_status': return status(message);
    case 'episode_start': playbacks[message.side].begin(message); return refresh();
    case 'frame': return playbacks[message.side].take(message);
    case 'episode_end': return ended(message);
    case 'wall': return store.set({ wall: message });
    case 'metrics': return measured(message);
    case 'stage_change': store.known.stages.push(message); return store.tell(['stages']);
    case 'alert': return alerted(message);
    case 'checkpoint': return saved(message);
    case 'checked': return store.set({ checked: message });
    case 'error': return toast(message.what, message.fix);
  }
}

/** @param {import('./types.js').Hello} hello */
function welcome(hello) {
  if (hello.protocol !== PROTOCOL) toast('This page is older than the server', 'load it again');
  given = hello.run;
  greeted = true;
  store.set({ link: 'open' });
  byId('help-button').title = `Help and keyboard (?) · Townlet ${hello.version}`;
  session.forget();
  if (store.known.run && store.known.about) {
    announce('The server is back.');
    session.subscribe();
  }
  void lookAtRuns();
}

/** @param {import('./types.js').RunStatus} next */
function status(next) {
  if (next.run !== store.known.run) return;
  const before = store.known.status;
  store.set({ status: next });
  if (before && before.state !== next.state) {
    announce(`The run is ${next.state} now.`);
    void lookAtRuns();
    void refreshKept();
  }
}

/** Lives that were kept meanwhile. */
async function refreshKept() {
  const { run, about } = store.known;
  if (!run || !about) return;
  const found = await ask(`api/runs/${encodeURIComponent(run)}`).catch(() => null);
  if (found && run === store.known.run && store.known.about) {
    store.known.about.recordings = found.recordings;
    store.tell(['checkpoints']);
  }
}

/** @param {import('./types.js').EpisodeEnd} end */
function ended(end) {
  if (!playbacks[end.side].finish(end)) return;
  refresh();
  const who = playbacks[end.side].start?.who ?? '';
  const { ends } = store.known;
  if (ends.some((one) => one.end.episode === end.episode)) return;
  ends.push({ who, end });
  if (ends.length > 40) ends.shift();
  store.tell(['ends']);
  announce(end.certificate[0] ?? `A life ended after ${end.length} steps.`);
}

/** @param {import('./types.js').Metrics} metrics */
function measured(metrics) {
  if (metrics.run !== store.known.run) return;
  const { series, evaluations } = store.known;
  for (const [name, points] of Object.entries(metrics.series)) {
    const known = series.get(name) ?? new Map();
    for (const [x, y] of points) known.set(x, y);
    series.set(name, known);
  }
  // What is told twice counts once: the whole comes first, and news may repeat it.
  const tested = new Set(evaluations.map((one) => `${one.env_steps} ${one.policy}`));
  for (const one of metrics.evaluations) if (!tested.has(`${one.env_steps} ${one.policy}`)) evaluations.push(one);
  store.tell(['series', 'evaluations']);
}

/** @param {import('./types.js').Alert} alert */
function alerted(alert) {
  const { alerts } = store.known;
  if (alerts.some((one) => one.env_steps === alert.env_steps && one.name === alert.name)) return;
  alerts.push(alert);
  if (alerts.length > 100) alerts.shift();
  store.tell(['alerts']);
}

/** @param {import('./types.js').Checkpoint} checkpoint */
function saved(checkpoint) {
  if (checkpoint.run !== store.known.run) return;
  const others = store.known.checkpoints.filter((one) => one.name !== checkpoint.name);
  store.set({ checkpoints: [...others, checkpoint] });
}

let shown = '';
let painted = 0;

/** The panels beside the canvas show the next picture anew. */
function refresh() {
  shown = '';
}

/** What changes with the shown moment, a few times in a second. @param {number} now */
function showMoment(now) {
  const playback = playbacks[store.known.side];
  const key = `${store.known.side}:${store.known.preview}:${playback.start?.episode}:${Math.floor(playback.head + 1e-6)}:${playback.over}:${playbacks[1].head | 0}`;
  if (key === shown || now - painted < PANEL) return;
  shown = key;
  painted = now;
  agent?.update(playback);
  controls.follow();
  for (const town of towns) town.tell();
  const main = playbacks[0];
  const moment = main.moment();
  const world = store.known.about?.world;
  const whose = store.known.preview ? 'in your version of the world: ' : '';
  write(byId('who'), main.start && store.known.compare === null ? whose + player(main.start.who) : '');
  const hour = byId('clock');
  hour.hidden = !(moment && world?.temporal);
  if (moment && world?.temporal && hour.dataset.hour !== `${moment.hour}`) {
    hour.dataset.hour = `${moment.hour}`;
    const day = moment.hour >= world.day / 4 && moment.hour < (world.day * 5) / 6;
    hour.replaceChildren(sign(day ? 'sun' : 'moon', 15), clock(moment.hour));
  }
}

const controls = new Controls(store, session, playbacks, () => towns[store.known.side].canvas);
byId('stages').replaceChildren(...towns.map((town) => town.box));
followTheme(store);
explainPanels();
const openHelp = prepareHelp();
showRuns(store, (run) => void choose(run));
new LearningPanel(store);
new WorldPanel(store, session);
showWall(store);
showLives(store);
showPlaces(store);
showBlank(store, () => connection.hurry());
showHint(store, session, towns[0]);
listenToKeys(store, session, openHelp);

showChoices(store);
store.on(['compare', 'side'], () => {
  towns[1].box.hidden = store.known.compare === null;
  if (store.known.compare === null) Object.assign(playbacks[1], new Playback());
  refresh();
});
let source = store.known.source;
store.on(['source'], () => {
  if (source === store.known.source) return;
  source = store.known.source;
  // What the last source left on the canvas must not look like the new one.
  for (const playback of playbacks) Object.assign(playback, new Playback());
  for (const town of towns) town.dirty = true;
  if (store.known.about) agent = new AgentPanel(store.known.about.world);
  refresh();
});
store.tell(['compare', 'view', 'link']);

let then = performance.now();
/** @param {number} now */
function picture(now) {
  const seconds = Math.min(0.25, (now - then) / 1000);
  then = now;
  towns[0].tick(seconds);
  if (store.known.compare !== null) towns[1].tick(seconds);
  showMoment(now);
  requestAnimationFrame(picture);
}
requestAnimationFrame(picture);
connection.open();
void lookAtRuns();
(function again() {
  setTimeout(() => { if (!document.hidden) void lookAtRuns(); again(); }, store.known.runs?.length ? LOOK : EMPTY);
})();
