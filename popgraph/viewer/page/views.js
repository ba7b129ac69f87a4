// The views beside the graphs: calls of the program, passes, memory, source.

/** The calls of the program in their order, with what they take. */
function programView(act) {
  const { calls, lowered } = known;
  const field = lowered.total ? "time" : "cycles";
  const most = Math.max(...calls.map((call) => (call.prepared ? 0 : call[field] ?? 0)), 1e-9);
  const sum = calls.reduce((total, call) => total + (call.prepared ? 0 : call[field] ?? 0), 0);
  const row = (call) => {
    const amount = call[field];
    const share = call.prepared || amount === undefined ? "" : `${((100 * amount) / sum).toFixed(1)} %`;
    const bar = element("span", { class: `bar ${field}`, style: `width:${(110 * (amount ?? 0)) / most}px` });
    return { attributes: { tabindex: "0", "data-call": call.id, onclick: () => act.choose({ kind: "call", id: call.id }),
      onkeydown: (event) => event.key === "Enter" && act.choose({ kind: "call", id: call.id }) },
      cells: [call.step === null ? "" : String(call.step), element("code", {}, call.label), call.name, figure(call.flops),
        bytes(call.moved), figure(Math.round(call.cycles)), ...(lowered.total ? [figure(call.time)] : []), share,
        call.prepared ? "" : bar] };
  };
  const headings = ["", "kernel", "from", "operations", "bytes", "cycles", ...(lowered.total ? ["µs"] : []), "share", ""];
  const numbers = lowered.total ? [0, 3, 4, 5, 6, 7] : [0, 3, 4, 5, 6];
  const stepped = calls.filter((call) => call.step !== null);
  const groups = lowered.steps.length ? lowered.steps.map((step) => [stepTitle(step), step.calls.map((id) => calls[id]), stepFlow(step)])
    : [["Each step", stepped], ["Once, at loading", calls.filter((call) => call.prepared)],
      ["In branches and loops", calls.filter((call) => !call.prepared && call.step === null)]];
  return scroll(element("h1", {}, "Program"),
    element("p", { class: "lead" }, lowered.total
      ? `${counted(calls.filter((call) => call.step !== null).length, "call")} a step, ${figure(lowered.total)} µs as a whole. Each was measured alone, on the memory that the one before it left.`
      : "The calls of kernels in their order. Cycles are those that arithmetic at full rate takes, or memory, whichever is more. Measured times stand here after popgraph view --profile."),
    lowered.roof ? rooflineOf(stepped, lowered.roof, act) : null,
    lowered.steps.length ? element("p", { class: "lead" }, "Python computes some nodes: what lies between them is compiled, for the sizes that made-up inputs led to.") : null,
    groups.filter(([, rows, flow]) => rows.length || flow).flatMap(([title, rows, flow]) =>
      [element("h3", {}, title), flow, table(headings, rows.map(row), numbers, { class: "rows columns sticky" })]));
}

const stepTitle = (step) => `${step.title}: ${step.why ? `Python, because ${step.why}` : "compiled"}`;

/** What flows into a step, and out of it. */
function stepFlow(step) {
  const said = (ends) => (ends.length ? ends.flatMap((one, at) => [at ? ", " : "", element("b", {}, one.name), ` ${one.type}`]) : ["nothing"]);
  return element("p", { class: "type flow" }, "takes ", ...said(step.takes), "; gives ", ...said(step.gives));
}

const ROOF = { width: 640, height: 300, left: 58, right: 14, top: 16, bottom: 34 };

