"""Lowers Det to a loop of eliminations, each by the largest element that is left."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Region, SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.element_types import BY_NAME
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.program import ConstantOp, DataAttr, YieldOp
from popgraph.dialects.program.control import NUMBER
from popgraph.operators.arithmetic import cast, computing
from popgraph.operators.movement import I64, reshaped
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, lowers
from popgraph.support.shapes import prod


@lowers("Det")
def det(node: Node) -> Lowered:
    """
    The product of all pivots, and the sign of the order in which they stand.

    A pivot is the largest of all elements in rows and columns that had none: where it is 0, all of
    them are. So gradients are right for singular matrices, too: those of the last pivot alone.
    """
    *batch, _, size = node.shape
    matrices = reshaped(cast(node[0], computing(node)), (prod(batch), size, size))
    if size == 0:
        return node.literal(np.ones(batch, node.dtype.numpy))
    pivots, rows, columns = _eliminated(SSAValue.get(matrices))
    product = gc.ReduceProdOp(pivots, axes=[0], keepdims=False)
    swaps = gc.AddOp(_inversions(node, rows), _inversions(node, columns))
    odd = gc.RemOp(swaps, node.literal(np.array(2)))
    is_even = gc.CompareOp(odd, node.literal(np.array(0)), predicate="eq")
    signed = gc.WhereOp(is_even, product, gc.NegOp(product))
    return cast(reshaped(signed.result, batch), node.dtype)


def _inversions(node: Node, places: SSAValue) -> Operand:
    """How many pairs of the places of all turns do not stand in order, for each matrix."""
    turns, count = shape_of(places)
    first = gc.ReshapeOp(places, shape=(turns, 1, count))
    later = gc.ReshapeOp(places, shape=(1, turns, count))
    is_later = node.literal(np.triu(np.ones((turns, turns), bool), 1)[:, :, None])
    wrong = gc.AndOp(gc.CompareOp(first, later, predicate="gt"), is_later)
    return gc.ReduceSumOp(gc.CastOp(wrong, to=I64), axes=[0, 1], keepdims=False)


class Left(NamedTuple):
    """Matrices, and which of their rows and columns had no pivot yet."""

    matrices: SSAValue
    rows: SSAValue
    columns: SSAValue


def _eliminated(matrices: SSAValue) -> list[SSAValue]:
    """The pivots of every turn, and their rows and columns."""
    count, size, _ = shape_of(matrices)
    truth = BY_NAME["bool"]
    shapes = [(count, size, 1), (count, 1, size)]
    free = [gc.BroadcastOp(_true(), shape=shape).result for shape in shapes]
    block = Block(
        arg_types=[NUMBER, matrices.type, *(TensorType(truth, shape) for shape in shapes)]
    )
    with ImplicitBuilder(block):
        YieldOp(_turn(Left(*block.args[1:])))
    loop = gc.LoopOp(size, Region(block), carried=[matrices, *free])
    return list(loop.stacked)


def _true() -> ConstantOp:
    return ConstantOp(DataAttr.of(np.array(True)))


def _turn(left: Left) -> list[SSAValue]:
    """What is left after one more elimination; the pivot, its row and its column."""
    count, size, _ = shape_of(left.matrices)
    row, column = _place(left)
    in_row = gc.CompareOp(_counted(size, 1), _alone(row), predicate="eq")
    in_column = gc.CompareOp(_counted(size, 2), _alone(column), predicate="eq")
    across = _picked(left.matrices, gc.AndOp(in_row, left.columns), 1)
    along = _picked(left.matrices, gc.AndOp(in_column, left.rows), 2)
    pivot = _picked(across, in_column, 2)
    is_zero = gc.CompareOp(pivot, scalar(0, pivot), predicate="eq")
    factors = gc.DivOp(along, gc.WhereOp(is_zero, scalar(1, pivot), pivot))
    rest = gc.SubOp(left.matrices, gc.MulOp(factors, across))
    rows = gc.AndOp(left.rows, gc.NotOp(in_row))
    columns = gc.AndOp(left.columns, gc.NotOp(in_column))
    found = gc.ReshapeOp(pivot, shape=(count,))
    return [SSAValue.get(value) for value in (rest, rows, columns, found, row, column)]


def _place(left: Left) -> tuple[Operand, Operand]:
    """The row and the column of the largest element that may be a pivot."""
    count, size, _ = shape_of(left.matrices)
    none = scalar(-1, left.matrices)
    sizes = gc.WhereOp(gc.AndOp(left.rows, left.columns), gc.AbsOp(left.matrices), none)
    flat = gc.ReshapeOp(sizes, shape=(count, size * size))
    place = gc.ArgMaxOp(flat, axis=1, keepdims=False)
    row = gc.DivOp(place, scalar(size, place))
    return row, gc.SubOp(place, gc.MulOp(row, scalar(size, place)))


def _counted(size: int, axis: int) -> Operand:
    """The numbers of the rows or columns of a matrix."""
    shape = [size if at == axis else 1 for at in range(3)]
    return gc.IotaOp(shape=shape, axis=axis, dtype=I64)


def _alone(numbers: Operand) -> Operand:
    """One number for each matrix."""
    return gc.ReshapeOp(numbers, shape=(*shape_of(numbers), 1, 1))


def _picked(values: Operand, chosen: Operand, axis: int) -> Operand:
    """The row or column that is chosen; 0 where nothing is."""
    of_these = gc.WhereOp(chosen, values, scalar(0, values))
    return gc.ReduceSumOp(of_these, axes=[axis], keepdims=True)
