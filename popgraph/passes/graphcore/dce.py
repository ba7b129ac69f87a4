"""Dead code elimination."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.transforms.dead_code_elimination import region_dce

from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.prune_control import prune


@dataclass(frozen=True)
class EliminateDeadCode(Pass):
    """
    Operations go whose results reach neither an output nor an update.

    So do results of branches and loops that nobody reads, and operands that their bodies do not.
    """

    name = "dce"

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        region_dce(module.body)
        while prune(module):
            region_dce(module.body)
