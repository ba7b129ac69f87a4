"""Common subexpression elimination."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from popgraph.dialects.graphcore.exchanges import ExchangeOp
from popgraph.passes.analysis.equal_operations import PureMeaning, share_equal
from popgraph.passes.base import Compilation, Pass


@dataclass(frozen=True)
class EliminateCommonSubexpressions(Pass):
    """
    a = f x, b = f x  ->  a = b = f x.

    Except all-gathers of sharded weights: sharing one would keep the whole weight in memory.
    """

    name = "cse"
    AFTER = ("expand",)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        pure = PureMeaning()

        def meaning(op: Operation) -> Hashable | None:
            return None if isinstance(op, ExchangeOp) and op.gathers_variable else pure(op)

        share_equal(module.body.block, meaning)
