"""Insertion of the prefetches that recipes on loops request, with their index arithmetic."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from popgraph.passes.base import Compilation, Pass
from popgraph.support.tuning import Target


@dataclass(frozen=True)
class PrefetchPanels(Pass):
    """
    Insert prefetches of cache lines, following the recipes on loops.

    scf.for ... {prefetch = #tile.prefetch_ahead<..>} -> scf.for ... { tile.prefetch ... }

    Memory that is read in order is requested a fixed distance ahead. If several blocks of rows read
    a section, each requests its share of the next section.
    """

    name = "prefetch-panels"
    AFTER = ("unroll-loops",)
    target: Target = Target()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, func.FuncOp) and op.body.blocks:
                # A program of known kernels has no bodies: it imports no writer of loops.
                from popgraph.passes.loops.prefetching import insert_prefetches

                insert_prefetches(op.body.block, self.target)
