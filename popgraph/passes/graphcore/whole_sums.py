"""Bounds of integer matmuls and convolutions."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import ConvOp, MatMulOp
from popgraph.dialects.graphcore.base import shape_of
from popgraph.dialects.program import WeightStore
from popgraph.passes.graphcore.fold_constants import computed_array
from popgraph.passes.graphcore.intervals import Interval, Intervals
from popgraph.support.arrays import Array
from popgraph.support.shapes import prod
from popgraph.support.tuning import Tuning
from popgraph.support.words import WordFormat

AnyContraction: TypeAlias = MatMulOp | ConvOp


def summed_axes(op: AnyContraction) -> tuple[int, int]:
    """The contracted axis of each operand."""
    if isinstance(op, ConvOp):
        return 1, 1
    return len(shape_of(op.lhs)) - 1, len(shape_of(op.rhs)) - 2


def terms_of(op: AnyContraction) -> int:
    """The length of the contracted axis: k of a matmul, input channels of a convolution's group."""
    return shape_of(op.operands[1])[summed_axes(op)[1]]


def pays(op: AnyContraction, words: WordFormat, tuning: Tuning) -> bool:
    """Whether packed words pay: long sums, or half-filled words with a single instruction."""
    terms = terms_of(op)
    filled = 2 * terms > words.count
    return terms >= tuning.least_word_terms or (filled and words.instructions == 1)


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
