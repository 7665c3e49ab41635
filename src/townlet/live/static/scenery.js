/** What stands still in a town: tiles, what is laid over them, places and their names. */

import { spaced } from './format.js';
import { floorOf, middle, onRing } from './ground.js';
import { colourOf, drawPlace } from './icons.js';
import { drawWays } from './ways.js';

/**
 * @typedef {import('./ground.js').Ground} Ground
 * @typedef {{cells: number[], hour: number, floor: number, night: boolean, style: CSSStyleDeclaration}
 *   & import('./overlay.js').Layers} Scene
 */

/** What lies under the light of the hour. @param {CanvasRenderingContext2D} pen @param {Ground} g @param {Scene} scene */
export function drawGround(pen, g, scene) {
  pen.clearRect(0, 0, g.width, g.height);
  pen.fillStyle = scene.style.getPropertyValue('--ground');
  pen.fillRect(0, 0, g.width, g.height);
  if (g.mapped) drawTiles(pen, g, scene);
  else drawRing(pen, g, scene);
}

/**
 * What stands on it, with lights of its own.
 * @param {CanvasRenderingContext2D} pen
 * @param {Ground} g
 * @param {import('./types.js').World} world
 * @param {Scene} scene
 */
export function drawPlaces(pen, g, world, scene) {
  pen.clearRect(0, 0, g.width, g.height);
  if (scene.ways) drawWays(pen, g, scene);
  scene.cells.forEach((cell, k) => {
    if (g.mapped && floorOf(g, cell) !== scene.floor) return;
    const place = world.affordances[k];
    const open = place ? place.open_at[scene.hour % place.open_at.length] : true;
    const at = g.mapped ? middle(g, cell) : onRing(g, k, scene.cells.length);
    drawAffordance(pen, g, at, place?.name ?? `Place ${k + 1}`, open, scene);
  });
  if (g.floors > 1) drawFloors(pen, g, scene);
}

/** @param {CanvasRenderingContext2D} pen @param {Ground} g @param {Scene} scene */
function drawTiles(pen, g, scene) {
  const gap = Math.max(1, g.cell * 0.035);
  const tiles = [scene.style.getPropertyValue('--tile'), scene.style.getPropertyValue('--tile-other')];
  const colour = scene.style.getPropertyValue(scene.colour);
  for (let y = 0; y < g.rows; y += 1) {
    for (let x = 0; x < g.columns; x += 1) {
      const left = g.left + x * g.cell + gap, top = g.top + y * g.cell + gap, side = g.cell - 2 * gap;
      pen.fillStyle = tiles[(x + y) % 2];
      pen.beginPath();
      pen.roundRect(left, top, side, side, g.cell * 0.14);
      pen.fill();
      const share = scene.heat?.get(x + g.columns * (y + g.rows * scene.floor));
      if (share !== undefined) {
        pen.fillStyle = colour;
        pen.globalAlpha = 0.1 + 0.64 * share;
        pen.fill();
        pen.globalAlpha = 1;
      }
    }
  }
}

/** A world without a map: a quiet circle that the places stand on. @param {CanvasRenderingContext2D} pen @param {Ground} g @param {Scene} scene */
function drawRing(pen, g, scene) {
  pen.strokeStyle = scene.style.getPropertyValue('--tile-other');
  pen.lineWidth = 2;
  scene.cells.forEach((_, k) => {
    const at = onRing(g, k, scene.cells.length);
    pen.beginPath();
    pen.moveTo(g.width / 2, g.height / 2);
    pen.lineTo(at.x, at.y);
    pen.stroke();
  });
  pen.fillStyle = scene.style.getPropertyValue('--tile');
  pen.beginPath();
  pen.arc(g.width / 2, g.height / 2, g.cell * 0.75, 0, 2 * Math.PI);
  pen.fill();
}

/**
 * @param {CanvasRenderingContext2D} pen @param {Ground} g @param {{x: number, y: number}} at
 * @param {string} name @param {boolean} open @param {Scene} scene
 */
