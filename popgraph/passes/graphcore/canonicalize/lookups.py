"""Looks up rows of narrow tables before their conversion to floats."""

from __future__ import annotations

from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import BroadcastOp, GatherOp, ReshapeOp
from popgraph.dialects.graphcore.base import Elementwise, Operand, integer, shape_of, tensor_of
from popgraph.dialects.program import ConstantOp
from popgraph.dialects.program.interned import tensor_type
from popgraph.passes.graphcore.canonicalize.rewriting import Rule
from popgraph.passes.graphcore.fold_constants import bytes_of
from popgraph.support.laws import Proof

DEPTH = 8
"""Operations of a chain; dequantization with minima has six."""


class GatherBeforeConversion(Rule[GatherOp]):
    """
    gather (f table), i  ->  f (gather table, i)

    Only along axis 0, if the table has fewer bytes than the converted one (bf16, int4), and fewer
    rows are looked up than it has. Otherwise the program would convert and keep the whole table.
    """

    ROOTS = (GatherOp,)
    PROOF = Proof(construction="a function of each row is applied to the rows that are looked up")

    def rewrite(self, op: GatherOp) -> Operand | None:
        if integer(op.axis) != 0 or isinstance(op.data.owner, ConstantOp):
            return None
        rows = shape_of(op.data)[0]
        held = _table_bytes(op.data, rows, DEPTH)
        if held is None or held >= bytes_of(op.data) or bytes_of(op.result) >= bytes_of(op.data):
            return None
        return _gathered(op.data, op.indices)


def _table_bytes(value: SSAValue, rows: int, depth: int) -> int | None:
    """The bytes of the literals that a table is computed from by rows; None if it is not."""
    op, shape = value.owner, shape_of(value)
    if not shape or shape[0] != rows or depth == 0:
        return None
    if isinstance(op, ConstantOp):
        return bytes_of(value)
    if isinstance(op, ReshapeOp):
        return _table_bytes(op.x, rows, depth - 1)
    if isinstance(op, BroadcastOp):
        same = len(shape_of(op.x)) == len(shape)
        return _table_bytes(op.x, rows, depth - 1) if same else None
    if not isinstance(op, Elementwise) or len(op.results) != 1:
        return None
    found = 0
    for operand in op.operands:
        if len(shape_of(operand)) < len(shape):  # The same for every row.
            continue
        held = _table_bytes(operand, rows, depth - 1)
        if held is None:
            return None
        found += held
    return found


def _gathered(value: SSAValue, indices: SSAValue) -> SSAValue:
    """The rows of a table, computed from the rows of its literals."""
    op, shape = value.owner, (*shape_of(indices), *shape_of(value)[1:])
    if isinstance(op, ConstantOp):
        return GatherOp(value, indices, axis=0).result
    if isinstance(op, ReshapeOp):
        return ReshapeOp(_gathered(op.x, indices), shape=shape).result
    if isinstance(op, BroadcastOp):
        return BroadcastOp(_gathered(op.x, indices), shape=shape).result
    assert isinstance(op, Elementwise)
    operands = [
        one if len(shape_of(one)) < len(shape_of(value)) else _gathered(one, indices)
        for one in op.operands
    ]
    made = type(op).create(
        operands=operands,
        result_types=[tensor_type(tensor_of(value).element_type, shape)],
        properties=dict(op.properties),
        attributes=dict(op.attributes),
    )
    return made.results[0]


RULES = (GatherBeforeConversion,)
