"""Emits a program as C sources, headers and data files, for use in other software."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.c.build.system import HERE as SYSTEM
from popgraph.backends.c.build.toolchain import build_command
from popgraph.backends.c.memory.table import Slot
from popgraph.backends.c.print.layout import Layout
from popgraph.backends.c.print.module import frame_header, print_kernels, program_unit
from popgraph.backends.c.print.program import ENTRIES
from popgraph.backends.c.print.unit import SERIAL, also_included, headers, kernel_unit
from popgraph.dialects.program import WeightStore
from popgraph.dialects.program.sizes import sizes_of
from popgraph.dialects.tile import ProgramOp
from popgraph.dialects.tile.program.ops import find_program
from popgraph.support.array_bytes import memory_of
from popgraph.support.shapes import prod, text
from popgraph.support.sizes import Size, SizedAxis

Files = dict[str, list[memoryview]]
"""Contents by name, in parts."""


def sources(module: ModuleOp, name: str = "main", threads: int | None = None) -> dict[str, str]:
    """
    The C of a fully lowered module, and the headers that it includes.

    Without the thread pool if no kernel is parallel or `threads` is 1.
    """
    program, kernels = find_program(module, name), print_kernels(module)
    frame = frame_header(module, threads)
    unit = program_unit(program, Layout(program), kernels, commented=True, frame=frame)
    text = kernel_unit(kernels).text
    return {**headers(frame, *also_included(text)), "kernels.c": text, "program.c": unit.text}


def header(module: ModuleOp, name: str = "main", threads: int | None = None) -> str:
    """The header for software that the program is built into."""
    program = find_program(module, name)
    return _header(program, Layout(program), sizes_of(module), _build_line(module, threads))


def emit(
    module: ModuleOp, weights: WeightStore, name: str = "main", threads: int | None = None
) -> Files:
    """All files: sources, `NAME.h`, initial values of constants and variables, `program.json`."""
    program = find_program(module, name)
    described, files = _description(program, weights, _build_line(module, threads))
    if sizes := sizes_of(module):
        described["sizes"] = [asdict(size) for size in sizes]
    texts = sources(module, name, threads)
    texts |= {
        f"{name}.h": header(module, name, threads),
        "program.json": json.dumps(described, indent=2) + "\n",
    }
    return files | {file: [memoryview(text.encode())] for file, text in texts.items()}


def _build_line(module: ModuleOp, threads: int | None) -> str:
    """The command that compiles the sources like PopGraph does."""
    alone = frame_header(module, threads) == SERIAL
    command = [part for part in build_command() if not (alone and part == "-pthread")]
    files = ["program.c", "kernels.c", *SYSTEM.libraries, "-o", f"model{SYSTEM.suffix}"]
    return shlex.join([*command, "-shared", *files])


def _description(
    program: ProgramOp, weights: WeightStore, build: str
) -> tuple[dict[str, Any], Files]:
    """A description of the pointer table, and the files of initial values."""
    slots, files = Layout(program).slots, Files()
    described = {
        "build": build,
        "functions": [f"{program.sym_name.data}_{ending}" for ending in ENTRIES],
        "arena": program.arena.value.data,
        "persistent": program.persistent.value.data,
        "checks": [asdict(check) for check in program.index_checks],
        "byte order": "little",
        "memory": [_entry(number, slot, weights, files) for number, slot in enumerate(slots)],
    }
    return described, files


def _entry(number: int, slot: Slot, weights: WeightStore, files: Files) -> dict[str, Any]:
    entry: dict[str, Any] = {"space": slot.space}
    if slot.label:
        entry["name"] = slot.label
    if slot.dtype is not None:
        entry |= {"dtype": slot.dtype.name, "shape": list(slot.shape)}
    if slot.literal is not None:
        entry["file"] = f"memory_{number}.bin"
        files[entry["file"]] = [memory_of(slot.literal.array(weights))]
    return entry


def _header(program: ProgramOp, layout: Layout, sizes: Sequence[Size], build: str) -> str:
    name = program.sym_name.data
    prefix = _identifier(name)
    entries = "\n".join(_entries(prefix, layout))
    return f"""\
/*
 * {name}_prepare is called once, when the constants and the variables are in place; {name}_run
 * is one step. Both take a table of {len(layout.slots)} pointers, described below. All memory
 * begins at a multiple of 64 bytes and belongs to the caller. Two runs at once need two tables.
 * {name}_stop ends the threads that were started: to be called before a library is unloaded.
{_sizes(sizes)} *
 *     {_comment(build)}
 */
#ifndef {prefix}_H
#define {prefix}_H

enum {{
{entries}
    {prefix}_SLOTS = {len(layout.slots)}
}};

#define {prefix}_ARENA_BYTES {program.arena.value.data}
#define {prefix}_PERSISTENT_BYTES {program.persistent.value.data}

void {name}_prepare(void *const *memory);
void {name}_run(void *const *memory);
void {name}_stop(void);

#endif
"""


def _sizes(sizes: Sequence[Size]) -> str:
    """The lines of the header's comment about inputs that are sizes of a run."""
    return "".join(
        f" * The input {_comment(json.dumps(size.name))} is a size of a run, "
        f"{size.least} to {size.bound}: {_listed([*size.inputs, *size.outputs])}\n"
        f" * end there, and nothing after that is read or written.\n"
        for size in sizes
    )


def _listed(places: Sequence[SizedAxis]) -> str:
    return ", ".join(
        f"axis {place.axis} of {_comment(json.dumps(place.tensor))}"
        + (f" (times {place.factor})" if place.factor > 1 else "")
        for place in places
    )


def _entries(prefix: str, layout: Layout) -> Iterator[str]:
    """One line of the enumeration per slot."""
    taken: set[str] = set()
    for number, slot in enumerate(layout.slots):
        name = "_".join(filter(None, (prefix, slot.space.upper(), _identifier(slot.label))))
        if slot.space == "constant" or name in taken:
            name = f"{name}_{number}"
        taken.add(name)
        yield f"    {name} = {number}, /* {_describe(slot)} */"


def _describe(slot: Slot) -> str:
    if slot.dtype is None:
        return {
            "threads": "not a pointer: how many threads may work, as (void *)(intptr_t)1; "
            "where program.c includes serial.h, one does",
            "arena": "scratch memory; nothing stays in it between runs",
            "persistent": "what prepare computes and run reads",
        }[slot.space]
    size = prod(slot.shape) * slot.dtype.numpy.itemsize
    label = f"{_comment(json.dumps(slot.label))}: " if slot.label else ""
    only = ", read by prepare only" if slot.prepared else ""
    return f"{label}{slot.dtype.name} {text(slot.shape)}, {size} bytes{only}"


def _identifier(label: str) -> str:
    return re.sub(r"\W", "_", label, flags=re.ASCII).upper()


def _comment(words: str) -> str:
    """Text that cannot end the C comment around it."""
    return words.replace("*/", "* /")