function drawAffordance(pen, g, at, name, open, scene) {
  const { style } = scene;
  const side = Math.min(g.cell * 0.6, 64);
  const left = at.x - side / 2, top = at.y - side / 2 - g.cell * 0.1;
  pen.save();
  pen.globalAlpha = open || !scene.night ? 1 : 0.5;
  pen.fillStyle = open ? colourOf(name) : scene.night ? '#6f7690' : style.getPropertyValue('--shut');
  pen.beginPath();
  pen.roundRect(left, top, side, side, side * 0.27);
  pen.shadowColor = 'rgba(20, 20, 40, 0.22)';
  pen.shadowBlur = open ? side * 0.14 : 0;
  pen.shadowOffsetY = open ? side * 0.05 : 0;
  pen.fill();
  pen.shadowColor = 'transparent';
  pen.strokeStyle = open ? '#fffdf8' : scene.night ? '#eef0f6' : style.getPropertyValue('--shut-ink');
  drawPlace(pen, name, left + side * 0.17, top + side * 0.17, side * 0.66);
  pen.restore();
  if (g.cell >= 34) drawName(pen, g, at, top + side, spaced(name), open, scene);
}

/**
 * @param {CanvasRenderingContext2D} pen @param {Ground} g @param {{x: number, y: number}} at @param {number} below
 * @param {string} text @param {boolean} open @param {Scene} scene
 */
function drawName(pen, g, at, below, text, open, scene) {
  let size = Math.min(13, Math.max(8.5, g.cell * 0.175));
  pen.font = `500 ${size}px system-ui, sans-serif`;
  const room = g.mapped ? g.cell * 1.02 : g.cell * 1.5;
  const wide = pen.measureText(text).width;
  if (wide > room) {
    size = Math.max(7.5, (size * room) / wide);
    pen.font = `500 ${size}px system-ui, sans-serif`;
  }
  pen.textAlign = 'center';
  pen.textBaseline = 'top';
  const { style, night } = scene;
  // A rim in the colour of the ground keeps names readable at any hour.
  pen.lineWidth = 3;
  pen.lineJoin = 'round';
  pen.strokeStyle = night ? 'rgba(24, 30, 60, 0.75)' : style.getPropertyValue('--tile');
  pen.fillStyle = night ? (open ? '#fbf6ea' : '#c3c7d6') : style.getPropertyValue(open ? '--ink' : '--muted');
  pen.strokeText(text, at.x, below + g.cell * 0.045);
  pen.fillText(text, at.x, below + g.cell * 0.045);
  if (!open) {
    const half = pen.measureText(text).width / 2;
    pen.fillRect(at.x - half, below + g.cell * 0.045 + size * 0.52, half * 2, 1);
  }
}

/** Which floor this is. @param {CanvasRenderingContext2D} pen @param {Ground} g @param {Scene} scene */
function drawFloors(pen, g, scene) {
  const text = `Floor ${scene.floor} (0–${g.floors - 1})`;
  pen.font = '600 12px system-ui, sans-serif';
  const wide = pen.measureText(text).width + 20 + g.floors * 8;
  const left = g.left + 6, top = g.top + 6;
  pen.fillStyle = scene.style.getPropertyValue('--panel');
  pen.beginPath();
  pen.roundRect(left, top, wide, 24, 8);
  pen.fill();
  pen.fillStyle = scene.style.getPropertyValue('--ink');
  pen.textAlign = 'left';
  pen.textBaseline = 'middle';
  pen.fillText(text, left + 10 + g.floors * 8, top + 12.5);
  for (let k = 0; k < g.floors; k += 1) {
    pen.fillStyle = scene.style.getPropertyValue(k === scene.floor ? '--accent' : '--line');
    pen.fillRect(left + 8 + k * 7, top + 15 - k * 4, 5, 4 + k * 4 - 1);
  }
}
