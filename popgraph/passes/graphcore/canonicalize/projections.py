"""Hoists matmuls of scanned rows out of loops, as one matmul of all rows."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue
from xdsl.pattern_rewriter import PatternRewriter

from popgraph.dialects.graphcore import MatMulOp, ReshapeOp, TransposeOp
from popgraph.dialects.graphcore.base import shape_of
from popgraph.dialects.graphcore.control import LoopOp
from popgraph.dialects.program import ConstantOp
from popgraph.passes.graphcore.canonicalize.bodies import BodyOperand, BodyRule, LoopDraft, before
from popgraph.support.laws import Proof
from popgraph.support.shapes import prod


class ProjectRowsAtOnce(BodyRule[LoopOp]):
    """
    loop scanned (x) { x @ w }  ->  y = x @ w; loop scanned (y) { y }

    Only when w is a captured or literal matrix. It may be transposed. The loop must not end early:
    rows that it does not reach would be multiplied as well. One GEMM replaces a GEMV for each
    iteration, so sums may round differently.
    """

    ROOTS = (LoopOp,)
    PROOF = Proof(approximate="sums of a GEMM and of a GEMV may add terms in different orders")

    def values(self, op: LoopOp, rewriter: PatternRewriter) -> Sequence[SSAValue | None] | None:
        if op.ends_early or not op.scanned:
            return None
        draft = LoopDraft.of(op, rewriter)
        rows: dict[SSAValue, BodyOperand] = {each.argument: each for each in draft.scanned}
        captured: dict[SSAValue, SSAValue] = {
            each.argument: each.operand for each in draft.captured
        }
        found = [
            (product, rows[row])
            for product in op.block.ops
            if isinstance(product, MatMulOp)
            and (row := _row(product.lhs)) in rows
            and _is_known(product.rhs, captured)
        ]
        for product, passed in found:
            with before(op):
                whole = _whole(product, passed, _outside(product.rhs, captured))
            product.result.replace_all_uses_with(draft.scan(whole, product.result))
        return draft.build() if found else None


def _row(value: SSAValue) -> SSAValue:
    """The value before a reshape."""
    return value.owner.x if isinstance(value.owner, ReshapeOp) else value


def _is_known(matrix: SSAValue, captured: dict[SSAValue, SSAValue]) -> bool:
    """Whether a matrix is available before the loop."""
    if len(shape_of(matrix)) > 2:
        return False
    if isinstance(matrix.owner, TransposeOp):
        return _is_known(matrix.owner.x, captured)
    return matrix in captured or isinstance(matrix.owner, ConstantOp)


def _outside(matrix: SSAValue, captured: dict[SSAValue, SSAValue]) -> SSAValue:
    if isinstance(matrix.owner, TransposeOp):
        return TransposeOp(_outside(matrix.owner.x, captured), perm=tuple(matrix.owner.perm)).result
    if isinstance(matrix.owner, ConstantOp):
        return ConstantOp(matrix.owner.literal).result
    return captured[matrix]


def _whole(product: MatMulOp, passed: BodyOperand, matrix: SSAValue) -> SSAValue:
    """The matmul of all rows with a matrix, stacked by iteration."""
    trips = shape_of(passed.operand)[0]
    *outer, count = shape_of(product.lhs)
    flat = ReshapeOp(passed.operand, shape=(trips * prod(outer), count))
    return ReshapeOp(MatMulOp(flat, matrix), shape=(trips, *shape_of(product.result))).result


RULES = (ProjectRowsAtOnce,)
