"""Scatter: combines slices with the elements at given indices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, StringAttr, TensorType, i64
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, prop_def, result_def

from popgraph.dialects.graphcore.arithmetic import DivOp, MulOp, SubOp, WhereOp
from popgraph.dialects.graphcore.base import (
    ANY,
    INTEGERS,
    NUMBERS,
    ORDERED,
    Array,
    Elements,
    Lookup,
    Operand,
    Tensor,
    integer,
    operation,
    precisely,
    shape_of,
    tensor_of,
)
from popgraph.dialects.graphcore.broadcasting import BroadcastOp, reshaped, scalar
from popgraph.dialects.graphcore.functions import CastOp
from popgraph.dialects.graphcore.logic import CompareOp
from popgraph.dialects.graphcore.lookup import GatherOp, IotaOp, gathered_shape, positions
from popgraph.dialects.program import ConstantOp, DataAttr
from popgraph.dialects.program.interned import tensor_type
from popgraph.support import shapes

Gradients: TypeAlias = tuple[Operand | None, ...]

REDUCTIONS: Mapping[str, Elements] = {
    "none": ANY,
    "add": NUMBERS,
    "mul": NUMBERS,
    "max": ORDERED,
    "min": ORDERED,
}
"""{reduction: element types}: the ways to combine an update with the element."""

COMBINE: Mapping[str, Callable[[Any, Any, Any], None]] = {
    "none": lambda result, places, slices: result.__setitem__(places, slices),
    "add": np.add.at,
    "mul": np.multiply.at,
    "max": np.maximum.at,
    "min": np.minimum.at,
}


@operation
class ScatterOp(Lookup):
    """
    `data` with the slices of `updates` combined into positions `indices` along `axis`.

    Updates apply in the order of the indices; with the reduction `none` the last one wins. Negative
    indices count from the end; indices out of range are clamped to the nearest end.
    """

    name = "graphcore.scatter"
    data = operand_def(TensorType)
    updates = operand_def(TensorType)
    indices = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    reduction = prop_def(StringAttr)
    result = result_def(TensorType)

    def __init__(
        self, data: Operand, updates: Operand, indices: Operand, *, axis: int, reduction: str
    ) -> None:
        super().__init__([data, updates, indices], {"axis": axis, "reduction": reduction})

    def infer(self) -> tuple[Tensor, ...]:
        reduction = self.reduction.data
        if reduction not in REDUCTIONS:
            raise self.fail(
                f"does not support reduction {reduction!r}", f"use one of {', '.join(REDUCTIONS)}"
            )
        element = self.common_element(REDUCTIONS[reduction], self.data, self.updates)
        self.common_element(INTEGERS, self.indices)
        data, indices = shape_of(self.data), shape_of(self.indices)
        expected = gathered_shape(self, data, indices, integer(self.axis))
        if shape_of(self.updates) != expected:
            raise self.fail(
                f"needs updates of shape {shapes.text(expected)}, "
                f"not {shapes.text(shape_of(self.updates))}"
            )
        return (tensor_type(element, data),)

    def evaluate(self, data: Array, updates: Array, indices: Array) -> tuple[Array, ...]:
        if self.reduction.data == "none":
            return (self._combined(data, updates, indices),)
        return (precisely(lambda a, b: self._combined(a, b, indices), data, updates),)

    def _combined(self, data: Array, updates: Array, indices: Array) -> Array:
        axis = integer(self.axis)
        before, after = data.shape[:axis], data.shape[axis + 1 :]
        result = data.copy()
        places = positions(indices, data.shape[axis]).ravel()
        slices = updates.reshape(*before, places.size, *after)
        combine = COMBINE[self.reduction.data]
        combine(np.moveaxis(result, axis, 0), places, np.moveaxis(slices, axis, 0))
        return result

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        match self.reduction.data:
            case "none":
                return self._of_last(dy)
            case "add":
                return (dy, self._picked(dy), None)
            case "mul":
                return self._of_product(dy)
        return self._of_extreme(dy)

    def _picked(self, value: Operand) -> Operand:
        """The slice of `value` at the position of each update."""
        return GatherOp(value, self.indices, axis=integer(self.axis))

    def _scattered(self, values: Sequence[Operand], reduction: str) -> Operand:
        """Scatters other values to the same positions."""
        axis = integer(self.axis)
        data, updates = values
        return ScatterOp(data, updates, self.indices, axis=axis, reduction=reduction)

    def _of_last(self, dy: SSAValue) -> Gradients:
        """Gradient 0 for overwritten elements; the last of several updates gets all."""
        nothing = BroadcastOp(scalar(0, dy), shape=shape_of(self.updates))
        own = WhereOp(self._is_last(), self._picked(dy), scalar(0, dy))
        return (self._scattered([dy, nothing], "none"), own, None)

    def _is_last(self) -> Operand:
        """Whether no later update has the same position; broadcasts to the updates."""
        axis, data, indices = integer(self.axis), shape_of(self.data), shape_of(self.indices)
        count = shapes.prod(indices)
        number = reshaped(IotaOp(shape=[count], axis=0, dtype=i64), indices)
        none = BroadcastOp(_i64(-1), shape=[data[axis]])
        last = ScatterOp(none, number, self.indices, axis=0, reduction="none")
        is_last = CompareOp(GatherOp(last, self.indices, axis=0), number, predicate="eq")
        return reshaped(is_last, (*indices, *[1] * (len(data) - axis - 1)))

    def _of_product(self, dy: SSAValue) -> Gradients:
        """
        dy times the product of the other factors, also where some are 0.

        By the number of other zeros: none, a quotient; one, a product that is 0 but has a
        derivative; more, 0.
        """
        zero, one = scalar(0, dy), scalar(1, dy)
        element = tensor_of(dy).element_type
        are_zero = [CompareOp(value, zero, "eq") for value in (self.data, self.updates)]
        zeros = [CastOp(is_zero, to=element) for is_zero in are_zero]
        factors = [
            WhereOp(is_zero, one, value)
            for is_zero, value in zip(are_zero, (self.data, self.updates), strict=True)
        ]
        values = [
            WhereOp(is_zero, value, zero)
            for is_zero, value in zip(are_zero, (self.data, self.updates), strict=True)
        ]
        totals = [
            self._scattered(factors, "mul"),
            self._scattered(zeros, "add"),
            self._scattered(values, "add"),
        ]

        def others(all_of: Sequence[Operand], number: int) -> Operand:
            product, count, total = all_of
            other_zeros, quotient = SubOp(count, zeros[number]), DivOp(product, factors[number])
            rest = MulOp(quotient, SubOp(total, values[number]))
            with_zeros = WhereOp(CompareOp(other_zeros, one, "eq"), rest, zero)
            return WhereOp(CompareOp(other_zeros, zero, "eq"), quotient, with_zeros)

        of_updates = others([self._picked(total) for total in totals], 1)
        return (
            MulOp(dy, others(totals, 0)),
            MulOp(self._picked(dy), of_updates),
            None,
        )

    def _of_extreme(self, dy: SSAValue) -> Gradients:
        """Equal extremes share the gradient evenly."""
        zero, element = scalar(0, dy), tensor_of(dy).element_type
        chosen = [
            CompareOp(self.data, self.result, "eq"),
            CompareOp(self.updates, self._picked(self.result), "eq"),
        ]
        count = self._scattered([CastOp(one, to=element) for one in chosen], "add")
        share = DivOp(dy, count)
        return (
            WhereOp(chosen[0], share, zero),
            WhereOp(chosen[1], self._picked(share), zero),
            None,
        )


def _i64(number: int) -> ConstantOp:
    return ConstantOp(DataAttr.of(np.array(number, np.int64)))
