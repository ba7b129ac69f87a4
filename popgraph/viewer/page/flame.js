// The flame graph: the time of a step by level, from the model down to kernels.

const FLAME = { row: 24, letter: 7.5, least: 0.5 };
/** The kinds of boxes, from above; scopes and nodes stand in each other as in the model. */
const FLAME_LEVELS = { model: "model", scope: "scope", onnx: "ONNX node", graphcore: "graphcore operation", kernel: "kernel" };

function flameView(act, root) {
  const told = element("p", { class: "told", "aria-live": "polite" });
  const chart = shape("svg", { class: "flame", role: "group",
    "aria-label": "the time of a step by level; the view Program has a table of all calls" });
  const above = new Map();
  const note = (box) => box.below.forEach((inner) => { above.set(inner, box); note(inner); });
  note(root);
  let focus = root;
  const tell = (box) => told.replaceChildren(element("b", {}, box.name), ` ${flameText(box)}`);
  const choose = (box) => {
    focus = box;
    draw();
    tell(box);
    if (box.places.length) act.choose({ kind: box.level === "kernel" ? "call" : box.level, id: box.places[0] });
    else act.choose(null);
  };
  const draw = () => {
    const width = chart.clientWidth;
    const way = [];
    for (let one = above.get(focus); one; one = above.get(one)) way.unshift(one);
    const found = way.map((box, depth) => ({ box, x: 0, w: width, depth, outer: true }));
    const place = (box, x, scale, depth) => {
      found.push({ box, x, w: box.microseconds * scale, depth });
      let at = x;
      for (const inner of box.below) {
        if (inner.microseconds * scale >= FLAME.least) place(inner, at, scale, depth + 1);
        at += inner.microseconds * scale;
      }
    };
    place(focus, 0, width / (focus.microseconds || 1), way.length);
    const rows = 1 + Math.max(...found.map((one) => one.depth));
    chart.style.height = `${rows * FLAME.row}px`;
    chart.replaceChildren(...found.map((one) => flameBox(one, choose, tell)));
    markFlame(chart, related(act.chosen()));
  };
  new ResizeObserver(draw).observe(chart);
  tell(root);
  return scroll(element("h1", {}, "Time"),
    element("p", { class: "lead" }, "The calls of a step by what they compute: each was measured alone. A click goes to the place, and makes the box as wide as the page; "
      + "the boxes above it lead back. What one kernel computes of several nodes stands below all of them."),
    element("div", { class: "flame-levels" }, Object.entries(FLAME_LEVELS).map(([level, text]) =>
      element("span", {}, element("i", { class: level }), text))),
    told, chart);
}

const flameText = (box) =>
  `${FLAME_LEVELS[box.level]}, ${figure(box.microseconds)} µs, ${(100 * box.share).toFixed(1)} %, ${counted(box.calls, "call")}`;

function flameBox({ box, x, w, depth, outer }, choose, tell) {
  const most = Math.floor((w - 8) / FLAME.letter);
  const text = box.name.length <= most ? box.name : most > 3 ? `${box.name.slice(0, most - 1)}…` : "";
  const made = shape("g", { class: `${box.level}${outer ? " outer" : ""}`, tabindex: "0", role: "button",
    "data-level": box.level, "data-places": box.places.join(" "), "aria-label": `${box.name}: ${flameText(box)}`,
    onclick: () => choose(box), onpointerenter: () => tell(box), onfocus: () => tell(box),
    onkeydown: (event) => event.key === "Enter" && choose(box) },
    shape("title", {}, `${box.name}\n${flameText(box)}`),
    shape("rect", { x, y: depth * FLAME.row, width: Math.max(w - 1, FLAME.least), height: FLAME.row - 2, rx: 3 }));
  if (text) made.append(shape("text", { x: x + 5, y: depth * FLAME.row + 15 }, text));
  return made;
}

/** Shows which boxes belong to what is chosen. */
function markFlame(chart, linked) {
  for (const box of chart.querySelectorAll("[data-places]")) {
    const own = linked[box.dataset.level === "kernel" ? "call" : box.dataset.level] ?? [];
    const places = box.dataset.places.split(" ").filter(Boolean);
    box.classList.toggle("chosen", places.some((id) => own.includes(Number(id))));
  }
}
