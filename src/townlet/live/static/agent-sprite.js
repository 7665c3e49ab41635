/** Draws the agent: a small round figure whose face reflects its lowest lethal meter. */

const BODY = ['#e8833a', '#3f8fb5']; // left and right
const DEAD = '#8d9099';

/**
 * @param {CanvasRenderingContext2D} ctx
 * @param {{x: number, y: number}} at
 * @param {number} cell
 * @param {{side: number, dead: boolean, mood: number, facing: number, bob: number, ring: number}} pose
 *   mood: lowest lethal meter; ring: progress of an interaction
 */
export function drawAgent(ctx, at, cell, pose) {
  const r = Math.max(5, Math.min(26, cell * 0.235));
  const x = at.x, y = at.y + cell * 0.16 - pose.bob * r * 0.35;
  ctx.save();
  ctx.fillStyle = 'rgba(20, 22, 40, 0.25)';
  ctx.beginPath();
  ctx.ellipse(at.x, at.y + cell * 0.16 + r * 0.95, r * (0.85 - 0.15 * pose.bob), r * 0.26, 0, 0, 2 * Math.PI);
  ctx.fill();
  if (pose.ring > 0) drawRing(ctx, x, y, r, pose.ring);
  ctx.fillStyle = pose.dead ? DEAD : BODY[pose.side];
  ctx.strokeStyle = '#fffdf8';
  ctx.lineWidth = Math.max(1.5, r * 0.16);
  ctx.beginPath();
  // A drop shape with a flat base.
  ctx.moveTo(x - r, y + r * 0.45);
  ctx.bezierCurveTo(x - r * 1.02, y - r * 1.35, x + r * 1.02, y - r * 1.35, x + r, y + r * 0.45);
  ctx.bezierCurveTo(x + r * 0.95, y + r * 1.1, x - r * 0.95, y + r * 1.1, x - r, y + r * 0.45);
  ctx.closePath();
  ctx.fill();
  ctx.stroke();
  drawFace(ctx, x + pose.facing * r * 0.2, y, r, pose);
  ctx.restore();
}

/** @param {CanvasRenderingContext2D} ctx @param {number} x @param {number} y @param {number} r @param {number} done */
function drawRing(ctx, x, y, r, done) {
  ctx.lineWidth = Math.max(2.5, r * 0.24);
  ctx.lineCap = 'round';
  ctx.strokeStyle = 'rgba(255, 255, 255, 0.42)';
  ctx.beginPath();
  ctx.arc(x, y, r * 1.55, 0, 2 * Math.PI);
  ctx.stroke();
  ctx.strokeStyle = '#2f9e6b';
  ctx.beginPath();
  ctx.arc(x, y, r * 1.55, -Math.PI / 2, -Math.PI / 2 + done * 2 * Math.PI);
  ctx.stroke();
}

/**
 * @param {CanvasRenderingContext2D} ctx @param {number} x @param {number} y @param {number} r
 * @param {{dead: boolean, mood: number}} pose
 */
function drawFace(ctx, x, y, r, pose) {
  ctx.fillStyle = ctx.strokeStyle = '#2c211b';
  ctx.lineWidth = Math.max(1.2, r * 0.13);
  ctx.lineCap = 'round';
  const eye = r * 0.34;
  for (const side of [-1, 1]) {
    ctx.beginPath();
    if (pose.dead) {
      ctx.moveTo(x + side * eye - r * 0.14, y - r * 0.1);
      ctx.lineTo(x + side * eye + r * 0.14, y - r * 0.1);
      ctx.stroke();
    } else {
      ctx.arc(x + side * eye, y - r * 0.12, r * 0.135, 0, 2 * Math.PI);
      ctx.fill();
    }
  }
  let smile = -0.26;
  if (pose.dead) smile = 0;
  else if (pose.mood >= 0.5) smile = 0.32;
  else if (pose.mood >= 0.3) smile = 0.14;
  else if (pose.mood >= 0.2) smile = -0.04;
  ctx.beginPath();
  ctx.moveTo(x - r * 0.28, y + r * 0.3);
  ctx.quadraticCurveTo(x, y + r * (0.3 + smile), x + r * 0.28, y + r * 0.3);
  ctx.stroke();
}
