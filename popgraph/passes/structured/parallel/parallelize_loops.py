"""Parallelization: cuts the loops of every kernel into chunks for threads."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.dialects.tile.attributes import moved_to_start
from popgraph.dialects.tile.cut import NAME, CutAttr, Part
from popgraph.passes.analysis.structural_hash import StructuralHasher
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.structured.analysis.parallel_loops import ParallelLoops
from popgraph.passes.structured.parallel.parallel_cost import best_parts
from popgraph.passes.structured.to_loops import kernels_of, parallel_loops_of
from popgraph.support.tuning import Target


@dataclass(frozen=True)
class ParallelizeLoops(Pass):
    """
    Cut the loops of operations into chunks for threads, as `cut` attributes.

    Chunks write disjoint memory, so any number of threads may run them in any order, with the same
    bits. Chunks are sized for `threads`: even work, and values that the same thread wrote.
    """

    name = "parallelize-loops"
    threads: int = 1
    target: Target = Target()

    @classmethod
    def of(cls, options: Options) -> ParallelizeLoops:
        return cls(options.threads, options.target)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        if self.threads < 2:
            return
        written_spans: dict[SSAValue, int | None] = {}
        structures = StructuralHasher(moved_to_start)
        known: dict[Hashable, tuple[Part, ...]] = {}
        for op in kernels_of(module):
            kernel = parallel_loops_of(op, self.target)
            if kernel is None:
                continue
            # Most layers of a network repeat a structure: each is estimated once.
            key = structures.of(op), tuple(written_spans.get(value, 0) for value in op.operands)
            parts = known.get(key)
            if parts is None:
                parts = known[key] = best_parts(kernel, written_spans, self.threads, self.target)
            if parts:
                op.attributes[NAME] = CutAttr.of(parts)
            _note_written(kernel, parts, written_spans)


def _note_written(
    kernel: ParallelLoops, parts: tuple[Part, ...], written_spans: dict[SSAValue, int | None]
) -> None:
    """Records the span of the loop by which threads wrote each result."""
    for each in kernel.touched:
        if each.written:
            written_spans[each.value] = each.spans[parts[0].loop] if parts else None