/** Calls by operations for each byte, and by operations a second, beside what memory and arithmetic allow. */
function rooflineOf(calls, roof, act) {
  const shown = calls.filter((call) => call.flops > 0 && call.moved > 0 && call.time > 0)
    .map((call) => ({ call, intensity: call.flops / call.moved, rate: call.flops / call.time / 1e3 }));
  if (!shown.length) return null;
  const ridge = roof.gflops / roof.gigabytes;
  const ends = (values) => [Math.floor(Math.log10(Math.min(...values))), Math.ceil(Math.log10(Math.max(...values)))];
  const [x0, x1] = ends([ridge, ...shown.map((one) => one.intensity)]);
  const [y0, y1] = ends([roof.gflops, ...shown.map((one) => one.rate)]);
  const x = (value) => ROOF.left + ((Math.log10(value) - x0) / (x1 - x0 || 1)) * (ROOF.width - ROOF.left - ROOF.right);
  const y = (value) => ROOF.height - ROOF.bottom - ((Math.log10(value) - y0) / (y1 - y0 || 1)) * (ROOF.height - ROOF.top - ROOF.bottom);
  const powers = (low, high) => Array.from({ length: high - low + 1 }, (_, at) => 10 ** (low + at));
  const text = (at, down, told, anchor) => shape("text", { x: at, y: down, "text-anchor": anchor }, told);
  const below = Math.min(roof.gflops, roof.gigabytes * 10 ** x0);
  const floor = below < 10 ** y0 ? `M${x(10 ** y0 / roof.gigabytes)} ${y(10 ** y0)}` : `M${x(10 ** x0)} ${y(below)}`;
  const chart = shape("svg", { class: "roofline", viewBox: `0 0 ${ROOF.width} ${ROOF.height}`, role: "img",
    "aria-label": "operations a second of each call, over its operations for each byte; the table below has both" },
    ...powers(x0, x1).map((value) => text(x(value), ROOF.height - 18, String(value), "middle")),
    ...powers(y0, y1).map((value) => text(ROOF.left - 6, y(value) + 4, String(value), "end")),
    text((ROOF.left + ROOF.width) / 2, ROOF.height - 3, "operations for each byte", "middle"),
    text(ROOF.left + 6, 12, "GFLOP/s", "start"),
    shape("path", { d: `${floor}L${x(ridge)} ${y(roof.gflops)}H${ROOF.width - ROOF.right}` }),
    ...shown.map(({ call, intensity, rate }) => shape("circle", { cx: x(intensity), cy: y(rate), r: 4.5, tabindex: "0",
      onclick: () => act.choose({ kind: "call", id: call.id }) },
      shape("title", {}, `${call.label}: ${rate.toFixed(1)} GFLOP/s, ${intensity.toFixed(2)} operations for each byte`))));
  return element("div", {}, element("h3", {}, "Roofline"), element("p", { class: "lead" },
    `Measured here: ${roof.gflops.toFixed(0)} GFLOP/s of multiply-adds, ${roof.gigabytes.toFixed(1)} GB/s of copies in memory. `
    + "What lies above the slope works in caches."), chart);
}

const scroll = (...children) => element("div", { class: "scroll", tabindex: "-1" }, ...children);

/** Bytes in use at each call, and the arena as a map: calls from left to right, offsets upwards. */
function memoryView(act) {
  const { memories, steps } = known.lowered;
  const of = (memory) => (memory.title ? steps.find((step) => step.title === memory.title).calls.map((id) => known.calls[id]) : known.calls);
  return scroll(element("h1", {}, "Memory"),
    element("p", { class: "lead" }, "Above, the bytes of the arena that hold something at each call. Below, where they lie: a block is a piece that is written by the call at its left end and needed to its right end."),
    memories.map((memory) => [memory.title ? element("h3", {}, `The program of ${memory.title}`) : null,
      memoryOf(memory, of(memory).filter((call) => call.step !== null), act)]));
}

function memoryOf(memory, steps, act) {
  const peak = memory.in_use.indexOf(Math.max(0, ...memory.in_use));
  const figures = [["arena", bytes(memory.arena)], ["in use at the peak", bytes(memory.in_use[peak] ?? 0)],
    ["peak at call", String(peak)], ["prepared weights", bytes(memory.persistent)]];
  const alive = element("div");
  const chart = element("canvas", { class: "chart", height: "460", role: "img",
    "aria-label": "the arena over the calls of a step; the table below has what is alive" });
  const page = element("div", {},
    element("div", { class: "figures" }, figures.map(([name, value]) => element("div", {}, element("b", {}, value), name))));
  if (!memory.in_use.length || !memory.arena) return page;
  page.append(chart, alive);
  let at = peak;
  const show = (step) => {
    at = Math.max(0, Math.min(memory.in_use.length - 1, step));
    paintMemory(chart, memory, at, peak);
    const pieces = memory.pieces.filter((piece) => piece.first <= at && at <= piece.last).sort((a, b) => b.size - a.size);
    alive.replaceChildren(element("h3", {}, `Alive at call ${at}${at === peak ? ", the peak" : ""}: ${steps[at].label}`),
      table(["written by", "for", "bytes", "offset", "needed to"], pieces.map((piece) => {
        const writer = steps[piece.first];
        return [linkTo(writer.label, () => act.choose({ kind: "call", id: writer.id })), writer.name, bytes(piece.size),
          String(piece.offset), `call ${piece.last}`];
      }), [2, 3, 4], { class: "columns" }));
  };
  const stepOf = (event) => {
    const { left, width } = chart.getBoundingClientRect();
    return Math.floor(((event.clientX - left) / width) * memory.in_use.length);
  };
  chart.addEventListener("pointermove", (event) => stepOf(event) !== at && show(stepOf(event)));
  chart.addEventListener("click", (event) => act.choose({ kind: "call", id: steps[stepOf(event)].id }));
  new ResizeObserver(() => show(at)).observe(chart);
  return page;
}

