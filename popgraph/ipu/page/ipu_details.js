// The panel on the right for the IPUs: what a tile holds, and what a step takes.

/** What a tile must hold: by category, then the tensors of each. */
function tileDetails(tiles, tile, act) {
  const limit = tiles.memory.bytesPerTile;
  const needed = tiles.neededOn(tile);
  const curve = tiles.curve(tile);
  const peak = peakOf(curve);
  const bar = (size, colour) => element("span", { class: "bar", style: `width:${(110 * size) / Math.max(limit, needed)}px;background:var(--${colour})` });
  const row = (name, size, colour) => [name, binary(size), percent(size / limit), bar(size, colour)];
  const rows = [...tiles.lasting.map(([name, vector]) => row(name, tiles.on(vector, tile), HELD[name])),
    row(NOT_ALWAYS, tiles.on(tiles.memory.peak, tile), MEANWHILE)];
  const over = needed > limit;
  rows.push([element("b", {}, "at most"), binary(needed), percent(needed / limit), ""],
    [over ? element("b", {}, "more than it has") : "free", binary(Math.abs(limit - needed)), percent(Math.abs(1 - needed / limit)), ""]);
  const held = tiles.always.map((one) => ({ one, size: tiles.on(one.bytes, tile) })).filter(({ size }) => size)
    .sort((a, b) => b.size - a.size);
  const heldRow = ({ one, size }) => [tensorName(tiles, one, act), element("span", { class: "type" }, `${one.type}, of ${one.category}`), binary(size)];
  const found = [element("h3", {}, `Needs ${binary(needed)} of ${binary(limit)}`), table([], rows, [1, 2]),
    element("h3", {}, `Always live: ${counted(held.length, "tensor")} with a part here`),
    held.length ? firstRows(["tensor", "type", "here"], held, heldRow, [2]) : element("p", { class: "empty" }, "None.")];
  return tiles.top.length ? [...found, ...aliveAt(tiles, peak, tile, false, act, "its fullest step"),
    linkTo("show this step", () => act.choose({ kind: "ipu", id: tiles.top[peak].id }))] : found;
}

/** What a step takes, and what it computes. */
function stepDetails(tiles, step, details) {
  const { kind, name, text, onnx } = tiles.operationOf(step);
  const times = step.times === 1 || tiles.isCall(step) ? [] : [["times in the program", step.times ? figure(step.times) : "none: another branch takes longer"]];
  const spent = Object.entries(SPENT).map(([part]) => [part, `${figure(step[part])} cycles`]);
  const rows = [["cycles", figure(step.cycles)], ...spent, ["µs", figure((step.cycles / tiles.machine.clockHertz) * 1e6)], ...times];
  const inner = tiles.steps.filter((one) => one.above === step.id);
  if (tiles.isCall(step)) rows.push(["turns", figure(step.turns)]);
  else {
    rows.push(["tiles at work", `${figure(step.tiles)} of ${figure(tiles.count)}`], ["operations", figure(step.flops)],
      ["received by tiles", binary(step.bytesExchanged)], ["of it from other IPUs", binary(step.bytesOverLinks)],
      ["only while it runs, on a tile", binary(step.mostTemporaryBytes)]);
  }
  if (step.above === null) rows.push(["alive on all tiles", binary(tiles.liveness.total[step.place])], ["the same, most on a tile", binary(tiles.liveness.largest[step.place])]);
  else rows.push(["within", linkTo(tiles.operationOf(tiles.steps[step.above]).kind, () => details.act.choose({ kind: "ipu", id: step.above }))]);
  const makes = onnx.length ? [element("h3", {}, "Computes"), ...onnx.map((id) => details.reference("onnx", id))] : [];
  const steps = inner.length ? [element("h3", {}, "Steps in it"), ...inner.map((one) => stepReference(tiles, one, details.act))] : [];
  return [element("h3", {}, "Cost"), table([], rows, [1]), ...makes, ...steps,
    element("h3", {}, `Operation ${kind} ${name}`), code(text, "ir", true)];
}

function stepReference(tiles, step, act) {
  const { kind, name } = tiles.operationOf(step);
  return element("div", {}, linkTo(kind, () => act.go({ kind: "ipu", id: step.id }), { "data-ipu": step.id }),
    element("span", { class: "type" }, `  ${name}  ${tiles.stepName(step)}, ${figure(step.cycles)} cycles`));
}
