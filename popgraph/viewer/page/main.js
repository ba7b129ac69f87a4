// The page: which view is shown, what is chosen, and how one comes from one to the other.

const VIEWS = { training: "Training", onnx: "onnx", graphcore: "graphcore", structured: "structured", program: "Program", time: "Time",
  memory: "Memory", ipu: "IPU", passes: "Passes", source: "Source" };

const state = { view: null, chosen: null, graph: null };

const act = {
  chosen: () => state.chosen,

  choose(chosen) {
    state.chosen = chosen;
    openPanel(chosen && "details");
    mark();
  },

  /** A graph shows other nodes than before: so does the list. */
  regrouped(graph) {
    if (state.graph === graph) tree.of(graph.level, graph.root);
  },

  /** To a node, in the graph of its level; to a call, in the list of all. */
  async go(chosen) {
    state.chosen = chosen;
    openPanel("details");
    if (chosen.kind === "call") {
      await show("program");
      center.querySelector(`tr[data-call="${chosen.id}"]`)?.scrollIntoView({ block: "center" });
      return;
    }
    if (chosen.kind === "ipu" || chosen.kind === "tile") {
      await show("ipu");
      return;
    }
    if (state.view !== chosen.kind) show(chosen.kind);
    else state.graph.reveal(chosen.id);
    mark();
  },

  async line(file, number) {
    await show("source");
    document.querySelector(`.line[data-number="${number}"][data-file="${CSS.escape(file)}"]`)
      ?.scrollIntoView({ block: "center" });
  },

  /** To the search, of this text if there is one; where the list is hidden, that of the model is shown. */
  search(text) {
    showList();
    if (text !== undefined) tree.field.value = text;
    tree.show();
    tree.field.focus();
  },
};

const tree = new Tree(act);
const details = new Details(act);
const graphs = new Map();
const center = document.getElementById("center");

/** Opens the list or the details where they have no room beside the view, or none of them. */
function openPanel(panel) {
  document.body.dataset.panel = panel ?? "";
  for (const button of document.querySelectorAll("#panels button")) button.setAttribute("aria-pressed", String(button.dataset.panel === panel));
}

/** Shows the list; of the model, where the view has none. */
function showList() {
  openPanel("list");
  if (!tree.field.offsetParent) show("onnx");
}

for (const button of document.querySelectorAll("#panels button")) {
  const { panel } = button.dataset;
  button.addEventListener("click", () => (document.body.dataset.panel === panel ? openPanel(null) : panel === "list" ? showList() : openPanel(panel)));
}

/** Shows everywhere what is chosen. */
function mark() {
  details.show();
  tree.mark();
  const linked = related(state.chosen);
  state.graph?.draw();
  for (const row of center.querySelectorAll("tr[data-call]")) {
    row.classList.toggle("chosen", linked.call.includes(Number(row.dataset.call)));
  }
  if (state.view === "ipu" && known.tiles && !known.tiles.error && center.querySelector(".strip")) markTiles(state.chosen, linked);
  const chart = center.querySelector(".flame");
  if (chart) markFlame(chart, linked);
  for (const line of center.querySelectorAll(".line.has")) {
    line.classList.toggle("chosen", line.dataset.nodes.split(" ").some((id) => linked.onnx.includes(Number(id))));
  }
}

async function show(view) {
  state.view = view;
  for (const tab of document.querySelectorAll("#views button")) {
    tab.setAttribute("aria-selected", String(tab.dataset.view === view));
  }
  state.graph = null;
  document.body.dataset.view = view;
  if (known.graphs[view]) showGraph(view);
  else if (view === "training") await showTraining();
  else if (view === "source") center.replaceChildren(sourceView(act));
  else await showPart(view);
  if (state.view === view) mark();
}

function showGraph(level) {
  if (!graphs.has(level)) graphs.set(level, new GraphView(level, known.graphs[level], act));
  state.graph = graphs.get(level);
  center.replaceChildren(state.graph.frame);
  tree.of(level, state.graph.root);
  const own = related(state.chosen)[level];
  if (own.length && state.graph.width !== undefined) state.graph.reveal(own[0]);
}

/** The training, again every second as long as it runs. */
async function showTraining() {
  const found = await fresh("training");
  if (state.view !== "training") return;
  const place = center.firstElementChild;
  const top = place?.classList.contains("scroll") ? place.scrollTop : 0;
  center.replaceChildren(trainingView(found));
  center.firstElementChild.scrollTop = top;
  if (found.runs) setTimeout(() => state.view === "training" && showTraining().catch(failed), 1000);
}

