"""C of a module: its kernels, and the translation unit of a program."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.c.print import print_kernel
from popgraph.backends.c.print.layout import Layout
from popgraph.backends.c.print.program import ENTRIES, print_callees, print_program
from popgraph.backends.c.print.unit import POOL, SERIAL, Kernel, Unit, distinct
from popgraph.dialects.locations import source
from popgraph.dialects.tile import CallOp, ProgramOp
from popgraph.dialects.tile.loops.known import key_of


def print_kernels(
    module: ModuleOp,
    *,
    shared: bool = False,
    known: Mapping[str, Kernel] = MappingProxyType({}),
    index: str = "i64",
) -> list[Kernel]:
    """All kernels of a module; a function without a body is looked up in `known` by its key."""
    kernels = []
    for function in module.ops:
        if isinstance(function, func.FuncOp) and function.body.blocks:
            kernels.append(print_kernel(function, shared=shared, index=index))
        elif isinstance(function, func.FuncOp) and (found := known.get(key_of(function))):
            name, location = function.sym_name.data, source(function.location)
            kernels.append(replace(found, name=name, location=location))
    return kernels


def keyed(module: ModuleOp, kernels: Sequence[Kernel]) -> Iterator[tuple[str, Kernel]]:
    """The kernels of a module that have a key, each with its key."""
    names = {kernel.name: kernel for kernel in kernels}
    for function in module.ops:
        if isinstance(function, func.FuncOp) and (key := key_of(function)):
            yield key, names[function.sym_name.data]


_FRAMES = {
    POOL: f'#define _GNU_SOURCE\n#include "{POOL}"\n\n',
    SERIAL: f'#include "{SERIAL}"\n\n',
}
"""The first lines of a program, by the header that runs the chunks of its kernels."""


def frame_header(module: ModuleOp, threads: int | None = None) -> str:
    """The run-time header of a program: the pool of threads if kernels have chunks, else serial."""
    programs = (op for op in module.ops if isinstance(op, ProgramOp))
    calls = (op for program in programs for op in program.walk() if isinstance(op, CallOp))
    is_shared = any(op.chunks.value.data > 1 for op in calls)
    return POOL if is_shared and threads != 1 else SERIAL


def program_unit(
    program: ProgramOp,
    layout: Layout,
    kernels: Sequence[Kernel],
    *,
    commented: bool = False,
    frame: str = POOL,
) -> Unit:
    """
    The translation unit of a program; its kernels are in other units.

    Only text for readers is `commented`. Without names from the model, equal programs of several
    models share one library.
    """
    prototypes = "".join(f"{kernel.prototype};\n" for kernel in distinct(kernels))
    callees = print_callees(layout, kernels, commented=commented)
    functions = callees + print_program(program, layout, kernels)
    text = f"{visible(program.sym_name.data)}\n{functions}"
    return Unit(f"{_FRAMES[frame]}{prototypes}{text}")


def visible(name: str) -> str:
    """Declares the entry points of a program as visible symbols of its library."""
    return "".join(
        f"POPGRAPH_EXPORT void {name}_{ending}({parameters});\n"
        for ending, parameters in ENTRIES.items()
    )
