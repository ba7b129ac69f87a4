"""Emits a program as C source and header, to be built into other software."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator

from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.c.memory.table import Slot
from popgraph.backends.c.print.layout import Layout, find_program
from popgraph.backends.c.print.module import print_kernels
from popgraph.backends.c.print.program import print_callees, print_program
from popgraph.backends.c.print.unit import RUNTIME, distinct, headers, vector_typedefs
from popgraph.dialects.tile import ProgramOp
from popgraph.support.shapes import prod, text


def emit(module: ModuleOp, name: str = "main") -> dict[str, str]:
    """
    The files `NAME.c`, `NAME.h` and the headers that they stand on.

    Weights are not in them: the caller fills the table of memory that the header describes.
    """
    program = find_program(module, name)
    layout = Layout(program)
    return {
        f"{name}.c": _source(module, program, layout),
        f"{name}.h": _header(program, layout),
        **headers(),
    }


def _source(module: ModuleOp, program: ProgramOp, layout: Layout) -> str:
    kernels = print_kernels(module)
    name = program.sym_name.data
    parts = [
        "#define _GNU_SOURCE\n#define POPGRAPH_POOL\n",
        f'#include "{RUNTIME}"\n#include "{name}.h"\n\n',
        vector_typedefs("".join(kernel.text for kernel in kernels)),
    ]
    for kernel in distinct(kernels):
        origin = f"/* from {_comment(kernel.location)} */\n" if kernel.location else ""
        parts.append(f"\n{origin}static {kernel.text}")
    callees = print_callees(layout, kernels)
    return "".join([*parts, "\n", callees, print_program(program, layout, kernels)])


def _header(program: ProgramOp, layout: Layout) -> str:
    name = program.sym_name.data
    prefix = _identifier(name)
    entries = "\n".join(_entries(prefix, layout))
    return f"""\
/*
 * {name}_prepare is called once, when the constants and the variables are in place; {name}_run
 * is one step. Both take a table of {len(layout.slots)} pointers, described below. All memory
 * begins at a multiple of 64 bytes and belongs to the caller. Two runs at once need two tables.
 * {name}_stop ends the threads that were started: to be called before a library is unloaded.
 *
 *     cc -O2 -march=native -ffp-contract=fast -pthread {name}.c ... -lm
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
            "threads": "not a pointer: how many threads may work, as (void *)(intptr_t)1",
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
    """Text that cannot end the comment that it stands in."""
    return words.replace("*/", "* /")
