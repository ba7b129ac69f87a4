/* Trains on digits, and reads drawn ones, by the package that `build.py` exports. */

import { load } from "./digits/digits.js";

const PIXELS = 64;
const BATCH = 32;
const HELD_OUT = 297;
const KEY = "digits";
const FRAME = 12; // Milliseconds of training between two pictures of the page.

const find = (id) => document.getElementById(id);
/* A color of page.css, in the page's scheme. */
const probe = document.body.appendChild(document.createElement("i"));
const color = (name) => {
  probe.style.color = `var(${name})`;
  return getComputedStyle(probe).color;
};
const largest = (p) => p.indexOf(Math.max(...p));

const [model, data] = await Promise.all([load(), loadDigits()]);
const batch = { image: new Float32Array(BATCH * PIXELS), label: new Int32Array(BATCH) };
let training = false;
let order = [];
let epoch = 0;
let steps = 0;
let busy = 0;
let losses = [];
let accuracies = [];

/* Rows of 64 pixels, 0 to 16, and a label. */
async function loadDigits() {
  const response = await fetch("digits.bin");
  const rows = new Uint8Array(await response.arrayBuffer());
  const digits = [];
  for (let at = 0; at < rows.length; at += PIXELS + 1) {
    const image = Float32Array.from(rows.subarray(at, at + PIXELS), (pixel) => pixel / 16);
    digits.push({ image, label: rows[at + PIXELS] });
  }
  return { train: digits.slice(HELD_OUT), test: digits.slice(0, HELD_OUT) };
}

function shuffled(count) {
  const numbers = Array.from({ length: count }, (_, at) => at);
  for (let at = count - 1; at > 0; at--) {
    const other = Math.floor(Math.random() * (at + 1));
    [numbers[at], numbers[other]] = [numbers[other], numbers[at]];
  }
  return numbers;
}

function trainStep() {
  if (order.length < BATCH) {
    if (steps) epoch++;
    order = shuffled(data.train.length);
  }
  order.splice(0, BATCH).forEach((number, row) => {
    batch.image.set(data.train[number].image, row * PIXELS);
    batch.label[row] = data.train[number].label;
  });
  const start = performance.now();
  losses.push(model.step(batch).loss);
  busy += performance.now() - start;
  steps++;
}

const read = (image) => model.run({ image }).p;

function accuracy() {
  const right = data.test.filter(({ image, label }) => largest(read(image)) === label);
  return right.length / data.test.length;
}

/* Trains for a part of a frame, then draws the page. */
function frame() {
  if (!training) return;
  const before = epoch;
  const end = performance.now() + FRAME;
  do trainStep(); while (performance.now() < end);
  if (epoch !== before) accuracies.push([steps, accuracy()]);
  show();
  requestAnimationFrame(frame);
}

function show() {
  const recent = losses.slice(-20);
  const loss = recent.reduce((sum, one) => sum + one, 0) / recent.length;
  find("epoch").textContent = epoch;
  find("loss").textContent = recent.length ? loss.toFixed(3) : "–";
  const last = accuracies.at(-1);
  find("accuracy").textContent = last ? `${(100 * last[1]).toFixed(1)} %` : "–";
  const speed = Math.round((1000 * steps * BATCH) / busy);
  find("speed").textContent = steps ? speed.toLocaleString("en") : "–";
  drawCurve();
  readSamples();
  readDrawing();
}

function drawCurve() {
  const canvas = find("curve");
  const pen = canvas.getContext("2d");
  const { width, height } = canvas;
  const [left, bottom] = [52, height - 32];
  pen.clearRect(0, 0, width, height);
  pen.font = "20px system-ui, sans-serif";
  pen.lineWidth = 1;
  const top = Math.max(2.5, ...losses);
  const x = (step) => left + ((width - left - 8) * step) / Math.max(losses.length, 100);
  const y = (share) => bottom - (bottom - 12) * share;
  for (const share of [0, 0.25, 0.5, 0.75, 1]) {
    pen.strokeStyle = color("--line");
    pen.beginPath();
    pen.moveTo(left, y(share));
    pen.lineTo(width, y(share));
    pen.stroke();
    pen.fillStyle = color("--soft");
    pen.fillText((top * share).toFixed(1), 6, y(share) + 7);
  }
  pen.fillText(`${losses.length} steps`, width - 130, height - 6);
  const line = (points, name, thickness) => {
    pen.strokeStyle = color(name);
    pen.lineWidth = thickness;
    pen.beginPath();
    for (const [step, share] of points) pen.lineTo(x(step), y(share));
    pen.stroke();
  };
  line(losses.map((loss, step) => [step, loss / top]), "--loss", 1.5);
  line([[0, 0.1], ...accuracies], "--accuracy", 3);
}

