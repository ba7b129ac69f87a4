"""Bounds of integer matmuls and convolutions."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import ConvInputGradOp, ConvOp, ConvWeightGradOp, MatMulOp
from popgraph.dialects.graphcore.base import integer, shape_of
from popgraph.dialects.program import WeightStore
from popgraph.passes.graphcore.fold_constants import computed_array
from popgraph.passes.graphcore.intervals import Interval, Intervals
from popgraph.support.arrays import Array
from popgraph.support.shapes import prod
from popgraph.support.tuning import Tuning
from popgraph.support.words import WordFormat

AnyContraction: TypeAlias = MatMulOp | ConvOp
AnyProduct: TypeAlias = MatMulOp | ConvOp | ConvInputGradOp | ConvWeightGradOp


def summed_axes(op: AnyProduct) -> tuple[int, int]:
    """The contracted axis of each operand, besides the windows of a convolution."""
    match op:
        case ConvOp():
            return 1, 1
        case ConvInputGradOp():
            return 1, 0
        case ConvWeightGradOp():
            return 0, 0
    return len(shape_of(op.lhs)) - 1, len(shape_of(op.rhs)) - 2


def terms_of(op: AnyProduct) -> int:
    """
    The length of the contracted axis.

    It is k of a matmul, the input channels of a convolution's group, or the output channels and
    samples for its gradients.
    """
    length = shape_of(op.operands[1])[summed_axes(op)[1]]
    return length // integer(op.groups) if isinstance(op, ConvInputGradOp) else length


def columns_of(op: AnyProduct) -> int:
    """The vectorized extent: columns of a matmul, channels of a convolution's group."""
    match op:
        case ConvOp():
            return shape_of(op.w)[0] // integer(op.groups)
        case ConvInputGradOp():
            return shape_of(op.w)[1]
        case ConvWeightGradOp():
            return shape_of(op.result)[0] // integer(op.groups)
    return shape_of(op.result)[-1]


def products_of(op: AnyProduct) -> int:
    """The number of multiplications; that of a convolution without its padding."""
    match op:
        case ConvOp():
            return prod(shape_of(op.result)) * prod(shape_of(op.w)[1:])
        case ConvInputGradOp():
            return prod(shape_of(op.dy)) * prod(shape_of(op.w)[1:])
        case ConvWeightGradOp():
            return prod(shape_of(op.dy)) * prod(shape_of(op.result)[1:])
    return prod(shape_of(op.result)) * terms_of(op)


def pays(op: AnyProduct, words: WordFormat, tuning: Tuning) -> bool:
    """Whether packed words pay: long sums, or half-filled words with a single instruction."""
    terms = terms_of(op)
    filled = 2 * terms > words.count
    return terms >= tuning.least_word_terms or (filled and words.instructions == 1)


def fills_words(op: AnyProduct, words: WordFormat, tuning: Tuning) -> bool:
    """
    Whether words pay, and vectors of them can be multiplied.

    Not with few columns, whose words would be multiplied one by one, nor if a word would hold
    channels of two groups.
    """
    grouped = isinstance(op, ConvOp | ConvInputGradOp) and integer(op.groups) > 1
    if columns_of(op) < tuning.least_packed_extent or (grouped and terms_of(op) % words.count):
        return False
    return pays(op, words, tuning)


def shares_halves(op: AnyProduct, number: int, tuning: Tuning) -> bool:
    """Whether enough products use each element of an operand to pay for packing it in pairs."""
    return products_of(op) > tuning.most_narrow_uses * prod(shape_of(op.operands[number]))


class IntegerSums:
    """Compile-time bounds of the sums of contractions."""

    def __init__(self, weights: WeightStore) -> None:
        self._weights, self._intervals = weights, Intervals(weights)

    def interval(self, value: SSAValue) -> Interval | None:
        return self._intervals.of(value)

    def limits(self, op: AnyContraction) -> Array | None:
        """
        The maximum absolute contribution of each index of the contracted axis to a sum, as rows.

        A constant second operand has one column for each result, else one column bounds all.
        """
        found = [self.interval(operand) for operand in op.operands]
        first, second = (one and float(one.magnitude) for one in found)
        if first is None or second is None:
            return None
        window = prod(shape_of(op.operands[1])[2:]) if isinstance(op, ConvOp) else 1
        axis = summed_axes(op)[1]
        array = computed_array(op.operands[1], self._weights)
        if array is None:
            return np.full((shape_of(op.operands[1])[axis], 1), first * second * window)
        sizes = np.moveaxis(np.abs(array.astype(np.float64)), axis, 0)
        by_row: Array = sizes.reshape(len(sizes), -1, window).sum(axis=2) * first
        return by_row
