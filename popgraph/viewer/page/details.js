// The panel on the right: what is chosen, its way down, and its kernels.

class Details {
  constructor(act) {
    this.act = act;
    this.panel = document.getElementById("right");
    this.tab = "node";
  }

  async show() {
    const chosen = this.act.chosen();
    if (!chosen) return this.whole();
    const linked = related(chosen);
    const { title, below, tabs, home, way, own } = this.about(chosen);
    if (!(this.tab in tabs)) [this.tab] = Object.keys(tabs);
    const body = element("div", { class: "body", role: "tabpanel" });
    this.panel.replaceChildren(
      element("div", { class: "head" }, element("h2", {}, title),
        element("p", {}, below.filter(Boolean).join("  ·  "), state.view === home ? null
          : element("span", {}, "  ·  ", linkTo(way, () => this.act.go(chosen), { id: "go" }))),
        element("div", { class: "tabs", role: "tablist" }, Object.entries(tabs).map(([name, text]) =>
          element("button", { type: "button", role: "tab", "data-tab": name, "aria-selected": String(name === this.tab),
            onclick: () => { this.tab = name; this.show(); } }, text)))), body);
    this.panel.scrollTop = 0;
    const shown = { way: () => this.way(linked), kernel: () => this.kernels(linked.call, chosen), ...own };
    body.append(...shown[this.tab]());
    return undefined;
  }

  /** What stands above what is told of a thing, by its kind: its name, its tabs, where it is at home. */
  about({ kind, id }) {
    if (kind === "call") {
      const call = known.calls[id];
      return { title: call.label, below: [call.name, when(call)], tabs: { kernel: "Kernel", way: "Way down" }, home: "program", way: "all calls" };
    }
    const { tiles } = known;
    if (kind === "tile") {
      return { title: tiles.tileName(id), below: ["of the model of IPUs"], tabs: { tile: "Tile" }, home: "ipu", way: "all tiles",
        own: { tile: () => tileDetails(tiles, id, this.act) } };
    }
    if (kind === "ipu") {
      const step = tiles.steps[id];
      const operation = tiles.operationOf(step);
      return { title: operation.kind, below: [operation.name, `${tiles.stepName(step)} on IPUs`], tabs: { step: "Step", way: "Way down" },
        home: "ipu", way: "all steps", own: { step: () => stepDetails(tiles, step, this) } };
    }
    const node = known.graphs[kind][id];
    return { title: node.kind, below: [titleOf(node), kind], tabs: { node: "Node", way: "Way down", kernel: "Kernel" }, home: kind,
      way: "in the graph", own: { node: () => this.node(kind, node) } };
  }

  /** What is known of the whole model. */
  whole() {
    const { facts, name, parameters } = known.model;
    if (!facts) {
      this.panel.replaceChildren(element("div", { class: "head" }, element("h2", {}, name)),
        element("div", { class: "body" }, element("p", { class: "empty" }, "The model is being read ...")));
      return;
    }
    const rows = (tensors) => tensors.map((one) => [one.name, one.type]);
    const opsets = Object.entries(facts.opsets).map(([domain, version]) => `${domain || "ai.onnx"} ${version}`);
    this.panel.replaceChildren(
      element("div", { class: "head" }, element("h2", {}, name), element("p", {}, opsets.join(", "))),
      element("div", { class: "body" },
        element("h3", {}, "Inputs"), table([], rows(facts.inputs)),
        element("h3", {}, "Outputs"), table([], rows(facts.outputs)),
        element("h3", {}, "Parameters"), element("p", {}, parameters),
        element("h3", {}, "Operators"),
        table([], Object.entries(facts.operators).map(([kind, count]) => [
          linkTo(kind, () => this.act.search(kind)), String(count)]), [1])));
  }

  node(level, node) {
    const found = [];
    if (node.line) {
      found.push(element("h3", {}, "Written at"),
        linkTo(`${node.file}:${node.line}`, () => this.act.line(node.file, node.line), { "data-line": node.line }));
    }
    if (node.inputs.length) found.push(element("h3", {}, "Inputs"), this.operands(level, node.inputs));
    if (node.outputs.length) {
      found.push(element("h3", {}, "Outputs"), table([], node.outputs.map((one) =>
        [one.name || "result", element("span", { class: "type" }, one.type)])));
    }
    const attributes = Object.entries(node.attributes);
    if (attributes.length) found.push(element("h3", {}, "Attributes"), table([], attributes));
    if (node.text) found.push(element("h3", {}, "Operation"), code(node.text, "ir", true));
    if (level === "onnx") {
      const held = [...new Set(heldBy(level, node))];
      const place = element("div");
      if (held.length) found.push(place);
      this.weights(held, place);
    }
    return found;
  }

