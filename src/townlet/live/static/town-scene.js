/** Static layers of a town: tiles, overlays, affordances with names, and daylight. */

import { humanize } from './format.js';
import { cellCenter, floorOf, ringPosition } from './grid.js';
import { affordanceColor, drawAffordanceIcon } from './icons.js';
import { boxAround, labelFont, placeName } from './labels.js';
import { drawTransitions } from './transitions.js';

/**
 * @typedef {import('./grid.js').Grid} Grid
 * @typedef {{cells: number[], hour: number, floor: number, night: boolean, leastText: number, style: CSSStyleDeclaration}
 *   & import('./overlay.js').Layers} Scene
 */

/** Draw the layer below the daylight. @param {CanvasRenderingContext2D} ctx @param {Grid} g @param {Scene} scene */
export function drawBackground(ctx, g, scene) {
  ctx.clearRect(0, 0, g.width, g.height);
  ctx.fillStyle = scene.style.getPropertyValue('--ground');
  ctx.fillRect(0, 0, g.width, g.height);
  if (g.hasMap) drawTiles(ctx, g, scene);
  else drawRing(ctx, g, scene);
}

/**
 * Draw the layer above the daylight.
 * @param {CanvasRenderingContext2D} ctx
 * @param {Grid} g
 * @param {import('./types.js').World} world
 * @param {Scene} scene
 * @returns {import('./labels.js').Box[]} where names and icons are
 */
export function drawAffordances(ctx, g, world, scene) {
  /** @type {import('./labels.js').Box[]} */
  const taken = [];
  /** @type {import('./labels.js').Box[]} */
  const icons = [];
  ctx.clearRect(0, 0, g.width, g.height);
  if (scene.transitions) drawTransitions(ctx, g, scene);
  scene.cells.forEach((cell, k) => {
    if (g.hasMap && floorOf(g, cell) !== scene.floor) return;
    const place = world.affordances[k];
    const open = place ? place.open_at[scene.hour % place.open_at.length] : true;
    const at = g.hasMap ? cellCenter(g, cell) : ringPosition(g, k, scene.cells.length);
    icons.push(drawAffordance(ctx, g, at, place ?? { name: `Affordance ${k + 1}`, icon: '' }, open, scene, taken));
  });
  if (g.floors > 1) taken.push(drawFloors(ctx, g, scene));
  return [...taken, ...icons];
}

/** @param {CanvasRenderingContext2D} ctx @param {Grid} g @param {Scene} scene */
function drawTiles(ctx, g, scene) {
  const gap = Math.max(1, g.cell * 0.035);
  const tiles = [scene.style.getPropertyValue('--tile'), scene.style.getPropertyValue('--tile-other')];
  const color = scene.style.getPropertyValue(scene.color);
  for (let y = 0; y < g.rows; y += 1) {
    for (let x = 0; x < g.columns; x += 1) {
      const left = g.left + x * g.cell + gap, top = g.top + y * g.cell + gap, side = g.cell - 2 * gap;
      ctx.fillStyle = tiles[(x + y) % 2];
      ctx.beginPath();
      ctx.roundRect(left, top, side, side, g.cell * 0.14);
      ctx.fill();
      const share = scene.heat?.get(x + g.columns * (y + g.rows * scene.floor));
      if (share !== undefined) {
        ctx.fillStyle = color;
        ctx.globalAlpha = 0.1 + 0.64 * share;
        ctx.fill();
        ctx.globalAlpha = 1;
      }
    }
  }
}

/** A world without a map: a circle with spokes to the affordances. @param {CanvasRenderingContext2D} ctx @param {Grid} g @param {Scene} scene */
function drawRing(ctx, g, scene) {
  ctx.strokeStyle = scene.style.getPropertyValue('--tile-other');
  ctx.lineWidth = 2;
  scene.cells.forEach((_, k) => {
    const at = ringPosition(g, k, scene.cells.length);
    ctx.beginPath();
    ctx.moveTo(g.width / 2, g.height / 2);
    ctx.lineTo(at.x, at.y);
    ctx.stroke();
  });
  ctx.fillStyle = scene.style.getPropertyValue('--tile');
  ctx.beginPath();
  ctx.arc(g.width / 2, g.height / 2, g.cell * 0.75, 0, 2 * Math.PI);
  ctx.fill();
}

/**
 * @param {CanvasRenderingContext2D} ctx @param {Grid} g @param {{x: number, y: number}} at
 * @param {import('./icons.js').IconSource} place @param {boolean} open @param {Scene} scene @param {import('./labels.js').Box[]} taken
 * @returns {import('./labels.js').Box} of the icon
 */
function drawAffordance(ctx, g, at, place, open, scene, taken) {
  const { style } = scene;
  const side = Math.min(g.cell * 0.6, 64);
  const left = at.x - side / 2, top = at.y - side / 2 - g.cell * 0.1;
  ctx.save();
  ctx.globalAlpha = open || !scene.night ? 1 : 0.5;
  ctx.fillStyle = open ? affordanceColor(place) : scene.night ? '#6f7690' : style.getPropertyValue('--shut');
  ctx.beginPath();
  ctx.roundRect(left, top, side, side, side * 0.27);
  ctx.shadowColor = 'rgba(20, 20, 40, 0.22)';
  ctx.shadowBlur = open ? side * 0.14 : 0;
  ctx.shadowOffsetY = open ? side * 0.05 : 0;
  ctx.fill();
  ctx.shadowColor = 'transparent';
  ctx.strokeStyle = open ? '#fffdf8' : scene.night ? '#eef0f6' : style.getPropertyValue('--shut-ink');
  drawAffordanceIcon(ctx, place, left + side * 0.17, top + side * 0.17, side * 0.66);
  ctx.restore();
  const icon = boxAround(at.x, top, side, side);
  if (g.cell < 34) return icon;
  const room = g.cell * (g.hasMap ? 0.96 : 1.5);
  const label = placeName(ctx, humanize(place.name), { x: at.x, below: top + side, above: top, room, cell: g.cell, page: g.width }, scene.leastText, taken);
  if (label) {
    taken.push(label.box);
    drawName(ctx, label, open, scene);
  }
  return icon;
}

