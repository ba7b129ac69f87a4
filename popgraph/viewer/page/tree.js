// The list on the left: scopes and nodes of a level, and what a search finds.

const MOST_FOUND = 300;

/** A name without those of the scopes that it is listed under. */
const within = (name, path) => (path && name.startsWith(`${path}/`) ? name.slice(path.length + 1) : name);

class Tree {
  constructor(act) {
    this.act = act;
    this.list = document.getElementById("tree");
    this.field = document.getElementById("search");
    this.field.addEventListener("input", () => this.show());
    this.field.addEventListener("keydown", (event) => {
      if (event.key === "Enter") this.list.querySelector("button")?.click();
      if (event.key === "Escape") { this.field.value = ""; this.show(); }
    });
  }

  of(level, root) {
    Object.assign(this, { level, root });
    this.show();
  }

  show() {
    const words = this.field.value.toLowerCase().split(/\s+/).filter(Boolean);
    const rows = words.length ? this.found(words) : this.items(this.root, 0);
    this.list.replaceChildren(...(rows.length ? rows : [element("p", { class: "empty" }, "Nothing is called so.")]));
  }

  found(words) {
    const text = (node) => [node.kind, node.name, node.scope, ...node.outputs.map((one) => `${one.name} ${one.type}`),
      ...node.inputs.map((one) => one.name)].join(" ").toLowerCase();
    const nodes = known.graphs[this.level].filter((node) => {
      const all = text(node);
      return words.every((word) => all.includes(word));
    });
    const named = (node) => words.some((word) => node.kind.toLowerCase().includes(word));
    nodes.sort((a, b) => named(b) - named(a) || a.id - b.id);
    const rows = nodes.slice(0, MOST_FOUND).map((node) => this.leaf(node, 0, node.name));
    if (nodes.length > MOST_FOUND) {
      rows.push(element("p", { class: "empty" }, `and ${(nodes.length - MOST_FOUND).toLocaleString("en")} more`));
    }
    return rows;
  }

  items(group, depth) {
    return group.items.flatMap((item) =>
      (item instanceof Group ? this.branch(item, depth) : [this.leaf(item.node, depth, within(item.node.name, group.path))]));
  }

  branch(group, depth) {
    const twist = element("span", { class: "twist" }, group.listed ? "▾" : "▸");
    const button = element("button", { type: "button", role: "treeitem", style: `padding-left:${6 + depth * 13}px`,
      "aria-expanded": String(Boolean(group.listed)),
      onclick: () => { group.listed = !group.listed; this.show(); } },
      twist, element("span", { class: "kind" }, group.label),
      element("span", { class: "count" }, group.size.toLocaleString("en")));
    return [button, ...(group.listed ? this.items(group, depth + 1) : [])];
  }

  leaf(node, depth, name) {
    const chosen = this.act.chosen();
    const own = chosen?.kind === this.level && chosen.id === node.id;
    return element("button", { type: "button", role: "treeitem", "data-id": node.id, title: node.name,
      class: own ? "chosen" : "", style: `padding-left:${22 + depth * 13}px`,
      onclick: () => this.act.go({ kind: this.level, id: node.id }) },
      element("span", { class: "kind" }, node.kind), element("span", { class: "name" }, name));
  }

  mark() {
    const chosen = this.act.chosen();
    for (const button of this.list.querySelectorAll("button[data-id]")) {
      button.classList.toggle("chosen", chosen?.kind === this.level && Number(button.dataset.id) === chosen.id);
    }
  }
}
