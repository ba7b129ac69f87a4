/* Compares NAME with outputs that PopGraph's reference backend computed: `npm test`. */

import { readFile } from "node:fs/promises";
import { description, load } from "./NAME.js";

const checks = JSON.parse(await readFile(new URL("./check_NAME.json", import.meta.url), "utf8"));

/* Typed arrays of the bytes in base64, and scalars as numbers. */
function decoded(tensors, texts) {
  return Object.fromEntries(tensors.map((tensor) => {
    const bytes = Uint8Array.from(Buffer.from(texts[tensor.name], "base64"));
    const array = new (description.arrays[tensor.type] ?? Uint8Array)(bytes.buffer);
    const scalar = tensor.shape.length === 0 && !tensor.type.startsWith("c");
    return [tensor.name, scalar ? array[0] : array];
  }));
}

/* Halves as numbers. */
function number(type, value) {
  if (type === "bf16") return new Float32Array(new Uint32Array([value << 16]).buffer)[0];
  if (type !== "f16") return Number(value);
  const sign = value >> 15 ? -1 : 1;
  const exponent = (value >> 10) & 31;
  const fraction = value & 1023;
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? (1024 + fraction) * 2 ** (exponent - 25) : fraction * 2 ** -24);
}

/* The largest difference, relative to the largest wanted element; Infinity: not comparable. */
function distance(tensor, found, wanted) {
  const list = (value) => typeof value === "object" ? Array.from(value) : [value];
  const [a, b] = [list(found), list(wanted)];
  if (a.length !== b.length) return Infinity;
  if (!/^(f|bf|c)/.test(tensor.type)) return a.every((one, at) => one === b[at]) ? 0 : Infinity;
  let [largest, apart] = [0, 0];
  for (let at = 0; at < a.length; at++) {
    const [x, y] = [number(tensor.type, a[at]), number(tensor.type, b[at])];
    if (Number.isFinite(y)) largest = Math.max(largest, Math.abs(y));
    if (Object.is(x, y) || x === y) continue;
    if (!Number.isFinite(x) || !Number.isFinite(y)) return Infinity;
    apart = Math.max(apart, Math.abs(x - y));
  }
  return apart === 0 ? 0 : apart / Math.max(largest, 1e-6);
}

let good = true;
const kinds = [
  ["", { simd: false, threads: 1 }],
  [" with SIMD", { simd: true, threads: 1 }],
  [" with threads", { threads: description.model.threads }],
];
for (const [kind, options] of description.model.threads > 1 ? kinds : kinds.slice(0, 2)) {
  for (const check of checks) {
    const model = await load(options);
    const { inputs, outputs } = description.model.functions[check.function];
    const given = decoded(inputs, check.inputs);
    const wanted = decoded(outputs, check.outputs);
    const names = description.model.sizes.map((one, at) => [one.name, check.sizes[at]]);
    const sizes = names.length ? [Object.fromEntries(names)] : [];
    let found;
    for (let run = 0; run < check.runs; run++) found = model[check.function](given, ...sizes);
    outputs.forEach((tensor, at) => {
      const apart = distance(tensor, found[tensor.name], wanted[tensor.name]);
      const far = !(apart <= check.tolerances[at]);
      good &&= !far;
      const where = `${check.function}${kind}, ${tensor.name}`;
      console.log(`${where}: ${apart} of the largest apart${far ? ": too far" : ""}`);
    });
    model.close();
  }
}
console.log(good ? "good" : "BAD");
process.exitCode = good ? 0 : 1;
