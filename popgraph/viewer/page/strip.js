// A chart over a long row of things: one bar for each, or for as many as share a pixel.

const STRIP = { left: 64, right: 12, least: 4 };

/** Bytes of memories that are powers of two. */
function binary(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  let size = count;
  for (; Math.abs(size) >= 4096 && unit + 1 < units.length; unit += 1) size /= 1024;
  return `${size.toLocaleString("en", { maximumSignificantDigits: 4 })} ${units[unit]}`;
}

/** The next round number: 1, 2 or 5 times a power of ten, of units that are a thousand of each other, or 1024. */
function roundStep(least, thousand) {
  const unit = thousand ** Math.max(0, Math.floor(Math.log(Math.max(1, least)) / Math.log(thousand)));
  const power = 10 ** Math.floor(Math.log10(Math.max(1, least / unit)));
  return [1, 2, 5, 10].map((digit) => digit * power * unit).find((one) => one >= least) ?? 10 * power * unit;
}

class Strip {
  /** `paint(strip, context, width)` draws it, `tell(index)` gives the words for one, `choose(index)` takes it. */
  constructor({ count, height, label, paint, tell, choose, start = 0 }) {
    Object.assign(this, { count, height, paint, tell, choose, from: 0, to: count, at: start, drag: null, width: 0 });
    this.canvas = element("canvas", { class: "chart", height: String(height), tabindex: "0", role: "slider", "aria-label": label,
      "aria-valuemin": "0", "aria-valuemax": String(count - 1) });
    this.told = element("p", { class: "told" });
    this.whole = element("button", { type: "button", class: "whole link", onclick: () => this.zoom(0, count) }, "show all");
    this.frame = element("div", { class: "strip" }, this.canvas, this.whole, this.told);
    this.listen();
    this.zoom(0, count);
  }

