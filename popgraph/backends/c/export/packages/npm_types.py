"""The TypeScript types and the README of an npm package."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from popgraph.backends.c.export.interface import Interface
from popgraph.backends.c.memory.table import Slot
from popgraph.support.shapes import prod

ARRAYS = {
    "f32": "Float32Array",
    "f64": "Float64Array",
    "c64": "Float32Array",
    "c128": "Float64Array",
    "f16": "Uint16Array",
    "bf16": "Uint16Array",
    **{f"i{bits}": f"Int{bits}Array" for bits in (8, 16, 32)},
    **{f"u{bits}": f"Uint{bits}Array" for bits in (8, 16, 32)},
    "i64": "BigInt64Array",
    "u64": "BigUint64Array",
}
"""Typed arrays of element types; others take a byte. Complex numbers are pairs."""


def array_of(slot: Slot) -> str:
    """The typed array of a tensor."""
    assert slot.dtype is not None
    return ARRAYS.get(slot.dtype.name, "Uint8Array")


def types(interface: Interface) -> str:
    """NAME.d.ts."""
    name = interface.form.name
    sizes = ""
    if interface.sizes:
        members = "".join(
            f"  /** {size.least} to {size.bound}. */\n  {_key(size.name)}: number;\n"
            for _, size in interface.sizes.values()
        )
        sizes = f"\n/** The sizes of a call. */\nexport interface Sizes {{\n{members}}}\n"
    structs = "".join(text for one in interface.all for text in _structs(one))
    calls = "".join(map(_call, interface.all))
    return f"""\
/** {name}, a neural network as WebAssembly. */
{sizes}{structs}
export interface LoadOptions {{
  /** Whether to use SIMD; by default, if the machine has it. */
  simd?: boolean;
{_threads(interface)}  /** The folder of the files; by default, the folder of the loader. */
  base?: string | URL;
}}

export interface Model {{
{calls}{_state(interface)}  /** Whether the module with SIMD is in use. */
  readonly simd: boolean;
  /** The number of threads that compute. */
  readonly threads: number;
  /** Frees the model, and ends its threads. It cannot be used any more. */
  close(): void;
}}

/** Loads the network. Each call returns a model with memory of its own. */
export function load(options?: LoadOptions): Promise<Model>;
"""


def _threads(interface: Interface) -> str:
    """The option for threads, if the package has a module with threads."""
    if not interface.pooled:
        return ""
    most = interface.form.threads
    return f"""\
  /** The number of threads, 1 to {most}: by default {most}, or 1 if a page may have no more. */
  threads?: number;
"""


def _structs(one: Interface) -> Iterator[str]:
    for what, slots in (("Inputs", one.inputs), ("Outputs", one.outputs)):
        members = "".join(_member(one, slot) for _, slot in slots.values())
        yield f"\nexport interface {title(one.verb)}{what} {{\n{members}}}\n"


def title(verb: str) -> str:
    """The prefix of the types of a function."""
    return verb[:1].upper() + verb[1:]


def _member(one: Interface, slot: Slot) -> str:
    return f"  /** {shape_of(one, slot)} */\n  {_key(slot.label)}: {_value(slot)};\n"


def _value(slot: Slot) -> str:
    """The type of a value: scalars are numbers."""
    assert slot.dtype is not None
    if slot.shape or slot.dtype.name.startswith("c"):
        return array_of(slot)
    return "bigint" if slot.dtype.name in ("i64", "u64") else "number"


def shape_of(one: Interface, slot: Slot) -> str:
    """The type and shape of a tensor, with the names of sizes: `f32[N, 20]`."""
    assert slot.dtype is not None
    axes = one.axes(slot)
    names = {axis: one.sizes[member][1].name for axis, (member, _) in axes.items()}
    factors = {axis: place.factor for axis, (_, place) in axes.items()}
    parts = []
    for axis, size in enumerate(slot.shape):
        factor = f"{factors[axis]}*" if factors.get(axis, 1) != 1 else ""
        parts.append(f"{factor}{names[axis]}" if axis in names else str(size))
    return f"{slot.dtype.name}[{', '.join(parts)}]".replace("*/", "* /")


def _call(one: Interface) -> str:
    sizes = ", sizes: Sizes" if one.sizes else ""
    kind = title(one.verb)
    about = one.meaning or {
        "run": "Computes the outputs of the inputs.",
        "step": "Trains on the inputs: computes the outputs, the loss among them, and updates the "
        "weights.",
    }.get(one.verb, "")
    return f"  /** {about} */\n  {one.verb}(inputs: {kind}Inputs{sizes}): {kind}Outputs;\n"


def _state(interface: Interface) -> str:
    if not interface.variables:
        return ""
    names = " | ".join(json.dumps(slot.label) for _, slot in interface.variables.values())
    arrays = " | ".join(sorted({array_of(slot) for _, slot in interface.variables.values()}))
    return f"""\
  /** The state (weights, optimizer, random state) as a safetensors file. */
  save(): Uint8Array;
  /** Restores the state that `save` returned. */
  load(state: Uint8Array | ArrayBuffer): void;
  /** Saves the state in IndexedDB. */
  saveTo(key: string): Promise<void>;
  /** Restores the state from IndexedDB; false if there is none of that key. */
  loadFrom(key: string): Promise<boolean>;
  /** Returns to the initial state. */
  reset(): void;
  /** The elements of a variable, to be read or written between two calls. */
  variable(name: {names}): {arrays};
