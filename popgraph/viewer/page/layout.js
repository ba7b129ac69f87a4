// Layered layout of nested groups: ranks by longest path, order by barycentres, then positions.

const GAP = { x: 18, y: 30, padding: 16, header: 26 };
const VISIBLE_AT_FIRST = 160;
const LARGEST_GROUP = 1200;
const CHUNK = 200;
const LONGEST_DUMMIES = 40;
/** How much an edge that only passes by draws a node to it, and what nothing comes before. */
const PASSING = 0.08;

class Group {
  constructor(path, label, parent) {
    Object.assign(this, { path, label, parent, items: [], open: false, first: Infinity, size: 0 });
    this.edges = new Map();
    this.entries = new Set();
    this.exits = new Set();
  }
}

/** The tree of scopes of the nodes that are shown, with the edges between the items of each group. */
function grouped(nodes, isShown) {
  const root = new Group("", "", null);
  root.open = true;
  const groups = new Map([["", root]]);
  const groupAt = (path) => {
    if (!groups.has(path)) {
      const cut = path.lastIndexOf("/");
      const parent = groupAt(cut < 0 ? "" : path.slice(0, cut));
      const made = new Group(path, path.slice(cut + 1), parent);
      parent.items.push(made);
      groups.set(path, made);
    }
    return groups.get(path);
  };
  const leaves = [];
  for (const node of nodes) {
    if (!isShown(node)) continue;
    const parent = groupAt(node.scope);
    leaves[node.id] = { node, id: node.id, first: node.id, parent };
    parent.items.push(leaves[node.id]);
  }
  tidy(root);
  addEdges(nodes, leaves);
  return { root, leaves };
}

/** Groups of one item give way to it; large ones are cut into consecutive pieces. */
function tidy(group) {
  group.items = group.items.map((item) => {
    if (!(item instanceof Group)) return item;
    tidy(item);
    if (item.items.length !== 1) return item;
    const [only] = item.items;
    only.parent = group;
    if (only instanceof Group) only.label = `${item.label}/${only.label}`;
    return only;
  });
  for (const item of group.items) {
    if (!(item instanceof Group)) continue;
    item.first = Math.min(...item.items.map((inner) => inner.first));
  }
  group.items.sort((a, b) => a.first - b.first);
  while (group.items.length > LARGEST_GROUP) {
    const pieces = [];
    for (let at = 0; at < group.items.length; at += CHUNK) {
      const items = group.items.slice(at, at + CHUNK);
      const label = `${at + 1} – ${at + items.length}`;
      const piece = new Group(`${group.path}/${label}`, label, group);
      piece.items = items;
      piece.first = items[0].first;
      piece.size = items.reduce((sum, item) => sum + (item.size ?? 1), 0);
      for (const item of items) item.parent = piece;
      pieces.push(piece);
    }
    group.items = pieces;
  }
  group.size = group.items.reduce((sum, item) => sum + (item instanceof Group ? item.size : 1), 0);
}

function ancestors(item) {
  const found = [];
  for (let one = item; one; one = one.parent) found.push(one);
  return found.reverse();
}

function addEdges(nodes, leaves) {
  for (const node of nodes) {
    const target = ancestors(leaves[node.id]);
    for (const input of target.length ? node.inputs : []) {
      if (!leaves[input.node] || input.node === node.id) continue;
      const source = ancestors(leaves[input.node]);
      let at = 0;
      while (source[at] === target[at]) at += 1;
      const { edges } = source[at - 1];
      if (!edges.has(source[at])) edges.set(source[at], new Set());
      edges.get(source[at]).add(target[at]);
      for (let down = at; down < source.length - 1; down += 1) source[down].exits.add(source[down + 1]);
      for (let down = at; down < target.length - 1; down += 1) target[down].entries.add(target[down + 1]);
    }
  }
}

/** Opens groups from the outside in, while few enough items are to be seen. */
function openSome(root) {
  let count = root.items.length;
  const waiting = [root];
  while (waiting.length) {
    const group = waiting.shift();
    for (const item of group.items) {
      if (!(item instanceof Group) || count + item.items.length > VISIBLE_AT_FIRST) continue;
      item.open = true;
      count += item.items.length;
      waiting.push(item);
    }
  }
}

/** Opens the groups of a new tree as those of the one before it were, and what was not in that one. */
function openAsBefore(root, before) {
  const known = new Map();
  const each = (group, act) => group.items.forEach((item) => {
    if (!(item instanceof Group)) return;
    act(item);
    each(item, act);
  });
  each(before, (group) => known.set(group.path, group));
  each(root, (group) => {
    const { open, listed } = known.get(group.path) ?? { open: true, listed: false };
    Object.assign(group, { open, listed });
  });
}

