// The view of the IPUs: memory of the tiles, liveness and cycles by step.

/** The colours of what is always live, by category, of what is not, and of what tiles spend cycles on. */
const HELD = { code: "b8", vertices: "b7", constants: "b0", variables: "b3" };
const MEANWHILE = "b2";
const TOO_MUCH = "b4";
const SPENT = { compute: "b1", exchange: "b0", sync: "b8" };
const NOT_ALWAYS = "not always live";

/** What is chosen in the view: a tile, a step of the program, and whose memory the curve is of. */
const shownTiles = { tile: null, place: null, alone: false, always: null, limit: null, all: false, ordered: false, memory: null, program: null };

function tilesView(act) {
  const { tiles } = known;
  const { machine, cycles, memory } = tiles;
  const fullest = tiles.neededOn(tiles.fullest);
  const rate = tiles.flops / tiles.microseconds / 1e6;
  const figures = [["cycles", figure(cycles.total)], [`µs at ${machine.clockHertz / 1e9} GHz`, figure(tiles.microseconds)],
    ...Object.keys(SPENT).map((name) => [name, percent(cycles[name] / (cycles.total || 1))]),
    ["Tflop/s", figure(Number(rate.toPrecision(3)))],
    [`of the fullest, ${tiles.tileName(tiles.fullest)}`, percent(fullest / memory.bytesPerTile)]];
  shownTiles.tile ??= tiles.fullest;
  shownTiles.place ??= peakOf(tiles.liveness.total);
  shownTiles.program = null;
  const parts = tiles.top.length ? [...livenessOf(tiles, act), ...stepsTable(tiles, act)]
    : [element("p", { class: "empty" }, "Tiles have nothing to compute: the program only names what it holds.")];
  return scroll(element("h1", {}, "IPU"), element("p", { class: "lead" },
    `What a model of ${counted(machine.numIPUs, "IPU")} says (${machine.name}, ${machine.numIPUs > 1 ? "each " : ""}with ${counted(machine.tilesPerIPU, "tile")} of ${binary(memory.bytesPerTile)}): `
    + "cycles of the steps that all tiles do together, and what each tile must hold. Nothing of it is measured."),
    tiles.overflow ? errorBox(tiles.overflow) : null,
    element("div", { class: "figures" }, figures.map(([name, value]) => element("div", {}, element("b", {}, value), name))),
    ...memoryOfTiles(tiles, act), ...parts);
}

/** A drop-down list that keeps a wish. */
function choiceOf(label, options, chosen, act) {
  const made = element("select", { "aria-label": label, onchange: () => act(made.value) },
    Object.entries(options).map(([value, text]) => element("option", { value, selected: value === chosen }, text)));
  return made;
}

/** All tiles side by side, with what is always live, what is not, and the limit. */
function memoryOfTiles(tiles, act) {
  const limit = tiles.memory.bytesPerTile;
  const needed = Array.from({ length: tiles.count }, (_, tile) => tiles.neededOn(tile));
  const largest = needed[tiles.fullest];
  shownTiles.limit ??= largest > limit / 4;
  const parts = [...tiles.lasting.map(([name, vector]) => ({ name, colour: HELD[name], value: (tile) => tiles.on(vector, tile) })),
    { name: NOT_ALWAYS, colour: MEANWHILE, value: (tile) => tiles.on(tiles.memory.peak, tile) }];
  const tell = (tile) => [element("b", {}, tiles.tileName(tile)),
    `: ${binary(needed[tile])}, ${percent(needed[tile] / limit)}: `
    + parts.map((part) => `${part.name} ${binary(part.value(tile))}`).join(", ")];
  const choose = (tile) => act.choose({ kind: "tile", id: tile });
  const paint = (strip, context, width) => {
    const [top, bottom] = [26, strip.height - 20];
    const most = Math.max(1, shownTiles.limit ? Math.max(limit * 1.04, largest) : largest * 1.1);
    strip.scale(context, width, { top, bottom, most, title: "what each tile needs at most" });
    strip.stacks(context, { top, bottom, most, parts, emphasis: (tile, part) => (needed[tile] > limit && part.name === NOT_ALWAYS ? TOO_MUCH : null) });
    axisOfTiles(strip, context, tiles, bottom);
    if (limit <= most) limitLine(strip, context, width, bottom - (limit / most) * (bottom - top), `limit: ${binary(limit)}`);
    strip.marks(context, bottom, [shownTiles.tile]);
    strip.cursor(context, bottom);
  };
  const strip = new Strip({ count: tiles.count, height: 240, label: "memory of each tile; arrow keys go along, Enter chooses",
    paint, tell, choose, start: shownTiles.tile });
  strip.point(shownTiles.tile);
  shownTiles.memory = strip;
  const scale = choiceOf("height of the chart", { limit: "up to the limit", data: "up to the fullest tile" }, shownTiles.limit ? "limit" : "data",
    (value) => { shownTiles.limit = value === "limit"; strip.draw(); });
  const number = element("input", { type: "number", min: "0", max: String(tiles.count - 1), value: String(shownTiles.tile), "aria-label": "number of a tile",
    onchange: () => number.value !== "" && choose(Math.max(0, Math.min(tiles.count - 1, Math.round(Number(number.value))))) });
  strip.number = number;
  return [element("h3", {}, "Memory of the tiles"),
    element("div", { class: "wishes" }, legend([...parts.map((part) => [part.name, part.colour]), ...(tiles.overflow ? [["where it is too much", TOO_MUCH]] : [])]), element("label", {}, "tile ", number), scale), strip.frame];
}

