"""Sinks reshapes that merge axes into rows, so that sizes stay visible as axes."""

from __future__ import annotations

from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import MatMulOp, ReshapeOp
from popgraph.dialects.graphcore.base import Elementwise, Operand, shape_of, tensor_of
from popgraph.dialects.graphcore.broadcasting import AxesReduction
from popgraph.dialects.program.interned import tensor_type
from popgraph.dialects.program.sizes import has_sizes
from popgraph.passes.graphcore.canonicalize.rewriting import Rule
from popgraph.support.index_laws import ROW_MAJOR
from popgraph.support.laws import Proof
from popgraph.support.shapes import Shape, prod


def merged(*values: SSAValue) -> Shape | None:
    """The axes merged into the rows of the first matrix that is a reshape; None without one."""
    for value in values:
        reshape = value.owner
        if not isinstance(reshape, ReshapeOp):
            continue
        shape = shape_of(value)
        if len(shape) != 2 or not has_sizes(reshape):
            continue
        outer = [*shape_of(reshape.x)]
        while len(outer) > 2 and prod(outer) > shape[0]:
            outer.pop()
        if len(outer) > 1 and prod(outer) == shape[0]:
            return tuple(outer)
    return None


def split_rows(value: SSAValue, rows: int, outer: Shape) -> SSAValue:
    """Splits the rows of a matrix into axes; operands with another number of rows are unchanged."""
    shape = shape_of(value)
    if len(shape) != 2 or shape[0] != rows:
        return value
    return ReshapeOp(value, shape=(*outer, shape[1])).result


class SinkReshapeBelowMatMul(Rule[MatMulOp]):
    """
    (reshape x to [rows, k]) @ w  ->  reshape((reshape x to [a, b, k]) @ w)

    Only in modules with sizes of the call. If b is a size, the rows in use are not contiguous
    in the merged rows, so a loop over them could not just end early.
    """

    ROOTS = (MatMulOp,)
    PROOF = Proof(ROW_MAJOR)

    def rewrite(self, op: MatMulOp) -> Operand | None:
        outer = merged(op.lhs)
        if outer is None or len(shape_of(op.rhs)) != 2:
            return None
        product = MatMulOp(split_rows(op.lhs, shape_of(op.lhs)[0], outer), op.rhs)
        return ReshapeOp(product, shape=shape_of(op.result))


class SinkReshapeBelowElementwise(Rule[Elementwise]):
    """
    f(reshape x to [rows, k], y)  ->  reshape f(reshape x to [a, b, k], y)

    Only in modules with sizes of the call.
    """

    ROOTS = (Elementwise,)
    PROOF = Proof(ROW_MAJOR)

    def rewrite(self, op: Elementwise) -> Operand | None:
        outer = merged(*op.operands)
        if outer is None:
            return None
        shape = shape_of(op.result)
        if len(shape) != 2 or shape[0] != prod(outer):
            return None
        type_ = tensor_type(tensor_of(op.result).element_type, (*outer, shape[1]))
        made = type(op).create(
            operands=[split_rows(operand, shape[0], outer) for operand in op.operands],
            result_types=[type_],
            properties=dict(op.properties),
            attributes=dict(op.attributes),
        )
        return ReshapeOp(made, shape=shape)


class SinkReshapeBelowReduction(Rule[AxesReduction]):
    """
    reduce (reshape x to [rows, k]) along 1  ->  reshape(reduce (reshape x to [a, b, k]) along 2)

    Only in modules with sizes of the call.
    """

    ROOTS = (AxesReduction,)
    PROOF = Proof(ROW_MAJOR)

    def rewrite(self, op: AxesReduction) -> Operand | None:
        outer = merged(op.x)
        if outer is None or tuple(op.axes) != (1,):
            return None
        rows = split_rows(op.x, shape_of(op.x)[0], outer)
        made = type(op)(rows, axes=(len(outer),), keepdims=False)
        return ReshapeOp(made, shape=shape_of(op.result))


RULES = (SinkReshapeBelowMatMul, SinkReshapeBelowElementwise, SinkReshapeBelowReduction)
