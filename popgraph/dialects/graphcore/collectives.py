"""Collectives: what the replicas of a model tell each other while a step runs."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from xdsl.dialects.builtin import IntegerAttr, StringAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from popgraph.dialects.graphcore.arithmetic import AddOp, DivOp, MaxOp, MinOp, MulOp
from popgraph.dialects.graphcore.base import (
    NUMBERS,
    Array,
    GraphcoreOp,
    Operand,
    Tensor,
    integer,
    shape_of,
)
from popgraph.dialects.graphcore.broadcasting import reshaped, scalar
from popgraph.dialects.graphcore.functions import CastOp
from popgraph.dialects.graphcore.logic import AndOp, CompareOp, OrOp
from popgraph.dialects.graphcore.movement import ConcatOp, PadOp, SliceOp
from popgraph.dialects.program.interned import tensor_type
from popgraph.support.shapes import Shape, prod

LOCAL, MEAN = "Local", "Mean"


def _total(values: Sequence[Operand]) -> Operand:
    return reduce(AddOp, values)


def _logical(operation: Callable[..., Operand]) -> Callable[[Sequence[Operand]], Operand]:
    def combine(values: Sequence[Operand]) -> Operand:
        truths: list[Operand] = [CompareOp(one, scalar(0, one), predicate="ne") for one in values]
        element = SSAValue.get(values[0]).type
        assert isinstance(element, TensorType)
        return CastOp(reduce(operation, truths), to=element.element_type)

    return combine


COMBINED_BY: Mapping[str, Callable[[Sequence[Operand]], Operand]] = {
    "Add": _total,
    MEAN: lambda values: DivOp(_total(values), scalar(len(values), values[0])),
    "Mul": lambda values: reduce(MulOp, values),
    "Min": lambda values: reduce(MinOp, values),
    "Max": lambda values: reduce(MaxOp, values),
    "LogicalAnd": _logical(AndOp),
    "LogicalOr": _logical(OrOp),
    "SquareAdd": lambda values: _total([MulOp(one, one) for one in values]),
}
"""What becomes of the tensors of a group; with `Local` each replica keeps its own."""

_ADDED = ("Add", MEAN, LOCAL)
"""Those that a gradient passes."""


class Collective(GraphcoreOp):
    """
    Kind: what a replica gets of what all of its group have.

    Groups have `size` replicas that are `stride` apart. A program with collectives is that of one
    replica; `spread-replicas` writes all of them out, after which there are none.
    """

    x = operand_def(TensorType)
    stride = prop_def(IntegerAttr)
    size = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, *, stride: int, size: int, **more: Any) -> None:
        super().__init__([x], {"stride": stride, "size": size, **more})

    @property
    def groups(self) -> dict[str, Any]:
        """Which replicas form a group."""
        return {"stride": integer(self.stride), "size": integer(self.size)}

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(NUMBERS, self.x)
        if min(self.groups.values()) < 1:
            raise self.fail("groups have at least one replica, at least one apart")
        return (tensor_type(element, self._shape()),)

    @abstractmethod
    def _shape(self) -> Shape:
        """Of the result."""

    @abstractmethod
    def together(self, values: Sequence[SSAValue]) -> list[Operand]:
        """What the replicas of a group get of what they have (implicit builder)."""

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        if integer(self.size) > 1:
            raise self.fail(
                f"of {integer(self.size)} replicas cannot run on one",
                "`spread-replicas` writes them out",
            )
        return (x.reshape(self._shape()),)


class _Combining(Collective):
    """A collective that makes one tensor of those of a group."""

    combine = prop_def(StringAttr)

    def infer(self) -> tuple[Tensor, ...]:
        if self.combine.data not in (*COMBINED_BY, LOCAL):
            raise self.fail(
                f"cannot combine by {self.combine.data!r}",
                f"one of {', '.join(COMBINED_BY)}, {LOCAL}",
            )
        return super().infer()

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        (kept,) = super().evaluate(x)
        match self.combine.data:
            case "SquareAdd":
                return (kept * kept,)
            case "LogicalAnd" | "LogicalOr":
                return ((kept != 0).astype(kept.dtype),)
        return (kept,)

    def _passed(self) -> str:
        """How gradients are combined."""
        if self.combine.data not in _ADDED:
            raise self.fail(
                f"by {self.combine.data} has no gradient", f"those by {', '.join(_ADDED)} have one"
            )
        return self.combine.data


@irdl_op_definition
class AllReduceOp(_Combining):
    """One tensor made of those of a group, for all of it. PopART ReplicatedAllReduce."""

    name = "graphcore.all_reduce"

    def _shape(self) -> Shape:
        return shape_of(self.x)

    def together(self, values: Sequence[SSAValue]) -> list[Operand]:
        if self.combine.data == LOCAL:
            return list(values)
        return [COMBINED_BY[self.combine.data](values)] * len(values)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        """The loss is that of all replicas: each is told what the others' losses make of it."""
        return (AllReduceOp(dy, combine=self._passed(), **self.groups),)


@irdl_op_definition
class AllGatherOp(Collective):
    """The elements of all replicas of a group, one after the other. PopART ReplicatedAllGather."""

    name = "graphcore.all_gather"

    def _shape(self) -> Shape:
        return (integer(self.size) * prod(shape_of(self.x)),)

    def together(self, values: Sequence[SSAValue]) -> list[Operand]:
        rows = [reshaped(one, (prod(shape_of(one)),)) for one in values]
        return [ConcatOp(rows, axis=0) if len(rows) > 1 else rows[0]] * len(values)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        back = ReduceScatterOp(dy, combine="Add", **self.groups)
        return (reshaped(back, shape_of(self.x)),)


@irdl_op_definition
class ReduceScatterOp(_Combining):
    """
    A share of one tensor made of those of a group: each replica gets as many of its elements.

    Zeros stand behind the last one where they do not divide. PopART ReplicatedReduceScatter.
    """

    name = "graphcore.reduce_scatter"

    def _shape(self) -> Shape:
        return (-(-prod(shape_of(self.x)) // integer(self.size)),)

    def together(self, values: Sequence[SSAValue]) -> list[Operand]:
        made = values if self.combine.data == LOCAL else [COMBINED_BY[self.combine.data](values)]
        rows = [self.padded(one) for one in made] * (len(values) // len(made))
        (share,) = self._shape()
        return [
            SliceOp(row, starts=[at * share], sizes=[share], steps=[1])
            for at, row in enumerate(rows)
        ]

    def padded(self, value: Operand) -> Operand:
        """A row of elements that all replicas of a group get as many of."""
        (share,), count = self._shape(), prod(shape_of(value))
        row, missing = reshaped(value, (count,)), share * integer(self.size) - count
        if not missing:
            return row
        return PadOp(row, low=[0], high=[missing], interior=[0], value=0.0)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        shape = shape_of(self.x)
        if self._passed() == LOCAL:
            raise self.fail(
                "by Local has no gradient: it differs from replica to replica",
                "all-reduce, and a slice",
            )
        whole = AllGatherOp(dy, **self.groups)
        row = SliceOp(whole, starts=[0], sizes=[prod(shape)], steps=[1])
        count = integer(self.size) if self.combine.data == MEAN else 1
        return (DivOp(reshaped(row, shape), scalar(count, row)),)


COLLECTIVES: tuple[type[Collective], ...] = (AllReduceOp, AllGatherOp, ReduceScatterOp)
"""What no program of one replica computes: they are gone before anything is expanded."""
