// Curves over environment steps: lines, bands, bars of intervals, and a cursor.

import { Figure, FONT } from "/figures.js";
import { number, short, whole } from "/text.js";

const MARGIN = { left: 58, right: 12, top: 10, bottom: 40 };

// A curve: {label, colour (a place in the palette), steps, middle, low?, high?, dashed?, faint?,
// bars? (draw low and high as bars), level? (a number: a horizontal line)}.
export class Curves extends Figure {
  constructor(title, options) {
    super(title, { shape: (width) => Math.max(200, Math.min(300, width * 0.55)), ...options });
    this.curves = [];
    this.end = 1;
    this.isLog = false;
    this.cursor = null; // where the pointer or the keys are
    this.mark = null; // a step that is shown until then
    this.note = "";
    this.paint = (context, width, height, colours) => this.plot(context, width, height, colours);
    this.canvas.addEventListener("pointermove", (event) => this.point(event.offsetX));
    this.canvas.addEventListener("pointerleave", () => this.setCursor(null));
    this.canvas.addEventListener("keydown", (event) => this.key(event));
  }

  show(curves, { end, isLog = false, note = "", about = "", mark = null }) {
    const known = curves.flatMap((curve) => values(curve));
    this.curves = curves;
    this.end = Math.max(1, end);
    this.isLog = isLog && known.length > 0 && Math.min(...known) > 0;
    this.note = note;
    this.mark = mark;
    this.about = about;
    this.describe();
    this.draw();
  }

  steps() {
    const all = new Set(this.curves.flatMap((curve) => curve.steps ?? []));
    return [...all].sort((a, b) => a - b);
  }

  point(x) {
    const width = this.canvas.clientWidth - MARGIN.left - MARGIN.right;
    const wanted = ((x - MARGIN.left) / width) * this.end;
    const steps = this.steps();
    if (!steps.length) return;
    this.setCursor(steps.reduce((a, b) => (Math.abs(b - wanted) < Math.abs(a - wanted) ? b : a)));
  }