  listen() {
    const { canvas } = this;
    canvas.addEventListener("pointerdown", (event) => {
      canvas.setPointerCapture(event.pointerId);
      this.drag = { start: event.offsetX, end: event.offsetX };
    });
    canvas.addEventListener("pointermove", (event) => {
      if (this.drag) this.drag.end = event.offsetX;
      this.point(this.index(event.offsetX));
    });
    canvas.addEventListener("pointerup", () => {
      const { start, end } = this.drag ?? {};
      this.drag = null;
      if (Math.abs(end - start) < 6) this.choose(this.index(end));
      else this.zoom(this.index(Math.min(start, end)), this.index(Math.max(start, end)) + 1);
    });
    canvas.addEventListener("pointercancel", () => { this.drag = null; });
    canvas.addEventListener("dblclick", () => this.zoom(0, this.count));
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => this.draw()).observe(canvas);
  }

  key(event) {
    const far = event.shiftKey ? Math.max(1, Math.round((this.to - this.from) / 20)) : 1;
    const places = { ArrowLeft: this.at - far, ArrowRight: this.at + far, Home: 0, End: this.count - 1 };
    const span = this.to - this.from;
    if (event.key in places) {
      this.point(places[event.key]);
      const late = Math.max(0, this.at + 1 - this.to);
      const early = Math.max(0, this.from - this.at);
      if (late || early) this.zoom(this.from + late - early, this.to + late - early);
    } else if (event.key === "Enter" || event.key === " ") this.choose(this.at);
    else if (event.key === "+") this.zoom(this.at - span / 4, this.at + span / 4);
    else if (event.key === "-") this.zoom(this.at - span, this.at + span);
    else if (event.key === "0") this.zoom(0, this.count);
    else return;
    event.preventDefault();
  }

  zoom(from, to) {
    const least = Math.min(this.count, STRIP.least);
    const span = Math.max(least, Math.min(this.count, Math.round(to - from)));
    this.from = Math.max(0, Math.min(this.count - span, Math.round(from)));
    this.to = this.from + span;
    this.whole.hidden = span === this.count;
    this.draw();
  }

  /** Tells of one, as the pointer and the keys do. */
  point(index) {
    this.at = Math.max(0, Math.min(this.count - 1, index));
    const words = this.tell(this.at);
    this.told.replaceChildren(...words);
    this.canvas.setAttribute("aria-valuenow", String(this.at));
    this.canvas.setAttribute("aria-valuetext", this.told.textContent);
    this.draw();
  }

  index(x) {
    const share = (x - STRIP.left) / Math.max(1, this.width - STRIP.left - STRIP.right);
    return Math.max(this.from, Math.min(this.to - 1, this.from + Math.floor(share * (this.to - this.from))));
  }

  x(index) {
    return STRIP.left + ((index - this.from) / (this.to - this.from)) * (this.width - STRIP.left - STRIP.right);
  }

  /** The bars to draw: where several share a pixel, the one with the largest value. */
  bars(value) {
    const found = [];
    for (let index = this.from; index < this.to; ) {
      const left = this.x(index);
      let most = index;
      let next = index + 1;
      for (; next < this.to && this.x(next + 1) - left <= 1.5; next += 1) if (value(next) > value(most)) most = next;
      const [x, right] = [Math.round(left), Math.round(this.x(next))];
      found.push({ index: most, x, w: Math.max(1, right - x) });
      index = next;
    }
    return found;
  }

  draw() {
    const width = this.canvas.clientWidth;
    if (!width) return;
    this.width = width;
    const ratio = window.devicePixelRatio || 1;
    Object.assign(this.canvas, { width: width * ratio, height: this.height * ratio });
    this.canvas.style.height = `${this.height}px`;
    const context = this.canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.font = FONT.type;
    this.paint(this, context, width);
    if (this.drag && Math.abs(this.drag.end - this.drag.start) >= 6) {
      context.globalAlpha = 0.15;
      context.fillStyle = colours()("accent");
      context.fillRect(this.drag.start, 0, this.drag.end - this.drag.start, this.height);
      context.globalAlpha = 1;
    }
  }

  /** Stacked bars between two heights, `parts` from below: each with its value and its colour. */
  stacks(context, { top, bottom, most, parts, emphasis = () => null }) {
    const [colour, known] = [colours(), {}];
    const paint = (name) => (known[name] ??= colour(name));
    const sum = (index) => parts.reduce((total, part) => total + part.value(index), 0);
    for (const { index, x, w } of this.bars(sum)) {
      let y = bottom;
      for (const part of parts) {
        const tall = (part.value(index) / most) * (bottom - top);
        context.fillStyle = paint(emphasis(index, part) ?? part.colour);
        context.fillRect(x, y - tall, w > 4 ? w - 1 : w, tall);
        y -= tall;
      }
    }
  }

  /** The axis at the left, from 0 to `most`, with round numbers, and its title. */
  scale(context, width, { top, bottom, most, title, unit = binary, thousand = 1024 }) {
    const paint = colours();
    const step = roundStep(most / 5, thousand);
    context.textAlign = "right";
    for (let value = 0; value <= most; value += step) {
      const y = Math.round(bottom - (value / most) * (bottom - top)) + 0.5;
      context.strokeStyle = paint("line");
      context.lineWidth = 1;
      context.beginPath();
      context.moveTo(STRIP.left, y);
      context.lineTo(width - STRIP.right, y);
      context.stroke();
      context.fillStyle = paint("soft");
      context.fillText(unit(value), STRIP.left - 6, y + 4);
    }
    context.textAlign = "left";
    context.fillText(title, STRIP.left + 4, top - 8);
  }

  /** Lines below what belongs to what is chosen. */
  marks(context, bottom, indices) {
    context.fillStyle = colours()("accent");
    for (const index of indices) {
      if (index < this.from || index >= this.to) continue;
      context.fillRect(this.x(index) - 1, bottom + 1, Math.max(4, this.x(index + 1) - this.x(index)), 3);
    }
  }

  /** A frame around what is told of. */
  cursor(context, bottom) {
    if (this.at < this.from || this.at >= this.to) return;
    context.strokeStyle = colours()("accent");
    context.lineWidth = 1;
    context.strokeRect(Math.round(this.x(this.at)) + 0.5, 0.5, Math.max(2, Math.round(this.x(this.at + 1) - this.x(this.at))), bottom);
  }
}

const legend = (entries) => element("div", { class: "legend" }, entries.map(([name, colour]) =>
  element("span", {}, element("i", { style: `background:var(--${colour})` }), name)));