const CURVE = 120;

function paintMemory(chart, memory, at, peak) {
  const ratio = window.devicePixelRatio || 1;
  const [w, h] = [chart.clientWidth, 460];
  Object.assign(chart, { width: w * ratio, height: h * ratio });
  chart.style.height = `${h}px`;
  const context = chart.getContext("2d");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  const paint = colours();
  const count = memory.in_use.length;
  const x = (step) => (w * step) / count;
  const tall = (size) => (size / memory.arena) * (CURVE - 22);
  context.fillStyle = paint("c0");
  for (const [step, used] of memory.in_use.entries()) {
    context.fillStyle = paint(step === peak ? "b4" : "c0");
    context.fillRect(x(step), CURVE - tall(used), w / count + 0.5, tall(used));
  }
  context.fillStyle = paint("soft");
  context.font = FONT.type;
  context.fillText(`in use, of ${bytes(memory.arena)}`, 10, 16);
  context.fillText(`offsets in the arena`, 10, CURVE + 22);
  const [top, height] = [CURVE + 32, h - CURVE - 40];
  for (const [number, piece] of memory.pieces.entries()) {
    const box = { x: x(piece.first), w: x(piece.last + 1) - x(piece.first),
      h: Math.max(1, (piece.size / memory.arena) * height) };
    box.y = top + height - (piece.offset / memory.arena) * height - box.h;
    const alive = piece.first <= at && at <= piece.last;
    context.fillStyle = paint(alive ? "c2" : `c${[0, 1, 5, 3][number % 4]}`);
    context.fillRect(box.x, box.y, box.w, box.h);
    if (box.w > 3 && box.h > 3) {
      context.strokeStyle = paint(alive ? "b2" : `b${[0, 1, 5, 3][number % 4]}`);
      context.lineWidth = 0.7;
      context.strokeRect(box.x + 0.4, box.y + 0.4, box.w - 0.8, box.h - 0.8);
    }
  }
  context.strokeStyle = paint("accent");
  context.lineWidth = 1;
  context.strokeRect(x(at), 0.5, Math.max(1, w / count), h - 1);
}

/** The passes in order, and what each changed, side by side. */
function passesView(rows) {
  const place = element("div", { class: "change", tabindex: "-1" });
  const list = element("ol", {});
  const show = (row, button) => {
    for (const other of list.querySelectorAll("button")) other.classList.toggle("chosen", other === button);
    place.replaceChildren(element("h1", {}, row.name),
      element("p", { class: "lead" }, `${row.reason}.`), ...changeOf(row));
    place.scrollTop = 0;
  };
  let before = null;
  for (const row of rows) {
    const part = `${row.step ? `step ${row.step}, ` : ""}${row.level} level`;
    if (part !== before) list.append(element("li", { class: "level" }, part));
    before = part;
    const [old, now] = row.lines;
    const many = !row.changed ? "" : now === old ? "±0" : `${now > old ? "+" : "−"}${Math.abs(now - old)}`;
    const button = element("button", { type: "button", class: row.changed ? "" : "same" },
      row.name, element("span", { class: "many" }, many));
    button.addEventListener("click", () => show(row, button));
    list.append(element("li", {}, button));
  }
  const first = rows.findIndex((row) => row.changed);
  if (first >= 0) show(rows[first], list.querySelectorAll("button")[first]);
  return element("div", { class: "passes" }, list, place);
}

