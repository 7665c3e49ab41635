/** Entry point of the live page: connects store, connection, playbacks and panels. */

import { AgentPanel } from './agent-panel.js';
import { showEmptyState, showTownHint } from './empty.js';
import { Connection } from './api.js';
import { TownControls } from './town-controls.js';
import { byId, setText } from './dom.js';
import { initExplanations, initHelp } from './help.js';
import { formatHour, runKind } from './format.js';
import { Dispatcher } from './dispatch.js';
import { icon } from './icons.js';
import { Inspector } from './inspector.js';
import { bindShortcuts, initViewButtons } from './navigation.js';
import { LearningPanel } from './learning-panel.js';
import { initEpisodesPanel } from './episodes-panel.js';
import { announce, toast } from './notifications.js';
import { initOverlayNote } from './overlay.js';
import { initAffordancesPanel } from './affordances-panel.js';
import { initIntro } from './intro.js';
import { initLessons } from './lessons.js';
import { Playback } from './playback.js';
import { initJoin, initPresentation } from './presentation.js';
import { QuestionPanel } from './question-panel.js';
import { initRunList, RunsController } from './runs-controller.js';
import { Session } from './session.js';
import { initialState, Store } from './state.js';
import { initSoundButton } from './sound-button.js';
import { StoryPanel } from './story-panel.js';
import { initTooltips } from './tooltips.js';
import { initTheme } from './theme.js';
import { initTournamentPanel } from './tournament-panel.js';
import { TrainingControl } from './training-control.js';
import { TownView } from './town-view.js';
import { initRowsOverview } from './rows-overview.js';
import { initTransitionsPanel } from './transitions.js';
import { WorldEditor } from './world-editor.js';

const PROTOCOL = 3; // version of the protocol, as in protocol.py
const PANEL_INTERVAL = 70; // milliseconds between panel updates

const store = new Store(initialState());
const playbacks = [new Playback(), new Playback()];
const connection = new Connection((message) => dispatcher.dispatch(message), (link, attempt) => {
  store.set({ link });
  if (link === 'away' && attempt === 1) announce('Connection lost. Reconnecting.');
  // Nothing that is pressed meanwhile would reach the server.
  /** @type {HTMLFieldSetElement} */ (byId('controls')).disabled = link === 'away';
});
connection.onExpired = () => store.set({ expired: true });
const session = new Session(store, connection);
session.atEnd = () => playbacks[0].over;
const runs = new RunsController(store, session, clearTowns);
const dispatcher = new Dispatcher(store, session, runs, playbacks);
dispatcher.onHello = onHello;
dispatcher.onChange = invalidatePanels;
const towns = [new TownView(store, playbacks[0], 0), new TownView(store, playbacks[1], 1)];
const questions = new QuestionPanel(store, session, playbacks);
for (const town of towns) town.onPlace = (affordance) => { store.set({ side: town.side }); questions.ask({ affordance }); };
/** @type {AgentPanel | null} */
let agent = null;

/** @param {import('./types.js').Hello} hello */
function onHello(hello) {
  if (hello.protocol !== PROTOCOL) toast('This page does not match the server', 'Reload it');
  runs.serverRun = hello.run;
  runs.connected = true;
  document.body.toggleAttribute('data-viewer', hello.role === 'viewer');
  store.set({ link: 'open', expired: false, program: hello.program, operator: hello.role !== 'viewer' });
  byId('help-button').title = `Help and keyboard shortcuts (?) · Townlet ${hello.version}`;
  if (store.state.run) {
    const { start, position, firstAge } = playbacks[0];
    session.resume(start?.seed ?? null, position - firstAge);
  } else session.resetServerState();
  void runs.loadRuns();
}

/** Clear both towns. */
function clearTowns() {
  for (const playback of playbacks) Object.assign(playback, new Playback());
  for (const town of towns) town.dirty = true;
  invalidatePanels();
}

let shownKey = '';
let lastUpdate = 0;

/** Force the next update of the panels. */
function invalidatePanels() {
  shownKey = '';
}

/** Update the panels for the current timestep. @param {number} now */
function updatePanels(now) {
  const playback = playbacks[store.state.side];
  const { side, preview } = store.state;
  // The first timestep arrives after the start message: `lastAge` is defined once there is one.
  const key = [side, preview, ...playbacks.flatMap((p) => [p.start?.episode, p.lastAge, Math.floor(p.position + 1e-6), p.over])].join();
  if (key === shownKey || now - lastUpdate < PANEL_INTERVAL) return;
  shownKey = key;
  lastUpdate = now;
  agent?.update(playback);
  story.update();
  controls.updatePosition();
  for (const town of towns) town.updateCaption();
  const main = playbacks[0];
  const timestep = main.current();
  const { world } = store.state;
  setText(byId('town-label'), main.start && store.state.agents.length === 1 ? `${main.start.name}, ${main.start.label}` : '');
  const clock = byId('clock');
  clock.hidden = !(timestep && world?.temporal);
  if (timestep && world?.temporal && clock.dataset.hour !== `${timestep.hour}`) {
    clock.dataset.hour = `${timestep.hour}`;
    const isDay = timestep.hour >= world.day / 4 && timestep.hour < (world.day * 5) / 6;
    clock.replaceChildren(icon(isDay ? 'sun' : 'moon', 15), formatHour(timestep.hour));
  }
}

const controls = new TownControls(store, session, playbacks, () => towns[store.state.side].canvas);
byId('towns').replaceChildren(...towns.map((town) => town.box));
initTheme(store);
initExplanations(store);
const openHelp = initHelp();
initRunList(store, (run) => void runs.open(run));
new LearningPanel(store);
const trainings = new TrainingControl(store, runs);
new WorldEditor(store, session, trainings);
const story = new StoryPanel(store, playbacks);
initTournamentPanel(store);
initSoundButton(store);
initIntro(store, openHelp);
initJoin();
initTooltips();
initLessons(store);
const togglePresentation = initPresentation(store);
initRowsOverview(store, session, playbacks[0]);
initEpisodesPanel(store, session);
initAffordancesPanel(store);
initTransitionsPanel(store);
initOverlayNote(store, byId('overlay-note'));
showEmptyState(store, () => connection.reconnectNow(), (view) => { store.set({ view }); void runs.openShipped(); });
showTownHint(store, session, towns[0]);
const inspector = new Inspector(store);
bindShortcuts(store, () => (runKind(store.state) === 'gym' ? inspector : session), openHelp, () => void togglePresentation());

initViewButtons(store);
store.on(['agents', 'side'], () => {
  const alone = store.state.agents.length === 1;
  towns[1].box.hidden = alone;
  if (alone) Object.assign(playbacks[1], new Playback());
  invalidatePanels();
});
let { source, world } = store.state;
store.on(['source', 'world'], () => {
  if (source === store.state.source && world === store.state.world) return;
  ({ source, world } = store.state);
  clearTowns();
  if (source === 'recording') void runs.reloadRecordings();
  if (world) agent = new AgentPanel(world, questions);
});
store.notify(['agents', 'view', 'link']);

let lastTime = performance.now();
/** @param {number} now */
function animate(now) {
  const seconds = Math.min(0.25, (now - lastTime) / 1000);
  lastTime = now;
  requestAnimationFrame(animate);
  if (runKind(store.state) === 'gym') {
    inspector.tick(seconds);
    return;
  }
  towns[0].tick(seconds);
  if (store.state.agents.length > 1) towns[1].tick(seconds);
  updatePanels(now);
}
requestAnimationFrame(animate);
connection.open();
void runs.loadRuns();
