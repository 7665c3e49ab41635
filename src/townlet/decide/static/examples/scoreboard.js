/** Points, and how many shots the keeper saved: at first, lately, and of every ten. */

const GROUP = 10; // shots per bar
const COMPARED = 20; // shots at the beginning and at the end

const byId = (id) => document.getElementById(id);
const sum = (numbers) => numbers.reduce((total, number) => total + number, 0);

export class Scoreboard {
  points = 0;
  saves = []; // 1 for a save, 0 for a goal

  add(saved, points) {
    this.points += points;
    this.saves.push(saved ? 1 : 0);
    byId('score').textContent = this.points;
    const enough = this.saves.length >= COMPARED;
    byId('first').textContent = enough ? sum(this.saves.slice(0, COMPARED)) : '–';
    byId('last').textContent = enough ? sum(this.saves.slice(-COMPARED)) : '–';
    this.draw();
  }

  /** The bar of the current ten. */
  draw() {
    const start = Math.floor((this.saves.length - 1) / GROUP) * GROUP;
    const count = sum(this.saves.slice(start));
    if (this.saves.length === start + 1) byId('bars').append(document.createElement('li'));
    const bar = byId('bars').lastElementChild;
    bar.style.setProperty('--share', count / GROUP);
    bar.textContent = count;
    byId('bars').scrollLeft = byId('bars').scrollWidth;
  }
}
