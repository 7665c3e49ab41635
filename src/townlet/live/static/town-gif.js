/** The watched episode as a GIF: the town as the page draws it, or two side by side. */

import { el } from './dom.js';
import { causeLabel, formatCount, formatHour } from './format.js';
import { CAPTION_HEIGHT, drawCaption, gifName, PICTURES_PER_SECOND, selectPictures, tooShort } from './gif.js';
import { aspectRatio } from './grid.js';
import { themeStyle, TownPainter } from './town-painter.js';

/** @typedef {import('./playback.js').Playback} Playback */

const WIDTH = 520; // of a town, in pixels
const GAP = 12; // between two towns
const LEAST_TEXT = 11; // smallest font size

/**
 * The received steps of the episodes on screen; later ones are not part of it.
 * @param {import('./state.js').Store} store @param {Playback[]} playbacks
 * @returns {import('./gif.js').GifSource | string} or why it cannot be saved
 */
export function townGif(store, playbacks) {
  const state = { ...store.state }, { world } = state;
  const watched = playbacks.slice(0, state.agents.length).filter((playback) => playback.start).map((playback) => playback.copy());
  const ages = [...new Set(watched.flatMap((playback) => [...playback.timesteps.keys()]))].sort((a, b) => a - b);
  const problem = tooShort(Math.max(0, ages.length - 1));
  if (problem || !world) return problem;
  const height = Math.round(WIDTH * aspectRatio(world.size));
  const towns = watched.map((playback, side) => {
    const painter = new TownPainter({ state }, playback, side ? 1 : 0, el('canvas'));
    painter.resize(WIDTH, height, 1);
    return { playback, painter };
  });
  const shown = selectPictures(ages);
  const speed = (PICTURES_PER_SECOND * ages.length) / shown.length;
  return {
    file: fileName(world, watched), width: watched.length * (WIDTH + GAP) - GAP, height: CAPTION_HEIGHT + height, pictures: shown.length,
    draw(ctx, k) {
      const style = themeStyle();
      ctx.fillStyle = style.getPropertyValue('--panel');
      ctx.fillRect(0, 0, ctx.canvas.width, ctx.canvas.height);
      towns.forEach(({ playback, painter }, side) => {
        playback.position = Math.min(shown[k], playback.lastAge);
        painter.paint(speed, LEAST_TEXT);
        painter.paintVeil();
        const left = side * (WIDTH + GAP);
        drawCaption(ctx, style, { left, width: WIDTH }, caption(world, playback));
        ctx.drawImage(painter.canvas, left, CAPTION_HEIGHT);
      });
    },
  };
}

/** @param {import('./types.js').World} world @param {Playback} playback */
function caption(world, playback) {
  const { start, end, over } = playback, timestep = playback.current(), age = timestep?.age ?? 0;
  const day = `Step ${formatCount(age)} · day ${Math.floor(age / world.day) + 1}`;
  const hour = world.temporal && timestep ? `, ${formatHour(timestep.hour)}` : '';
  const ending = !over || !end ? '' : ` · ${end.cause === 'time' ? 'survived to the limit' : `died: ${causeLabel(end.cause)}`}`;
  return { title: `${start?.name}, ${start?.label}`, note: world.name, detail: day + hour + ending };
}

/** @param {import('./types.js').World} world @param {Playback[]} watched */
function fileName(world, watched) {
  const agents = watched.flatMap(({ start }) => ['vs', `${start?.name} ${start?.label.split(',')[0]}`]).slice(1);
  const { start } = watched[0], seed = start?.seed ?? null;
  const episode = seed === null ? `episode ${start?.episode}` : `seed ${seed}`;
  return gifName(world.name, ...agents, episode, `${Math.max(...watched.map(({ lastAge }) => lastAge))} steps`);
}