function axisOfTiles(strip, context, tiles, bottom) {
  const paint = colours();
  const each = tiles.machine.tilesPerIPU;
  context.fillStyle = paint("soft");
  context.strokeStyle = paint("text");
  context.lineWidth = 1;
  for (let ipu = 0; ipu < tiles.machine.numIPUs; ipu += 1) {
    const [left, right] = [strip.x(Math.max(strip.from, ipu * each)), strip.x(Math.min(strip.to, (ipu + 1) * each))];
    if (right - left < 30) continue;
    context.textAlign = "center";
    context.fillText(`IPU ${ipu}`, (left + right) / 2, bottom + 15);
    if (ipu && ipu * each > strip.from) {
      context.beginPath();
      context.moveTo(Math.round(left) + 0.5, 12);
      context.lineTo(Math.round(left) + 0.5, bottom + 16);
      context.stroke();
    }
  }
  context.textAlign = "left";
  context.fillText(`tile ${strip.from}`, STRIP.left, bottom + 15);
  context.textAlign = "right";
  context.fillText(String(strip.to - 1), strip.x(strip.to), bottom + 15);
}

function limitLine(strip, context, width, y, text) {
  const paint = colours();
  context.strokeStyle = context.fillStyle = paint("marked");
  context.lineWidth = 1.3;
  context.setLineDash([6, 4]);
  context.beginPath();
  context.moveTo(STRIP.left, y);
  context.lineTo(width - STRIP.right, y);
  context.stroke();
  context.setLineDash([]);
  context.textAlign = "right";
  context.fillText(text, width - STRIP.right, y - 5);
}

const BANDS = { live: [26, 176], spent: [212, 296], height: 316 };

