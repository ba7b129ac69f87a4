"""
MatMul, Gemm and Det.

Det is Gaussian elimination with full pivoting, in a loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.ir import Block, Region, SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.dialects.program import ConstantOp, DataAttr, YieldOp
from popgraph.dialects.program.control_signatures import NUMBER
from popgraph.operators.arithmetic import cast, computing
from popgraph.operators.complaints import at_least, differ, of_rank, shown, stretches
from popgraph.operators.movement import I64, reshaped
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, follows_data_sizes, lowers, requires
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import prod

# Matmuls


@requires("MatMul")
def require_matmul(node: NodeView) -> Conflicts:
    yield from at_least(node, 0, 1)
    yield from at_least(node, 1, 1)


@lowers("MatMul")
def matmul(node: Node) -> Lowered:
    return product_of(node, node[0], node[1])


def product_of(
    node: Node,
    left: Operand,
    right: Operand,
    finished: Callable[[Operand], Operand] = lambda product: product,
) -> Operand:
    """NumPy's matmul; `finished` is applied before the axes added to vectors are dropped."""
    lhs, rhs = shape_of(left), shape_of(right)
    if not lhs or not rhs:
        raise TypeMismatchError(f"{node.op.op_type} cannot multiply scalars", hint="use Mul")
    left = left if len(lhs) > 1 else gc.ReshapeOp(left, shape=(1, *lhs))
    right = right if len(rhs) > 1 else gc.ReshapeOp(right, shape=(*rhs, 1))
    product = finished(gc.MatMulOp(left, right))
    shape = list(shape_of(product))
    if len(rhs) == 1:
        del shape[-1]
    if len(lhs) == 1:
        del shape[-1 if len(rhs) == 1 else -2]
    return product if tuple(shape) == shape_of(product) else gc.ReshapeOp(product, shape=shape)


@requires("Gemm")
def require_gemm(node: NodeView) -> Conflicts:
    yield from of_rank(node, 0, 2)
    yield from of_rank(node, 1, 2)
    left, right = node.shape_of(0), node.shape_of(1)
    if left and right and node.version >= 7:
        rows = left[1 if node.integer("transA") else 0]
        columns = right[0 if node.integer("transB") else 1]
        yield from stretches(node, 2, (rows, columns))


@lowers("Gemm")
def gemm(node: Node) -> Lowered:
    lhs = _transposed(node[0], node.integer("transA"))
    rhs = _transposed(node[1], node.integer("transB"))
    product = _scaled(node, gc.MatMulOp(lhs, rhs), node.real("alpha", 1.0))
    added, beta = node.optional(2), node.real("beta", 1.0)
    if added is None or beta == 0:
        return product
    return gc.AddOp(product, _scaled(node, added, beta))


def _transposed(value: SSAValue, wanted: int) -> Operand:
    return gc.TransposeOp(value, perm=(1, 0)) if wanted else value


def _scaled(node: Node, value: Operand, factor: float) -> Operand:
    return value if factor == 1 else gc.MulOp(value, node.scalar(factor))


# Det


@requires("Det")
def require_det(node: NodeView) -> Conflicts:
    shape = node.shape_of(0)
    yield from at_least(node, 0, 2)
    if shape is not None and differ(shape[-2], shape[-1]):
        yield TypeConflict(
            f"the matrices of {shown(shape)} are not square", "both sizes must be equal"
        )


@lowers("Det")
def det(node: Node) -> Lowered:
    """
    The product of all pivots, times the sign of their permutations.

    Full pivoting: each pivot is the largest element left, so if it is 0, all elements left are.
    So gradients are right for singular matrices, too: they flow through the last pivot alone.
    """
    *batch, _, size = node.shape
    matrices = reshaped(cast(node[0], computing(node)), (prod(batch), size, size))
    if size == 0:
        return node.literal(np.ones(batch, node.dtype.numpy))
    pivots, rows, columns = _eliminated(matrices)
    product = gc.ReduceProdOp(pivots, axes=[0], keepdims=False)
    swaps = gc.AddOp(_inversions(node, rows), _inversions(node, columns))
    odd = gc.RemOp(swaps, node.literal(np.array(2)))
    is_even = gc.CompareOp(odd, node.literal(np.array(0)), predicate="eq")
    signed = gc.WhereOp(is_even, product, gc.NegOp(product))
    return cast(reshaped(signed, batch), node.dtype)


def _inversions(node: Node, places: SSAValue) -> Operand:
    """The number of inversions in the permutation of each matrix, [size, count]."""
    size, count = shape_of(places)
    first = gc.ReshapeOp(places, shape=(size, 1, count))
    later = gc.ReshapeOp(places, shape=(1, size, count))
    is_later = node.literal(np.triu(np.ones((size, size), bool), 1)[:, :, None])
    wrong = gc.AndOp(gc.CompareOp(first, later, predicate="gt"), is_later)
    return gc.ReduceSumOp(gc.CastOp(wrong, to=I64), axes=[0, 1], keepdims=False)


class Left(NamedTuple):
    """Matrices, and masks of their rows and columns without a pivot."""

    matrices: SSAValue
    rows: SSAValue
    columns: SSAValue


def _eliminated(matrices: SSAValue) -> list[SSAValue]:
    """The pivot of every iteration, its row and its column."""
    count, size, _ = shape_of(matrices)
    shapes = [(count, size, 1), (count, 1, size)]
    free = [
        gc.BroadcastOp(ConstantOp(DataAttr.of(np.array(True))), shape=shape).result
        for shape in shapes
    ]
    block = Block(arg_types=[NUMBER, matrices.type, *(one.type for one in free)])
    with ImplicitBuilder(block):
        YieldOp(_eliminated_once(Left(*block.args[1:])))
    loop = gc.LoopOp(size, Region(block), carried=[matrices, *free])
    return list(loop.stacked)


def _eliminated_once(left: Left) -> list[SSAValue]:
    """The state after one elimination step, then the pivot, its row and its column."""
    count, size, _ = shape_of(left.matrices)
    row, column = _place(left)
    in_row, in_column = _are(size, 1, row), _are(size, 2, column)
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
    """The row and the column of the largest element without a pivot in either."""
    count, size, _ = shape_of(left.matrices)
    none = scalar(-1, left.matrices)
    sizes = gc.WhereOp(gc.AndOp(left.rows, left.columns), gc.AbsOp(left.matrices), none)
    flat = gc.ReshapeOp(sizes, shape=(count, size * size))
    place = gc.ArgMaxOp(flat, axis=1, keepdims=False)
    row = gc.DivOp(place, scalar(size, place))
    return row, gc.SubOp(place, gc.MulOp(row, scalar(size, place)))


def _are(size: int, axis: int, numbers: Operand) -> Operand:
    """The mask of one row (axis 1) or column (axis 2) per matrix."""
    shape = [size if at == axis else 1 for at in range(3)]
    counted = gc.IotaOp(shape=shape, axis=axis, dtype=I64)
    alone = gc.ReshapeOp(numbers, shape=(*shape_of(numbers), 1, 1))
    return gc.CompareOp(counted, alone, predicate="eq")


def _picked(values: Operand, chosen: Operand, axis: int) -> Operand:
    """The chosen row or column; 0 if none is chosen."""
    of_these = gc.WhereOp(chosen, values, scalar(0, values))
    return gc.ReduceSumOp(of_these, axes=[axis], keepdims=True)


follows_data_sizes("Gemm MatMul")
