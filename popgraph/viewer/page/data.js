// The parts of the document, and the links between its levels, both ways.

const GRAPHS = ["onnx", "graphcore", "structured"];

const parts = {};

/** A part of the document: in the page itself if it was saved, else from the server. */
async function part(name) {
  if (!(name in parts)) {
    const held = document.getElementById(`part-${name}`);
    parts[name] = held
      ? Promise.resolve(JSON.parse(held.textContent))
      : fetch(`part/${name}`).catch(() => {
          throw new Error("the process that showed this has ended");
        }).then((answer) => {
          if (!answer.ok) throw new Error(`the viewer answers ${answer.status}: is it still running?`);
          return answer.json();
        });
  }
  return parts[name];
}

/** Whether the page is a file, which holds all parts. */
const isSaved = () => document.getElementById("part-model") !== null;

/** A part as it is now. */
function fresh(name) {
  delete parts[name];
  return part(name);
}

/** What is known so far: graphs by level, calls, and which of them belong together. */
const known = { graphs: {}, calls: [], kernels: new Map(), lowered: null, model: null, tiles: null };

/** What a sketch leaves open. */
const NOTHING = { levels: {}, facts: null, parameters: "", sources: {}, live: [], measured: false, ipu: false };

/** Takes a model; whether its graph is the one that there was, whose nodes then say more. */
function take(model) {
  known.model = model;
  const before = known.graphs.onnx;
  const edges = (node) => `${node.kind} ${node.scope} ${node.inputs.map((one) => one.node)}`;
  const same = before?.length === model.graph.length
    && model.graph.every((node, id) => edges(node) === edges(before[id]));
  if (same) model.graph.forEach((node, id) => Object.assign(before[id], node));
  else known.graphs.onnx = model.graph;
  return same;
}

function takeLowered(lowered) {
  known.lowered = lowered;
  Object.assign(known.graphs, lowered.graphs);
  known.calls = lowered.calls;
  known.calls.forEach((call, id) => (call.id = id));
  known.kernels = new Map(lowered.kernels.map((kernel) => [kernel.name, kernel]));
  for (const [id, types] of Object.entries(lowered.types)) {
    known.graphs.onnx[id].outputs.forEach((output, at) => (output.type = types[at] ?? output.type));
  }
  link();
}

const links = { below: {}, calls: {}, steps: {} };

function link() {
  links.below.onnx = inverse(known.graphs.graphcore ?? [], (node) => node.sources);
  links.below.graphcore = inverse(known.graphs.structured ?? [], (node) => node.sources);
  for (const level of GRAPHS) links.calls[level] = inverse(known.calls, (call) => call[level]);
}

/** Takes what a model of IPUs says, whose steps come from nodes of the graphs that there are. */
async function takeTiles(found) {
  known.tiles = found.error ? found : await Tiles.of(found);
  if (found.error) return;
  for (const level of ["onnx", "graphcore"]) links.steps[level] = inverse(known.tiles.steps, (step) => known.tiles.operationOf(step)[level]);
}

function inverse(rows, sources) {
  const found = new Map();
  rows.forEach((row, id) => {
    for (const source of sources(row)) {
      if (!found.has(source)) found.set(source, []);
      found.get(source).push(id);
    }
  });
  return found;
}

const union = (lists) => [...new Set(lists.flat())];

/** What a thing belongs to at every level: lists of numbers of nodes and calls. */
function related(chosen) {
  const found = { onnx: [], graphcore: [], structured: [], call: [], ipu: [] };
  if (!chosen) return found;
  const { kind, id } = chosen;
  found[kind] = [id];
  if (kind === "ipu") return relatedToStep(found, known.tiles.operationOf(known.tiles.steps[id]));
  if (kind === "call") {
    for (const level of GRAPHS) found[level] = known.calls[id]?.[level] ?? [];
    found.ipu = stepsFrom(found);
    return found;
  }
  const node = known.graphs[kind]?.[id];
  if (!node) return found;
  found.call = links.calls[kind]?.get(id) ?? [];
  if (kind === "structured") found.graphcore = node.sources;
  if (kind === "onnx") found.graphcore = links.below.onnx?.get(id) ?? [];
  if (kind !== "onnx") {
    found.onnx = union(found.graphcore.map((one) => known.graphs.graphcore[one].sources));
  }
  if (kind !== "structured") {
    found.structured = union(found.graphcore.map((one) => links.below.graphcore?.get(one) ?? []));
  }
  found.ipu = stepsFrom(found);
  return found;
}

/** The steps on IPUs that compute a node. */
function stepsOf(level, id) {
  if (level !== "structured") return links.steps[level]?.get(id) ?? [];
  return union(known.graphs.structured[id].sources.map((one) => links.steps.graphcore?.get(one) ?? []));
}

function relatedToStep(found, { onnx, graphcore }) {
  Object.assign(found, { onnx, graphcore });
  found.structured = union(graphcore.map((one) => links.below.graphcore?.get(one) ?? []));
  found.call = union(graphcore.map((one) => links.calls.graphcore?.get(one) ?? []));
  return found;
}

/** The steps on IPUs of graphcore operations; of a node of which there are none below, its own. */
function stepsFrom({ onnx, graphcore }) {
  const [level, ids] = graphcore.length ? ["graphcore", graphcore] : ["onnx", onnx];
  return union(ids.map((id) => links.steps[level]?.get(id) ?? []));
}

/** Estimated cycles, or microseconds, of all calls that compute a node; or what all steps on IPUs take that do. */
function amount(level, id, field) {
  if (field === "ipu") return known.tiles.spentOn(stepsOf(level, id));
  const calls = (links.calls[level]?.get(id) ?? []).map((call) => known.calls[call]);
  return calls.filter((call) => !call.prepared).reduce((sum, call) => sum + (call[field] ?? 0), 0);
}

const titleOf = (node) => node.name || node.kind;

function counted(count, word) {
  return `${count.toLocaleString("en")} ${word}${count === 1 ? "" : "s"}`;
}

function bytes(count) {
  if (count < 10000) return `${count} B`;
  if (count < 1e7) return `${(count / 1e3).toFixed(1)} kB`;
  return `${(count / 1e6).toFixed(1)} MB`;
}

function figure(value) {
  if (value === undefined || value === null) return "";
  const size = Math.abs(value);
  if (size !== 0 && (size < 1e-3 || size >= 1e7)) return value.toExponential(2);
  return value.toLocaleString("en", { maximumSignificantDigits: Number.isInteger(value) ? 7 : 5 });
}