/** What lives at each step, above what the step takes; then what lives at the one that is looked at. */
function livenessOf(tiles, act) {
  const place = element("div");
  const own = () => (shownTiles.alone ? shownTiles.tile : null);
  let curve = null;
  const fresh = () => { curve = { of: own(), values: tiles.curve(own()) }; curve.peak = peakOf(curve.values); };
  fresh();
  shownTiles.always ??= tiles.alwaysOn(null) < 3 * curve.values[curve.peak];
  const cyclesOf = (at) => tiles.top[at].cycles;
  const slowest = Math.max(1, ...tiles.top.map((step) => step.cycles));
  const tell = (at) => [element("b", {}, `step ${at}`), ` ${stepWords(tiles, tiles.top[at])}; alive ${wordsOf(tiles, own())}: ${binary(curve.values[at])}`
    + `${shownTiles.always ? ` and ${binary(tiles.alwaysOn(own()))} always` : ""}`];
  const parts = Object.entries(SPENT).map(([name, colour]) => ({ name, colour, value: (at) => tiles.top[at][name] }));
  const paint = (strip, context, width) => {
    const base = shownTiles.always ? tiles.alwaysOn(own()) : 0;
    const most = Math.max(1, 1.08 * (base + curve.values[curve.peak]));
    const [top, bottom] = BANDS.live;
    strip.scale(context, width, { top, bottom, most, title: `alive ${wordsOf(tiles, own())}` });
    strip.stacks(context, { top, bottom, most, parts: [...(base ? [{ colour: "b7", value: () => base }] : []),
      { colour: MEANWHILE, value: (at) => curve.values[at], main: true }],
      emphasis: (at, part) => (part.main && at === curve.peak ? "marked" : null) });
    const limit = tiles.memory.bytesPerTile * (shownTiles.alone ? 1 : tiles.count);
    if (limit <= most) limitLine(strip, context, width, bottom - (limit / most) * (bottom - top), `limit: ${binary(limit)}`);
    peakMark(strip, context, width, curve.peak, bottom - ((base + curve.values[curve.peak]) / most) * (bottom - top));
    const [above, below] = BANDS.spent;
    strip.scale(context, width, { top: above, bottom: below, most: slowest, title: "cycles of the step", unit: figure, thousand: 1000 });
    strip.stacks(context, { top: above, bottom: below, most: slowest, parts });
    context.fillStyle = colours()("soft");
    context.fillText(`step ${strip.from}`, STRIP.left, below + 15);
    context.textAlign = "right";
    context.fillText(String(strip.to - 1), strip.x(strip.to), below + 15);
    const linked = related(act.chosen()).ipu.map((id) => tiles.topOf(tiles.steps[id]).place);
    strip.marks(context, below, linked);
    strip.cursor(context, below);
  };
  const show = (at) => {
    shownTiles.place = at;
    place.replaceChildren(...aliveAt(tiles, at, own(), at === curve.peak, act));
  };
  const strip = new Strip({ count: tiles.top.length, height: BANDS.height, label: "what lives at each step, and its cycles; arrow keys go along, Enter chooses",
    paint, tell, start: shownTiles.place, choose: (at) => act.choose({ kind: "ipu", id: tiles.top[at].id }) });
  strip.show = show;
  strip.renew = () => { fresh(); strip.point(strip.at); show(shownTiles.place); };
  const whose = element("span");
  strip.whose = () => whose.replaceChildren(choiceOf("whose memory", { all: "of all tiles", alone: `of ${tiles.tileName(shownTiles.tile)}` },
    shownTiles.alone ? "alone" : "all", (value) => { shownTiles.alone = value === "alone"; strip.renew(); }));
  strip.whose();
  strip.point(shownTiles.place);
  show(shownTiles.place);
  shownTiles.program = strip;
  const base = element("input", { type: "checkbox", onchange: () => { shownTiles.always = base.checked; strip.point(strip.at); } });
  base.checked = shownTiles.always;
  const toPeak = linkTo("to the peak", () => { strip.point(curve.peak); strip.choose(curve.peak); });
  return [element("h3", {}, "Liveness and cycles by step"), element("div", { class: "wishes" },
    legend([["always live", "b7"], [NOT_ALWAYS, MEANWHILE], ["the peak", "marked"], ...Object.entries(SPENT)]),
    element("label", {}, base, " with what is always live"), whose, toPeak), strip.frame, place];
}

const wordsOf = (tiles, tile) => (tile === null ? "on all tiles together" : `on ${tiles.tileName(tile)}`);

function stepWords(tiles, step) {
  const { kind, name } = tiles.operationOf(step);
  const split = Object.keys(SPENT).map((one) => `${one} ${figure(step[one])}`).join(", ");
  return `${kind} ${name}: ${figure(step.cycles)} cycles (${split})`;
}

function peakMark(strip, context, width, peak, y) {
  if (peak < strip.from || peak >= strip.to) return;
  const x = (strip.x(peak) + strip.x(peak + 1)) / 2;
  context.fillStyle = colours()("marked");
  context.beginPath();
  context.moveTo(x, y - 2);
  context.lineTo(x - 5, y - 10);
  context.lineTo(x + 5, y - 10);
  context.fill();
  context.textAlign = x > width / 2 ? "right" : "left";
  context.fillText(`peak, step ${peak}`, x + (x > width / 2 ? -8 : 8), y - 4);
}

const MOST_ROWS = 20;

/** A table of the first of many things, and of all of them on demand; `row` makes the row of one. */
function firstRows(headings, things, row, numbers, more = {}) {
  const place = element("div");
  const show = (all) => {
    const left = all ? 0 : Math.max(0, things.length - MOST_ROWS);
    place.replaceChildren(table(headings, (left ? things.slice(0, MOST_ROWS) : things).map(row), numbers, more),
      ...(left ? [linkTo(`and ${left.toLocaleString("en")} more`, () => show(true), { class: "link more" })] : []));
  };
  show(false);
  return place;
}

