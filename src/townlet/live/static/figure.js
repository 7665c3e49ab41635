/** The agent: a small round townsperson whose face tells how near death is. */

const BODY = ['#e8833a', '#3f8fb5']; // left and right
const DEAD = '#8d9099';

/**
 * @param {CanvasRenderingContext2D} pen
 * @param {{x: number, y: number}} at
 * @param {number} cell
 * @param {{side: number, dead: boolean, mood: number, facing: number, bob: number, ring: number}} look
 *   mood: its lowest deadly need; ring: how much of a session is done
 */
export function drawFigure(pen, at, cell, look) {
  const r = Math.max(5, Math.min(26, cell * 0.235));
  const x = at.x, y = at.y + cell * 0.16 - look.bob * r * 0.35;
  pen.save();
  pen.fillStyle = 'rgba(20, 22, 40, 0.25)';
  pen.beginPath();
  pen.ellipse(at.x, at.y + cell * 0.16 + r * 0.95, r * (0.85 - 0.15 * look.bob), r * 0.26, 0, 0, 2 * Math.PI);
  pen.fill();
  if (look.ring > 0) drawRing(pen, x, y, r, look.ring);
  pen.fillStyle = look.dead ? DEAD : BODY[look.side];
  pen.strokeStyle = '#fffdf8';
  pen.lineWidth = Math.max(1.5, r * 0.16);
  pen.beginPath();
  // A drop with a flat foot: rounder above than below.
  pen.moveTo(x - r, y + r * 0.45);
  pen.bezierCurveTo(x - r * 1.02, y - r * 1.35, x + r * 1.02, y - r * 1.35, x + r, y + r * 0.45);
  pen.bezierCurveTo(x + r * 0.95, y + r * 1.1, x - r * 0.95, y + r * 1.1, x - r, y + r * 0.45);
  pen.closePath();
  pen.fill();
  pen.stroke();
  drawFace(pen, x + look.facing * r * 0.2, y, r, look);
  pen.restore();
}

/** @param {CanvasRenderingContext2D} pen @param {number} x @param {number} y @param {number} r @param {number} done */
function drawRing(pen, x, y, r, done) {
  pen.lineWidth = Math.max(2.5, r * 0.24);
  pen.lineCap = 'round';
  pen.strokeStyle = 'rgba(255, 255, 255, 0.42)';
  pen.beginPath();
  pen.arc(x, y, r * 1.55, 0, 2 * Math.PI);
  pen.stroke();
  pen.strokeStyle = '#2f9e6b';
  pen.beginPath();
  pen.arc(x, y, r * 1.55, -Math.PI / 2, -Math.PI / 2 + done * 2 * Math.PI);
  pen.stroke();
}

/**
 * @param {CanvasRenderingContext2D} pen @param {number} x @param {number} y @param {number} r
 * @param {{dead: boolean, mood: number}} look
 */
function drawFace(pen, x, y, r, look) {
  pen.fillStyle = pen.strokeStyle = '#2c211b';
  pen.lineWidth = Math.max(1.2, r * 0.13);
  pen.lineCap = 'round';
  const eye = r * 0.34;
  for (const side of [-1, 1]) {
    pen.beginPath();
    if (look.dead) {
      pen.moveTo(x + side * eye - r * 0.14, y - r * 0.1);
      pen.lineTo(x + side * eye + r * 0.14, y - r * 0.1);
      pen.stroke();
    } else {
      pen.arc(x + side * eye, y - r * 0.12, r * 0.135, 0, 2 * Math.PI);
      pen.fill();
    }
  }
  const smile = look.dead ? 0 : look.mood >= 0.5 ? 0.32 : look.mood >= 0.3 ? 0.14 : look.mood >= 0.2 ? -0.04 : -0.26;
  pen.beginPath();
  pen.moveTo(x - r * 0.28, y + r * 0.3);
  pen.quadraticCurveTo(x, y + r * (0.3 + smile), x + r * 0.28, y + r * 0.3);
  pen.stroke();
}
