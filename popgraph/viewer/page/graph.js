// The graph of a level on a canvas: pan, zoom, groups that open, colours by operator or by cost.

const ZOOM = { least: 0.02, most: 2.5, text: 0.38 };
const NODE = { h: 40, least: 96, most: 230 };
const GROUP_H = 46;
/** What stands over the graph, above and below. */
const TOOLS = 52;
const PALETTE = 8;

class GraphView {
  constructor(level, nodes, act) {
    Object.assign(this, { level, nodes, act, colour: "operator", x: 0, y: 0, scale: 1 });
    this.canvas = element("canvas", { id: "graph", tabindex: "0", role: "img" });
    this.context = this.canvas.getContext("2d");
    this.kinds = kindsOf(nodes);
    const { root, leaves } = grouped(nodes);
    Object.assign(this, { root, leaves });
    openSome(root);
    this.frame = element("div", { style: "height:100%" }, this.canvas, this.tools(), this.legend(),
      this.map());
    this.canvas.setAttribute("aria-label",
      `The graph at the ${level} level, ${counted(nodes.length, "node")}; the list beside it has all of them.`);
    this.listen();
    this.arrange();
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
    return element("div", { id: "tools", class: "floating" },
      element("button", { type: "button", onclick: () => this.fit() }, "Fit"),
      element("button", { type: "button", onclick: () => this.openAll(true) }, "Open all"),
      element("button", { type: "button", onclick: () => this.openAll(false) }, "Close all"),
      select);
  }

  legend() {
    this.key = element("div", { id: "legend", class: "floating" });
    this.explain();
    return this.key;
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
    this.fit();
  }

  // --- Where it is shown --------------------------------------------------------------------

  resize() {
    const { clientWidth, clientHeight } = this.canvas;
    const ratio = window.devicePixelRatio || 1;
    Object.assign(this.canvas, { width: clientWidth * ratio, height: clientHeight * ratio });
    Object.assign(this, { ratio, width: clientWidth, height: clientHeight });
    this.draw();
  }

  fit() {
    const whole = Math.min(this.width / (this.w + 40), (this.height - 2 * TOOLS) / this.h);
    this.scale = Math.min(1, Math.max(whole, 0.45));
    const first = this.boxes.reduce((top, box) => (box.y < top.y ? box : top), this.boxes[0]);
    const middle = this.w * this.scale <= this.width || !first ? this.w / 2 : first.x + first.w / 2;
    this.x = this.width / 2 - middle * this.scale;
    this.y = Math.max(TOOLS, (this.height - this.h * this.scale) / 2);
    this.draw();
  }

  reveal(id) {
    let closed = false;
    for (let group = this.leaves[id].parent; group; group = group.parent) {
      closed ||= !group.open;
      group.open = true;
    }
    if (closed) this.arrange();
    this.centre(this.leaves[id].box);
  }

  centre(box) {
    this.scale = Math.max(this.scale, 0.7);
    const [x, y] = [box.x + box.w / 2, box.y + box.h / 2];
    this.x = this.width / 2 - x * this.scale;
    this.y = this.height / 2 - y * this.scale;
    this.draw();
  }

  zoom(factor, px, py) {
    const scale = Math.min(ZOOM.most, Math.max(ZOOM.least, this.scale * factor));
    this.x = px - ((px - this.x) * scale) / this.scale;
    this.y = py - ((py - this.y) * scale) / this.scale;
    this.scale = scale;
    this.draw();
  }

  jump(event) {
    const { left, top } = this.mini.getBoundingClientRect();
    const { k, dx, dy } = this.mapScale;
    this.x = this.width / 2 - ((event.clientX - left - dx) / k) * this.scale;
    this.y = this.height / 2 - ((event.clientY - top - dy) / k) * this.scale;
    this.draw();
  }

  // --- What a person does -------------------------------------------------------------------

  listen() {
    const { canvas } = this;
    let held = null;
    canvas.addEventListener("pointerdown", (event) => {
      held = { x: event.clientX, y: event.clientY, moved: false };
      canvas.setPointerCapture(event.pointerId);
    });
    canvas.addEventListener("pointermove", (event) => {
      if (!held) return this.hover(event);
      const [dx, dy] = [event.clientX - held.x, event.clientY - held.y];
      if (!held.moved && Math.hypot(dx, dy) < 4) return undefined;
      held = { x: event.clientX, y: event.clientY, moved: true };
      this.x += dx;
      this.y += dy;
      return this.draw();
    });
    canvas.addEventListener("pointerup", (event) => {
      if (held && !held.moved) this.click(this.at(event));
      held = null;
    });
    canvas.addEventListener("wheel", (event) => {
      event.preventDefault();
      const { left, top } = canvas.getBoundingClientRect();
      if (event.ctrlKey || !event.shiftKey) {
        this.zoom(Math.exp(-event.deltaY * 0.0015), event.clientX - left, event.clientY - top);
      } else {
        this.x -= event.deltaY;
        this.draw();
      }
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
    this.fit();
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
    this.x += (before.x - group.box.x) * this.scale;
    this.y += (before.y - group.box.y) * this.scale;
    this.draw();
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
    const up = node.inputs.map((input) => input.node).filter((id) => id !== null);
    const down = this.nodes.filter((other) => other.inputs.some((input) => input.node === node.id));
    const next = { ArrowUp: up[0], ArrowDown: down[0]?.id, ArrowLeft: node.id - 1, ArrowRight: node.id + 1 };
    const id = next[event.key];
    if (id === undefined || !this.nodes[id]) return undefined;
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
