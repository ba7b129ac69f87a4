"""Common subexpression elimination."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import IntAttr, ModuleOp
from xdsl.transforms.common_subexpression_elimination import cse

from popgraph.dialects.graphcore.exchanges import ExchangeOp
from popgraph.passes.base import Compilation, Pass

_NUMBER = "number"


@dataclass(frozen=True)
class EliminateCommonSubexpressions(Pass):
    """
    Equal operations on equal operands become one; operations that nobody uses go.

    Only exchanges that tell a weight stay apart: ranks share it out so as not to keep it whole.
    """

    name = "cse"

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        told = [op for op in module.walk() if isinstance(op, ExchangeOp) and op.tells_variable]
        for number, op in enumerate(told):
            op.attributes[_NUMBER] = IntAttr(number)
        cse(module)
        for op in told:
            op.attributes.pop(_NUMBER, None)