async function showPart(view) {
  center.replaceChildren(scroll(element("p", { class: "lead" }, { passes: "The model is lowered once more, and the text is compared after each pass ...",
    ipu: "The model is being mapped onto tiles, when it has been lowered ..." }[view] ?? "The model is being lowered ...")));
  const found = await ({ passes: () => part("passes"), ipu: () => modelled }[view] ?? (() => lowered))();
  if (state.view !== view) return;
  if (found.error) center.replaceChildren(scroll(element("h1", {}, VIEWS[view]), errorBox(found.error)));
  else if (view === "passes") center.replaceChildren(passesView(found.passes));
  else if (known.graphs[view]) showGraph(view);
  else if (view === "ipu") center.replaceChildren(tilesView(act));
  else if (view === "time") center.replaceChildren(flameView(act, found.flame));
  else center.replaceChildren(view === "memory" ? memoryView(act) : programView(act));
}

/** Shows a model, or first a sketch of it, of which all that was opened and chosen stays. */
function begin(model) {
  const kept = take(model);
  document.title = `${model.name} – PopGraph`;
  document.getElementById("model-name").textContent = model.name;
  const nodes = counted(model.graph.filter((node) => !["input", "output"].includes(node.kind)).length, "node");
  document.getElementById("model-facts").textContent = model.facts ? `${nodes}, parameters: ${model.parameters}` : nodes;
  const there = { training: model.live.includes("training"), source: Object.keys(model.sources).length,
    time: model.measured, ipu: model.ipu };
  const names = Object.entries(VIEWS).filter(([view]) => (model.facts ? there[view] ?? true : view === "onnx"));
  document.getElementById("views").replaceChildren(...names.flatMap(([view, text]) => [
    view === "program" ? element("span", { class: "gap" }) : null,
    element("button", { type: "button", role: "tab", "data-view": view, title: model.levels[view] ?? "",
      "aria-selected": String(view === state.view), onclick: () => show(view) }, text)].filter(Boolean)));
  if (kept) {
    state.graph.arrange();
    mark();
    return;
  }
  graphs.clear();
  state.chosen = null;
  show(names[0][0]).catch(failed);
}

const status = document.getElementById("status");

function say(text, busy = false) {
  status.textContent = text;
  status.classList.toggle("busy", busy);
}

const failed = (error) => say(String(error.message ?? error));

let lowered = null;
/** What a model of IPUs says, taken once the graphs are there that it has links to. */
let modelled = null;

async function start() {
  say("reading", true);
  const sketch = isSaved() ? null : await part("sketch");
  if (sketch) begin({ ...NOTHING, ...sketch });
  begin(await part("model"));
  say("lowering to C", true);
  lowered = part("lowered");
  modelled = known.model.ipu ? mapped() : null;
  modelled?.catch(failed);
  const found = await lowered;
  if (found.error) {
    known.lowered = found;
    say("not lowered: see Program");
  } else {
    takeLowered(found);
    say(`${counted(found.kernels.length, "kernel")}, ${counted(found.calls.length, "call")}`);
    for (const graph of graphs.values()) graph.frame.querySelector("#by-time").hidden = !found.total;
  }
  mark();
  state.graph?.arrange();
  state.graph?.draw();
}

/** What a model of IPUs says, once the way down is there. */
async function mapped() {
  await lowered;
  const found = await part("ipu");
  await takeTiles(found);
  for (const graph of graphs.values()) graph.frame.querySelector("#by-ipu").hidden = Boolean(found.error);
  mark();
  return found;
}

document.getElementById("theme").addEventListener("click", () => {
  const root = document.documentElement;
  root.dataset.theme = root.dataset.theme === "dark" ? "light" : "dark";
  state.graph?.draw();
  if (state.view === "memory") show("memory");
  if (state.view === "ipu") drawTiles();
});

document.addEventListener("keydown", (event) => {
  const typing = event.target instanceof HTMLInputElement;
  if (event.key === "/" && !typing) {
    event.preventDefault();
    act.search();
  } else if (event.key === "Escape" && !typing) act.choose(null);
});

document.getElementById("divider").addEventListener("pointerdown", (event) => {
  const right = document.getElementById("right");
  const move = (moved) => {
    right.style.width = `${Math.min(innerWidth - 500, Math.max(280, innerWidth - moved.clientX))}px`;
  };
  event.target.setPointerCapture(event.pointerId);
  event.target.addEventListener("pointermove", move);
  event.target.addEventListener("pointerup", () => event.target.removeEventListener("pointermove", move), { once: true });
});

if (matchMedia("(prefers-color-scheme: dark)").matches) document.documentElement.dataset.theme = "dark";
start().catch(failed);