/** Sizes and positions of everything in a group, relative to its corner. */
function place(group, sizeOf) {
  for (const item of group.items) {
    if (item instanceof Group && item.open) place(item, sizeOf);
    else Object.assign(item, sizeOf(item));
  }
  const { layers, routes } = withDummies(withPorts(group));
  order(layers);
  positions(layers);
  let y = group.parent ? GAP.header + GAP.padding : GAP.padding;
  for (const layer of layers) {
    const height = Math.max(...layer.map((cell) => cell.h));
    for (const cell of layer) {
      if (!cell.item) cell.h = height;
      const spare = height - cell.h;
      cell.y = y + (cell.depth ? spare / 2 : spare);
    }
    const crossing = layer.reduce((sum, cell) => sum + cell.down.length, 0);
    y += height + GAP.y + Math.min(40, crossing * 1.5);
  }
  const cells = layers.flat();
  const left = cells.reduce((least, cell) => Math.min(least, cell.x), Infinity);
  const right = cells.reduce((most, cell) => Math.max(most, cell.x + cell.w), -Infinity);
  const wide = Math.max(140, right - left);
  for (const cell of cells) {
    cell.x += GAP.padding - left + (wide - (right - left)) / 2;
    if (cell.item) Object.assign(cell.item, { x: cell.x, y: cell.y });
  }
  group.w = wide + 2 * GAP.padding;
  group.h = y - GAP.y + GAP.padding;
  group.routes = routes;
}

/** The items and edges of a group, with a port for what comes in and one for what goes out. */
function withPorts(group) {
  const edges = new Map(group.edges);
  const items = [...group.items];
  const port = (side) => ({ port: side, parent: group, w: 4, h: 0 });
  if (group.entries.size) {
    const top = port("top");
    items.unshift(top);
    edges.set(top, group.entries);
  }
  if (group.exits.size) {
    const bottom = port("bottom");
    items.push(bottom);
    for (const item of group.exits) edges.set(item, new Set([...(edges.get(item) ?? []), bottom]));
  }
  return { items, edges };
}

/** The longest path to each item; an edge that closes a circle does not count. */
function ranked(group) {
  const before = new Map(group.items.map((item) => [item, 0]));
  for (const targets of group.edges.values()) {
    for (const target of targets) before.set(target, before.get(target) + 1);
  }
  const rank = new Map(group.items.map((item) => [item, 0]));
  const left = new Set(group.items);
  let ready = group.items.filter((item) => before.get(item) === 0);
  while (left.size) {
    if (!ready.length) ready = [left.values().next().value];
    const item = ready.pop();
    if (!left.delete(item)) continue;
    for (const target of group.edges.get(item) ?? []) {
      if (!left.has(target)) continue;
      rank.set(target, Math.max(rank.get(target), rank.get(item) + 1));
      before.set(target, before.get(target) - 1);
      if (before.get(target) === 0) ready.push(target);
    }
  }
  for (const item of group.items) item.depth = rank.get(item);
  pullDown(group, rank);
  return rank;
}

/** What nothing comes before stands right above what reads it first. */
function pullDown(group, rank) {
  const reached = new Set([...group.edges.values()].flatMap((targets) => [...targets]));
  for (const [source, targets] of group.edges) {
    if (reached.has(source) || source.port) continue;
    const least = Math.min(...[...targets].map((target) => rank.get(target)));
    if (least > rank.get(source) + 1) rank.set(source, least - 1);
  }
}

/** Cells in layers; a long edge is a chain of cells without a size. */
function withDummies(group) {
  const rank = ranked(group);
  const layers = [];
  const cells = new Map();
  const add = (at, cell) => {
    while (layers.length <= at) layers.push([]);
    layers[at].push(cell);
    return cell;
  };
  const cellOf = (item, depth, w, h) => ({ item, depth, w, h, up: [], down: [], x: 0, y: 0 });
  for (const item of group.items) {
    cells.set(item, add(rank.get(item), cellOf(item, item.depth, item.w, item.h)));
  }
  const routes = [];
  for (const [source, targets] of group.edges) {
    for (const target of targets) {
      const [from, to] = [rank.get(source), rank.get(target)];
      const chain = [cells.get(source)];
      if (to > from + 1 && to - from <= LONGEST_DUMMIES) {
        for (let at = from + 1; at < to; at += 1) chain.push(add(at, cellOf(null, source.depth, 4, 0)));
      }
      chain.push(cells.get(target));
      if (to > from && to - from <= LONGEST_DUMMIES) {
        chain.slice(1).forEach((cell, at) => {
          cell.up.push(chain[at]);
          chain[at].down.push(cell);
        });
      }
      routes.push({ source, target, chain, back: to <= from });
    }
  }
  return { layers: layers.filter((layer) => layer.length), routes };
}

