"""Collectives of replicas in several processes, as local reductions and exchanges of ranks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import SSAValue

from popgraph.dialects.graphcore.arithmetic import DivOp, MulOp
from popgraph.dialects.graphcore.base import Operand, shape_of, tensor_of
from popgraph.dialects.graphcore.broadcasting import reshaped, scalar
from popgraph.dialects.graphcore.collectives import (
    COMBINED_BY,
    LOCAL,
    MEAN,
    AllGatherOp,
    AllReduceOp,
    Collective,
    ReduceScatterOp,
)
from popgraph.dialects.graphcore.exchanges import ExchangeOp
from popgraph.dialects.graphcore.functions import CastOp
from popgraph.dialects.graphcore.logic import CompareOp
from popgraph.dialects.graphcore.movement import ConcatOp, SliceOp
from popgraph.support.ranks.communicator import ALL_GATHER, ALL_REDUCE, REDUCE_SCATTER
from popgraph.support.shapes import prod


def _truth(value: Operand) -> Operand:
    is_true = CompareOp(value, scalar(0, value), predicate="ne")
    return CastOp(is_true, to=tensor_of(value).element_type)


@dataclass(frozen=True)
class _Combination:
    """A reduction of replicas in terms of one that exchanges of ranks support."""

    combine: str
    before: Callable[[Operand], Operand] = lambda value: value
    is_mean: bool = False


_COMBINATIONS: Mapping[str, _Combination] = {
    **{name: _Combination(name) for name in ("Add", "Mul", "Min", "Max")},
    MEAN: _Combination("Add", is_mean=True),
    "LogicalAnd": _Combination("Min", _truth),
    "LogicalOr": _Combination("Max", _truth),
    "SquareAdd": _Combination("Add", lambda value: MulOp(value, value)),
}


@dataclass(frozen=True)
class Between:
    """A collective between replicas of several ranks."""

    op: Collective
    stride: int
    size: int
    """A group has `size` ranks at distance `stride`."""
    rank: int
    """The index of this rank in its group."""

    def received(self, values: Sequence[SSAValue]) -> list[Operand]:
        """The results of this rank's replicas for their values (implicit builder)."""
        match self.op:
            case AllGatherOp():
                rows = [_row(one) for one in values]
                row = ConcatOp(rows, axis=0) if len(rows) > 1 else rows[0]
                return [self._exchanged(ALL_GATHER, row)] * len(values)
            case AllReduceOp() if self.op.combine.data == LOCAL:
                return list(values)
            case AllReduceOp():
                total = self._exchanged(ALL_REDUCE, _row(self._combined(values)), self._combination)
                return [self._divided(reshaped(total, shape_of(values[0])))] * len(values)
            case ReduceScatterOp():
                return self._shares(self.op, values)
        raise AssertionError(f"{self.op.name} is between replicas")

    @property
    def _combination(self) -> _Combination:
        assert isinstance(self.op, AllReduceOp | ReduceScatterOp)
        return _COMBINATIONS[self.op.combine.data]

    def _combined(self, values: Sequence[SSAValue]) -> Operand:
        """The reduction of this process's values, before a mean is divided."""
        made = [SSAValue.get(self._combination.before(one)) for one in values]
        return made[0] if len(made) == 1 else COMBINED_BY[self._combination.combine](made)

    def _divided(self, value: Operand) -> Operand:
        count = self.op.groups["size"]
        return DivOp(value, scalar(count, value)) if self._combination.is_mean else value

    def _exchanged(self, kind: str, row: Operand, way: _Combination | None = None) -> Operand:
        combine = "Add" if way is None else way.combine
        return ExchangeOp(row, kind=kind, size=self.size, stride=self.stride, combine=combine)

    def _shares(self, op: ReduceScatterOp, values: Sequence[SSAValue]) -> list[Operand]:
        (share,), count = shape_of(op.result), len(values)
        if op.combine.data == LOCAL:
            first = self.rank * count
            return [
                _part(op.padded(one), (first + at) * share, share) for at, one in enumerate(values)
            ]
        row = self._exchanged(REDUCE_SCATTER, op.padded(self._combined(values)), self._combination)
        return [self._divided(_part(row, at * share, share)) for at in range(count)]


def _row(value: Operand) -> Operand:
    return reshaped(value, (prod(shape_of(value)),))


def _part(row: Operand, start: int, count: int) -> Operand:
    if shape_of(row) == (count,):
        return row
    return SliceOp(row, starts=[start], sizes=[count], steps=[1])
