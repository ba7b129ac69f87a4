"""Vectorization of the loops over the lanes of register tiles."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from popgraph.passes.base import Compilation, Pass


@dataclass(frozen=True)
class VectorizeLoops(Pass):
    """
    Compute iterations of marked loops as the lanes of vectors.

    for i in 0 .. 37 {vectorize = [16, 16, 4, 1]}: y[i] = f(x[i])  ->
    for i in 0 .. 32 step 16 {unroll}: y[i .. i + 16] = f(x[i .. i + 16]); 4 lanes; 1 lane

    Only when iterations access consecutive elements, or all load the same one. The mark promises
    that iterations are independent. A product that a sum accumulates becomes one multiply-add that
    rounds once.
    """

    name = "vectorize-loops"
    TOLERANCE = 1e-5
    BEFORE = ("unroll-loops",)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, func.FuncOp) and op.body.blocks:
                # A program of known kernels has no bodies: it imports no writer of loops.
                from popgraph.passes.loops.vectorizing import vectorize

                vectorize(op.body.block)
