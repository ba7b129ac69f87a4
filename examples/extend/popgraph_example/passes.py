"""A pass that removes double negations."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import Rewriter

from popgraph.dialects import graphcore as gc
from popgraph.extend import Compilation, Pass, add_pass


@add_pass(before="canonicalize")
@dataclass(frozen=True)
class DropDoubleNegation(Pass):
    """Replace -(-x) by x."""

    name = "drop-double-negation"

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in list(module.walk()):
            if isinstance(op, gc.NegOp) and isinstance(op.x.owner, gc.NegOp):
                op.result.replace_all_uses_with(op.x.owner.x)
                Rewriter.erase_op(op)
