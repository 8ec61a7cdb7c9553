// A plot on the page: heading, canvas, caption, and a button that saves it as a PNG.

import { theme } from "/colours.js";
import { fileName } from "/text.js";

export const FONT = 'system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif';

export class Figure {
  // shape: width of the plot -> its height. paint: (context, width, height, theme) draws it.
  constructor(title, { shape, parent, wide = false }) {
    this.shape = shape;
    this.paint = () => {};
    this.about = "";
    this.element = document.createElement("figure");
    this.element.className = wide ? "card wide" : "card";
    this.head = document.createElement("div");
    this.head.className = "head";
    this.heading = document.createElement("h3");
    this.save = document.createElement("button");
    this.save.type = "button";
    this.save.className = "quiet";
    this.save.textContent = "PNG";
    this.canvas = document.createElement("canvas");
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "img");
    this.caption = document.createElement("figcaption");
    this.head.append(this.heading, this.save);
    this.element.append(this.head, this.canvas, this.caption);
    parent.append(this.element);
    this.setTitle(title);
    this.save.addEventListener("click", () => this.download());
    new ResizeObserver(() => this.draw()).observe(this.element);
  }

  setTitle(title) {
    if (this.title === title) return;
    this.title = title;
    this.heading.textContent = title;
    this.save.setAttribute("aria-label", `Save “${title}” as PNG`);
  }

  setCaption(text) {
    if (this.caption.textContent !== text) this.caption.textContent = text;
    this.canvas.setAttribute("aria-label", `${this.title}. ${text}`);
  }

  draw() {
    const style = getComputedStyle(this.element);
    const inner = this.element.clientWidth - parseFloat(style.paddingLeft) - parseFloat(style.paddingRight);
    if (inner <= 0 || !this.element.isConnected) return;
    const width = Math.floor(inner);
    const height = Math.round(this.shape(width));
    const scale = window.devicePixelRatio || 1;
    if (this.canvas.width !== Math.round(width * scale) || this.canvas.height !== Math.round(height * scale)) {
      this.canvas.width = Math.round(width * scale);
      this.canvas.height = Math.round(height * scale);
      this.canvas.style.height = `${height}px`;
    }
    this.onto(this.canvas, scale, width, height);
  }

  onto(canvas, scale, width, height, top = 0) {
    const context = canvas.getContext("2d");
    const colours = theme();
    context.setTransform(scale, 0, 0, scale, 0, 0);
    context.fillStyle = colours.card;
    context.fillRect(0, 0, width, height + top);
    context.translate(0, top);
    this.paint(context, width, height, colours);
    return [context, colours];
  }

  async download() {
    const canvas = document.createElement("canvas");
    const [scale, margin, top] = [2, 16, 50];
    const width = Math.max(480, Math.min(900, this.canvas.clientWidth));
    const height = Math.round(this.shape(width));
    const inner = document.createElement("canvas");
    [inner.width, inner.height] = [width * scale, height * scale];
    const [, colours] = this.onto(inner, scale, width, height);
    [canvas.width, canvas.height] = [(width + 2 * margin) * scale, (height + top + margin) * scale];
    const context = canvas.getContext("2d");
    context.scale(scale, scale);
    context.fillStyle = colours.card;
    context.fillRect(0, 0, canvas.width, canvas.height);
    context.drawImage(inner, margin, top, width, height);
    context.fillStyle = colours.ink;
    context.font = `600 16px ${FONT}`;
    context.fillText(this.title, margin, 24, width);
    context.fillStyle = colours.soft;
    context.font = `12px ${FONT}`;
    context.fillText(this.about, margin, 41, width);
    const blob = await new Promise((done) => canvas.toBlob(done, "image/png"));
    const link = document.createElement("a");
    link.href = URL.createObjectURL(blob);
    link.download = fileName(this.title, this.about);
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10_000);
  }
}
