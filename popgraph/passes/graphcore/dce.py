"""Dead code elimination."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.transforms.dead_code_elimination import region_dce

from popgraph.passes.base import Compilation, Pass


@dataclass(frozen=True)
class EliminateDeadCode(Pass):
    """Operations go whose results reach neither an output nor an update."""

    name = "dce"

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        region_dce(module.body)
