"""Unrolling of marked loops, and promotion of the local memory that they index to registers."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.support.tuning import Target


@dataclass(frozen=True)
class UnrollLoops(Pass):
    """
    Loops that are marked `unroll` are written out, and local memory becomes registers.

    for r in 0 .. 2 {unroll}: s[r] += a[r] * b  ->  s0 += a[0] * b; s1 += a[1] * b

    Local memory that only such loops access, by numbers that are constants then, becomes values,
    which loops around carry. Where marked loops write nothing else, what several iterations load
    is loaded once.
    """

    name = "unroll-loops"
    target: Target = Target()

    @classmethod
    def of(cls, options: Options) -> UnrollLoops:
        return cls(options.target)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, func.FuncOp) and op.body.blocks:
                # A program of known kernels has no bodies, and imports nothing that writes any.
                from popgraph.passes.loops.unrolling import unroll

                unroll(op.body.block, self.target)
