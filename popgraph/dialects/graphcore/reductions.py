"""Reductions other than the sum: max, min, product, mean, argmax, argmin."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import BoolAttr, IntegerAttr, TensorType, f32, i64
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, prop_def, result_def

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.graphcore.arithmetic import DivOp, MulOp, WhereOp
from popgraph.dialects.graphcore.base import (
    ORDERED,
    Array,
    Composite,
    Elements,
    Operand,
    Reduction,
    Tensor,
    as_array,
    dtype_of,
    flag,
    integer,
    is_float,
    operation,
    precisely,
    shape_of,
    tensor_of,
)
from popgraph.dialects.graphcore.broadcasting import (
    AxesReduction,
    BroadcastOp,
    ReduceSumOp,
    scalar,
)
from popgraph.dialects.graphcore.functions import CastOp
from popgraph.dialects.graphcore.logic import CompareOp
from popgraph.dialects.graphcore.movement import PadOp, SliceOp
from popgraph.support import shapes


def widened(value: Operand) -> Operand:
    """`value`, in f32 if its float type is narrower."""
    narrow = element_bytes(tensor_of(value).element_type) < 4 and is_float(value)
    return CastOp(value, to=f32) if narrow else value


def in_type_of(like: Operand, value: Operand) -> Operand:
    """`value` in the element type of `like`."""
    element = tensor_of(like).element_type
    return value if tensor_of(value).element_type == element else CastOp(value, to=element)


def divided(value: Operand, count: int) -> Operand:
    """`value` / `count`; in f32 if `count` is not exact in its type: f16 ends at 65504."""
    with np.errstate(over="ignore"):
        is_exact = float(as_array(count, dtype_of(value))) == count
    wide = value if is_exact else widened(value)
    return in_type_of(value, DivOp(wide, scalar(count, wide)))


class _Extreme(AxesReduction):
    """The maximum or minimum along `axes`; equal extremes share the gradient equally."""

    ELEMENTS: ClassVar[Elements] = ORDERED

    def infer(self) -> tuple[Tensor, ...]:
        types = super().infer()
        if self.reduces_nothing():
            raise self.nothing()
        return types

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        chosen = CompareOp(self.x, self.kept(self.result), "eq")
        wide = widened(self.kept(dy))  # the number of equals may overflow f16
        ones = CastOp(chosen, to=tensor_of(wide).element_type)
        share = DivOp(wide, ReduceSumOp(ones, axes=self.axes.data, keepdims=True))
        return (WhereOp(chosen, in_type_of(dy, share), scalar(0, dy)),)


@operation
class ReduceMaxOp(_Extreme):
    """The maximum along `axes`; NaN if there is one. Equals share the gradient. ONNX ReduceMax."""

    name = "graphcore.reduce_max"
    SCALAR: ClassVar[str] = "max"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        keep = flag(self.keepdims)
        return (precisely(lambda a: np.max(a, axis=self.axes.data, keepdims=keep), x),)


@operation
class ReduceMinOp(_Extreme):
    """The minimum along `axes`; NaN if there is one. Equals share the gradient. ONNX ReduceMin."""

    name = "graphcore.reduce_min"
    SCALAR: ClassVar[str] = "min"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        keep = flag(self.keepdims)
        return (precisely(lambda a: np.min(a, axis=self.axes.data, keepdims=keep), x),)


@operation
class ReduceProdOp(AxesReduction):
    """The product along `axes`; 1 for no elements. ONNX ReduceProd."""

    name = "graphcore.reduce_prod"
    SCALAR: ClassVar[str] = "mul"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        keep = flag(self.keepdims)
        return (precisely(lambda a: np.prod(a, axis=self.axes.data, keepdims=keep), x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        """dy times the product of all other elements; result / x would fail where x is 0."""
        others = self.kept(dy)
        value = self.x
        for axis in self.axes.data:
            size = shape_of(value)[axis]
            for upwards in (True, False):
                others = MulOp(others, _product_before(value, axis, size, upwards))
            value = ReduceProdOp(value, axes=[axis], keepdims=True).result
        return (others,)


def _product_before(value: SSAValue, axis: int, size: int, upwards: bool) -> SSAValue:
    """For each element, the product of all earlier (or later) ones on an axis: O(log n) steps."""
    found, step = _moved(value, axis, min(1, size), upwards), 1
    while step < size:
        found = MulOp(found, _moved(found, axis, step, upwards)).result
        step *= 2
    return found


def _moved(value: SSAValue, axis: int, by: int, upwards: bool) -> SSAValue:
    """The elements shifted along an axis, filled with 1."""
    shape = shape_of(value)
    starts, sizes, zeros = [0] * len(shape), list(shape), [0] * len(shape)
    starts[axis], sizes[axis] = 0 if upwards else by, shape[axis] - by
    kept = SliceOp(value, starts=starts, sizes=sizes, steps=[1] * len(shape))
    pads = [by if at == axis else 0 for at in range(len(shape))]
    low, high = (pads, zeros) if upwards else (zeros, pads)
    return PadOp(kept, low=low, high=high, interior=zeros, value=1.0).result


@operation
class ReduceMeanOp(AxesReduction, Composite):
    """
    The mean along `axes`; integers truncate toward zero. ONNX ReduceMean.

    The mean of no elements is NaN (0 / 0); integers have none.
    """

    name = "graphcore.reduce_mean"
    SCALAR: ClassVar[str] = "mean"

    def infer(self) -> tuple[Tensor, ...]:
        types = super().infer()
        if self.reduces_nothing() and not is_float(self.x):
            raise self.nothing()
        return types

    @property
    def count(self) -> int:
        """The number of elements per result."""
        return shapes.prod(shape_of(self.x)[axis] for axis in self.axes)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        keep = flag(self.keepdims)
        if is_float(self.x):
            return (precisely(lambda a: np.sum(a, self.axes.data, keepdims=keep) / self.count, x),)
        total = np.sum(x, self.axes.data, keepdims=keep).astype(x.dtype)
        whole = np.sign(total) * (np.abs(total) // np.asarray(max(1, self.count), x.dtype))
        return (np.asarray(whole).astype(x.dtype),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        share = divided(self.kept(dy), self.count)
        return (BroadcastOp(share, shape=shape_of(self.x)),)

    def expand(self) -> tuple[Operand, ...]:
        # The sum of many f16 elements overflows (65504) where their mean does not.
        total = ReduceSumOp(widened(self.x), axes=self.axes.data, keepdims=flag(self.keepdims))
        # A division rounds once; a product with 1 / count rounds twice, alike for all results.
        count = self.count if is_float(self.x) else max(1, self.count)
        return (in_type_of(self.x, DivOp(total, scalar(count, total))),)


class _Position(Reduction):
    """The position of an extreme along `axis`: the first among equals, or the last."""

    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    keepdims = prop_def(BoolAttr)
    last = prop_def(BoolAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, *, axis: int, keepdims: bool, last: bool = False) -> None:
        super().__init__([x], {"axis": axis, "keepdims": bool(keepdims), "last": bool(last)})

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(ORDERED, self.x)
        shape, axis = shape_of(self.x), integer(self.axis)
        self.check_axes([axis], len(shape))
        result = shapes.reduced(shape, [axis], flag(self.keepdims))
        if shape[axis] == 0 and 0 not in shapes.reduced(shape, [axis], False):
            raise self.fail(
                f"has no value along axis {axis} of a tensor of shape {shapes.text(shape)}",
                "there must be at least one element to choose from",
            )
        return (TensorType(i64, result),)

    def position(self, chosen: Array) -> Array:
        """The first (or last) true element along the axis."""
        axis, size = integer(self.axis), chosen.shape[integer(self.axis)]
        if size == 0:
            return np.zeros(shapes.reduced(chosen.shape, [axis], flag(self.keepdims)), np.int64)
        if flag(self.last):
            found = size - 1 - np.argmax(np.flip(chosen, axis), axis, keepdims=flag(self.keepdims))
        else:
            found = np.argmax(chosen, axis, keepdims=flag(self.keepdims))
        return np.asarray(found, np.int64)


@operation
class ArgMaxOp(_Position):
    """The position of the maximum along `axis`, or of a NaN if there is one. ONNX ArgMax."""

    name = "graphcore.arg_max"
    SCALAR: ClassVar[str] = "max"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        axis = integer(self.axis)
        best = precisely(lambda a: np.max(a, axis, keepdims=True), x) if x.size else x
        return (self.position((x == best) | (x != x)),)


@operation
class ArgMinOp(_Position):
    """The position of the minimum along `axis`, or of a NaN if there is one. ONNX ArgMin."""

    name = "graphcore.arg_min"
    SCALAR: ClassVar[str] = "min"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        axis = integer(self.axis)
        best = precisely(lambda a: np.min(a, axis, keepdims=True), x) if x.size else x
        return (self.position((x == best) | (x != x)),)
