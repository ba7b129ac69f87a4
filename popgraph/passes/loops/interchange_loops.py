"""Interchange of the loops over a register tile with the loops of its sums."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import func
from xdsl.dialects.builtin import ModuleOp

from popgraph.passes.base import Compilation, Pass


@dataclass(frozen=True)
class InterchangeLoops(Pass):
    """
    Move marked loops into the loops that they hold.

    for i {interchange}: s[i] = 0; for k: s[i] += x[i, k]  ->
    for i: s[i] = 0; for k: for i: s[i] += x[i, k]

    Only when each stretch between the inner loops computes what it needs from memory and from
    counters. Whoever marks a loop promises that its iterations are independent.
    """

    name = "interchange-loops"

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in module.ops:
            if isinstance(op, func.FuncOp) and op.body.blocks:
                # A program of known kernels has no bodies, and imports nothing that writes any.
                from popgraph.passes.loops.interchanging import interchange

                interchange(op.body.block)
