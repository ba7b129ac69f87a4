// The graph of a level on a canvas: pan, zoom, groups that open, colours by operator or by cost.

const ZOOM = { least: 0.02, most: 2.5, text: 0.38 };
const NODE = { h: 40, least: 96, most: 230 };
const GROUP_H = 46;
/** What stays free around a graph that is fitted, and the least scale at which one begins. */
const MARGIN = 14;
const READABLE = 0.45;
const PALETTE = 8;
const NARROW = matchMedia("(max-width: 760px)");

class GraphView {
  constructor(level, nodes, act) {
    Object.assign(this, { level, nodes, act, colour: "operator", x: 0, y: 0, scale: 1 });
    this.canvas = element("canvas", { id: "graph", tabindex: "0", role: "img" });
    this.context = this.canvas.getContext("2d");
    this.readers = inverse(nodes, (node) => new Set(node.inputs.map((input) => input.node)));
    /** What is shown of the nodes that are folded. */
    this.unfolded = new Set();
    this.frame = element("div", { class: "graph" }, this.tools(),
      element("div", { class: "stage" }, this.canvas, this.map()), this.legend());
    this.group();
    this.canvas.setAttribute("aria-label",
      `The graph at the ${level} level, ${counted(nodes.length, "node")}; the list has them, too.`);
    this.listen();
  }

  // --- What is folded -----------------------------------------------------------------------

  /** Makes the tree of what is shown; groups stay open. */
  group() {
    const before = this.root;
    Object.assign(this, grouped(this.nodes, (node) => !node.folded || this.unfolded.has(node.id)));
    if (before) openAsBefore(this.root, before);
    else openSome(this.root);
    this.kinds = kindsOf(this.nodes.filter((node) => this.leaves[node.id]));
    this.explain();
    this.folding.textContent = this.unfolded.size ? "Fold weights" : "Unfold weights";
    this.arrange();
  }

  /** Shows the nodes that give weights other forms, or has them be parts of operands again. */
  fold() {
    const all = this.nodes.filter((node) => node.folded).map((node) => node.id);
    this.unfolded = new Set(this.unfolded.size ? [] : all);
    this.group();
    this.act.regrouped(this);
    this.start();
  }

  /** Shows a folded node, and what is folded between it, its weights and what reads them. */
  unfold(id) {
    const below = this.reached([id], (one) => this.readers.get(one) ?? []);
    for (const one of this.reached(below, (other) => this.nodes[other].inputs.map((input) => input.node))) this.unfolded.add(one);
    this.group();
    this.act.regrouped(this);
  }

  /** These nodes, and the folded ones that steps from one to the next lead to. */
  reached(ids, next) {
    const found = new Set(ids);
    for (const id of found) for (const one of next(id)) if (this.nodes[one]?.folded) found.add(one);
    return found;
  }

  /** The nodes that stand for one in the graph: itself, or what reads it. */
  standsFor(id) {
    return this.leaves[id] ? [id] : (this.readers.get(id) ?? []).flatMap((one) => this.standsFor(one));
  }

  // --- What is shown ------------------------------------------------------------------------

  arrange() {
    const measure = this.context;
    place(this.root, (item) => {
      measure.font = FONT.kind;
      if (item instanceof Group) {
        return { w: Math.min(260, Math.max(150, measure.measureText(item.label).width + 56)), h: GROUP_H };
      }
      const kind = measure.measureText(this.kindText(item.node)).width;
      measure.font = FONT.type;
      const type = measure.measureText(this.typeText(item.node)).width;
      return { w: Math.min(NODE.most, Math.max(NODE.least, kind + 24, type + 24)), h: NODE.h };
    });
    Object.assign(this, flattened(this.root));
    this.mapDrawn = null;
  }

  kindText(node) {
    return node.kind === "input" || node.kind === "output" ? node.name || node.kind : node.kind;
  }

  typeText(node) {
    const shown = node.outputs[0] ?? node.inputs[0];
    return shown ? shown.type : "";
  }

  tools() {
    const select = element("select", { "aria-label": "Colours",
      onchange: (event) => { this.colour = event.target.value; this.explain(); this.draw(); } },
      element("option", { value: "operator" }, "colour: operator"),
      element("option", { value: "cycles" }, "colour: estimated cycles"),
      element("option", { value: "time", id: "by-time", hidden: !known.lowered?.total }, "colour: measured time"),
      element("option", { value: "ipu", id: "by-ipu", hidden: !known.tiles || known.tiles.error }, "colour: cycles on IPUs"));
    this.folding = element("button", { type: "button", hidden: !this.nodes.some((node) => node.folded),
      title: "Constants, and what only gives a weight another form, are shown at the nodes that read them", onclick: () => this.fold() });
    return element("div", { id: "tools" },
      element("button", { type: "button", onclick: () => this.fit() }, "Fit"),
      element("button", { type: "button", onclick: () => this.openAll(true) }, "Open all"),
      element("button", { type: "button", onclick: () => this.openAll(false) }, "Close all"),
      this.folding, select);
  }

