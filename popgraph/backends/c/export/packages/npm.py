"""An npm package: WebAssembly with a loader for browsers and Node, and its TypeScript types."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator, Mapping
from importlib.resources import files as resources
from typing import Any

from popgraph.backends.c.export.build_files import compile_flags
from popgraph.backends.c.export.check_program import OF_F32, TOLERANCES, runs
from popgraph.backends.c.export.image import ALIGNMENT, size_of
from popgraph.backends.c.export.interface import Form, Interface, c_type
from popgraph.backends.c.export.packages import npm_types, wasm
from popgraph.backends.c.export.packages.package import Package, Sources
from popgraph.backends.c.memory.table import Slot
from popgraph.backends.tools import Files, Vector
from popgraph.support.array_bytes import memory_of
from popgraph.support.errors import BackendError

_HERE = resources("popgraph.backends.c.export.packages") / "npm_files"


def _write(sources: Sources) -> Files:
    """The package: two modules, the constants, loader, types, check and manifest."""
    interface, name = sources.interface, sources.interface.form.name
    wrapper, variants = f"{name}_wasm.c", _variants(sources)
    modules = wasm.compile_modules(
        {**sources.files, wrapper: [memoryview(_wrapper(interface).encode())]},
        [f"{name}.c", wrapper],
        [flag for flag in compile_flags(interface) if flag != "-pthread"],
        variants,
    )
    pages = next((one.pages for one in variants if one.pages), 0)
    description = json.dumps({**_description(interface), "pages": pages})
    locations = {variant.name[1:] or "plain": f"{name}{variant.name}.wasm" for variant in variants}
    if interface.image.rom_bytes:
        locations["weights"] = f"{name}_weights.bin"
    urls = "".join(
        f'  {key}: new URL("./{file}", import.meta.url),\n' for key, file in locations.items()
    )
    loader = [
        f"const MODEL = {description};\nconst FILES = {{\n{urls}}};\n\n",
        _file("loader.js", name),
        _file("threads.js", name) if interface.pooled else "",
    ]
    checks = json.dumps([*_checks(sources)])
    texts = {
        "package.json": json.dumps(_manifest(interface), indent=2) + "\n",
        f"{name}.js": "".join(loader),
        f"{name}.d.ts": npm_types.types(interface),
        "README.md": npm_types.readme(interface),
        f"check_{name}.js": _file("check.js", name),
        f"check_{name}.json": checks,
    }
    made: Files = {file: [memoryview(text.encode())] for file, text in texts.items()}
    for variant, module in zip(variants, modules, strict=True):
        made[f"{name}{variant.name}.wasm"] = [memoryview(module)]
    if interface.pooled:
        made[f"{name}_worker.js"] = [memoryview(_file("worker.js", name).encode())]
    if interface.image.rom_bytes:
        made[f"{name}_weights.bin"] = sources.files[f"{name}_weights.bin"]
    return made


def _variants(sources: Sources) -> list[wasm.Variant]:
    """The modules of the package; the last one has threads, if kernels are shared out."""
    interface = sources.interface
    variants = [wasm.PLAIN, wasm.SIMD]
    if interface.pooled:
        slots = [
            slot
            for one in interface.all
            for _, slot in (*one.inputs.values(), *one.outputs.values())
        ]
        arrays = sum(size_of(slot) + ALIGNMENT for slot in slots)
        own = interface.ram_bytes + interface.image.rom_bytes + arrays
        stacks = (interface.form.threads - 1) * wasm.STACK_BYTES
        # Literals, the pool and the C library: less than the text of the program and a megabyte.
        rest = len(sources.text(f"{interface.form.name}.c")) + (1 << 20)
        variants.append(wasm.with_threads(own + stacks + rest))
    return variants


def _check(form: Form) -> None:
    """BackendError for CasADi, which the package has no place for."""
    if form.casadi:
        raise BackendError("CasADi calls C, not WebAssembly", "--casadi", "leave --package out")


PACKAGE = Package("npm", _write, ("wasm32",), ("file",), adds_run=True, check=_check)


def _file(file: str, name: str) -> str:
    return (_HERE / file).read_text("utf-8").replace("NAME", name)


def _manifest(interface: Interface) -> dict[str, Any]:
    """package.json."""
    name = interface.form.name
    packed = [f"{name}.js", f"{name}.d.ts", f"{name}.wasm", f"{name}_simd.wasm"]
    if interface.pooled:
        packed += [f"{name}_threads.wasm", f"{name}_worker.js"]
    if interface.image.rom_bytes:
        packed.append(f"{name}_weights.bin")
    return {
        "name": npm_types.package_name(interface),
        "version": interface.form.version,
        "description": f"The neural network {name} as WebAssembly, for browsers and Node.",
        "type": "module",
        "exports": {
            ".": {"types": f"./{name}.d.ts", "default": f"./{name}.js"},
            "./*": "./*",
        },
        "types": f"./{name}.d.ts",
        "files": packed,
        "engines": {"node": ">=20"},
        "scripts": {"test": f"node check_{name}.js"},
    }


def _description(interface: Interface) -> dict[str, Any]:
    """The facts that the loader needs of a model."""
    return {
        "name": interface.form.name,
        "threads": interface.form.threads if interface.pooled else 1,
        "weights": interface.image.rom_bytes,
        "sizes": [
            {"name": size.name, "least": size.least, "bound": size.bound}
            for _, size in interface.sizes.values()
        ],
        "functions": {
            one.verb: {
                "inputs": [_tensor(one, slot) for _, slot in one.inputs.values()],
                "outputs": [_tensor(one, slot) for _, slot in one.outputs.values()],
            }
            for one in interface.all
        },
        "variables": [_tensor(interface, slot) for _, slot in interface.variables.values()],
    }


def _tensor(interface: Interface, slot: Slot) -> dict[str, Any]:
    assert slot.dtype is not None
    numbers = [*interface.sizes]
    axes = {
        axis: [numbers.index(member), place.factor]
        for axis, (member, place) in interface.axes(slot).items()
    }
    found = {"name": slot.label, "type": slot.dtype.name, "shape": list(slot.shape)}
    return {**found, "axes": axes} if axes else found


def _wrapper(interface: Interface) -> str:
    """The C that the loader calls, with static memory for the model, its inputs and outputs."""
    form = interface.form
    name, macro = form.name, form.name.upper()
    weights = f"char weights[{macro}_WEIGHTS_BYTES + 1]"
    parts = [
        f'#include "{name}.h"\n',
        "#define EXPORT(name) __attribute__((export_name(name)))\n",
        f"static _Alignas({macro}_ALIGNMENT) char memory[{macro}_MEMORY_BYTES];",
        f"static _Alignas({macro}_ALIGNMENT) {weights};",
        f"static {name} self;",
    ]
    addresses = ["weights"]
    if interface.sizes:
        parts.append(f"static {name}_sizes sizes;")
        addresses.append("&sizes")
    for one in interface.all:
        parts += _arrays(one, addresses)
    if interface.pooled:
        stacks = f"[{interface.form.threads - 1}][{wasm.STACK_BYTES}]"
        parts.append(f"static _Alignas({macro}_ALIGNMENT) char stacks{stacks};")
        # Stacks grow down, and workers count from 1: the first one's stack ends at stacks[1].
        parts.append('EXPORT("stack_of") void *popgraph_stack_of(int at) { return stacks[at]; }')
    passed = "&self, &sizes, " if interface.sizes else "&self, "
    parts += [
        f"static void *const popgraph_addresses[] = {{{', '.join(addresses)}}};\n",
        'EXPORT("address") void *popgraph_address(size_t at) { return popgraph_addresses[at]; }',
        'EXPORT("start") int popgraph_start(void) '
        f"{{ return {name}_init(&self, memory, weights); }}",
    ]
    for one in interface.all:
        call = (
            f"{name}_{one.verb}({passed}&popgraph_{one.verb}_inputs, &popgraph_{one.verb}_outputs)"
        )
        function = f"int popgraph_{one.verb}(void)"
        parts.append(f'EXPORT("{one.verb}") {function} {{ return {call}; }}')
    if interface.variables:
        parts.append(
            'EXPORT("variable") void *popgraph_variable(size_t at) '
            f"{{ return {name}_variable(&self, at); }}"
        )
    return "\n".join(parts) + "\n"


def _arrays(one: Interface, addresses: list[str]) -> Iterator[str]:
    """The arrays of a function, which are added to the addresses, and its structs."""
    for what, tensors in (("inputs", one.inputs), ("outputs", one.outputs)):
        given = []
        for at, (_, slot) in enumerate(tensors.values()):
            given.append(f"popgraph_{one.verb}_{what}_{at}")
            yield f"static _Alignas(64) char {given[-1]}[{max(1, size_of(slot))}];"
        addresses += given
        casts = [
            f"({c_type(slot)} *){array}"
            for array, (_, slot) in zip(given, tensors.values(), strict=True)
        ]
        struct = f"{one.prefix}_{what} popgraph_{one.verb}_{what}"
        yield f"static const {struct} = {{{', '.join(casts) or '0'}}};"


def _checks(sources: Sources) -> Iterator[dict[str, Any]]:
    """The calls that check.js compares; the main function is the last, as it may train."""
    interface = sources.interface
    for one, vector in zip(interface.others, sources.others, strict=True):
        yield _compared(one, vector, 1)
    for vector in sources.vectors:
        yield _compared(interface, vector, runs(interface))


def _compared(one: Interface, vector: Vector, runs: int) -> dict[str, Any]:
    def bytes_of(arrays: Mapping[str, Any], slots: Mapping[str, tuple[int, Slot]]) -> Any:
        labels = [slot.label for _, slot in slots.values()]
        return {label: b64encode(memory_of(arrays[label])).decode() for label in labels}

    types = [slot.dtype.name for _, slot in one.outputs.values() if slot.dtype is not None]
    return {
        "function": one.verb,
        "runs": runs,
        "sizes": list(vector.sizes),
        "inputs": bytes_of(vector.inputs, one.inputs),
        "outputs": bytes_of(vector.outputs, one.outputs),
        "tolerances": [TOLERANCES.get(type_, OF_F32) for type_ in types],
    }