function changeOf(row) {
  if (!row.changed) return [element("p", { class: "empty" }, "It changes nothing here.")];
  if (!row.diff) return [element("p", { class: "empty" }, `The text has ${counted(row.left_out, "line")}: popgraph print --diff ${row.name} shows what changed.`)];
  const found = [element("div", { class: "diff" }, sideBySide(row.diff))];
  if (row.left_out) found.push(element("p", { class: "empty" }, `and ${counted(row.left_out, "line")} more: popgraph print --diff ${row.name} shows them all`));
  return found;
}

/** The lines of a unified diff in two columns: what goes stands left, what comes right of it. */
function sideBySide(diff) {
  const cells = [];
  let gone = [];
  let come = [];
  const cell = (text, kind) => element("div", { class: `mono ${kind}` }, text === undefined ? "" : text.slice(1));
  const flush = () => {
    for (let at = 0; at < Math.max(gone.length, come.length); at += 1) {
      cells.push(cell(gone[at], at < gone.length ? "minus" : ""), cell(come[at], at < come.length ? "plus" : ""));
    }
    gone = [];
    come = [];
  };
  for (const line of diff.split("\n").slice(2)) {
    if (line.startsWith("-")) gone.push(line);
    else if (line.startsWith("+")) come.push(line);
    else {
      flush();
      if (line.startsWith("@@")) cells.push(element("div", { class: "mono at" }, line));
      else cells.push(cell(line, ""), cell(line, ""));
    }
  }
  flush();
  return cells;
}

/** The texts in which the model was written; a click goes to the nodes of a line. */
function sourceView(act) {
  const lines = new Map();
  for (const node of known.graphs.onnx) {
    const key = `${node.file}:${node.line}`;
    if (node.line) lines.set(key, [...(lines.get(key) ?? []), node]);
  }
  return scroll(Object.entries(known.model.sources).flatMap(([file, text]) => [
    element("h1", {}, file), element("div", { class: "code whole" }, element("pre", {}, sourceLines(file, text, lines, act)))]));
}

function sourceLines(file, text, lines, act) {
  return text.split("\n").map((line, at) => {
    const nodes = lines.get(`${file}:${at + 1}`) ?? [];
    const ids = nodes.map((node) => node.id);
    const last = nodes.at(-1);
    return element("div", { class: `line${nodes.length ? " has" : ""}`, "data-file": file, "data-number": at + 1,
      "data-nodes": ids.join(" "), tabindex: nodes.length ? "0" : false,
      onclick: () => last && act.choose({ kind: "onnx", id: last.id }),
      onkeydown: (event) => event.key === "Enter" && last && act.choose({ kind: "onnx", id: last.id }) },
      element("span", { class: "number" }, String(at + 1)), element("span", { class: "text" }, coloured(line, languageOf(file))),
      element("span", { class: "what" }, nodes.map((node) => node.kind).join(", ")));
  });
}

/** A training: how far it is, its curves, its layers, its epochs. */
function trainingView(found) {
  const { done, planned, facts, layers, epochs, heading, left_out: before } = found;
  const far = planned && found.runs ? ` of ${planned}` : "";
  const told = found.runs ? "It runs." : found.stopped ? `It has ended: ${found.stopped}.` : "It has ended.";
  const figures = [["steps", `${done}${far}`], ...Object.entries(facts)];
  const rows = layers.map((layer) => [element("code", {}, layer.name), layer.shape, layer.weight,
    drawing(layer.weights), layer.gradient, drawing(layer.gradients), layer.remark]);
  return scroll(element("h1", {}, "Training"), element("p", { class: "lead" }, told),
    element("div", { class: "figures" }, figures.map(([name, text]) =>
      element("div", {}, element("b", {}, text), name))),
    element("div", { class: "charts" }, found.charts.map(drawing)),
    layers.length ? [element("h3", {}, "Layers"), element("p", { class: "lead" },
      "The root of the mean square of each weight and of its gradient, on the batch of a step now and then."),
      table(["weight", "shape", "size", "", "gradient", "", ""], rows, [2, 4])] : [],
    epochs.length ? [element("h3", {}, before ? `Epochs, without the first ${before}` : "Epochs"), table(heading, epochs, heading.map((_, at) => at))] : []);
}