  legend() {
    this.key = element("div", { class: "legend" });
    const button = element("button", { type: "button" });
    const show = (open) => {
      this.key.hidden = !open;
      button.textContent = open ? "▾ Colours" : "▸ Colours";
      button.setAttribute("aria-expanded", String(open));
    };
    button.addEventListener("click", () => show(this.key.hidden));
    show(!NARROW.matches);
    return element("div", { id: "legend" }, button, this.key);
  }

  /** What the colours mean: operators, or how much of what takes most. */
  explain() {
    if (this.colour !== "operator") {
      const unit = this.colour === "time" ? "µs" : "cycles";
      this.key.replaceChildren(...[0, 0.5, 1].map((part) => element("span", {}, element("i", {
        style: `background:rgba(var(--heat), ${heat(part)});border-color:var(--b8)` }), `${figure(Number((part * this.most()).toPrecision(3)))} ${unit}`)));
      return;
    }
    const rows = [...this.kinds].slice(0, PALETTE);
    this.key.replaceChildren(...rows.map(([kind, { count, colour }]) =>
      element("span", {}, element("i", {
        style: `background:var(--c${colour});border-color:var(--b${colour})` }), `${kind} ${count}`)));
  }

  /** What the node takes that takes most. */
  most() {
    return this.nodes.reduce((most, node) => Math.max(most, amount(this.level, node.id, this.colour)), 0);
  }

  map() {
    this.mini = element("canvas", { width: "150", height: "110" });
    return element("div", { id: "minimap", class: "floating", title: "Overview",
      onpointerdown: (event) => this.jump(event),
      onpointermove: (event) => event.buttons && this.jump(event) }, this.mini);
  }

  openAll(open) {
    const visit = (group) => group.items.forEach((item) => {
      if (!(item instanceof Group)) return;
      item.open = open;
      visit(item);
    });
    visit(this.root);
    this.arrange();
    this.start();
  }

  // --- Where it is shown --------------------------------------------------------------------

  resize() {
    const { clientWidth, clientHeight } = this.canvas;
    const ratio = window.devicePixelRatio || 1;
    const chosen = this.act.chosen();
    const box = chosen?.kind === this.level ? this.leaves[chosen.id]?.box : null;
    const seen = box && this.sees(box);
    Object.assign(this.canvas, { width: clientWidth * ratio, height: clientHeight * ratio });
    Object.assign(this, { ratio, width: clientWidth, height: clientHeight });
    if (this.fitted) this.fit();
    else if (seen && !this.sees(box)) this.centre(box);
    else this.draw();
  }

  /** Whether all of a box is to be seen. */
  sees({ x, y, w, h }) {
    const [left, top] = [this.x + x * this.scale, this.y + y * this.scale];
    return left >= 0 && top >= 0 && left + w * this.scale <= this.width && top + h * this.scale <= this.height;
  }

  /** The scale at which all that is drawn is to be seen. */
  whole() {
    const { w, h } = this.drawn;
    return Math.min(1, Math.max(1, this.width - 2 * MARGIN) / w, Math.max(1, this.height - 2 * MARGIN) / h);
  }

  /** Shows all that is drawn; it stays so when the window changes its size. */
  fit() {
    const { x, y, w, h } = this.drawn;
    this.look(this.whole(), x + w / 2, y + h / 2);
    this.fitted = true;
  }

  /** As a graph begins: as a whole if it can be read so, or else from its top. */
  start() {
    if (this.whole() >= READABLE) return this.fit();
    const { x, y, w } = this.drawn;
    const first = this.boxes.reduce((top, box) => (box.y < top.y ? box : top));
    const middle = w * READABLE <= this.width ? x + w / 2 : first.x + first.w / 2;
    return this.look(READABLE, middle, y + (this.height / 2 - MARGIN) / READABLE);
  }

  /** Has a point of the graph in the middle. */
  look(scale, x, y) {
    this.scale = scale;
    this.move(this.width / 2 - x * scale, this.height / 2 - y * scale);
  }

  move(x, y) {
    Object.assign(this, { x, y, fitted: false });
    this.draw();
  }

  reveal(id) {
    if (!this.leaves[id]) this.unfold(id);
    let closed = false;
    for (let group = this.leaves[id].parent; group; group = group.parent) {
      closed ||= !group.open;
      group.open = true;
    }
    if (closed) this.arrange();
    this.centre(this.leaves[id].box);
  }

  centre(box) {
    this.look(Math.max(this.scale, 0.7), box.x + box.w / 2, box.y + box.h / 2);
  }

  zoom(factor, px, py) {
    const before = this.scale;
    this.scale = Math.min(ZOOM.most, Math.max(Math.min(ZOOM.least, this.whole()), before * factor));
    const grown = this.scale / before;
    this.move(px - (px - this.x) * grown, py - (py - this.y) * grown);
  }

