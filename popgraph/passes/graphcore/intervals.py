"""Between which whole numbers the elements of a value lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from xdsl.ir import Operation, SSAValue

from popgraph.dialects.graphcore import (
    AbsOp,
    AddOp,
    CastOp,
    MaxOp,
    MinOp,
    MulOp,
    NegOp,
    PadOp,
    SubOp,
    WhereOp,
)
from popgraph.dialects.graphcore.base import GraphcoreOp, Movement, dtype_of
from popgraph.dialects.program import WeightStore
from popgraph.passes.graphcore.fold_constants import constant_array
from popgraph.support.dtypes import DType

DEEPEST = 100
"""Values that are computed in more steps may be any number of their type."""


class Interval(NamedTuple):
    """From the least to the greatest number."""

    low: int
    high: int

    @property
    def magnitude(self) -> int:
        return max(-self.low, self.high)

    def lies_in(self, other: Interval) -> bool:
        return other.low <= self.low and self.high <= other.high


def _around(*numbers: int) -> Interval:
    return Interval(min(numbers), max(numbers))


def _of_all(*given: Interval) -> Interval:
    return _around(*(number for one in given for number in one))


_ARITHMETIC: Mapping[type[Operation], Callable[..., Interval]] = {
    AbsOp: lambda x: Interval(0, x.magnitude),
    NegOp: lambda x: Interval(-x.high, -x.low),
    AddOp: lambda x, y: Interval(x.low + y.low, x.high + y.high),
    SubOp: lambda x, y: Interval(x.low - y.high, x.high - y.low),
    MulOp: lambda x, y: _around(*(one * other for one in x for other in y)),
    MinOp: lambda x, y: Interval(min(x.low, y.low), min(x.high, y.high)),
    MaxOp: lambda x, y: Interval(max(x.low, y.low), max(x.high, y.high)),
    CastOp: _of_all,
}
"""What comes of intervals, were integers without end."""


@dataclass
class Intervals:
    """The intervals of integers, each of which is found once."""

    weights: WeightStore
    _known: dict[SSAValue, Interval | None] = field(default_factory=dict)

    def of(self, value: SSAValue, depth: int = 0) -> Interval | None:
        """Of numbers that are not whole, nothing is known."""
        if value not in self._known:
            whole = _of_type(dtype_of(value))
            found = whole and self._computed(value, depth)
            fits = whole is not None and found is not None and found.lies_in(whole)
            if depth > DEEPEST:
                return whole
            self._known[value] = found if fits else whole
        return self._known[value]

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


def _of_type(dtype: DType) -> Interval | None:
    if dtype.name == "bool":
        return Interval(0, 1)
    if not dtype.is_integer:
        return None
    if dtype.name.startswith("u"):
        return Interval(0, (1 << dtype.bits) - 1)
    return Interval(-(1 << (dtype.bits - 1)), (1 << (dtype.bits - 1)) - 1)