"""


def _key(label: str) -> str:
    return label if re.fullmatch(r"[A-Za-z_$][\w$]*", label, re.ASCII) else json.dumps(label)


def package_name(interface: Interface) -> str:
    """The name of the package: npm allows no capitals, and no underscore in front."""
    return interface.form.name.lower().lstrip("_") or "model"


def readme(interface: Interface) -> str:
    """README.md."""
    name = interface.form.name
    package = package_name(interface)
    given = ", ".join(_example(slot) for _, slot in interface.inputs.values())
    sizes = ""
    if interface.sizes:
        inner = ", ".join(
            f"{_key(size.name)}: {size.bound}" for _, size in interface.sizes.values()
        )
        sizes = f", {{ {inner} }}"
    keys = ", ".join(json.dumps(slot.label) for _, slot in interface.outputs.values())
    tables = "\n".join(map(_table, interface.all))
    state = _STATE if interface.variables else ""
    return f"""\
# {package}

The neural network `{name}` as WebAssembly, written by PopGraph. It runs in browsers and in
Node 20 or later, and has no dependencies.

```js
import {{ load }} from "{package}";

const model = await load();
const outputs = model.{interface.verb}({{ {given} }}{sizes});
// outputs has {keys}
```

{tables}
`{name}.d.ts` declares them for TypeScript. Calls compute in the caller's thread, and copy their
inputs and outputs. Wrong
names, types and lengths are errors. `load` picks the module with SIMD where the machine has it.
{_THREADS if interface.pooled else ""}{state}
`npm test` compares the network with test vectors.
"""


_THREADS = """
It computes with several threads in Node, and in pages that are served with the headers
`Cross-Origin-Opener-Policy: same-origin` and `Cross-Origin-Embedder-Policy: require-corp`; in other
pages, with one. `model.close()` ends the threads.
"""
_STATE = """
```js
const bytes = model.save();           // the state as a safetensors file
model.load(bytes);
await model.saveTo("my state");       // in IndexedDB, in browsers
await model.loadFrom("my state");
```
"""


def _example(slot: Slot) -> str:
    if _value(slot) in ("number", "bigint"):
        return f"{_key(slot.label)}: {'0n' if _value(slot) == 'bigint' else '0'}"
    assert slot.dtype is not None
    count = prod(slot.shape) * (2 if slot.dtype.name.startswith("c") else 1)
    return f"{_key(slot.label)}: new {array_of(slot)}({count})"


def _table(one: Interface) -> str:
    rows = "".join(
        f"| {kind} | `{slot.label}` | {shape_of(one, slot)} | {_value(slot)} |\n"
        for kind, slots in (("input", one.inputs), ("output", one.outputs))
        for _, slot in slots.values()
    )
    return f"| `{one.verb}` | name | elements | in JavaScript |\n| --- | --- | --- | --- |\n{rows}"
