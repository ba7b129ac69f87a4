"""The split of loops over blocks into loops over blocks of constant sizes."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from popgraph.passes.base import Compilation, Pass
from popgraph.support.tuning import Target


@dataclass(frozen=True)
class SplitLoops(Pass):
    """
    Split loops over blocks, so that each loop has blocks of one size, and sizes are balanced.

    for i in 0 .. 49 step 14 {split}: n = min(14, 49 - i); for r in 0 .. n: y[i + r]  ->
    for r in 0 .. 13: y[r]; for i in 13 .. 49 step 12: for r in 0 .. 12: y[i + r]

    Local memory of a block has room for its own iterations only. The mark promises that blocks are
    independent.
    """

    name = "split-loops"
    BEFORE = ("interchange-loops", "vectorize-loops", "unroll-loops")
    target: Target = Target()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, func.FuncOp) and op.body.blocks:
                # A program of known kernels has no bodies: it imports no writer of loops.
                from popgraph.passes.loops.splitting import split

                split(op.body.block, self.target)
