"""Max and average pooling, and their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypedDict, Unpack

import numpy as np
from xdsl.dialects.builtin import BoolAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, prop_def, result_def

from popgraph.dialects.graphcore.arithmetic import AddOp, WhereOp
from popgraph.dialects.graphcore.base import (
    FLOATS,
    NUMBERS,
    Array,
    Operand,
    Tensor,
    Window,
    flag,
    operation,
    precisely,
    shape_of,
)
from popgraph.dialects.graphcore.broadcasting import BroadcastOp, scalar
from popgraph.dialects.graphcore.geometry import Geometry
from popgraph.dialects.graphcore.logic import AndOp, CompareOp, NotOp, OrOp
from popgraph.dialects.graphcore.movement import PadOp, SliceOp
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.support import dtypes, shapes
from popgraph.support.shapes import Shape


class PoolOptions(TypedDict):
    """The properties that pools and their gradients share."""

    kernel: Sequence[int]
    strides: Sequence[int]
    dilations: Sequence[int]
    pads: Sequence[int]
    sizes: Sequence[int]


class Pool(Window):
    """
    A function of windows over the spatial axes of [batch, channels, space...].

    `pads` lists all low ends, then all high ends. `sizes` is the number of windows along each axis.
    A last window may reach beyond the padding (ceil mode), but each one holds an element.
    """

    kernel = prop_def(IntsAttr)
    strides = prop_def(IntsAttr)
    dilations = prop_def(IntsAttr)
    pads = prop_def(IntsAttr)
    sizes = prop_def(IntsAttr)
    result = result_def(TensorType)

    @property
    def geometry(self) -> Geometry:
        rank = len(self.kernel)
        low, high = self.pads.data[:rank], self.pads.data[rank:]
        return Geometry(self.kernel.data, self.strides.data, self.dilations.data, low, high)

    @property
    def options(self) -> PoolOptions:
        """The properties shared with the gradient."""
        return {
            "kernel": self.kernel.data,
            "strides": self.strides.data,
            "dilations": self.dilations.data,
            "pads": self.pads.data,
            "sizes": self.sizes.data,
        }

    def result_shape(self, x: Shape) -> Shape:
        """The shape of the result; TypeMismatchError if the windows do not fit."""
        rank = len(x) - 2
        if rank < 1:
            raise self.fail(
                f"needs batch, channels and space, not a tensor of shape {shapes.text(x)}"
            )
        lists = {"strides": self.strides, "dilations": self.dilations, "sizes": self.sizes}
        self.check_lengths(rank, kernel=self.kernel, **lists)
        self.check_lengths(2 * rank, pads=self.pads)
        if min(*self.kernel, *self.strides, *self.dilations) < 1 or min(self.pads) < 0:
            raise self.fail(
                "needs a kernel, strides and dilations of at least 1 and pads of at least 0"
            )
        if min(self.sizes) < 1 or self.geometry.counts(x[2:], self.sizes.data, False).min() < 1:
            raise self.fail(
                f"cannot place {shapes.text(self.sizes.data)} windows of "
                f"{shapes.text(self.kernel.data)} on {shapes.text(x[2:])}",
                "every window must hold at least one element; pad less or use fewer windows",
            )
        return (*x[:2], *self.sizes)

    def check_gradient(self, x: Shape, dy: Shape) -> None:
        expected = self.result_shape(x)
        if dy != expected:
            raise self.fail(
                f"needs a gradient of shape {shapes.text(expected)}, not {shapes.text(dy)}"
            )


def lowest(dtype: np.dtype[Any]) -> float:
    """The least value of a type: the initial value of a maximum."""
    if dtypes.from_numpy(dtype).is_float:
        return -np.inf
    return np.iinfo(dtype).min


@operation
class MaxPoolOp(Pool):
    """The maximum of each window; NaN if it holds one. ONNX MaxPool."""

    name = "graphcore.max_pool"
    x = operand_def(TensorType)

    def __init__(
        self,
        x: Operand,
        **options: Unpack[PoolOptions],
    ) -> None:
        super().__init__([x], options)

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(NUMBERS, self.x)
        return (TensorType(element, self.result_shape(shape_of(self.x))),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(self.largest, x),)

    def largest(self, x: Array) -> Array:
        sizes, rank = self.sizes.data, len(self.sizes)
        windows = self.geometry.view(self.geometry.padded(x, lowest(x.dtype), sizes), sizes)
        return np.asarray(np.max(windows, axis=tuple(range(-rank, 0))))

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (MaxPoolGradOp(self.x, dy, **self.options),)


@operation
class MaxPoolGradOp(Pool):
    """The gradient of `max_pool`: each dy goes to the first maximum of its window."""

    name = "graphcore.max_pool_grad"
    x = operand_def(TensorType)
    dy = operand_def(TensorType)

    def __init__(
        self,
        x: Operand,
        dy: Operand,
        **options: Unpack[PoolOptions],
    ) -> None:
        super().__init__([x, dy], options)

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(NUMBERS, self.x, self.dy)
        self.check_gradient(shape_of(self.x), shape_of(self.dy))
        return (TensorType(element, shape_of(self.x)),)

    def evaluate(self, x: Array, dy: Array) -> tuple[Array, ...]:
        return (precisely(self.scatter, x, dy),)

    def scatter(self, x: Array, dy: Array) -> Array:
        geometry, sizes = self.geometry, self.sizes.data
        padded = geometry.padded(x, lowest(x.dtype), sizes)
        windows = geometry.view(padded, sizes)
        real = geometry.view(geometry.padded(np.ones(x.shape, bool), False, sizes), sizes)
        best = np.max(windows, axis=tuple(range(-len(sizes), 0)), keepdims=True)
        # NaN equals nothing, itself included: `!=` finds it. `real` excludes padding.
        chosen = ((windows == best) | (windows != windows)) & real
        first = np.argmax(chosen.reshape(*dy.shape, -1), axis=-1)
        result = np.zeros(padded.shape, dy.dtype)
        for at, offset in enumerate(geometry.offsets()):
            result[geometry.places(offset, sizes)] += np.where(first == at, dy, 0)
        return result[geometry.inside(x.shape[2:])]

    def gradient(self, dx: SSAValue) -> tuple[Operand | None, ...]:
        """The gradient of dy: dx at the first maximum of each window. That of x is zero: None."""
        best = MaxPoolOp(self.x, **self.options)
        one, zero = scalar(1, self.x), scalar(0, dx)
        inside = BroadcastOp(one, shape=shape_of(self.x)).result
        found: Operand = BroadcastOp(zero, shape=shape_of(self.dy))
        free: Operand | None = None
        for offset in self.geometry.offsets():
            x, there, here = (self._at(value, offset) for value in (self.x, inside, dx))
            is_nan = NotOp(CompareOp(x, x, predicate="eq"))
            is_best = OrOp(CompareOp(x, best, predicate="eq"), is_nan)
            chosen = AndOp(is_best, CompareOp(there, one, predicate="eq"))
            chosen = chosen if free is None else AndOp(chosen, free)
            found = AddOp(found, WhereOp(chosen, here, zero))
            free = NotOp(chosen) if free is None else AndOp(free, NotOp(chosen))
        return (None, found)

    def _at(self, value: SSAValue, offset: Shape) -> Operand:
        """Element `offset` of every window; 0 in the padding."""
        geometry, sizes = self.geometry, self.sizes.data
        spatial = shape_of(value)[2:]
        ends = zip(spatial, geometry.low, geometry.high, geometry.reach(sizes), strict=True)
        after = [max(high, reach - low - size) for size, low, high, reach in ends]
        padded = PadOp(
            value,
            low=(0, 0, *geometry.low),
            high=(0, 0, *after),
            interior=[0] * (2 + len(spatial)),
            value=0.0,
        )
        starts = [at * step for at, step in zip(offset, geometry.dilations, strict=True)]
        return SliceOp(
            padded,
            starts=(0, 0, *starts),
            sizes=(*shape_of(value)[:2], *sizes),
            steps=(1, 1, *geometry.strides),
        )


@operation
class AveragePoolOp(Pool):
    """The mean of each window; padding counts as zeros if `include_pad`. ONNX AveragePool."""

    name = "graphcore.average_pool"
    x = operand_def(TensorType)
    include_pad = prop_def(BoolAttr)

    def __init__(
        self,
        x: Operand,
        *,
        include_pad: bool,
        **options: Unpack[PoolOptions],
    ) -> None:
        super().__init__([x], {**options, "include_pad": bool(include_pad)})

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(FLOATS, self.x)
        return (TensorType(element, self.result_shape(shape_of(self.x))),)

    @property
    def counts(self) -> Array:
        """The divisor of each window."""
        space = shape_of(self.x)[2:]
        return self.geometry.counts(space, self.sizes.data, flag(self.include_pad))

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(self.mean, x),)

    def mean(self, x: Array) -> Array:
        sizes, rank = self.sizes.data, len(self.sizes)
        windows = self.geometry.view(self.geometry.padded(x, 0, sizes), sizes)
        return np.asarray(np.sum(windows, axis=tuple(range(-rank, 0))) / self.counts)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        include = flag(self.include_pad)
        shape = shape_of(self.x)
        return (AveragePoolGradOp(dy, shape=shape, **self.options, include_pad=include),)


@operation
class AveragePoolGradOp(Pool):
    """The gradient of `average_pool` for x of `shape`: dy / count to each element of the window."""

    name = "graphcore.average_pool_grad"
    dy = operand_def(TensorType)
    include_pad = prop_def(BoolAttr)
    shape = prop_def(IntsAttr)

    def __init__(
        self,
        dy: Operand,
        *,
        shape: Sequence[int],
        include_pad: bool,
        **options: Unpack[PoolOptions],
    ) -> None:
        super().__init__([dy], {**options, "include_pad": bool(include_pad), "shape": shape})

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(FLOATS, self.dy)
        self.check_gradient(self.shape.data, shape_of(self.dy))
        return (TensorType(element, self.shape.data),)

    @property
    def counts(self) -> Array:
        """The divisor of each window."""
        space = self.shape.data[2:]
        return self.geometry.counts(space, self.sizes.data, flag(self.include_pad))

    def evaluate(self, dy: Array) -> tuple[Array, ...]:
        return (precisely(self.spread, dy),)

    def spread(self, dy: Array) -> Array:
        geometry, sizes, shape = self.geometry, self.sizes.data, self.shape.data
        share = dy / self.counts
        result = geometry.padded(np.zeros(shape, dy.dtype), 0, sizes)
        for offset in geometry.offsets():
            result[geometry.places(offset, sizes)] += share
        return result[geometry.inside(shape[2:])]

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (AveragePoolOp(dy, **self.options, include_pad=flag(self.include_pad)),)
