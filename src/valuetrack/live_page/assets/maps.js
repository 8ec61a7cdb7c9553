// The maps of a grid with their slider, and the values of the chosen cell over time.

import { Curves } from "/curves.js";
import { best, greedy, GridMap, rangeOf } from "/grid.js";
import { number, whole } from "/text.js";

const PLAY_MILLISECONDS = 220;
const byId = (id) => document.getElementById(id);

export class MapPanel {
  constructor() {
    this.section = byId("maps");
    this.slider = byId("slider");
    this.moment = byId("moment");
    this.button = byId("play");
    const parent = byId("map-plots");
    const chosen = (cell) => this.choose(cell);
    this.values = new GridMap("Values and policy", { parent, chosen });
    this.truth = new GridMap("Exact values", { parent, chosen });
    this.widths = new GridMap("Interval widths", { parent, chosen });
    this.cellPlot = new Curves("Values of a cell", { parent, wide: true });
    this.kind = document.createElement("select");
    this.kind.setAttribute("aria-label", "Which intervals");
    this.kind.append(new Option("of samples", "width"), new Option("of the value", "solved_width"));
    this.kind.addEventListener("change", () => this.redraw());
    this.widths.head.insertBefore(this.kind, this.widths.save);
    this.slider.addEventListener("input", () => {
      this.follows = Number(this.slider.value) === this.frames.length - 1;
      this.redraw();
    });
    this.button.addEventListener("click", () => (this.timer ? this.stop() : this.play()));
    this.clear();
  }

  clear() {
    this.stop();
    this.grid = null;
    this.frames = [];
    this.cell = null;
    this.follows = true;
    this.section.hidden = true;
  }

  add(data, context) {
    this.context = context;
    if (!data.grid) return;
    const hadSolved = this.frames.some((frame) => frame.solved_width);
    this.grid = data.grid;
    this.frames.push(...data.frames);
    this.seed = data.seed;
    this.section.hidden = false;
    this.slider.max = String(Math.max(0, this.frames.length - 1));
    if (this.follows) this.slider.value = this.slider.max;
    this.slider.disabled = this.button.disabled = this.frames.length < 2;
    const hasSolved = this.frames.some((frame) => frame.solved_width);
    this.kind.hidden = !hasSolved;
    if (hasSolved && !hadSolved) this.kind.value = "solved_width";
    if (!hasSolved) this.kind.value = "width";
    if (this.cell === null) this.cell = this.grid.start[1] * this.grid.width + this.grid.start[0];
    this.redraw();
  }

  choose(cell) {
    this.cell = cell;
    this.redraw();
  }

  play() {
    if (Number(this.slider.value) >= this.frames.length - 1) this.slider.value = "0";
    this.follows = false;
    this.button.textContent = "Pause";
    this.timer = setInterval(() => {
      this.slider.value = String(Number(this.slider.value) + 1);
      if (Number(this.slider.value) >= this.frames.length - 1) {
        this.follows = true;
        this.stop();
      }
      this.redraw();
    }, PLAY_MILLISECONDS);
  }

  stop() {
    clearInterval(this.timer);
    this.timer = null;
    this.button.textContent = "Play";
  }

  redraw() {
    if (!this.grid) return;
    const { grid, cell, frames } = this;
    const cells = grid.width * grid.height;
    const place = Math.min(Number(this.slider.value), frames.length - 1);
    const frame = frames[place] ?? { steps: 0 };
    const text = frames.length ? `Seed ${this.seed}, step ${whole(frame.steps)}` : `No maps of seed ${this.seed}`;
    this.moment.textContent = text;
    this.slider.setAttribute("aria-valuetext", text);
    const [largest, actions] = best(frame.mean, cells);
    const [exact, exactActions] = best(grid.truth, cells);
    const hasTruth = exact.some((value) => value !== null);
    // One scale for all times, so that the same colour is the same value.
    const range = hasTruth ? spread(rangeOf(exact), rangeOf(largest, exact)) : rangeOf(...frames.map((one) => best(one.mean, cells)[0]));
    const about = `${this.context.about} · step ${whole(frame.steps)}`;
    const where = `Cell (${cell % grid.width}, ${Math.floor(cell / grid.width)})`;
    const common = { grid, cell, range, about };
    this.values.setTitle(frame.mean || !frame.probability ? "Values and policy" : "Policy at the end");
    this.values.show({
      ...common, values: largest, arrows: frame.probability ?? null,
      caption: frame.mean ? `${where}: ${number(largest[cell])}${way(grid, actions[cell], frame.probability, cell)}.` : captionWithout(frame, grid, cell, where),
    });
    this.truth.element.hidden = !hasTruth;
    this.truth.show({
      ...common, values: exact, arrows: hasTruth ? greedy(grid.truth, cells) : null,
      caption: `${where}: ${number(exact[cell])}${exactActions[cell] === null || largest[cell] === null ? "" : `, learned ${number(largest[cell] - exact[cell], 3)} away`}.`,
    });
    this.showWidths(common, where, place, actions);
    this.showCell(where);
  }