function order(layers) {
  const number = () => layers.forEach((layer) => layer.forEach((cell, at) => (cell.at = at)));
  number();
  for (let sweep = 0; sweep < 6; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) {
      for (const cell of layer) {
        const near = down ? cell.up : cell.down;
        cell.weight = near.length
          ? near.reduce((sum, other) => sum + other.at, 0) / near.length : cell.at;
      }
      layer.sort((a, b) => a.weight - b.weight);
      layer.forEach((cell, at) => (cell.at = at));
    }
  }
}

function positions(layers) {
  for (const layer of layers) {
    let x = 0;
    for (const cell of layer) {
      cell.x = x;
      x += cell.w + GAP.x;
    }
    for (const cell of layer) cell.x -= x / 2;
  }
  for (let sweep = 0; sweep < 8; sweep += 1) {
    const down = sweep % 2 === 0;
    for (const layer of down ? layers : [...layers].reverse()) settle(layer, down);
  }
}

/** The places nearest to those of the neighbours, in order and apart: pooled adjacent violators. */
function settle(layer, down) {
  const centre = (cell) => cell.x + cell.w / 2;
  const pools = [];
  let offset = 0;
  for (const cell of layer) {
    const near = down ? cell.up : cell.down;
    const all = near.length ? near : [...cell.up, ...cell.down];
    const pull = (other) => (other.item || !cell.item ? 1 : PASSING) * (other.depth ? 1 : PASSING);
    const force = all.reduce((sum, other) => sum + pull(other), 0);
    const wanted = all.length
      ? all.reduce((sum, other) => sum + pull(other) * centre(other), 0) / force : centre(cell);
    const weight = (all.length ? 1 : 0.01) * (cell.item ? 1 : 0.4) * (cell.depth ? 1 : PASSING);
    cell.offset = offset;
    offset += cell.w + GAP.x;
    let pool = { cells: [cell], weight, sum: weight * (wanted - cell.w / 2 - cell.offset) };
    while (pools.length && pools.at(-1).sum / pools.at(-1).weight > pool.sum / pool.weight) {
      const last = pools.pop();
      pool = {
        cells: last.cells.concat(pool.cells),
        weight: last.weight + pool.weight,
        sum: last.sum + pool.sum,
      };
    }
    pools.push(pool);
  }
  for (const pool of pools) {
    for (const cell of pool.cells) cell.x = pool.sum / pool.weight + cell.offset;
  }
}

/** Everything that is to be seen, in absolute places, outer things first. */
function flattened(root) {
  const boxes = [];
  const paths = [];
  const visit = (group, x, y) => {
    for (const item of group.items) {
      const box = { item, x: x + item.x, y: y + item.y, w: item.w, h: item.h };
      box.group = item instanceof Group;
      box.open = box.group && item.open;
      item.box = box;
      boxes.push(box);
      if (box.open) visit(item, box.x, box.y);
    }
    for (const route of group.routes) {
      const points = route.back ? around(route.chain, x, y) : route.chain.flatMap((cell, at) => {
        if (cell.item?.port) return [[x + group.w / 2, y + (cell.item.port === "top" ? GAP.header - 6 : group.h)]];
        const middle = x + cell.x + cell.w / 2;
        const ends = [[middle, y + cell.y], [middle, y + cell.y + cell.h]];
        return cell.item ? [ends[at === 0 ? 1 : 0]] : ends;
      });
      paths.push(pathOf(points, route.source, route.target));
    }
  };
  visit(root, 0, 0);
  return { boxes, paths, w: root.w, h: root.h, drawn: extent(boxes, paths) };
}

/** What is drawn as a whole. */
function extent(boxes, paths) {
  const found = [Infinity, Infinity, -Infinity, -Infinity];
  const take = (left, top, right, bottom) => {
    found[0] = Math.min(found[0], left);
    found[1] = Math.min(found[1], top);
    found[2] = Math.max(found[2], right);
    found[3] = Math.max(found[3], bottom);
  };
  for (const { x, y, w, h } of boxes) take(x, y, x + w, y + h);
  for (const { bounds } of paths) take(...bounds);
  const [x, y, right, bottom] = boxes.length ? found : [0, 0, 1, 1];
  return { x, y, w: right - x, h: bottom - y };
}

/** Beside the boxes, upwards: where groups read each other, one edge closes the circle. */
function around([source, target], x, y) {
  const right = x + Math.max(source.x + source.w, target.x + target.w) + GAP.x / 2;
  const [from, to] = [y + source.y + source.h / 2, y + target.y + Math.min(target.h / 2, 14)];
  return [[x + source.x + source.w, from], [right, from], [right, to], [x + target.x + target.w, to]];
}

function pathOf(points, source, target) {
  const xs = points.map(([px]) => px);
  const ys = points.map(([, py]) => py);
  const bounds = [Math.min(...xs), Math.min(...ys), Math.max(...xs), Math.max(...ys)];
  return { points, source, target, bounds };
}
