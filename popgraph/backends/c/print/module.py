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
    module: ModuleOp, *, shared: bool = False, known: Mapping[str, Kernel] = MappingProxyType({})
) -> list[Kernel]:
    """All kernels of a module, see `print_kernel`; those without loops are `known` by their key."""
    kernels = []
    for function in module.ops:
        if isinstance(function, func.FuncOp) and function.body.blocks:
            kernels.append(print_kernel(function, shared=shared))
        elif isinstance(function, func.FuncOp) and (found := known.get(key_of(function))):
            name, location = function.sym_name.data, source(function.location)
            kernels.append(replace(found, name=name, location=location))
    return kernels


def keyed(module: ModuleOp, kernels: Sequence[Kernel]) -> Iterator[tuple[str, Kernel]]:
    """The kernels of a module that have a key, by it."""
    names = {kernel.name: kernel for kernel in kernels}
    for function in module.ops:
        if isinstance(function, func.FuncOp) and (key := key_of(function)):
            yield key, names[function.sym_name.data]


_FRAMES = {
    POOL: f'#define _GNU_SOURCE\n#include "{POOL}"\n\n',
    SERIAL: f'#include "{SERIAL}"\n\n',
}
"""What a program begins with, by what runs the chunks of its kernels."""


def frame_header(module: ModuleOp, threads: int | None = None) -> str:
    """The header that software includes which a program is built into: of the pool if need be."""
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
    The translation unit that holds the program; kernels are in others.

    For readers it is `commented`. What is compiled is not: equal programs of models with other
    names are one library.
    """
    prototypes = "".join(f"{kernel.prototype};\n" for kernel in distinct(kernels))
    callees = print_callees(layout, kernels, commented=commented)
    functions = callees + print_program(program, layout, kernels)
    text = f"{visible(program.sym_name.data)}\n{functions}"
    return Unit(f"{_FRAMES[frame]}{prototypes}{text}")


def visible(name: str) -> str:
    """Declares the functions of a program, for others to find in its library."""
    return "".join(
        f'__attribute__((visibility("default"))) void {name}_{ending}({parameters});\n'
        for ending, parameters in ENTRIES.items()
    )
