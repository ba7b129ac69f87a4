"""Layer normalization and local response normalization."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import FloatAttr, IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, opt_operand_def, prop_def, result_def

from popgraph.dialects.graphcore.arithmetic import AddOp, MulOp, PowOp, SubOp
from popgraph.dialects.graphcore.base import (
    FLOATS,
    Array,
    Composite,
    Operand,
    Tensor,
    integer,
    operation,
    precisely,
    precisely_each,
    shape_of,
)
from popgraph.dialects.graphcore.broadcasting import (
    BroadcastOp,
    broadcasts_to,
    same_type,
    scalar,
    sum_to,
)
from popgraph.dialects.graphcore.functions import ReciprocalOp, SqrtOp
from popgraph.dialects.graphcore.movement import PadOp, SliceOp
from popgraph.dialects.graphcore.reductions import ReduceMeanOp, divided
from popgraph.support import shapes
from popgraph.support.shapes import Shape


def inverse_deviation(variance: Operand, epsilon: float) -> Operand:
    """1 / sqrt(variance + epsilon)."""
    return ReciprocalOp(SqrtOp(AddOp(variance, scalar(epsilon, variance))))


def total(terms: list[Operand]) -> Operand | None:
    """The sum of the terms; None for an empty list."""
    result: Operand | None = None
    for term in terms:
        result = term if result is None else AddOp(result, term)
    return result


def stretched(value: Operand | None, shape: Shape) -> Operand | None:
    """`value` broadcast to `shape`; None stays None."""
    if value is None or shape_of(value) == shape:
        return value
    return BroadcastOp(value, shape=shape)


@operation
class LayerNormOp(Composite):
    """
    (x - mean) / sqrt(variance + epsilon) * scale + bias, over the axes from `axis` on.

    `mean` and `inverse_deviation` = 1 / sqrt(variance + epsilon) are results that keep these axes
    as 1. ONNX LayerNormalization.
    """

    name = "graphcore.layer_norm"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    bias = opt_operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    epsilon = prop_def(FloatAttr)
    result = result_def(TensorType)
    mean = result_def(TensorType)
    inverse_deviation = result_def(TensorType)

    def __init__(
        self, x: Operand, scale: Operand, bias: Operand | None, *, axis: int, epsilon: float
    ) -> None:
        super().__init__([x, scale, bias], {"axis": axis, "epsilon": float(epsilon)})

    @property
    def axes(self) -> list[int]:
        """The normalized axes."""
        return list(range(integer(self.axis), len(shape_of(self.x))))

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(FLOATS, *self.operands)
        shape = shape_of(self.x)
        self.check_axes([integer(self.axis)], len(shape))
        for operand in self.operands[1:]:
            if not broadcasts_to(shape_of(operand), shape):
                raise self.fail(
                    f"cannot broadcast a scale or bias of {shapes.text(shape_of(operand))} "
                    f"over {shapes.text(shape)}",
                    "give them the shape of the normalized axes",
                )
        if 0 in shape[integer(self.axis) :]:
            raise self.fail(
                f"needs at least one element to normalize, not shape {shapes.text(shape)}"
            )
        statistics = TensorType(element, shapes.reduced(shape, self.axes, True))
        return (*same_type(self.x), statistics, statistics)

    def evaluate(self, *arrays: Array) -> tuple[Array, ...]:
        def normalize(x: Array, scale: Array, bias: Array | None = None) -> tuple[Array, ...]:
            mean = x.mean(tuple(self.axes), keepdims=True)
            variance = ((x - mean) ** 2).mean(tuple(self.axes), keepdims=True)
            inverse = 1 / np.sqrt(variance + self.epsilon.value.data)
            y = (x - mean) * inverse * scale
            return y if bias is None else y + bias, mean, inverse

        return precisely_each(normalize, *arrays)

    def average(self, value: Operand) -> Operand:
        return ReduceMeanOp(value, axes=self.axes, keepdims=True)

    def gradient(
        self, dy: SSAValue | None, dmean: SSAValue | None, dinverse: SSAValue | None
    ) -> tuple[Operand | None, ...]:
        inverse = self.inverse_deviation
        normalized = MulOp(SubOp(self.x, self.mean), inverse)
        count = shapes.prod(shape_of(self.x)[axis] for axis in self.axes)
        terms: list[Operand] = []
        dscale: Operand | None = None
        if dy is not None:
            dscale = sum_to(MulOp(dy, normalized), shape_of(self.scale))
            slope = MulOp(dy, self.scale)
            along_x = MulOp(normalized, self.average(MulOp(slope, normalized)))
            centred = SubOp(SubOp(slope, self.average(slope)), along_x)
            terms.append(MulOp(inverse, centred))
        if dmean is not None:
            terms.append(divided(dmean, count))
        if dinverse is not None:
            slope = MulOp(divided(dinverse, count), MulOp(inverse, inverse))
            terms.append(MulOp(scalar(-1, self.x), MulOp(slope, normalized)))
        dx = stretched(total(terms), shape_of(self.x))
        if self.bias is None:
            return (dx, dscale)
        dbias = None if dy is None else sum_to(dy, shape_of(self.bias))
        return (dx, dscale, dbias)

    def expand(self) -> tuple[Operand, ...]:
        mean = self.average(self.x)
        centred = SubOp(self.x, mean)
        variance = self.average(MulOp(centred, centred))
        inverse = inverse_deviation(variance, self.epsilon.value.data)
        y: Operand = MulOp(MulOp(centred, inverse), self.scale)
        return (y if self.bias is None else AddOp(y, self.bias), mean, inverse)


_FEW = 16
"""Window widths up to this are summed term by term in one fused loop, O(width) per element."""


def _channels_of(value: Operand, start: int, count: int) -> Operand:
    """A slice of consecutive channels."""
    shape = list(shape_of(value))
    starts = [start if axis == 1 else 0 for axis in range(len(shape))]
    shape[1] = count
    return SliceOp(value, starts=starts, sizes=shape, steps=[1] * len(shape))


def _window_sums(value: Operand, width: int, count: int) -> Operand:
    """
    Sums over `width` channels, from each of the first `count`, in O(log width) per element.

    Sums over 1, 2, 4 ... channels are each built from two of the previous width. Those in the
    binary representation of `width` are added. Nothing is subtracted: infinities
    stay within their windows.
    """
    pieces: list[Operand] = []
    start, power = 0, 1
    while True:
        if width & power:
            pieces.append(_channels_of(value, start, count))
            start += power
        if start == width:
            break
        rest = shape_of(value)[1] - power
        value = AddOp(_channels_of(value, 0, rest), _channels_of(value, power, rest))
        power *= 2
    result = total(pieces)
    assert result is not None, "a window has at least one channel"
    return result


@operation
class LrnOp(Composite):
    """
    x / (bias + alpha / size * sum(x^2))^beta, with the sum over a window of `size` channels.

    The window starts (size - 1) // 2 channels earlier. ONNX LRN.
    """

    name = "graphcore.lrn"
    x = operand_def(TensorType)
    size = prop_def(IntegerAttr)
    alpha = prop_def(FloatAttr)
    beta = prop_def(FloatAttr)
    bias = prop_def(FloatAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, *, size: int, alpha: float, beta: float, bias: float) -> None:
        super().__init__(
            [x], {"size": size, "alpha": float(alpha), "beta": float(beta), "bias": float(bias)}
        )

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(FLOATS, self.x)
        if len(shape_of(self.x)) < 2:
            raise self.fail(
                f"needs batch and channels, not a tensor of {shapes.text(shape_of(self.x))}"
            )
        if integer(self.size) < 1:
            raise self.fail(f"cannot sum over {integer(self.size)} channels")
        return same_type(self.x)

    @property
    def ends(self) -> tuple[int, int]:
        """The numbers of neighbours on both sides, at most the number of other channels."""
        size, most = integer(self.size), max(shape_of(self.x)[1] - 1, 0)
        return min((size - 1) // 2, most), min(size // 2, most)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        def normalize(x: Array) -> Array:
            widths = [(0, 0)] * x.ndim
            widths[1] = self.ends
            squares = np.pad(x * x, widths)
            windows = np.lib.stride_tricks.sliding_window_view(squares, sum(self.ends) + 1, 1)
            mean = windows.sum(-1) / integer(self.size)
            base = self.bias.value.data + self.alpha.value.data * mean
            return np.asarray(x / base**self.beta.value.data)

        return (precisely(normalize, x),)

    def neighbours(self, value: Operand) -> Operand:
        """The sum over the window of each channel."""
        shape, zeros = shape_of(value), [0] * len(shape_of(value))
        low, high = self.ends
        ends = [[end if axis == 1 else 0 for axis in range(len(shape))] for end in (low, high)]
        padded = PadOp(value, low=ends[0], high=ends[1], interior=zeros, value=0.0)
        width, channels = low + high + 1, shape[1]
        if width > _FEW:
            return _window_sums(padded, width, channels)
        result = total([_channels_of(padded, start, channels) for start in range(width)])
        assert result is not None, "size is 1 or more"
        return result

    def expand(self) -> tuple[Operand, ...]:
        squares = self.neighbours(MulOp(self.x, self.x))
        share = scalar(self.alpha.value.data / integer(self.size), self.x)
        base = AddOp(MulOp(squares, share), scalar(self.bias.value.data, self.x))
        return (MulOp(self.x, PowOp(base, scalar(-self.beta.value.data, self.x))),)
