"""Builds the executable of a planned program: prints C, compiles, loads, caches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.c.build.compiling import library, library_key
from popgraph.backends.c.build.known_kernels import KernelCache
from popgraph.backends.c.build.toolchain import SOON, build_key
from popgraph.backends.c.cache.program_cache import ProgramKey, Saved
from popgraph.backends.c.print import module as printer
from popgraph.backends.c.print.layout import Layout
from popgraph.backends.c.print.packings import packings
from popgraph.backends.c.print.unit import Kernel, Unit, kernel_unit
from popgraph.backends.c.run.executable import Blank, CExecutable
from popgraph.backends.c.run.library import load
from popgraph.backends.c.run.sized import executable
from popgraph.backends.interface import check_threads
from popgraph.dialects.program.sizes import sizes_of
from popgraph.dialects.program.weights import WeightStore
from popgraph.dialects.tile.program.ops import find_program
from popgraph.support.debug import note_source
from popgraph.support.garbage import collect_new, postpone_collection
from popgraph.support.warnings import Notice


def build(
    module: ModuleOp,
    weights: WeightStore,
    threads: int = 1,
    name: str = "main",
    save_as: ProgramKey | None = None,
    notices: Sequence[Notice] = (),
    soon: bool = False,
    cache: KernelCache | None = None,
    consumes: bool = False,
) -> CExecutable:
    """
    Compiles the `tile.program` of that name, and its kernels, to an executable.

    With `soon`, the C compiler optimizes less (`SOON`).

    The program is stored under the key `save_as`, with the notices given to its user. The C of
    new kernels is stored in `cache`, which provides that of functions without a body.

    If it `consumes` the module, operations are removed once their C is printed, and freed while the
    C compiler runs. With `soon`, the next build frees them: both would share the cores.
    """
    check_threads(threads)
    kernels = printer.print_kernels(module, shared=True, known=cache.texts if cache else {})
    units, layout = units_of(module, name, kernels, build_key())
    for number, unit in enumerate(units):
        note_source(f"{name}_{number}.c", unit.text)
    texts = [*printer.keyed(module, kernels)] if cache else []
    for op in [*module.ops] if consumes else ():
        op.detach()
    table = replace(layout.table, sizes=sizes_of(module))
    blank = Blank(table, weights.shared)
    more = SOON if soon else ()
    code = load(library(units, more, meanwhile=postpone_collection if soon else collect_new), name)
    key = None if save_as is None else save_as.digest
    made = executable(table, code, weights, threads, key=key, blank=blank)
    if save_as is not None:
        # A quick program is only found by its model; its packings are a second copy of the weights.
        prepared = None if soon else made.prepared
        saved = Saved(name, library_key(units, more), made.table, prepared, notices)
        save_as.save(saved, weights)
    if cache is not None:
        cache.keep(texts)
    return made


def units_of(
    module: ModuleOp, name: str, kernels: Sequence[Kernel], compiled: str
) -> tuple[list[Unit], Layout]:
    """
    The translation units of the `tile.program` of that name, and its memory layout.

    `compiled` identifies the compiler flags, on which packings shared by programs depend.
    """
    program = find_program(module, name)
    layout = Layout(program, packings(program, kernels, compiled))
    frame = printer.frame_header(module)
    units = [printer.program_unit(program, layout, kernels, frame=frame)]
    return units + ([kernel_unit(kernels)] if kernels else []), layout
