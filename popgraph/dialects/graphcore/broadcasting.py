"""Reshape, broadcast and sum reduction, and the helpers that undo broadcasting."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import BoolAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, prop_def, result_def

from popgraph.dialects.graphcore.base import (
    ANY,
    NUMBERS,
    Array,
    Elements,
    Movement,
    Operand,
    Reduction,
    Tensor,
    as_array,
    dtype_of,
    flag,
    operation,
    precisely,
    shape_of,
    tensor_of,
)
from popgraph.dialects.program import ConstantOp, DataAttr
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.program.interned import tensor_type
from popgraph.support import shapes
from popgraph.support.errors import TypeMismatchError


@operation
class ReshapeOp(Movement):
    """The same elements in row-major order with another shape. ONNX Reshape, Squeeze, Flatten."""

    name = "graphcore.reshape"
    x = operand_def(TensorType)
    shape = prop_def(IntsAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, *, shape: Sequence[int]) -> None:
        super().__init__([x], {"shape": shape})

    def infer(self) -> tuple[Tensor, ...]:
        before, after = shape_of(self.x), self.shape.data
        if min(after, default=0) < 0 or shapes.prod(before) != shapes.prod(after):
            raise self.fail(
                f"cannot give {shapes.text(before)} the shape {shapes.text(after)}",
                f"the number of elements, {shapes.prod(before)}, must not change",
            )
        return (tensor_type(self.common_element(ANY, self.x), after),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (x.reshape(self.shape.data),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (ReshapeOp(dy, shape=shape_of(self.x)),)


@operation
class BroadcastOp(Movement):
    """Repeats elements along new leading axes and axes of size 1. ONNX Expand."""

    name = "graphcore.broadcast"
    x = operand_def(TensorType)
    shape = prop_def(IntsAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, *, shape: Sequence[int]) -> None:
        super().__init__([x], {"shape": shape})

    def infer(self) -> tuple[Tensor, ...]:
        before, after = shape_of(self.x), self.shape.data
        if not broadcasts_to(before, after):
            raise self.fail(
                f"cannot stretch {shapes.text(before)} to {shapes.text(after)}",
                "aligned from the right, dimensions must be equal, or 1 in the operand",
            )
        return (tensor_type(self.common_element(ANY, self.x), after),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (np.broadcast_to(x, self.shape.data).copy(),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (sum_to(dy, shape_of(self.x)),)


class AxesReduction(Reduction):
    """A reduction along `axes`, which become 1 (`keepdims`) or are removed."""

    SCALAR: ClassVar[str]
    ELEMENTS: ClassVar[Elements] = NUMBERS
    x = operand_def(TensorType)
    axes = prop_def(IntsAttr)
    keepdims = prop_def(BoolAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, *, axes: Sequence[int], keepdims: bool) -> None:
        super().__init__([x], {"axes": axes, "keepdims": bool(keepdims)})

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(self.ELEMENTS, self.x)
        shape = shape_of(self.x)
        self.check_axes(self.axes.data, len(shape))
        return (tensor_type(element, shapes.reduced(shape, self.axes.data, flag(self.keepdims))),)

    @property
    def kept_shape(self) -> shapes.Shape:
        """The shape of the result with `keepdims`: it broadcasts against `x`."""
        return shapes.reduced(shape_of(self.x), self.axes.data, True)

    def kept(self, value: Operand) -> Operand:
        """Reshapes a value of the result's shape to `kept_shape`."""
        return reshaped(value, self.kept_shape)

    def nothing(self) -> TypeMismatchError:
        """The error of a function without an identity that reduces no elements."""
        return self.fail(
            f"has no value along axes {list(self.axes)} of a tensor of shape "
            f"{shapes.text(shape_of(self.x))}",
            "there must be at least one element to reduce",
        )

    def reduces_nothing(self) -> bool:
        """Whether the result has elements, each of them reduced from none."""
        shape = shape_of(self.x)
        return 0 in (shape[axis] for axis in self.axes) and 0 not in shapes.reduced(
            shape, self.axes.data, False
        )


@operation
class ReduceSumOp(AxesReduction):
    """The sum along `axes`; 0 for no elements. ONNX ReduceSum."""

    name = "graphcore.reduce_sum"
    SCALAR: ClassVar[str] = "add"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        keep = flag(self.keepdims)
        return (precisely(lambda a: np.sum(a, axis=self.axes.data, keepdims=keep), x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (BroadcastOp(self.kept(dy), shape=shape_of(self.x)),)


def broadcasts_to(before: Sequence[int], after: Sequence[int]) -> bool:
    """Whether NumPy's rule broadcasts shape `before` to exactly `after`."""
    if len(before) > len(after) or min(after, default=0) < 0:
        return False
    aligned = zip(before, after[len(after) - len(before) :], strict=True)
    return all(old in (1, new) for old, new in aligned)


def reshaped(value: Operand, shape: Sequence[int]) -> Operand:
    """`value` with shape `shape`; unchanged if it has that shape."""
    return value if shape_of(value) == tuple(shape) else ReshapeOp(value, shape=shape)


def sum_to(value: Operand, shape: Sequence[int]) -> Operand:
    """The gradient of an operand of `shape` that was broadcast to the shape of `value`."""
    wide = shape_of(value)
    new = len(wide) - len(shape)
    stretched = (new + axis for axis, dim in enumerate(shape) if dim == 1 != wide[new + axis])
    axes = [*range(new), *stretched]
    if axes:
        value = ReduceSumOp(value, axes=axes, keepdims=False)
    return reshaped(value, shape)


def scalar(number: float, like: Operand) -> ConstantOp:
    """A scalar constant of the element type of `like`; elementwise operations broadcast it."""
    return ConstantOp(DataAttr.of(as_array(number, dtype_of(like))))


def along(value: Operand, axis: int, rank: int) -> Operand:
    """A vector reshaped to broadcast along `axis` of a tensor of rank `rank`."""
    (size,) = shape_of(value)
    return reshaped(value, [size if at == axis else 1 for at in range(rank)])


def same_type(value: Operand) -> tuple[Tensor, ...]:
    """The result types of a function with one result of its operand's type."""
    type_ = tensor_of(value)
    return (tensor_type(type_.element_type, type_.get_shape()),)
