// Maps of a grid: colours of cells, arrows of the policy's probabilities, a scale beside them.

import { css, isLight, viridis } from "/colours.js";
import { Figure, FONT } from "/figures.js";
import { number } from "/text.js";

const WAYS = [[1, 0], [0, -1], [-1, 0], [0, 1]]; // E, N, W, S on the screen, where y goes down
const ACTIONS = 4;
const SCALE = 52; // pixels right of the map for the scale of colours
const FAINTEST = 0.02;

export class GridMap extends Figure {
  constructor(title, { parent, chosen }) {
    super(title, { parent, shape: (width) => this.side(width) * this.grid.height + 4 });
    this.grid = { width: 1, height: 1, walls: [], start: [0, 0], goal: [0, 0] };
    this.values = null; // one number per cell, or null
    this.arrows = null; // probabilities, cell by cell
    this.range = [0, 1];
    this.cell = null;
    this.paint = (context, width, height, colours) => this.plot(context, width, colours);
    this.canvas.addEventListener("click", (event) => {
      const side = this.side(this.canvas.clientWidth);
      const [x, y] = [Math.floor(event.offsetX / side), this.grid.height - 1 - Math.floor(event.offsetY / side)];
      if (x < this.grid.width && y >= 0 && y < this.grid.height) chosen(y * this.grid.width + x);
    });
    this.canvas.addEventListener("keydown", (event) => {
      const move = { ArrowRight: [1, 0], ArrowUp: [0, 1], ArrowLeft: [-1, 0], ArrowDown: [0, -1] }[event.key];
      if (!move) return;
      event.preventDefault();
      const now = this.cell ?? 0;
      const x = Math.min(this.grid.width - 1, Math.max(0, (now % this.grid.width) + move[0]));
      const y = Math.min(this.grid.height - 1, Math.max(0, Math.floor(now / this.grid.width) + move[1]));
      chosen(y * this.grid.width + x);
    });
  }

  side(width) {
    return Math.min((width - SCALE) / this.grid.width, 460 / this.grid.height);
  }

  show({ grid, values, arrows, range, cell, caption, about }) {
    Object.assign(this, { grid, values, arrows, range, cell, about });
    this.setCaption(caption);
    this.draw();
  }

  plot(context, width, colours) {
    const side = this.side(width);
    const walls = new Set(this.grid.walls.map(([x, y]) => y * this.grid.width + x));
    for (let cell = 0; cell < this.grid.width * this.grid.height; cell += 1) {
      const [left, top] = this.corner(cell, side);
      const share = this.share(cell);
      context.fillStyle = walls.has(cell) ? colours.wall : share === null ? colours.grid : css(viridis(share));
      context.fillRect(left, top, Math.ceil(side) - 1, Math.ceil(side) - 1);
      if (!walls.has(cell) && this.arrows) this.drawArrows(context, cell, side, share, colours);
    }
    this.letter(context, "S", this.grid.start, side, colours);
    this.letter(context, "G", this.grid.goal, side, colours);
    if (this.cell !== null) {
      const [left, top] = this.corner(this.cell, side);
      context.lineWidth = 2.5;
      context.strokeStyle = colours.card;
      context.strokeRect(left + 0.5, top + 0.5, side - 2, side - 2);
      context.lineWidth = 1.5;
      context.strokeStyle = colours.ink;
      context.strokeRect(left - 1, top - 1, side + 1, side + 1);
    }
    this.drawScale(context, side, colours);
  }

  corner(cell, side) {
    const x = cell % this.grid.width;
    const y = Math.floor(cell / this.grid.width);
    return [x * side + 1, (this.grid.height - 1 - y) * side + 1];
  }

  share(cell) {
    const value = this.values?.[cell];
    if (value === null || value === undefined) return null;
    const [low, high] = this.range;
    return high > low ? (value - low) / (high - low) : 0.5;
  }

