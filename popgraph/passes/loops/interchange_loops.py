"""Interchange of the loops over a register tile with the loops of its sums."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from popgraph.passes.base import Compilation, Pass


@dataclass(frozen=True)
class InterchangeLoops(Pass):
    """
    Move marked loops into the loops inside them.

    for i {interchange}: s[i] = 0; for k: s[i] += x[i, k]  ->
    for i: s[i] = 0; for k: for i: s[i] += x[i, k]

    Only when the operations between inner loops depend on memory and counters alone. The mark
    promises that iterations are independent.
    """

    name = "interchange-loops"
    BEFORE = ("vectorize-loops",)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, func.FuncOp) and op.body.blocks:
                # A program of known kernels has no bodies: it imports no writer of loops.
                from popgraph.passes.loops.interchanging import interchange

                interchange(op.body.block)