  key(event) {
    const steps = this.steps();
    const move = { ArrowLeft: -1, ArrowRight: 1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Escape") this.setCursor(null);
    if (move === undefined || !steps.length) return;
    event.preventDefault();
    const now = steps.indexOf(this.cursor ?? this.mark ?? steps[steps.length - 1]);
    this.setCursor(steps[Math.min(steps.length - 1, Math.max(0, now + move))]);
  }

  setCursor(step) {
    if (this.cursor === step) return;
    this.cursor = step;
    this.describe();
    this.draw();
  }

  describe() {
    const steps = this.steps();
    if (!steps.length) {
      this.setCaption(this.note || "No numbers yet.");
      return;
    }
    const step = this.cursor ?? this.mark ?? steps[steps.length - 1];
    const said = this.curves.filter((curve) => !curve.faint && curve.label).map((curve) => {
      if (curve.level !== undefined) return null;
      const at = curve.steps.indexOf(step);
      if (at < 0 || curve.middle[at] === null) return null;
      const band = curve.low && curve.low[at] !== null && curve.low[at] !== curve.high[at];
      const ends = band ? ` (${number(curve.low[at], 3)} to ${number(curve.high[at], 3)})` : "";
      return `${curve.label} ${number(curve.middle[at])}${ends}`;
    });
    const text = said.filter(Boolean).join("; ");
    this.setCaption(`Step ${whole(step)}: ${text || "no number"}. ${this.note}`.trim());
  }

  scales(width, height) {
    const known = this.curves.flatMap((curve) => values(curve));
    let low = known.length ? Math.min(...known) : 0;
    let high = known.length ? Math.max(...known) : 1;
    if (this.isLog) [low, high] = [Math.log10(low), Math.log10(high)];
    const room = (high - low) * 0.06 || Math.abs(high) * 0.1 || 0.5;
    [low, high] = [low - room, high + room];
    const [w, h] = [width - MARGIN.left - MARGIN.right, height - MARGIN.top - MARGIN.bottom];
    return {
      low, high,
      x: (step) => MARGIN.left + (step / this.end) * w,
      y: (value) => MARGIN.top + h - (((this.isLog ? Math.log10(value) : value) - low) / (high - low)) * h,
    };
  }

  plot(context, width, height, colours) {
    const scale = this.scales(width, height);
    this.axes(context, width, height, colours, scale);
    context.save();
    context.beginPath();
    context.rect(MARGIN.left, 0, width - MARGIN.left - MARGIN.right + 4, height - MARGIN.bottom + 4);
    context.clip();
    for (const curve of this.curves) if (curve.low && !curve.bars) band(context, curve, colours, scale);
    for (const curve of this.curves) line(context, curve, colours, scale, width);
    context.restore();
    this.legend(context, width, height, colours);
    const at = this.cursor ?? this.mark;
    if (at !== null) {
      context.strokeStyle = colours.soft;
      context.lineWidth = 1;
      context.setLineDash([2, 3]);
      stroke(context, [[scale.x(at), MARGIN.top], [scale.x(at), height - MARGIN.bottom]]);
      context.setLineDash([]);
    }
  }

  axes(context, width, height, colours, scale) {
    context.font = `11px ${FONT}`;
    context.lineWidth = 1;
    context.textBaseline = "middle";
    context.textAlign = "right";
    for (const value of this.isLog ? powers(scale.low, scale.high) : ticks(scale.low, scale.high, 5)) {
      const y = scale.y(value);
      context.strokeStyle = colours.grid;
      stroke(context, [[MARGIN.left, y], [width - MARGIN.right, y]]);
      context.fillStyle = colours.soft;
      context.fillText(short(value), MARGIN.left - 7, y, MARGIN.left - 9);
    }
    context.textBaseline = "top";
    context.textAlign = "center";
    for (const step of ticks(0, this.end, width < 400 ? 3 : 5)) {
      const x = scale.x(step);
      const text = short(step);
      const half = context.measureText(text).width / 2;
      context.fillText(text, Math.min(x, width - half - 1), height - MARGIN.bottom + 6);
    }
    context.strokeStyle = colours.line;
    const floor = height - MARGIN.bottom;
    stroke(context, [[MARGIN.left, MARGIN.top], [MARGIN.left, floor], [width - MARGIN.right, floor]]);
  }

  legend(context, width, height, colours) {
    const shown = this.curves.filter((curve) => !curve.faint && curve.label);
    context.font = `11px ${FONT}`;
    context.textAlign = "left";
    context.textBaseline = "middle";
    const widths = shown.map((curve) => context.measureText(curve.label).width);
    const total = widths.reduce((sum, wide) => sum + wide + 32, -14);
    let x = Math.max(2, Math.min(MARGIN.left, width - total));
    for (const [i, curve] of shown.entries()) {
      const wide = widths[i];
      if (x + 18 + wide > width) break;
      pen(context, curve, colours);
      stroke(context, [[x, height - 10], [x + 14, height - 10]]);
      context.setLineDash([]);
      context.globalAlpha = 1;
      context.fillStyle = colours.soft;
      context.fillText(curve.label, x + 18, height - 10);
      x += wide + 32;
    }
  }
}

function values(curve) {
  if (curve.level !== undefined) return [curve.level];
  const parts = [curve.middle, curve.low ?? [], curve.high ?? []];
  return parts.flat().filter((value) => value !== null && Number.isFinite(value));
}

function colourOf(curve, colours) {
  return colours.lines[curve.colour % colours.lines.length];
}

function pen(context, curve, colours) {
  context.strokeStyle = curve.soft ? colours.soft : colourOf(curve, colours);
  context.lineWidth = curve.faint ? 1 : 2;
  context.globalAlpha = curve.faint ? 0.3 : 1;
  context.setLineDash(curve.dashed ? [5, 4] : []);
  context.lineJoin = "round";
}

function line(context, curve, colours, scale, width) {
  pen(context, curve, colours);
  if (curve.level !== undefined) {
    stroke(context, [[MARGIN.left, scale.y(curve.level)], [width - MARGIN.right, scale.y(curve.level)]]);
  } else {
    const runs = pieces(curve.steps, curve.middle);
    for (const run of runs) {
      stroke(context, run.map(([step, value]) => [scale.x(step), scale.y(value)]));
      if (run.length === 1) dot(context, scale.x(run[0][0]), scale.y(run[0][1]), context.strokeStyle);
    }
    if (curve.bars) bars(context, curve, scale);
  }
  context.globalAlpha = 1;
  context.setLineDash([]);
}

function bars(context, curve, scale) {
  context.lineWidth = 1.4;
  context.setLineDash([]);
  curve.steps.forEach((step, i) => {
    if (curve.low[i] === null || curve.high[i] === null) return;
    const [x, low, high] = [scale.x(step), scale.y(curve.low[i]), scale.y(curve.high[i])];
    stroke(context, [[x, low], [x, high]]);
    stroke(context, [[x - 3, low], [x + 3, low]]);
    stroke(context, [[x - 3, high], [x + 3, high]]);
    dot(context, x, scale.y(curve.middle[i]), context.strokeStyle);
  });
}

function band(context, curve, colours, scale) {
  context.fillStyle = colourOf(curve, colours);
  context.globalAlpha = 0.18;
  const edges = curve.low.map((low, i) => (low === null || curve.high[i] === null ? null : [low, curve.high[i]]));
  for (const run of pieces(curve.steps, edges)) {
    context.beginPath();
    run.forEach(([step, [low]], i) => context[i ? "lineTo" : "moveTo"](scale.x(step), scale.y(low)));
    run.reverse().forEach(([step, [, high]]) => context.lineTo(scale.x(step), scale.y(high)));
    context.fill();
  }
  context.globalAlpha = 1;
}

function pieces(steps, values) {
  const runs = [[]];
  steps.forEach((step, i) => {
    if (values[i] !== null) runs[runs.length - 1].push([step, values[i]]);
    else if (runs[runs.length - 1].length) runs.push([]);
  });
  return runs.filter((run) => run.length);
}

function stroke(context, points) {
  context.beginPath();
  points.forEach(([x, y], i) => context[i ? "lineTo" : "moveTo"](x, y));
  context.stroke();
}

function dot(context, x, y, colour) {
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, 2.5, 0, 2 * Math.PI);
  context.fill();
}

function ticks(low, high, most) {
  const rough = (high - low) / most;
  const power = 10 ** Math.floor(Math.log10(rough));
  const step = [1, 2, 2.5, 5, 10].map((unit) => unit * power).find((unit) => unit >= rough);
  const found = [];
  for (let i = Math.ceil(low / step); i * step <= high + step * 1e-9; i += 1) {
    found.push(Number((i * step).toPrecision(12)));
  }
  return found;
}

function powers(low, high) {
  const found = [];
  for (let power = Math.ceil(low); power <= high; power += 1) found.push(10 ** power);
  if (found.length > 2) return found.filter((_, i) => i % Math.ceil(found.length / 6) === 0);
  const finer = [];
  for (let power = Math.floor(low); power <= high; power += 1) {
    for (const unit of [1, 2, 5]) finer.push(unit * 10 ** power);
  }
  return finer.filter((value) => value >= 10 ** low && value <= 10 ** high);
}
