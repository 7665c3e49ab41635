/** The page, put together: messages go into the store and the playbacks, and panels draw what they listen to. */

import { AgentPanel } from './agent.js';
import { showBlank, showHint } from './blank.js';
import { Connection } from './connection.js';
import { Controls } from './controls.js';
import { byId, write } from './dom.js';
import { explainPanels, prepareHelp } from './explain.js';
import { clock } from './format.js';
import { Hearing } from './hearing.js';
import { sign } from './icons.js';
import { Inspector } from './inspector.js';
import { listenToKeys } from './keys.js';
import { kindOf } from './kinds.js';
import { LearningPanel } from './learning.js';
import { showLives } from './lives.js';
import { announce, toast } from './notices.js';
import { showOverlay } from './overlay.js';
import { showPlaces } from './places.js';
import { Playback } from './playback.js';
import { showRuns } from './runs.js';
import { Session } from './session.js';
import { nothingKnown, Store } from './state.js';
import { followTheme } from './theme.js';
import { Town } from './town.js';
import { showChoices } from './views.js';
import { Visit } from './visit.js';
import { showWall } from './wall.js';
import { showWays } from './waysgraph.js';
import { WorldPanel } from './world.js';

const PROTOCOL = 1; // the version that this page speaks
const PANEL = 70; // milliseconds between two pictures of the agent panel

const store = new Store(nothingKnown());
const playbacks = [new Playback(), new Playback()];
const connection = new Connection((message) => hearing.hear(message), (link, attempt) => {
  store.set({ link });
  if (link === 'away' && attempt === 1) announce('The server is gone. Trying again.');
});
const session = new Session(store, connection);
session.ended = () => playbacks[0].over;
const visit = new Visit(store, session, clear);
const hearing = new Hearing(store, session, visit, playbacks);
hearing.greeted = welcome;
hearing.changed = refresh;
const towns = [new Town(store, playbacks[0], 0), new Town(store, playbacks[1], 1)];
/** @type {AgentPanel | null} */
let agent = null;

/** @param {import('./types.js').Hello} hello */
function welcome(hello) {
  if (hello.protocol !== PROTOCOL) toast('This page is older than the server', 'load it again');
  visit.given = hello.run;
  visit.greeted = true;
  document.body.toggleAttribute('data-viewer', hello.role === 'viewer');
  store.set({ link: 'open', program: hello.program });
  byId('help-button').title = `Help and keyboard (?) · Townlet ${hello.version}`;
  session.forget();
  if (store.known.run) {
    announce('The server is back.');
    session.subscribe();
  }
  void visit.look();
}

/** What was on the canvas must not look like what comes next. */
function clear() {
  for (const playback of playbacks) Object.assign(playback, new Playback());
  for (const town of towns) town.dirty = true;
  refresh();
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
  const { side, preview } = store.known;
  // The first moment of a life comes after its beginning was told: `target` says whether there is one to show.
  const key = [side, preview, ...playbacks.flatMap((p) => [p.start?.episode, p.target, Math.floor(p.head + 1e-6), p.over])].join();
  if (key === shown || now - painted < PANEL) return;
  shown = key;
  painted = now;
  agent?.update(playback);
  controls.follow();
  for (const town of towns) town.tell();
  const main = playbacks[0];
  const moment = main.moment();
  const { world } = store.known;
  write(byId('who'), main.start && store.known.compare === null ? main.start.who : '');
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
explainPanels(store);
const openHelp = prepareHelp();
showRuns(store, (run) => void visit.choose(run));
new LearningPanel(store);
new WorldPanel(store, session);
showWall(store, session, playbacks[0]);
showLives(store, session);
showPlaces(store);
showWays(store);
showOverlay(store, byId('overlay-note'));
showBlank(store, () => connection.hurry());
showHint(store, session, towns[0]);
const inspector = new Inspector(store);
listenToKeys(store, () => (kindOf(store.known) === 'gym' ? inspector : session), openHelp);

showChoices(store);
store.on(['compare', 'side'], () => {
  towns[1].box.hidden = store.known.compare === null;
  if (store.known.compare === null) Object.assign(playbacks[1], new Playback());
  refresh();
});
let { source, world } = store.known;
store.on(['source', 'world'], () => {
  if (source === store.known.source && world === store.known.world) return;
  ({ source, world } = store.known);
  clear();
  if (source === 'recording') void visit.kept();
  if (world) agent = new AgentPanel(world);
});
store.tell(['compare', 'view', 'link']);

let then = performance.now();
/** @param {number} now */
function picture(now) {
  const seconds = Math.min(0.25, (now - then) / 1000);
  then = now;
  requestAnimationFrame(picture);
  if (kindOf(store.known) === 'gym') {
    inspector.tick(seconds);
    return;
  }
  towns[0].tick(seconds);
  if (store.known.compare !== null) towns[1].tick(seconds);
  showMoment(now);
}
requestAnimationFrame(picture);
connection.open();
void visit.look();