  showWidths(common, where, place, actions) {
    const { frames, grid, cell } = this;
    const kind = this.kind.value;
    let at = place;
    while (at > 0 && !frames[at]?.[kind]) at -= 1; // intervals for the value are solved now and then
    const widths = frames[at]?.[kind] ?? null;
    this.widths.element.hidden = !frames.some((frame) => frame[kind]);
    const own = actions.map((action, i) => (action === null || !widths ? null : widths[i * 4 + action]));
    const level = Math.round(100 * grid.level);
    const source = kind === "width" ? "of the samples" : "for the value, solved from the replay memory";
    const late = at < place ? `, at step ${whole(frames[at].steps)}` : "";
    this.widths.show({
      ...common, values: own, arrows: null, range: [0, rangeOf(own)[1]],
      caption: `${where}: ${number(own[cell], 3)}. ${level} % intervals ${source}, best action${late}.`,
    });
  }

  showCell(where) {
    const { frames, grid, cell } = this;
    const shown = frames.filter((frame) => frame.mean);
    const isSolved = this.kind.value === "solved_width";
    this.cellPlot.element.hidden = !shown.length;
    const curves = [];
    grid.actions.forEach((name, action) => {
      const i = cell * 4 + action;
      const truth = grid.truth[i];
      const pick = (kind) => shown.map((frame) => frame[kind]?.[i] ?? null);
      const middle = pick("mean");
      if (middle.every((value) => value === null)) return;
      const steps = shown.map((frame) => frame.steps);
      const [centre, width] = isSolved ? [pick("solved"), pick("solved_width")] : [middle, pick("width")];
      const end = (sign) => centre.map((value, j) => (value === null || width[j] === null ? null : value + (sign * width[j]) / 2));
      if (isSolved) {
        curves.push({ label: name, colour: action, steps, middle });
        curves.push({ label: "", bars: true, colour: action, steps, middle: centre, low: end(-1), high: end(1) });
      } else {
        curves.push({ label: name, colour: action, steps, middle, low: end(-1), high: end(1) });
      }
      if (truth !== null) curves.push({ label: "", colour: action, level: truth, dashed: true });
    });
    this.cellPlot.setTitle(`Q-values of ${where.toLowerCase()}, seed ${this.seed}`);
    const end = Math.max(this.context.end, ...shown.slice(-1).map((frame) => frame.steps));
    const note = curves.length ? "Dashed: exact values." : "No action is legal in this cell.";
    const mark = frames.length > 1 ? frames[Math.min(Number(this.slider.value), frames.length - 1)].steps : null;
    this.cellPlot.show(curves, { end, about: this.context.about, note, mark });
  }
}

function captionWithout(frame, grid, cell, where) {
  if (!frame.probability) return "No maps yet.";
  const parts = grid.actions.map((name, i) => [name, frame.probability[cell * 4 + i]]);
  const said = parts.filter(([, share]) => share > 0.005).map(([name, share]) => `${name} ${number(100 * share, 3)} %`);
  return `${where}: ${said.join(", ") || "no action"}. This copy holds the policy at the end, and no values.`;
}

function way(grid, action, probability, cell) {
  const share = action === null ? null : probability?.[cell * 4 + action];
  return share === null || share === undefined ? "" : `, ${grid.actions[action]} is best in ${number(100 * share, 3)} % of the samples`;
}

function spread([low, high], [other, above]) {
  // Beyond the exact values by a quarter of their range at most: early values must not hide them.
  const room = (high - low) / 4 || 1;
  return [Math.max(low - room, Math.min(low, other)), Math.min(high + room, Math.max(high, above))];
}