  operands(level, operands) {
    return table([], operands.map((one) => {
      const giver = one.node === null ? null : known.graphs[level][one.node];
      const name = giver ? linkTo(one.name || titleOf(giver), () => this.act.go({ kind: level, id: giver.id }))
        : one.name || "constant";
      const forms = giver?.folded ? element("div", { class: "type" }, formsOf(level, giver).join(" → ")) : null;
      return [name, element("div", {}, element("span", { class: "type" }, one.type), forms), one.held || forms ? "held" : ""];
    }));
  }

  async weights(names, place) {
    if (!names.length) return;
    const { weights, error } = await part("weights");
    if (error) { place.append(errorBox(error)); return; }
    for (const name of names.filter((one) => one in weights)) {
      const one = weights[name];
      place.append(element("h3", {}, name), element("p", { class: "type" },
        `${one.type}, ${counted(one.elements, "number")}, ${bytes(one.bytes)}`));
      if (one.histogram && one.elements > 1) place.append(...histogram(one));
      if (one.values) place.append(element("p", { class: "mono" }, one.values.join(", ")));
    }
  }

  /** Line, node, operations, kernel: one under another. */
  way(linked) {
    const waiting = !known.lowered;
    const steps = [];
    const lines = new Map(linked.onnx.map((id) => known.graphs.onnx[id]).filter((node) => node.line)
      .map((node) => [`${node.file}:${node.line}`, node]));
    if (lines.size) {
      steps.push(this.step("Written", [...lines].map(([text, node]) => element("div", {},
        linkTo(text, () => this.act.line(node.file, node.line), { "data-line": node.line }),
        code(sourceLine(node), languageOf(node.file), true)))));
    }
    if (linked.onnx.length) steps.push(this.step("onnx", linked.onnx.map((id) => this.reference("onnx", id))));
    for (const level of ["graphcore", "structured"]) {
      const shown = (text) => (text ? code(text, "ir", true) : null);
      const texts = linked[level].map((id) => [this.reference(level, id), shown(known.graphs[level][id].text)]);
      const none = waiting ? "the model is being lowered"
        : isEnd(this.act.chosen()) ? "what a model is given, and what it gives, is no operation"
        : "nothing of its own: it was folded into others, or into constants";
      steps.push(this.step(level, texts.length ? texts.flat()
        : [element("p", { class: "missing" }, none)]));
    }
    const calls = linked.call.map((id) => this.callReference(id));
    steps.push(this.step("Kernels", calls.length ? calls
      : [element("p", { class: "missing" }, waiting ? "the model is being lowered" : "none")]));
    if (linked.ipu.length) steps.push(this.step("IPU", linked.ipu.map((id) => stepReference(known.tiles, known.tiles.steps[id], this.act))));
    return [element("div", { style: "margin-top:16px" }, steps)];
  }

  step(title, children) {
    const meaning = known.model.levels[title];
    return element("div", { class: "step" }, element("h3", {}, title),
      meaning ? element("p", { class: "type" }, meaning) : null, children);
  }

  reference(level, id) {
    const node = known.graphs[level][id];
    return element("div", {}, linkTo(node.kind, () => this.act.go({ kind: level, id })),
      element("span", { class: "type" }, `  ${node.name}  ${node.outputs[0]?.type ?? ""}`));
  }

  callReference(id) {
    const call = known.calls[id];
    return element("div", {}, linkTo(call.label, () => { this.tab = "kernel"; this.act.choose({ kind: "call", id }); },
      { "data-call": id }), element("span", { class: "type" },
      `  ${when(call)}${call.cycles && !call.prepared ? `, at least ${figure(Math.round(call.cycles))} cycles` : ""}`));
  }

  kernels(ids, chosen) {
    if (!known.lowered) return [element("p", { class: "empty" }, "The model is being lowered ...")];
    if (known.lowered.error) return [errorBox(known.lowered.error)];
    if (!ids.length) return [element("p", { class: "empty" }, "No kernel computes it: others do, or nobody needs it.")];
    const calls = ids.map((id) => known.calls[id]);
    const longest = calls.reduce((most, call) => (call.cycles > most.cycles ? call : most));
    const all = calls.length > 1
      ? [element("h3", {}, `${counted(calls.length, "call")}, the longest below`), ...ids.map((id) => this.callReference(id))] : [];
    return [...all, ...this.kernel(longest, chosen)];
  }

