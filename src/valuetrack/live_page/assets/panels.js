// The curves of a row, and the values of tracked states.

import { Curves } from "/curves.js";
import { label } from "/text.js";

const LOG = new Set(["loss", "mse"]);
const STARTS = ["start_value", "value_at_start"];
const byId = (id) => document.getElementById(id);

export class RowPanels {
  constructor() {
    this.parent = byId("curves");
    this.figures = new Map();
  }

  redraw() {
    for (const figure of this.figures.values()) figure.draw();
  }

  show(data, { steps, about, seeds }) {
    const wanted = plots(data.series);
    byId("nothing").hidden = wanted.length > 0;
    for (const [key, figure] of this.figures) {
      if (!wanted.some((plot) => plot.key === key)) {
        figure.element.remove();
        this.figures.delete(key);
      }
    }
    for (const plot of wanted) {
      if (!this.figures.has(plot.key)) this.figures.set(plot.key, new Curves(plot.title, { parent: this.parent }));
      const end = Math.max(steps, ...plot.series.flatMap((series) => series.steps.slice(-1)));
      const curves = plot.series.flatMap((series, i) => curvesOf(series, i, plot, data.seed, seeds));
      const isPair = plot.series.length > 1 && data.seed !== null && seeds > 1;
      const note = isPair ? `Seed ${data.seed}; dashed: medians of seeds.` : "";
      this.figures.get(plot.key).show(curves, { end, isLog: LOG.has(plot.key), about, note });
    }
    this.parent.append(...wanted.map((plot) => this.figures.get(plot.key).element));
  }
}

// What was believed and what came of it stand in one plot; everything else in one of its own.
function plots(series) {
  const start = series.find((one) => STARTS.includes(one.name));
  const came = series.find((one) => one.name === "discounted_return");
  const found = [];
  for (const one of series.filter((each) => each.steps.length)) {
    if (start && came && one === came) continue;
    const isPair = start && came && one === start;
    found.push({
      key: one.name,
      title: isPair ? "Value at the start, and what came of it" : label(one.name),
      series: isPair ? [start, came] : [one],
    });
  }
  return found;
}

function curvesOf(series, place, plot, seed, seeds) {
  const { steps, middle, low, high } = series;
  const name = plot.series.length > 1 ? label(series.name) : "";
  const curves = [];
  const isAlone = seeds <= 1;
  if (series.lines && plot.series.length === 1) {
    for (const line of series.lines) curves.push({ steps, middle: line, colour: place, faint: true });
  }
  if (isAlone) return [{ label: name || label(series.name), colour: place, steps, middle }];
  const all = name || "median of seeds";
  const isChosen = series.one !== undefined;
  const own = name || `seed ${seed}`;
  curves.push({ label: isChosen && name ? "" : all, colour: place, steps, middle, low, high, dashed: isChosen });
  if (isChosen) curves.push({ label: own, colour: place, steps, middle: series.one });
  return curves;
}

export class TrackedPanel {
  constructor() {
    this.section = byId("tracked");
    this.choice = byId("tracked-state");
    this.figure = new Curves("Tracked values", { parent: byId("tracked-plots"), wide: true });
    this.choice.addEventListener("change", () => this.redraw());
    this.data = null;
  }

  show(data, context) {
    this.section.hidden = !data;
    this.data = data;
    this.context = context;
    if (!data) return;
    if (this.choice.options.length !== data.states) {
      const options = Array.from({ length: data.states }, (_, i) => new Option(`state ${i}`, String(i)));
      this.choice.replaceChildren(...options);
    }
    this.redraw();
  }

  redraw() {
    if (!this.data) return;
    const { steps, actions, kinds, seed } = this.data;
    const state = Number(this.choice.value || 0);
    const pick = (kind, action) => kinds[kind]?.map((row) => row[state * actions + action]) ?? null;
    const curves = [];
    for (let action = 0; action < actions; action += 1) {
      curves.push({
        label: `action ${action}`, colour: action, steps, middle: pick("mean", action),
        low: pick("low", action), high: pick("high", action),
      });
      const solved = pick("solved", action);
      if (solved) {
        // A solution is repeated in the records until the next one: shown once, where it is new.
        const isNew = solved.map((value, i) => value !== null && (i === 0 || value !== solved[i - 1]));
        const only = (list) => list.map((value, i) => (isNew[i] ? value : null));
        curves.push({
          label: "", colour: action, steps, middle: only(solved), bars: true,
          low: only(pick("solved_low", action)), high: only(pick("solved_high", action)),
        });
      }
    }
    this.figure.setTitle(`Q-values of tracked state ${state}, seed ${seed}`);
    const bars = kinds.solved ? " Bars: 95 % intervals for the value, solved from the replay memory." : "";
    this.figure.show(curves, { ...this.context, note: `Bands: 95 % credible intervals of the samples.${bars}` });
  }
}