  jump(event) {
    const { left, top } = this.mini.getBoundingClientRect();
    const { k, dx, dy } = this.mapScale;
    this.look(this.scale, (event.clientX - left - dx) / k, (event.clientY - top - dy) / k);
  }

  // --- What a person does -------------------------------------------------------------------

  listen() {
    const { canvas } = this;
    /** Where the pointers are that press the canvas: one drags the graph, two zoom it, too. */
    const held = new Map();
    let moved = false;
    const middle = () => {
      const [a, b = a] = held.values();
      return { x: (a.clientX + b.clientX) / 2, y: (a.clientY + b.clientY) / 2, far: Math.hypot(a.clientX - b.clientX, a.clientY - b.clientY) };
    };
    canvas.addEventListener("pointerdown", (event) => {
      moved = held.size > 0;
      held.set(event.pointerId, event);
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      const last = held.get(event.pointerId);
      if (!last) return this.hover(event);
      if (!moved && Math.hypot(event.clientX - last.clientX, event.clientY - last.clientY) < 4) return undefined;
      moved = true;
      const before = middle();
      held.set(event.pointerId, event);
      const now = middle();
      this.move(this.x + now.x - before.x, this.y + now.y - before.y);
      const { left, top } = canvas.getBoundingClientRect();
      return before.far && this.zoom(now.far / before.far, now.x - left, now.y - top);
    });
    canvas.addEventListener("pointerup", (event) => {
      if (held.delete(event.pointerId) && !moved) this.click(this.at(event));
    });
    canvas.addEventListener("pointercancel", (event) => held.delete(event.pointerId));
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const { left, top } = canvas.getBoundingClientRect();
      if (event.ctrlKey || !event.shiftKey) {
        this.zoom(Math.exp(-event.deltaY * 0.0015), event.clientX - left, event.clientY - top);
      } else this.move(this.x - event.deltaY, this.y);
    }, { passive: false });
    canvas.addEventListener("keydown", (event) => this.key(event));
    new ResizeObserver(() => {
      const first = this.width === undefined;
      this.resize();
      if (first) this.begin();
    }).observe(canvas);
  }

  begin() {
    const chosen = related(this.act.chosen())[this.level];
    this.start();
    if (chosen.length) this.reveal(chosen[0]);
  }

  at(event) {
    const { left, top } = this.canvas.getBoundingClientRect();
    const x = (event.clientX - left - this.x) / this.scale;
    const y = (event.clientY - top - this.y) / this.scale;
    const inside = (box) => x >= box.x && x <= box.x + box.w && y >= box.y && y <= box.y + box.h;
    return this.boxes.findLast(inside) ?? null;
  }

  hover(event) {
    const box = this.at(event);
    this.canvas.style.cursor = box ? "pointer" : "grab";
    const item = box?.item;
    const title = !item ? "" : item instanceof Group ? `${item.path}: ${counted(item.size, "node")}`
      : `${item.node.kind}  ${item.node.name}`;
    if (this.canvas.title !== title) this.canvas.title = title;
  }

  click(box) {
    if (!box) return this.act.choose(null);
    if (!box.group) return this.act.choose({ kind: this.level, id: box.item.id });
    return this.toggle(box.item);
  }

  toggle(group) {
    const before = { x: group.box.x, y: group.box.y };
    group.open = !group.open;
    this.arrange();
    this.move(this.x + (before.x - group.box.x) * this.scale, this.y + (before.y - group.box.y) * this.scale);
  }

  /** Arrows go to what a node reads and to what reads it; plus and minus zoom. */
  key(event) {
    if (event.key === "+" || event.key === "-") {
      return this.zoom(event.key === "+" ? 1.2 : 1 / 1.2, this.width / 2, this.height / 2);
    }
    const chosen = this.act.chosen();
    if (chosen?.kind !== this.level || !event.key.startsWith("Arrow")) return undefined;
    event.preventDefault();
    const node = this.nodes[chosen.id];
    const isShown = (id) => this.leaves[id];
    const ids = [...this.nodes.keys()].filter(isShown);
    const next = { ArrowUp: node.inputs.map((input) => input.node).find(isShown), ArrowDown: (this.readers.get(node.id) ?? []).find(isShown),
      ArrowLeft: ids.findLast((id) => id < node.id), ArrowRight: ids.find((id) => id > node.id) };
    const id = next[event.key];
    if (id === undefined) return undefined;
    this.act.choose({ kind: this.level, id });
    return this.reveal(id);
  }
}

/** Operators by how often there are, each with the number of its colour. */
function kindsOf(nodes) {
  const counts = new Map();
  for (const { kind } of nodes) {
    if (kind !== "input" && kind !== "output") counts.set(kind, (counts.get(kind) ?? 0) + 1);
  }
  const rows = [...counts].sort((a, b) => b[1] - a[1]);
  return new Map(rows.map(([kind, count], at) => [kind, { count, colour: Math.min(at, PALETTE) }]));
}
