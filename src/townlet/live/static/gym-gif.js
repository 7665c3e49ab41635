/** The rolled out episode of a Gymnasium environment as a GIF: its rendered frames. */

import { formatCount, formatNumber } from './format.js';
import { CAPTION_HEIGHT, drawCaption, gifName, selectPictures, tooShort } from './gif.js';
import { themeStyle } from './town-painter.js';

/** @typedef {import('./gym-episode.js').GymEpisode} GymEpisode */

const LEAST_WIDTH = 480; // pixels; smaller frames are enlarged

/**
 * The frames so far; later ones are not part of it.
 * @param {GymEpisode} episode @param {string} env
 * @returns {Promise<import('./gif.js').GifSource> | string} or why it cannot be saved
 */
export function gymGif(episode, env) {
  return tooShort(episode.frameCount - 1) || source(episode, env);
}

/** @param {GymEpisode} episode @param {string} env @returns {Promise<import('./gif.js').GifSource>} */
async function source(episode, env) {
  const { about, frameCount } = episode;
  const shown = selectPictures(Array.from({ length: frameCount }, (_, timestep) => timestep));
  const { naturalWidth, naturalHeight } = await load(episode, 0);
  const scale = Math.ceil(LEAST_WIDTH / naturalWidth), width = scale * naturalWidth, height = scale * naturalHeight;
  const selection = about?.greedy ? 'greedy' : 'sampled', seed = `seed ${about?.seed}`;
  return {
    file: gifName(env, about?.label ?? '', selection, seed, `${frameCount - 1} steps`), width, height: CAPTION_HEIGHT + height, pictures: shown.length,
    async draw(ctx, k) {
      const timestep = shown[k], total = timestep ? episode.returns[timestep - 1] ?? 0 : 0;
      const texts = { title: env, note: `${about?.label}, ${selection}, ${seed}`, detail: `Step ${formatCount(timestep)} · return ${formatNumber(total)}` };
      drawCaption(ctx, themeStyle(), { left: 0, width }, texts);
      ctx.imageSmoothingEnabled = false; // pixels stay sharp
      ctx.drawImage(await load(episode, timestep), 0, CAPTION_HEIGHT, width, height);
    },
  };
}

/** The frame of a timestep. @param {GymEpisode} episode @param {number} timestep */
async function load(episode, timestep) {
  const image = new Image();
  image.src = episode.frameUrl(timestep);
  await image.decode().catch(() => { throw new Error('The server no longer has all frames. Watch the episode again, then save it.'); });
  return image;
}
