"""Dead code elimination."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.transforms.dead_code_elimination import region_dce

from popgraph.dialects.graphcore.control import Control
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.graphcore.canonicalize.branches import DropUnusedOfBranches
from popgraph.passes.graphcore.canonicalize.loops import DropUnneeded
from popgraph.passes.graphcore.canonicalize.rewriting import apply_rules

RULES = (DropUnneeded, DropUnusedOfBranches)


@dataclass(frozen=True)
class EliminateDeadCode(Pass):
    """
    Erases `y = f x` if y reaches neither an output nor an update.

    Unused results of branches and loops, and operands that their bodies do not use, are dropped
    as well.
    """

    name = "dce"
    AFTER = ("expand",)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        region_dce(module.body)
        if any(isinstance(op, Control) for op in module.walk()):
            apply_rules(module, [rule(compilation.weights) for rule in RULES])
            region_dce(module.body)
