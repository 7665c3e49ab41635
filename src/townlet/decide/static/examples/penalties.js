/** Penalties: a game whose opponent is the decision service. It ranks three dives; the reward is 1 for a save. */

import { connect, explain } from './connect.js';

const SIDES = ['left', 'center', 'right'];
const KEYS = { ArrowLeft: 'left', ArrowUp: 'center', ArrowDown: 'center', ArrowRight: 'right' };
const GROUP = 10; // shots per bar
const PAUSE = matchMedia('(prefers-reduced-motion: reduce)').matches ? 0 : 900; // milliseconds
const byId = (id) => document.getElementById(id);
const random = (items) => items[Math.floor(Math.random() * items.length)];
const percent = (share) => `${Math.round(100 * share)} %`;

const client = await connect();
const player = Array.from(crypto.getRandomValues(new Uint32Array(3)), (number) => number.toString(36)).join('');
const shots = []; // {side, saved} of this visit
let star = random(SIDES), score = 0, playing = false;

const zones = Object.fromEntries(SIDES.map((side) => {
  const zone = document.createElement('button');
  zone.addEventListener('click', () => shoot(side));
  byId('zones').append(zone);
  return [side, zone];
}));

/** The keeper sees the star and your last two shots, and decides before it sees this one. */
async function shoot(side) {
  if (playing) return;
  playing = true;
  const [last, before] = [shots.at(-1), shots.at(-2)];
  const habits = { last: last?.side ?? 'none', scored: !last?.saved, both: `${before?.side} ${last?.side}` };
  const eventId = `penalty-${player}-${shots.length}`;
  try {
    const actions = SIDES.map((id) => ({ id }));
    const answer = await client.request({ type: 'rank_request', eventId, contextFeatures: [{ star, ...habits }], actions });
    if (answer.type === 'error') throw new Error(answer.message);
    const saved = answer.rewardActionId === side;
    await client.request({ type: 'reward', eventId, value: saved ? 1 : 0 });
    show(side, saved, answer);
    setTimeout(prepare, PAUSE);
  } catch (error) {
    explain('No answer', `${error.message}. The page tries again with your next shot.`);
    playing = false;
  }
}

function show(side, saved, { rewardActionId: dive, ranking }) {
  const points = saved ? 0 : side === star ? 3 : 1;
  shots.push({ side, saved });
  score += points;
  explain('');
  for (const { id, probability } of ranking) zones[id].dataset.probability = percent(probability);
  Object.assign(byId('pitch').dataset, { shot: side, dive, saved });
  byId('result').textContent = saved ? 'Saved!' : `Goal! +${points}`;
  byId('score').textContent = score;
  const savedOf = (some) => some.length < 20 ? '–' : percent(some.filter((shot) => shot.saved).length / some.length);
  byId('first').textContent = savedOf(shots.slice(0, 20));
  byId('last').textContent = savedOf(shots.slice(-20));
  if (shots.length % GROUP === 1) byId('bars').append(document.createElement('li'));
  const group = shots.slice(Math.floor((shots.length - 1) / GROUP) * GROUP);
  const bar = byId('bars').lastElementChild, count = group.filter((shot) => shot.saved).length;
  bar.style.setProperty('--share', count / GROUP);
  bar.textContent = count;
  bar.scrollIntoView({ block: 'nearest', inline: 'end' });
}

/** The next shot: ball and keeper are back, and the star may have moved. */
function prepare() {
  star = random(SIDES);
  playing = false;
  for (const name of ['shot', 'dive', 'saved']) delete byId('pitch').dataset[name];
  for (const side of SIDES) {
    zones[side].toggleAttribute('data-star', side === star);
    zones[side].ariaLabel = `${side}, ${side === star ? '3 points' : '1 point'}`;
  }
  Object.assign(document.body.dataset, { phase: 'ready', shots: shots.length, star });
}

addEventListener('keydown', (event) => {
  if (!(event.key in KEYS) || event.repeat || event.ctrlKey || event.altKey || event.metaKey) return;
  event.preventDefault();
  shoot(KEYS[event.key]);
});
prepare();