/** What lives at a step, the largest first. */
function aliveAt(tiles, at, tile, peak, act, title = `step ${at}${peak ? ", the peak" : ""}`) {
  const step = tiles.top[at];
  const size = (one) => tiles.on(one.bytes, tile);
  const needed = tiles.liveness.temporary[at];
  const tensors = tiles.alive(at).filter((one) => size(one)).sort((a, b) => size(b) - size(a));
  if (tiles.on(needed, tile)) tensors.unshift({ bytes: needed, type: "what tiles receive, and partial results", first: at, last: at });
  const row = (one) => [one.name === undefined ? "only while it runs" : tensorName(tiles, one, act), element("span", { class: "type" }, one.type),
    binary(size(one)), ...(tile === null ? [binary(tiles.most(one.bytes))] : []), one.first === one.last ? String(at) : `${one.first} to ${one.last}`];
  const { kind, name } = tiles.operationOf(step);
  return [element("h3", {}, `Alive ${wordsOf(tiles, tile)} at ${title}: ${kind} ${name}`),
    tensors.length ? firstRows(["tensor", "type", "bytes", ...(tile === null ? ["most on a tile"] : []), "steps"], tensors, row, tile === null ? [2, 3, 4] : [2, 3], { class: "columns" })
      : element("p", { class: "empty" }, "Nothing but what is always live.")];
}

/** A tensor, with the way to the step that makes it, or that first reads it. */
function tensorName(tiles, one, act) {
  const step = tiles.firsts.get(one.operation);
  return step === undefined ? one.name : linkTo(one.name, () => act.choose({ kind: "ipu", id: step }));
}

/** The steps with what they take: the longest first, or in their order. */
function stepsTable(tiles, act) {
  const place = element("div");
  const spent = (step) => step.cycles * step.times;
  const show = () => {
    const steps = tiles.steps.filter((step) => !tiles.isCall(step));
    if (!shownTiles.ordered) steps.sort((a, b) => spent(b) - spent(a));
    const most = Math.max(1, ...steps.map(spent));
    const row = (step) => {
      const { kind, name } = tiles.operationOf(step);
      const choose = () => act.choose({ kind: "ipu", id: step.id });
      const bars = Object.entries(SPENT).map(([part, colour]) => element("i", { title: `${part}: ${figure(step[part])} cycles`,
        style: `width:${(110 * step[part] * step.times) / most}px;background:var(--${colour})` }));
      return { attributes: { tabindex: "0", "data-step": step.id, onclick: choose, onkeydown: (event) => event.key === "Enter" && choose() },
        cells: [String(tiles.topOf(step).place), element("code", {}, kind), name, figure(spent(step)), percent(spent(step) / (tiles.cycles.total || 1)),
          element("span", { class: "bars" }, bars), String(step.times), figure(step.tiles)] };
    };
    place.replaceChildren(firstRows(["step", "operation", "from", "cycles", "share", "", "times", "tiles"], steps, row, [0, 3, 4, 6, 7], { class: "rows columns" }));
    markSteps(related(act.chosen()));
  };
  const order = choiceOf("order of the steps", { longest: "the longest first", order: "in their order" }, shownTiles.ordered ? "order" : "longest",
    (value) => { shownTiles.ordered = value === "order"; show(); });
  show();
  return [element("h3", {}, "Steps"), element("div", { class: "wishes" }, legend(Object.entries(SPENT)), order), place];
}

function markSteps(linked) {
  for (const row of center.querySelectorAll("tr[data-step]")) row.classList.toggle("chosen", linked.ipu.includes(Number(row.dataset.step)));
}

function drawTiles() {
  shownTiles.memory?.draw();
  shownTiles.program?.draw();
}

/** Shows in the view what is chosen, here or elsewhere. */
function markTiles(chosen, linked) {
  const { tiles } = known;
  const { memory, program } = shownTiles;
  if (chosen?.kind === "tile" && chosen.id !== shownTiles.tile) {
    shownTiles.tile = chosen.id;
    memory.number.value = String(chosen.id);
    program?.whose();
    if (shownTiles.alone) program?.renew();
  }
  if (chosen?.kind === "tile") memory.point(chosen.id);
  const [first] = linked.ipu;
  if (program && first !== undefined) {
    const place = tiles.topOf(tiles.steps[chosen.kind === "ipu" ? chosen.id : first]).place;
    program.point(place);
    program.show(place);
  }
  drawTiles();
  markSteps(linked);
}