  kernel(call, chosen) {
    const kernel = known.kernels.get(call.kernel);
    const rows = call.why ? [] : [["operations", figure(call.flops)], ["bytes", bytes(call.moved)],
      ["cycles, at least", figure(Math.round(call.cycles))]];
    if (call.time !== undefined) rows.push(["measured", `${figure(call.time)} µs`]);
    if (call.chunks > 1) rows.push(["chunks", String(call.chunks)]);
    const found = [element("h3", {}, chosen.kind === "call" ? "Cost" : call.label), table([], rows, [1])];
    if (chosen.kind === "call") {
      found.push(element("h3", {}, "Computes"), ...call.onnx.map((id) => this.reference("onnx", id)));
    }
    if (call.schedules) found.push(...schedules(call.schedules));
    if (call.why) return [...found, element("p", { class: "empty" }, `Python computes it: ${call.why}.`)];
    if (!kernel) return [...found, element("p", { class: "empty" }, `Runs ${call.programs.join(" or ")}.`)];
    const place = element("div");
    const forms = { "C": () => code(kernel.c, "c"), "Loops": () => code(kernel.loops, "ir") };
    const tabs = element("div", { class: "tabs", role: "tablist" });
    const show = (name) => {
      for (const button of tabs.children) button.setAttribute("aria-selected", String(button.textContent === name));
      place.replaceChildren(forms[name]());
    };
    tabs.append(...Object.keys(forms).map((name) =>
      element("button", { type: "button", role: "tab", onclick: () => show(name) }, name)));
    show("C");
    return [...found, element("h3", {}, "Code"), tabs, place];
  }
}

/** What a folded node makes of a weight: its name, and the operators that it goes through. */
function formsOf(level, node) {
  const [one] = node.inputs;
  if (!one) return [node.kind];
  return [...(one.node === null ? [one.name] : formsOf(level, known.graphs[level][one.node])), node.kind];
}

/** The weights that a node reads, as they are or in other forms. */
const heldBy = (level, node) => node.inputs.flatMap((one) => {
  const giver = known.graphs[level][one.node];
  return giver?.folded ? heldBy(level, giver) : one.held ? [one.name] : [];
});

/** Whether it is an input or an output of a graph. */
const isEnd = ({ kind, id }) => ["input", "output"].includes(known.graphs[kind]?.[id].kind);

const when = (call) =>
  (call.prepared ? "once, at loading" : call.step === null ? "in a branch or a loop" : `call ${call.step}`);

/** How a contraction runs, and how else it could by estimate. */
function schedules({ candidates, of, contraction, reason }) {
  const most = Math.max(...candidates.map((one) => one.cycles), 1);
  const rows = candidates.map((one, at) => ({ attributes: at === 0 ? { class: "chosen" } : {}, cells: [
    at === 0 ? element("b", {}, one.schedule) : one.schedule,
    element("span", {}, figure(one.cycles), element("span", { class: "bar", style: `width:${(60 * one.cycles) / most}px` }))] }));
  return [element("h3", {}, `Schedule: the one taken, of ${of}`),
    element("p", { class: "type mono" }, contraction), element("p", { class: "type" }, `Chosen for ${reason}.`), table(["schedule", "cycles"], rows, [1])];
}

function histogram(one) {
  const most = Math.max(...one.histogram);
  const bars = one.histogram.map((count) => element("i", { style: `height:${(100 * count) / most}%`, title: String(count) }));
  const zeros = one.zeros ? `, ${counted(one.zeros, "zero")}` : "";
  const odd = one.not_finite ? `, ${counted(one.not_finite, "number")} not finite` : "";
  return [element("div", { class: "histogram", role: "img", "aria-label": "distribution" }, bars),
    element("div", { class: "range" }, element("span", {}, figure(one.edges[0])), element("span", {}, figure(one.edges[1]))),
    element("p", { class: "type" }, `mean ${figure(one.mean)}, deviation ${figure(one.deviation)}, norm ${figure(one.norm)}${zeros}${odd}`)];
}

function sourceLine(node) {
  return (known.model.sources[node.file] ?? "").split("\n")[node.line - 1]?.trim() ?? "";
}
