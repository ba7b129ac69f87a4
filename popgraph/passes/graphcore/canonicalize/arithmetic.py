"""Canonicalization of arithmetic: identities, inverse pairs, casts, clamps, selects."""

from __future__ import annotations

import ml_dtypes
import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import (
    AddOp,
    BroadcastOp,
    CastOp,
    CompareOp,
    DivOp,
    Elementwise,
    MaxOp,
    MinOp,
    MulOp,
    NegOp,
    NotOp,
    PowOp,
    ReluOp,
    SubOp,
    WhereOp,
)
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of, tensor_of
from popgraph.dialects.graphcore.logic import ORDERS, PREDICATES
from popgraph.dialects.program import WeightStore
from popgraph.passes.graphcore.canonicalize.rewriting import Rule, with_operands
from popgraph.passes.graphcore.intervals import Intervals, range_of
from popgraph.support import shapes
from popgraph.support.arrays import Array


def in_shape_of(value: Operand, op: Elementwise) -> Operand:
    """`value`, broadcast to the shape of the result of `op`."""
    shape = shape_of(op.result)
    return value if shape_of(value) == shape else BroadcastOp(value, shape=shape)


class DropNeutral(Rule[Elementwise]):
    """
    x + -0, x - 0, x * 1, x / 1, x ^ 1  ->  x

    Only when signs of zeros stay. -0.0 + 0.0 is 0.0, so of floats only -0.0 may be added.
    Integers have one zero.
    """

    ROOTS = (AddOp, SubOp, MulOp, DivOp, PowOp)

    def rewrite(self, op: Elementwise) -> Operand | None:
        lhs, rhs = op.operands
        neutral = -0.0 if isinstance(op, AddOp) else 0.0 if isinstance(op, SubOp) else 1.0
        if self.is_all(rhs, neutral):
            return in_shape_of(lhs, op)
        if isinstance(op, AddOp | MulOp) and self.is_all(lhs, neutral):
            return in_shape_of(rhs, op)
        return None


class DropPair(Rule[Elementwise]):
    """
    -(-x)  ->  x;  not not x  ->  x;  relu(relu(x))  ->  relu(x)
    """

    ROOTS = (NegOp, NotOp, ReluOp)

    def rewrite(self, op: Elementwise) -> Operand | None:
        inner = op.operands[0].owner
        if type(inner) is not type(op):
            return None
        return inner.operands[0] if isinstance(inner, NegOp | NotOp) else inner.results[0]


class DropCast(Rule[CastOp]):
    """
    cast x to the type it has  ->  x
    """

    ROOTS = (CastOp,)

    def rewrite(self, op: CastOp) -> Operand | None:
        return op.x if tensor_of(op.x) == tensor_of(op.result) else None


class DropRoundTrip(Rule[CastOp]):
    """
    cast wide (cast narrow x)  ->  cast wide x

    Only when x holds integers in the range of the narrow type and all readers cast to float. If
    one reader computes with integers, the narrow type is the cheapest to store for all of them.
    """

    ROOTS = (CastOp,)

    def __init__(self, weights: WeightStore) -> None:
        super().__init__(weights)
        self._intervals = Intervals(weights)

    def rewrite(self, op: CastOp) -> Operand | None:
        inner = op.x.owner
        if not isinstance(inner, CastOp) or _is_kept(inner):
            return None
        found, held = self._intervals.of(inner.x), range_of(dtype_of(op.x))
        if found is None or held is None or not found.lies_in(held):
            return None
        ends = range_of(dtype_of(op.result))
        if ends is not None and dtype_of(inner.x).is_float and not found.lies_in(ends):
            return None
        same = tensor_of(inner.x) == tensor_of(op.result)
        return inner.x if same else CastOp(inner.x, to=tensor_of(op.result).element_type)


def _is_kept(narrow: CastOp) -> bool:
    """Whether a reader of a cast from floats computes with integers."""
    readers = [use.operation for use in narrow.result.uses]
    return dtype_of(narrow.x).is_float and any(
        not isinstance(reader, CastOp) or not dtype_of(reader.result).is_float for reader in readers
    )


class MultiplyByReciprocal(Rule[DivOp]):
    """
    x / c  ->  x * (1 / c)

    Only when c holds powers of two with normal reciprocals: 1 / c and the product are then exact.
    """

    ROOTS = (DivOp,)

    def rewrite(self, op: DivOp) -> Operand | None:
        divisor = self.array(op.rhs)
        if divisor is None or not dtype_of(op.rhs).is_float or not _halves(divisor):
            return None
        return MulOp(op.lhs, self.literal(np.divide(1, divisor).astype(divisor.dtype)))


