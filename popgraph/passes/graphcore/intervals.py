"""Interval analysis of integer values."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

import ml_dtypes
import numpy as np
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.graphcore import (
    AbsOp,
    AddOp,
    AndOp,
    CastOp,
    MaxOp,
    MinOp,
    MulOp,
    NegOp,
    PadOp,
    QuantizeOp,
    SubOp,
    WhereOp,
)
from popgraph.dialects.graphcore.base import GraphcoreOp, Movement, dtype_of
from popgraph.dialects.program import WeightStore, constant_array
from popgraph.support.dtypes import DType

DEEPEST = 100
"""Maximum depth of the recursive analysis; deeper values get the range of their type."""


class Interval(NamedTuple):
    """The integers from `low` to `high`, both included."""

    low: int
    high: int

    @property
    def magnitude(self) -> int:
        return max(-self.low, self.high)

    def with_numbers(self, *numbers: int) -> Interval:
        """The smallest interval that contains this one and these numbers."""
        return _around(*self, *numbers)

    def lies_in(self, other: Interval) -> bool:
        return other.low <= self.low and self.high <= other.high


def _around(*numbers: int) -> Interval:
    return Interval(min(numbers), max(numbers))


def _of_all(*given: Interval) -> Interval:
    return _around(*(number for one in given for number in one))


def _common_bits(*given: Interval) -> Interval:
    """
    The interval of a bitwise AND.

    A non-negative operand bounds the result: 0 <= x & y <= x. Otherwise the result has at most the
    bits of the widest operand.
    """
    if ends := [one.high for one in given if one.low >= 0]:
        return Interval(0, min(ends))
    beyond = 1 << max(one.magnitude for one in given).bit_length()
    return Interval(-beyond, beyond - 1)


_ARITHMETIC: Mapping[type[Operation], Callable[..., Interval]] = {
    AbsOp: lambda x: Interval(0, x.magnitude),
    NegOp: lambda x: Interval(-x.high, -x.low),
    AddOp: lambda x, y: Interval(x.low + y.low, x.high + y.high),
    AndOp: _common_bits,
    SubOp: lambda x, y: Interval(x.low - y.high, x.high - y.low),
    MulOp: lambda x, y: _around(*(one * other for one in x for other in y)),
    MinOp: lambda x, y: Interval(min(x.low, y.low), min(x.high, y.high)),
    MaxOp: lambda x, y: Interval(max(x.low, y.low), max(x.high, y.high)),
    CastOp: _of_all,
}
"""Interval arithmetic on unbounded integers; overflow is checked by the caller."""


@dataclass
class Intervals:
    """Intervals of values, memoized."""

    weights: WeightStore
    _known: dict[SSAValue, Interval | None] = field(default_factory=dict)

    def of(self, value: SSAValue, depth: int = 0) -> Interval | None:
        """The interval of a value; None if its elements may not be integers."""
        if value not in self._known:
            if dtype_of(value).is_float:
                self._known[value] = self._of_floats(value, depth)
                return self._known[value]
            whole = range_of(dtype_of(value))
            found = whole and self._computed(value, depth)
            fits = whole is not None and found is not None and found.lies_in(whole)
            if depth > DEEPEST:
                return whole
            self._known[value] = found if fits else whole
        return self._known[value]

    def _of_floats(self, value: SSAValue, depth: int) -> Interval | None:
        """
        The interval of floats that are exact integers and never -0.0, else None.

        These are cast integers, results of `quantize`, and sums and differences of such floats.
        """
        op, found = value.owner, None
        if isinstance(op, CastOp) and depth <= DEEPEST and not dtype_of(op.x).is_float:
            found = self.of(op.x, depth + 1)
        elif isinstance(op, Movement | AddOp | SubOp) and not isinstance(op, PadOp):
            found = self._computed(value, depth)
        elif (number := self._whole(value)) is not None:
            found = Interval(number, number)
        elif isinstance(op, QuantizeOp) and op.rounds and op.bounds is not None:
            found = Interval(*op.bounds)
        exact = 1 << (ml_dtypes.finfo(dtype_of(value).numpy).nmant + 1)
        return found if found is not None and found.magnitude <= exact else None

    def _whole(self, value: SSAValue) -> int | None:
        """The integer in a literal with one element."""
        array = constant_array(value, self.weights)
        if array is None or array.size != 1 or not np.isfinite(number := array.item()):
            return None
        return int(number) if number == int(number) and not np.signbit(number) else None

    def _computed(self, value: SSAValue, depth: int) -> Interval | None:
        array = constant_array(value, self.weights)
        if array is not None:
            return Interval(int(array.min()), int(array.max())) if array.size else Interval(0, 0)
        op = value.owner
        known = isinstance(op, (*_ARITHMETIC, Movement, WhereOp))
        if depth > DEEPEST or not known or not isinstance(op, GraphcoreOp):
            return None
        operands = op.operands[1:] if isinstance(op, WhereOp) else op.operands
        found = [self.of(operand, depth + 1) for operand in operands]
        given = [one for one in found if one is not None]
        if len(given) < len(found):
            return None
        if isinstance(op, PadOp):
            given.append(_around(int(op.fill)))
        return _ARITHMETIC.get(type(op), _of_all)(*given)


def range_of(dtype: DType) -> Interval | None:
    """The range of an integer type or bool; None for other types."""
    if dtype.name == "bool":
        return Interval(0, 1)
    if not dtype.is_integer:
        return None
    if dtype.is_unsigned:
        return Interval(0, (1 << dtype.bits) - 1)
    return Interval(-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1)
