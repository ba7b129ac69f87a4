"""Common subexpression elimination."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.transforms.common_subexpression_elimination import cse

from popgraph.passes.base import Compilation, Pass


@dataclass(frozen=True)
class EliminateCommonSubexpressions(Pass):
    """Equal operations on equal operands become one; operations that nobody uses go."""

    name = "cse"

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        cse(module)