def _halves(array: Array) -> bool:
    """Whether all elements are powers of two, and neither they nor their reciprocals subnormal."""
    if array.dtype.kind != "f" or array.size == 0:
        return False
    mantissa, exponent = np.frexp(array)
    limit = -int(np.finfo(array.dtype).minexp) - 2
    return bool(np.all(np.abs(mantissa) == 0.5) and np.all(np.abs(exponent) < limit))


class MergeClamps(Rule[Elementwise]):
    """
    max(max(x, a), b)  ->  max(x, max(a, b)), and the same for min

    Only when a and b are constant and the inner result has no other use.
    """

    ROOTS = (MaxOp, MinOp)

    def rewrite(self, op: Elementwise) -> Operand | None:
        inner, outer_limit = op.operands[0].owner, self.array(op.operands[1])
        if type(inner) is not type(op) or outer_limit is None or not op.operands[0].has_one_use():
            return None
        inner_limit = self.array(inner.operands[1])
        if inner_limit is None:
            return None
        larger = isinstance(op, MaxOp)
        limit = np.asarray((np.maximum if larger else np.minimum)(inner_limit, outer_limit))
        if shapes.broadcast(shape_of(inner.operands[0]), limit.shape) != shape_of(op.result):
            return None
        return (MaxOp if larger else MinOp)(inner.operands[0], self.literal(limit))


def ends_of(value: SSAValue) -> tuple[Array, Array] | None:
    """The smallest and the largest number of an integer type; None for other types."""
    dtype = dtype_of(value)
    if not dtype.is_integer:
        return None
    ends = ml_dtypes.iinfo(dtype.numpy)
    return np.array(ends.min, dtype.numpy), np.array(ends.max, dtype.numpy)


class DropClamp(Rule[Elementwise]):
    """
    max(x, least) -> x, max(x, greatest) -> greatest, and the same for min

    Only of integers, where least and greatest are the ends of the type.
    """

    ROOTS = (MaxOp, MinOp)

    def rewrite(self, op: Elementwise) -> Operand | None:
        ends = ends_of(op.result)
        if ends is None:
            return None
        loses, wins = ends if isinstance(op, MaxOp) else reversed(ends)
        for value, other in (op.operands, reversed(op.operands)):
            limit = self.array(value)
            if limit is None:
                continue
            if np.all(limit == loses):
                return in_shape_of(other, op)
            if np.all(limit == wins):
                return in_shape_of(value, op)
        return None


class CompareBeyondEnds(Rule[CompareOp]):
    """
    x < c  ->  false, x >= c  ->  true, and the like

    Only when c is constant and the result is the same for every integer of the type of x.
    """

    ROOTS = (CompareOp,)

    def rewrite(self, op: CompareOp) -> Operand | None:
        ends = ends_of(op.lhs)
        if ends is None or op.predicate.data not in ORDERS:
            return None
        compare = PREDICATES[op.predicate.data]
        lhs, rhs = self.array(op.lhs), self.array(op.rhs)
        if rhs is not None:
            first, last = (np.asarray(compare(end, rhs)) for end in ends)
        elif lhs is not None:
            first, last = (np.asarray(compare(lhs, end)) for end in ends)
        else:
            return None
        return in_shape_of(self.literal(first), op) if np.array_equal(first, last) else None


class ChooseKnown(Rule[WhereOp]):
    """
    where(c, x, y)  ->  x or y;  where(c, x, x)  ->  x

    Only when all elements of the constant c are equal, or both values are the same.
    """

    ROOTS = (WhereOp,)

    def rewrite(self, op: WhereOp) -> Operand | None:
        if op.lhs is op.rhs or self.is_all(op.condition, 1):
            return in_shape_of(op.lhs, op)
        if self.is_all(op.condition, 0):
            return in_shape_of(op.rhs, op)
        return None


class DropOperandBroadcast(Rule[Elementwise]):
    """
    f(broadcast x, y)  ->  f(x, y)

    Only when the result keeps its shape: elementwise operations broadcast their operands.
    """

    ROOTS = (Elementwise,)

    def rewrite(self, op: Elementwise) -> Operand | None:
        for index, operand in enumerate(op.operands):
            if not isinstance(operand.owner, BroadcastOp):
                continue
            operands: list[SSAValue] = list(op.operands)
            operands[index] = operand.owner.x
            if shapes.broadcast(*map(shape_of, operands)) == shape_of(op.result):
                return with_operands(op, operands)
        return None


RULES = (
    DropNeutral,
    DropPair,
    DropCast,
    DropRoundTrip,
    MultiplyByReciprocal,
    MergeClamps,
    DropClamp,
    CompareBeyondEnds,
    ChooseKnown,
    DropOperandBroadcast,
)
