"""Fuses the products of contractions with their sums, for the same bits on every target."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import tile
from popgraph.dialects.tile.structured.ops import yielded
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options


@dataclass(frozen=True)
class FuseProducts(Pass):
    """
    Adds the products of contractions without rounding them first.

    s + a * b  ->  math.fma(a, b, s)

    Only with `determinism="portable"`. Otherwise C compilers fuse the two where the machine has an
    instruction for it, and results differ between machines. A machine without one computes each
    multiply-add in several steps.
    """

    name = "fuse-products"
    TOLERANCE = 1e-5
    AFTER = ("use-winograd",)

    @classmethod
    def of(cls, options: Options) -> FuseProducts | None:
        return cls() if options.is_portable else None

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for op in module.walk():
            if isinstance(op, tile.ReduceOp) and tile.is_contraction(op):
                _fuse(op)


def _fuse(op: tile.ReduceOp) -> None:
    (total,) = yielded(op.body.block)
    if not isinstance(total.owner, arith.AddfOp):
        return  # Integers, and words, whose sums are exact.
    before, product = total.owner.operands
    assert isinstance(product.owner, arith.MulfOp), "verified"
    left, right = product.owner.operands
    fused = math.FmaOp(left, right, before)
    Rewriter.insert_op(fused, InsertPoint.before(total.owner))
    total.replace_all_uses_with(fused.result)
    Rewriter.erase_op(total.owner)
    Rewriter.erase_op(product.owner)