/* An image as gray pixels on a canvas of 8 x 8. */
function paint(canvas, image) {
  const pixels = new ImageData(8, 8);
  image.forEach((ink, at) => {
    const gray = 255 * (1 - ink);
    pixels.data.set([gray, gray, gray, 255], 4 * at);
  });
  canvas.getContext("2d").putImageData(pixels, 0, 0);
}

const samples = data.test.slice(0, 24).map(({ image, label }) => {
  const box = document.createElement("div");
  const canvas = Object.assign(document.createElement("canvas"), { width: 8, height: 8 });
  const caption = document.createElement("div");
  paint(canvas, image);
  box.append(canvas, caption);
  find("samples").append(box);
  return { image, label, caption };
});

function readSamples() {
  for (const { image, label, caption } of samples) {
    const found = largest(read(image));
    caption.textContent = found;
    caption.className = found === label ? "" : "wrong";
  }
}

const paper = find("paper");
const brush = paper.getContext("2d", { willReadFrequently: true });
brush.lineWidth = 26;
brush.lineCap = brush.lineJoin = "round";
let isDrawing = false;

function pointOf(event) {
  const box = paper.getBoundingClientRect();
  const scale = paper.width / box.width;
  return [(event.clientX - box.left) * scale, (event.clientY - box.top) * scale];
}

paper.addEventListener("pointerdown", (event) => {
  isDrawing = true;
  paper.setPointerCapture(event.pointerId);
  brush.beginPath();
  brush.moveTo(...pointOf(event));
  brush.lineTo(...pointOf(event));
  brush.stroke();
});
paper.addEventListener("pointermove", (event) => {
  if (!isDrawing) return;
  brush.lineTo(...pointOf(event));
  brush.stroke();
  readDrawing();
});
paper.addEventListener("pointerup", () => {
  isDrawing = false;
  readDrawing();
});

/* The drawing as the data were made: 32 x 32 dots around the ink, the black ones of 4 x 4 counted. */
function drawnImage() {
  const { width, height } = paper;
  const ink = brush.getImageData(0, 0, width, height).data;
  let [left, top, right, bottom] = [width, height, -1, -1];
  for (let at = 0; at < width * height; at++) {
    if (ink[4 * at + 3] < 128) continue;
    const [x, y] = [at % width, Math.floor(at / width)];
    [left, right] = [Math.min(left, x), Math.max(right, x)];
    [top, bottom] = [Math.min(top, y), Math.max(bottom, y)];
  }
  if (right < 0) return null;
  const size = Math.max(right - left, bottom - top) + 1;
  const [x0, y0] = [(left + right + 1 - size) / 2, (top + bottom + 1 - size) / 2];
  const image = new Float32Array(PIXELS);
  for (let row = 0; row < 32; row++) {
    for (let column = 0; column < 32; column++) {
      const x = Math.floor(x0 + ((column + 0.5) * size) / 32);
      const y = Math.floor(y0 + ((row + 0.5) * size) / 32);
      const inside = x >= 0 && y >= 0 && x < width && y < height;
      if (inside && ink[4 * (y * width + x) + 3] >= 128) {
        image[(row >> 2) * 8 + (column >> 2)] += 1 / 16;
      }
    }
  }
  return image;
}

find("bars").append(...Array.from({ length: 10 }, () => {
  const item = document.createElement("li");
  item.append(document.createElement("span"));
  return item;
}));

function readDrawing() {
  const image = drawnImage();
  paint(find("seen"), image ?? new Float32Array(PIXELS));
  const p = image ? read(image) : new Float32Array(10);
  find("answer").textContent = image ? `a ${largest(p)}` : "";
  document.querySelectorAll("#bars span").forEach((bar, digit) => {
    bar.style.width = `${100 * p[digit]}%`;
  });
}

find("clear").addEventListener("click", () => {
  brush.clearRect(0, 0, paper.width, paper.height);
  readDrawing();
});
find("train").addEventListener("click", () => {
  training = !training;
  find("train").textContent = training ? "Pause" : "Train";
  if (training) requestAnimationFrame(frame);
});
find("reset").addEventListener("click", () => {
  model.reset();
  [order, epoch, steps, busy, losses, accuracies] = [[], 0, 0, 0, [], []];
  show();
});
find("save").addEventListener("click", async () => {
  await model.saveTo(KEY);
  find("status").textContent = "Saved in this browser.";
});
find("restore").addEventListener("click", async () => {
  const found = await model.loadFrom(KEY);
  if (found) accuracies.push([steps, accuracy()]);
  find("status").textContent = found ? "Restored." : "Nothing has been saved in this browser.";
  show();
});

for (const id of ["train", "reset", "save", "restore"]) find(id).disabled = false;
const simd = model.simd ? "with SIMD" : "without SIMD";
find("status").textContent = `${data.train.length} digits to train on, ${HELD_OUT} held out; ${simd}.`;
show();
