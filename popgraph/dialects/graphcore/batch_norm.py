"""Batch normalization, for inference and for training."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import FloatAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, prop_def, result_def

from popgraph.dialects.graphcore.arithmetic import AddOp, MulOp, SubOp
from popgraph.dialects.graphcore.base import (
    FLOATS,
    Array,
    Composite,
    Operand,
    Tensor,
    operation,
    precisely,
    precisely_each,
    shape_of,
)
from popgraph.dialects.graphcore.broadcasting import (
    ReduceSumOp,
    along,
    same_type,
    scalar,
)
from popgraph.dialects.graphcore.normalization import inverse_deviation, stretched, total
from popgraph.dialects.graphcore.reductions import ReduceMeanOp, divided
from popgraph.support import shapes


def factor_and_shift(
    scale: Array, bias: Array, mean: Array, variance: Array, epsilon: float
) -> tuple[Array, Array]:
    """The numbers f and b per channel with batch_norm(x) = x * f + b, in f64."""
    scale, bias, mean, variance = (
        each.astype(np.float64) for each in (scale, bias, mean, variance)
    )
    factor = scale / np.sqrt(variance + epsilon)
    return factor, bias - mean * factor


class _BatchNorm(Composite):
    """Normalization of [batch, channels, space...] with one mean and variance per channel."""

    def check_channels(self, *vectors: Operand) -> None:
        """Checks that each vector has one element per channel."""
        x = self.operands[0]
        if len(shape_of(x)) < 2:
            raise self.fail(f"needs batch and channels, not a tensor of {shapes.text(shape_of(x))}")
        for vector in vectors:
            if shape_of(vector) != shape_of(x)[1:2]:
                raise self.fail(
                    f"needs one number per channel, not {shapes.text(shape_of(vector))} "
                    f"for {shapes.text(shape_of(x))}"
                )

    def spread(self, vector: Operand) -> Operand:
        """A vector of channels, reshaped to broadcast against x."""
        return along(vector, 1, len(shape_of(self.operands[0])))


@operation
class BatchNormOp(_BatchNorm):
    """
    (x - mean) / sqrt(variance + epsilon) * scale + bias, per channel.

    ONNX BatchNormalization in inference.
    """

    name = "graphcore.batch_norm"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    bias = operand_def(TensorType)
    mean = operand_def(TensorType)
    variance = operand_def(TensorType)
    epsilon = prop_def(FloatAttr)
    result = result_def(TensorType)

    def __init__(
        self,
        x: Operand,
        scale: Operand,
        bias: Operand,
        mean: Operand,
        variance: Operand,
        *,
        epsilon: float,
    ) -> None:
        super().__init__([x, scale, bias, mean, variance], {"epsilon": float(epsilon)})

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(FLOATS, *self.operands)
        self.check_channels(*self.operands[1:])
        return same_type(self.x)

    def evaluate(self, x: Array, *vectors: Array) -> tuple[Array, ...]:
        def normalize(x: Array, *vectors: Array) -> Array:
            shape = [-1] + [1] * (x.ndim - 2)
            scale, bias, mean, variance = (vector.reshape(shape) for vector in vectors)
            deviation = np.sqrt(variance + self.epsilon.value.data)
            return np.asarray((x - mean) / deviation * scale + bias)

        return (precisely(normalize, x, *vectors),)

    def expand(self) -> tuple[Operand, ...]:
        # scale / sqrt(...) is per channel: each element costs one subtraction, product and sum.
        factor = MulOp(self.scale, inverse_deviation(self.variance, self.epsilon.value.data))
        centred = SubOp(self.x, self.spread(self.mean))
        return (AddOp(MulOp(centred, self.spread(factor)), self.spread(self.bias)),)


@operation
class BatchNormTrainOp(_BatchNorm):
    """
    `batch_norm` with the mean and variance of this batch, which are additional results.

    The variance is the population variance: divided by the number of elements per channel.
    ONNX BatchNormalization in training.
    """

    name = "graphcore.batch_norm_train"
    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    bias = operand_def(TensorType)
    epsilon = prop_def(FloatAttr)
    result = result_def(TensorType)
    mean = result_def(TensorType)
    variance = result_def(TensorType)

    def __init__(self, x: Operand, scale: Operand, bias: Operand, *, epsilon: float) -> None:
        super().__init__([x, scale, bias], {"epsilon": float(epsilon)})

    @property
    def axes(self) -> list[int]:
        """All axes except the channel axis."""
        return [0, *range(2, len(shape_of(self.x)))]

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(FLOATS, *self.operands)
        self.check_channels(self.scale, self.bias)
        shape = shape_of(self.x)
        if 0 in (shape[axis] for axis in self.axes):
            raise self.fail(
                f"needs at least one element per channel, not shape {shapes.text(shape)}"
            )
        statistics = TensorType(element, shape[1:2])
        return (*same_type(self.x), statistics, statistics)

    def evaluate(self, x: Array, scale: Array, bias: Array) -> tuple[Array, ...]:
        def normalize(x: Array, scale: Array, bias: Array) -> tuple[Array, ...]:
            axes, shape = tuple(self.axes), [-1] + [1] * (x.ndim - 2)
            mean = x.mean(axes)
            centred = x - mean.reshape(shape)
            variance = (centred**2).mean(axes)
            deviation = np.sqrt(variance + self.epsilon.value.data).reshape(shape)
            y = centred / deviation * scale.reshape(shape) + bias.reshape(shape)
            return y, mean, variance

        return precisely_each(normalize, x, scale, bias)

    def average(self, value: Operand) -> Operand:
        return ReduceMeanOp(value, axes=self.axes, keepdims=False)

    def summed(self, value: Operand) -> Operand:
        return ReduceSumOp(value, axes=self.axes, keepdims=False)

    def gradient(
        self, dy: SSAValue | None, dmean: SSAValue | None, dvariance: SSAValue | None
    ) -> tuple[Operand | None, ...]:
        centred = SubOp(self.x, self.spread(self.mean))
        count = shapes.prod(shape_of(self.x)[axis] for axis in self.axes)
        terms: list[Operand] = []
        dscale: Operand | None = None
        dbias: Operand | None = None
        if dy is not None:
            inverse = inverse_deviation(self.variance, self.epsilon.value.data)
            normalized = MulOp(centred, self.spread(inverse))
            dscale = self.summed(MulOp(dy, normalized))
            dbias = self.summed(dy)
            mean = self.spread(divided(dbias, count))
            along_x = MulOp(normalized, self.spread(divided(dscale, count)))
            factor = self.spread(MulOp(self.scale, inverse))
            terms.append(MulOp(factor, SubOp(SubOp(dy, mean), along_x)))
        if dvariance is not None:
            slope = divided(MulOp(dvariance, scalar(2, dvariance)), count)
            terms.append(MulOp(centred, self.spread(slope)))
        if dmean is not None:
            terms.append(self.spread(divided(dmean, count)))
        return (stretched(total(terms), shape_of(self.x)), dscale, dbias)

    def expand(self) -> tuple[Operand, ...]:
        # d(scale) would accumulate the rounding error of the first mean: centre twice.
        near = self.average(self.x)
        left = SubOp(self.x, self.spread(near))
        rest = self.average(left)
        mean = AddOp(near, rest)
        variance = SubOp(self.average(MulOp(left, left)), MulOp(rest, rest))
        centred = SubOp(self.x, self.spread(mean))
        factor = MulOp(self.scale, inverse_deviation(variance, self.epsilon.value.data))
        y = AddOp(MulOp(centred, self.spread(factor)), self.spread(self.bias))
        return (y, mean, variance)
