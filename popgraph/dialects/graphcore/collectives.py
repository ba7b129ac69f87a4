"""Collectives: communication between the replicas of a model within a step."""

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
"""Combines the tensors of a group into one; with `Local` each replica keeps its own."""

_ADDED = ("Add", MEAN, LOCAL)
"""Combinations with a gradient."""


class Collective(GraphcoreOp):
    """
    Kind: the result of a replica depends on the operands of all replicas of its group.

    A group has `size` replicas at distance `stride`. A program with collectives is the program of
    one replica; `spread-replicas` replaces them by the programs of all replicas.
    """

    x = operand_def(TensorType)
    stride = prop_def(IntegerAttr)
    size = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, *, stride: int, size: int, **more: Any) -> None:
        super().__init__([x], {"stride": stride, "size": size, **more})

    @property
    def groups(self) -> dict[str, Any]:
        """The properties that define groups."""
        return {"stride": integer(self.stride), "size": integer(self.size)}

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(NUMBERS, self.x)
        if min(self.groups.values()) < 1:
            raise self.fail("needs a group size and a stride of at least 1")
        return (tensor_type(element, self._shape()),)

    @abstractmethod
    def _shape(self) -> Shape:
        """The shape of the result."""

    @abstractmethod
    def together(self, values: Sequence[SSAValue]) -> list[Operand]:
        """The results of all replicas of a group, given their operands (implicit builder)."""

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        if integer(self.size) > 1:
            raise self.fail(
                f"over {integer(self.size)} replicas cannot run on one",
                "`spread-replicas` expands it",
            )
        return (x.reshape(self._shape()),)


class _Combining(Collective):
    """A collective that combines the tensors of a group into one."""

    combine = prop_def(StringAttr)

    def infer(self) -> tuple[Tensor, ...]:
        if self.combine.data not in (*COMBINED_BY, LOCAL):
            raise self.fail(
                f"cannot combine by {self.combine.data!r}",
                f"use one of {', '.join(COMBINED_BY)}, {LOCAL}",
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
        """The combination of gradients."""
        if self.combine.data not in _ADDED:
            raise self.fail(
                f"by {self.combine.data} has no gradient", f"{', '.join(_ADDED)} have one"
            )
        return self.combine.data


@irdl_op_definition
class AllReduceOp(_Combining):
    """Combines the tensors of a group; all replicas get the result. PopART ReplicatedAllReduce."""

    name = "graphcore.all_reduce"

    def _shape(self) -> Shape:
        return shape_of(self.x)

    def together(self, values: Sequence[SSAValue]) -> list[Operand]:
        if self.combine.data == LOCAL:
            return list(values)
        return [COMBINED_BY[self.combine.data](values)] * len(values)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        """All-reduces gradients: the loss is the sum of the losses of all replicas."""
        return (AllReduceOp(dy, combine=self._passed(), **self.groups),)


@irdl_op_definition
class AllGatherOp(Collective):
    """Concatenates the elements of all replicas of a group. PopART ReplicatedAllGather."""

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
    Combines the tensors of a group, then gives each replica an equal slice of the elements.

    Zeros pad the last slice where `size` does not divide. PopART ReplicatedReduceScatter.
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
        """The elements of `value` as a row, padded with zeros to a multiple of the group size."""
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
                "use an all-reduce and a slice",
            )
        whole = AllGatherOp(dy, **self.groups)
        row = SliceOp(whole, starts=[0], sizes=[prod(shape)], steps=[1])
        # A mean divides by the group size, and so does its gradient.
        count = integer(self.size) if self.combine.data == MEAN else 1
        return (DivOp(reshaped(row, shape), scalar(count, row)),)


COLLECTIVES: tuple[type[Collective], ...] = (AllReduceOp, AllGatherOp, ReduceScatterOp)
"""Collectives; `spread-replicas` removes them before composites are expanded."""