/** @param {CanvasRenderingContext2D} ctx @param {import('./labels.js').Label} label @param {boolean} open @param {Scene} scene */
function drawName(ctx, { text, x, y, size, width }, open, scene) {
  ctx.font = labelFont(size);
  ctx.textAlign = 'center';
  ctx.textBaseline = 'top';
  const { style, night } = scene;
  // An outline in the background color keeps names readable.
  ctx.lineWidth = 3;
  ctx.lineJoin = 'round';
  ctx.strokeStyle = night ? 'rgba(24, 30, 60, 0.75)' : style.getPropertyValue('--tile');
  ctx.fillStyle = night ? (open ? '#fbf6ea' : '#c3c7d6') : style.getPropertyValue(open ? '--ink' : '--muted');
  ctx.strokeText(text, x, y, width);
  ctx.fillText(text, x, y, width);
  if (!open) ctx.fillRect(x - width / 2, y + size * 0.52, width, 1);
}

/** Draw the current floor. @param {CanvasRenderingContext2D} ctx @param {Grid} g @param {Scene} scene @returns {import('./labels.js').Box} */
function drawFloors(ctx, g, scene) {
  const text = `Floor ${scene.floor} (0–${g.floors - 1})`;
  ctx.font = '600 12px system-ui, sans-serif';
  const wide = ctx.measureText(text).width + 20 + g.floors * 8;
  const left = g.left + 6, top = g.top + 6;
  ctx.fillStyle = scene.style.getPropertyValue('--panel');
  ctx.beginPath();
  ctx.roundRect(left, top, wide, 24, 8);
  ctx.fill();
  ctx.fillStyle = scene.style.getPropertyValue('--ink');
  ctx.textAlign = 'left';
  ctx.textBaseline = 'middle';
  ctx.fillText(text, left + 10 + g.floors * 8, top + 12.5);
  for (let k = 0; k < g.floors; k += 1) {
    ctx.fillStyle = scene.style.getPropertyValue(k === scene.floor ? '--accent' : '--line');
    ctx.fillRect(left + 8 + k * 7, top + 15 - k * 4, 5, 4 + k * 4 - 1);
  }
  return { left, top, right: left + wide, bottom: top + 24 };
}

/** Darkness of an hour, 0 … 1. @param {number} hour @param {number} day */
export function darkness(hour, day) {
  const sun = -Math.cos((hour / day) * 2 * Math.PI); // −1 at midnight, 1 at noon
  return Math.min(1, Math.max(0, (0.35 - sun) / 0.9)) ** 1.4;
}

/** Warmth of the light, highest at dawn and dusk. @param {number} hour @param {number} day */
function warmth(hour, day) {
  const sun = -Math.cos((hour / day) * 2 * Math.PI);
  return Math.exp(-((sun - 0.05) ** 2) / 0.06);
}

/** Strength of the daylight: weaker at high speeds, to avoid flicker. @param {number} speed */
export const lightStrength = (speed) => Math.min(1, 7 / Math.max(1, speed)) ** 0.7;

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {import('./grid.js').Grid} g
 * @param {import('./types.js').World} world
 * @param {number} hour
 * @param {number[]} cells
 * @param {number} strength 0 … 1
 * @param {number} depth opacity at midnight; the dark theme needs less
 * @param {number} floor
 */
export function drawDaylight(ctx, g, world, hour, cells, strength, depth, floor) {
  const dark = darkness(hour, world.day) * strength;
  const warm = warmth(hour, world.day) * strength;
  ctx.save();
  if (warm > 0.02) {
    ctx.fillStyle = `rgba(255, 158, 77, ${0.15 * warm})`;
    ctx.fillRect(0, 0, g.width, g.height);
  }
  if (dark > 0.02) {
    ctx.fillStyle = `rgba(18, 26, 66, ${depth * dark})`;
    ctx.fillRect(0, 0, g.width, g.height);
    ctx.globalCompositeOperation = 'lighter';
    cells.forEach((cell, k) => {
      const place = world.affordances[k];
      if (!place || (g.hasMap && floorOf(g, cell) !== floor)) return;
      if (!place.open_at[Math.floor(hour) % place.open_at.length]) return;
      const at = g.hasMap ? cellCenter(g, cell) : ringPosition(g, k, cells.length);
      const y = at.y - g.cell * 0.1;
      const glow = ctx.createRadialGradient(at.x, y, 0, at.x, y, g.cell * 0.8);
      glow.addColorStop(0, `rgba(255, 205, 130, ${0.34 * dark})`);
      glow.addColorStop(1, 'rgba(255, 205, 130, 0)');
      ctx.fillStyle = glow;
      ctx.fillRect(at.x - g.cell, y - g.cell, g.cell * 2, g.cell * 2);
    });
  }
  ctx.restore();
}
