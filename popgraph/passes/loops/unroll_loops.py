"""Unrolling of marked loops, and promotion of their local memory to registers."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from popgraph.passes.base import Compilation, Pass
from popgraph.support.tuning import Target


@dataclass(frozen=True)
class UnrollLoops(Pass):
    """
    Unroll loops marked `unroll`, and promote their local memory to registers.

    for r in 0 .. 2 {unroll}: s[r] += a[r] * b  ->  s0 += a[0] * b; s1 += a[1] * b

    Local memory that only marked loops access, at indices that become constants, becomes values
    that outer loops carry. If marked loops store nothing else, iterations share equal loads.
    """

    name = "unroll-loops"
    target: Target = Target()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, func.FuncOp) and op.body.blocks:
                # A program of known kernels has no bodies: it imports no writer of loops.
                from popgraph.passes.loops.unrolling import unroll

                unroll(op.body.block, self.target)
