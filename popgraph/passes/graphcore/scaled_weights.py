"""Finds constant weights that are small integers times scales, as dequantized ones are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import gcd

import numpy as np
from xdsl.dialects.builtin import f32, i8
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import (
    CastOp,
    DequantizeOp,
    MulOp,
    ReshapeOp,
    SliceOp,
    SubOp,
    TransposeOp,
)
from popgraph.dialects.graphcore.base import Movement, dtype_of, shape_of
from popgraph.dialects.graphcore.quantization import in_type
from popgraph.dialects.program import WeightStore
from popgraph.passes.graphcore.canonicalize.rewriting import moved
from popgraph.passes.graphcore.fold_constants import computed_array, is_literal
from popgraph.passes.graphcore.intervals import Interval, Intervals
from popgraph.support.arrays import Array
from popgraph.support.words import NIBBLE

MOVEMENTS = (TransposeOp, ReshapeOp, SliceOp)


@dataclass(frozen=True)
class Minimum:
    """A literal that is subtracted from scaled numbers of a shape, before movements."""

    value: SSAValue
    shape: Sequence[int]
    movements: Sequence[Movement]

    def table(self, weights: WeightStore) -> Array:
        """The minimum of every weight."""
        return _table(self.value, self.shape, self.movements, weights)


@dataclass(frozen=True)
class Scaled:
    """Weights movements((numbers - zero) * scale) - minimum, of literals."""

    numbers: SSAValue
    zero: SSAValue | None
    scale: SSAValue
    movements: Sequence[Movement]
    ends: Interval
    """The range of the multiplied numbers."""
    minimum: Minimum | None = None
    zero_last: bool = False
    """Whether the zero is subtracted from the sums, not from the numbers."""

    @property
    def span(self) -> int:
        return self.ends.high - self.ends.low

    @property
    def first(self) -> int:
        """The smallest number as multiplied: centred on 0 if the zero is subtracted later."""
        return -(1 << NIBBLE - 1) if self.zero_last else self.ends.low

    @property
    def offset(self) -> int:
        """The difference of a number and the value that is multiplied for it."""
        return self.ends.low - self.first

    def bytes(self) -> SSAValue:
        value, op = self.numbers, self.numbers.owner
        if self.zero is not None and not self.zero_last:
            value = SubOp(in_type(value, f32), in_type(self.zero, f32)).result
        elif isinstance(op, CastOp) and dtype_of(op.x).is_integer:
            value = op.x
        return moved(in_type(value, i8), self.movements)

    def table(self, value: SSAValue, weights: WeightStore) -> Array:
        """The scale or zero of every weight."""
        return _table(value, shape_of(self.numbers), self.movements, weights)


def _table(
    value: SSAValue, shape: Sequence[int], movements: Sequence[Movement], weights: WeightStore
) -> Array:
    array = computed_array(value, weights)
    assert array is not None, "it comes of literals"
    table: Array = np.broadcast_to(array, shape)
    for op in movements:
        (table,) = op.evaluate(table)
    return table


def block_of(tables: Iterable[Array]) -> int:
    """The largest number of rows that share their values in all tables, in equal blocks."""
    found = 0
    for table in tables:
        changes = np.flatnonzero(np.any(table[1:] != table[:-1], axis=1)) + 1
        found = gcd(found, len(table), *changes.tolist())
    return found


def source_of(value: SSAValue) -> tuple[SSAValue, list[Movement]]:
    """The value before it is moved, and the movements in order."""
    movements = list[Movement]()
    while isinstance(value.owner, MOVEMENTS):
        movements.insert(0, value.owner)
        value = value.owner.operands[0]
    return value, movements


class ScaledFinder:
    """Recognizes the weights of matmuls that are small integers times scales."""

    def __init__(self, weights: WeightStore) -> None:
        self.intervals = Intervals(weights)

    def of(self, value: SSAValue) -> Scaled | None:
        """The weights that a value is; None for any other value."""
        value, movements = source_of(value)
        op = value.owner
        if not isinstance(op, SubOp) or not is_literal(op.rhs):
            return self._product(value, movements)
        inner, before = source_of(op.lhs)
        found = self._product(inner, [*before, *movements])
        minimum = Minimum(op.rhs, shape_of(value), movements)
        return found and replace(found, minimum=minimum)

    def _product(self, value: SSAValue, movements: Sequence[Movement]) -> Scaled | None:
        """The weights, if they are numbers times a scale."""
        op = value.owner
        if isinstance(op, DequantizeOp):
            return self._fitting(op.x, op.zero, op.scale, movements)
        for whole, scale in (op.operands, op.operands[::-1]) if isinstance(op, MulOp) else ():
            op = whole.owner
            numbers, zero = (op.lhs, op.rhs) if isinstance(op, SubOp) else (whole, None)
            found = self._fitting(numbers, zero, scale, movements)
            if found is not None and shape_of(found.numbers) == shape_of(value):
                return found
        return None

    def _fitting(
        self,
        numbers: SSAValue,
        zero: SSAValue | None,
        scale: SSAValue,
        movements: Sequence[Movement],
    ) -> Scaled | None:
        """The weights, if all three operands are literals and the numbers are integers."""
        ends = self.intervals.of(numbers)
        if zero is not None and ends is not None:
            taken = self.intervals.of(zero)
            ends = taken and Interval(ends.low - taken.high, ends.high - taken.low)
        literals = (one for one in (numbers, zero, scale) if one is not None)
        if ends is None or not all(map(is_literal, literals)):
            return None
        return Scaled(numbers, zero, scale, movements, ends)
