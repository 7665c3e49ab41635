/** Penalties: a game whose opponent is the decision service. It ranks three dives; the reward is 1 for a save. */

import { connect, explain } from './connect.js';
import { Scoreboard } from './scoreboard.js';

const SIDES = ['left', 'center', 'right'];
const KEYS = { ArrowLeft: 'left', ArrowUp: 'center', ArrowDown: 'center', ArrowRight: 'right' };
const PAUSE = matchMedia('(prefers-reduced-motion: reduce)').matches ? 0 : 900; // milliseconds between two shots
const pitch = document.getElementById('pitch'), result = document.getElementById('result');

const client = await connect();
const player = Array.from(crypto.getRandomValues(new Uint32Array(3)), (number) => number.toString(36)).join('');
const scoreboard = new Scoreboard();
const shots = []; // {side, saved}
const zones = Object.fromEntries(SIDES.map((side) => [side, document.createElement('button')]));
let star = '', playing = false;

/** The keeper sees the star and your last two shots, and decides before it sees this one. */
async function shoot(side) {
  if (playing) return;
  playing = true;
  const [last, before] = [shots.at(-1), shots.at(-2)];
  const habits = { last: `${last?.side}`, scored: last?.saved === false, both: `${before?.side} ${last?.side}` };
  const event = { eventId: `penalty-${player}-${shots.length}` };
  const actions = SIDES.map((id) => ({ id }));
  try {
    const answer = await client.request({ type: 'rank_request', ...event, contextFeatures: [{ star, ...habits }], actions });
    if (answer.type === 'error') throw new Error(answer.message);
    const saved = answer.rewardActionId === side;
    await client.request({ type: 'reward', ...event, value: saved ? 1 : 0 });
    shots.push({ side, saved });
    show(side, saved, answer);
    setTimeout(prepare, PAUSE);
  } catch (error) {
    explain('No answer', `${error.message}. Your next shot tries again.`);
    playing = false;
  }
}

function show(side, saved, { rewardActionId: dive, ranking }) {
  const points = saved ? 0 : side === star ? 3 : 1;
  for (const { id, probability } of ranking) zones[id].dataset.probability = `${Math.round(100 * probability)} %`;
  Object.assign(pitch.dataset, { shot: side, dive, saved });
  result.textContent = saved ? 'Saved!' : `Goal! +${points}`;
  scoreboard.add(saved, points);
  explain('');
}

/** The next shot: ball and keeper are back, and the star may have moved. */
function prepare() {
  star = SIDES[Math.floor(Math.random() * SIDES.length)];
  playing = false;
  for (const name of ['shot', 'dive', 'saved']) delete pitch.dataset[name];
  for (const side of SIDES) zones[side].ariaLabel = `${side}, ${side === star ? '3 points' : '1 point'}`;
  Object.assign(document.body.dataset, { phase: 'ready', shots: shots.length, star });
}

for (const side of SIDES) zones[side].addEventListener('click', () => shoot(side));
document.getElementById('zones').append(...Object.values(zones));
addEventListener('keydown', (event) => {
  if (!(event.key in KEYS) || event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  shoot(KEYS[event.key]);
});
prepare();
