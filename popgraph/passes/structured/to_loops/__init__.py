"""
The lowering of structured operations to kernels with loops.

Emitters are imported when one is needed: they are 50 modules, and a program of known kernels needs
none.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from popgraph.dialects import tile
from popgraph.dialects.tile.attributes import moved_to_start
from popgraph.dialects.tile.loops.known import Kernel, KnownKernels, set_key
from popgraph.dialects.tile.loops.ops import kernel_arguments
from popgraph.dialects.tile.running import sizes_for
from popgraph.passes.analysis.replace import replace_op
from popgraph.passes.analysis.structural_hash import SpelledStructure, StructuralHasher
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.properties import BOUND, LAUNCHED
from popgraph.passes.structured.analysis.split_epilogue import split_blocks
from popgraph.passes.structured.to_loops.kernel_functions import (
    Functions,
    kernels_of,
    outermost,
    runs_once,
)
from popgraph.support.cache_files import digest
from popgraph.support.tuning import Target

if TYPE_CHECKING:
    from popgraph.passes.structured.analysis.parallel_loops import ParallelLoops
    from popgraph.passes.structured.to_loops.emit.emitter import Emitter

__all__ = ["StructuredToLoops", "emitter_of", "kernels_of", "outermost", "parallel_loops_of"]


def emitter_of(op: Operation, target: Target) -> Emitter:
    """The emitter of an operation's loops."""
    from popgraph.passes.structured.to_loops import emitters

    return emitters.emitter_of(op, target)


def parallel_loops_of(op: Operation, target: Target) -> ParallelLoops | None:
    """The loops that threads may share; None if one thread runs the kernel."""
    from popgraph.passes.structured.to_loops import emitters

    return emitters.parallel_loops_of(op, target)


@dataclass(frozen=True)
class StructuredToLoops(Pass):
    """
    Lower each structured operation to the loops of a kernel, a function of the module.

    tile.map ... -> func.func + tile.launch

    Operations that differ only in their operands, and in the offsets of these in larger tensors,
    share one kernel, whose loops are written once. Concatenations of pieces that can be computed in
    place stay: plan-memory removes them.
    """

    name = "structured-to-loops"
    TOLERANCE = 1e-5
    NEEDS = (BOUND,)
    GIVES = (LAUNCHED,)
    target: Target = Target()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in list(module.walk()):
            # Only register tiles scale sums of blocks; plain loops store the sums of all blocks.
            if tile.is_contraction(op) and op.block is not None and op.schedule is None:
                split_blocks(op)
        structures, functions = StructuralHasher(moved_to_start), Functions(module, self.target)
        known = KnownByStructure(self.target, compilation.kernels) if compilation.kernels else None
        written: dict[Hashable, tuple[str, Kernel]] = {}
        for op in kernels_of(module):
            # A kernel that runs once, at load, has no transposes in registers: an equal operation
            # of a call has another kernel.
            structure = structures.of(op), runs_once(op)
            if structure not in written:
                written[structure] = self._written(op, functions, known)
            function, kernel = written[structure]
            replace_op(op, kernel.launch(function, op, sizes_for(op)))
        functions.insert()

    def _written(
        self, op: Operation, functions: Functions, known: KnownByStructure | None
    ) -> tuple[str, Kernel]:
        """The function of an operation: with its loops, or declared if the kernel is known."""
        key = known.key(op) if known else ""
        kernel = known.kernels.find(key) if known else None
        if kernel is not None:
            read = [op.operands[number] for number in kernel.operands]
            inputs = [*read, *sizes_for(op)]
            function = functions.declare(kernel.title, kernel_arguments(inputs, op.results), op)
        else:
            from popgraph.passes.structured.to_loops import emitters

            kernel, body = emitters.kernel_of(op, self.target, sizes_for(op))
            function = functions.add(kernel.title, body, op)
            if known:
                known.kernels.note(key, kernel)
        if known:
            set_key(function, key)
        return function.sym_name.data, kernel


class KnownByStructure:
    """Kernels of earlier programs, by a spelling of operations that all processes share."""

    def __init__(self, target: Target, kernels: KnownKernels) -> None:
        self.kernels, self._target = kernels, repr(target)
        self._structures = SpelledStructure(moved_to_start)

    def key(self, op: Operation) -> str:
        """A hash of everything that determines the kernel of an operation."""
        return digest(self._target, repr(runs_once(op)), repr(self._structures.of(op)))