  ink(share, colours) {
    if (share === null) return colours.ink;
    return isLight(viridis(share)) ? "#10151c" : "#ffffff";
  }

  drawArrows(context, cell, side, share, colours) {
    const [left, top] = this.corner(cell, side);
    const [x, y] = [left + side / 2 - 0.5, top + side / 2 - 0.5];
    context.strokeStyle = context.fillStyle = this.ink(share, colours);
    for (let action = 0; action < ACTIONS; action += 1) {
      const probability = this.arrows[cell * ACTIONS + action];
      if (probability === null || probability === undefined || probability < FAINTEST) continue;
      const reach = side * 0.42 * Math.sqrt(probability);
      const head = Math.min(reach, side * 0.16);
      const [dx, dy] = WAYS[action];
      context.globalAlpha = 0.35 + 0.65 * probability;
      context.lineWidth = Math.max(1, side * 0.055);
      context.beginPath();
      context.moveTo(x, y);
      context.lineTo(x + dx * (reach - head * 0.6), y + dy * (reach - head * 0.6));
      context.stroke();
      context.beginPath();
      context.moveTo(x + dx * reach, y + dy * reach);
      context.lineTo(x + dx * (reach - head) - dy * head * 0.6, y + dy * (reach - head) + dx * head * 0.6);
      context.lineTo(x + dx * (reach - head) + dy * head * 0.6, y + dy * (reach - head) - dx * head * 0.6);
      context.fill();
      context.globalAlpha = 1;
    }
  }

  letter(context, text, [x, y], side, colours) {
    const cell = y * this.grid.width + x;
    const [left, top] = this.corner(cell, side);
    context.font = `600 ${Math.max(9, side * 0.32)}px ${FONT}`;
    context.textAlign = "left";
    context.textBaseline = "bottom";
    context.fillStyle = this.ink(this.share(cell), colours);
    context.fillText(text, left + side * 0.08, top + side * 0.97 - 1);
  }

  drawScale(context, side, colours) {
    const [left, height] = [this.grid.width * side + 8, this.grid.height * side];
    for (let i = 0; i < 64; i += 1) {
      context.fillStyle = css(viridis(1 - (i + 0.5) / 64));
      context.fillRect(left, 1 + (i * height) / 64, 9, height / 64 + 1);
    }
    context.font = `11px ${FONT}`;
    context.fillStyle = colours.soft;
    context.textAlign = "left";
    const [low, high] = this.range;
    const marks = [[high, 1, "top"], [(low + high) / 2, height / 2, "middle"], [low, height, "bottom"]];
    for (const [value, y, line] of marks) {
      context.textBaseline = line;
      context.fillText(number(value, 3), left + 13, y, SCALE - 21);
    }
  }
}

// The largest legal value of each cell, and the action that has it.
export function best(values, cells) {
  const [largest, actions] = [[], []];
  for (let cell = 0; cell < cells; cell += 1) {
    let found = null;
    let which = null;
    for (let action = 0; action < ACTIONS; action += 1) {
      const value = values?.[cell * ACTIONS + action];
      if (value !== null && value !== undefined && (found === null || value > found)) [found, which] = [value, action];
    }
    largest.push(found);
    actions.push(which);
  }
  return [largest, actions];
}

// The probabilities that split evenly among the best actions of the exact values.
export function greedy(values, cells) {
  const [largest] = best(values, cells);
  const found = [];
  for (let cell = 0; cell < cells; cell += 1) {
    const own = [0, 1, 2, 3].map((action) => {
      const value = values[cell * ACTIONS + action];
      return value !== null && largest[cell] - value < 1e-3 * Math.abs(largest[cell]);
    });
    const count = own.filter(Boolean).length;
    found.push(...own.map((is) => (is ? 1 / count : 0)));
  }
  return found;
}

export function rangeOf(...lists) {
  const known = lists.flat().filter((value) => value !== null && value !== undefined);
  return known.length ? [Math.min(...known), Math.max(...known)] : [0, 1];
}
