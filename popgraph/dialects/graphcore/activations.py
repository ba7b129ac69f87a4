"""Composite activations: GELU, leaky ReLU, dropout."""

from __future__ import annotations

import math

import numpy as np
from xdsl.dialects.builtin import BoolAttr, FloatAttr, IntegerAttr, TensorType, f32, i1
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, prop_def, result_def

from popgraph.dialects.graphcore.arithmetic import AddOp, MaxOp, MinOp, MulOp, WhereOp
from popgraph.dialects.graphcore.base import (
    FLOATS,
    Array,
    Composite,
    Operand,
    Tensor,
    flag,
    integer,
    operation,
    precisely,
    shape_of,
)
from popgraph.dialects.graphcore.broadcasting import same_type, scalar
from popgraph.dialects.graphcore.functions import ErfOp, SigmoidOp, erf, in_single
from popgraph.dialects.graphcore.logic import CompareOp
from popgraph.dialects.graphcore.random import RandomUniformOp, check_state, uniform

CUBIC = 0.044715
"""The cubic coefficient in the tanh approximation of GELU."""


@operation
class GeluOp(Composite):
    """
    x * P(X <= x) for a standard normal X. ONNX Gelu.

    `approximate` computes it by tanh: x / 2 * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))).
    Otherwise x / 2 * (1 + erf(x / sqrt(2))).
    """

    name = "graphcore.gelu"
    x = operand_def(TensorType)
    approximate = prop_def(BoolAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, *, approximate: bool) -> None:
        super().__init__([x], {"approximate": bool(approximate)})

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(FLOATS, self.x)
        return same_type(self.x)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        def gelu(x: Array) -> Array:
            if not flag(self.approximate):
                return np.asarray(x * 0.5 * (1 + erf(x / math.sqrt(2))))
            inner = np.clip(x, -ENDS, ENDS)
            twice = 2 * math.sqrt(2 / math.pi) * (inner + CUBIC * inner**3)
            return np.asarray(np.maximum(x, -ENDS) / (1 + np.exp(-twice)))

        return (precisely(gelu, x),)

    def expand(self) -> tuple[Operand, ...]:
        return (in_single(self.x, _by_sigmoid if flag(self.approximate) else _by_erf),)


def _by_erf(x: SSAValue) -> Operand:
    probability = ErfOp(MulOp(x, scalar(math.sqrt(0.5), x)))
    return MulOp(MulOp(x, scalar(0.5, x)), AddOp(probability, scalar(1, x)))


ENDS = 64
"""
Beyond this magnitude P(X <= x) is exactly 0 or 1, also in f64, with tanh as with erf.
"""


def _by_sigmoid(x: SSAValue) -> Operand:
    """
    x / (1 + e^-2z), equal to x (1 + tanh z) / 2, but without cancellation where tanh is near -1.

    Clamping to [-ENDS, ENDS] keeps the cube of x finite, and with it the terms of the gradient.
    """
    slope = 2 * math.sqrt(2 / math.pi)
    above = MaxOp(x, scalar(-ENDS, x)).result
    inner = MinOp(above, scalar(ENDS, x)).result
    square = MulOp(inner, inner)
    bend = AddOp(MulOp(square, scalar(CUBIC * slope, x)), scalar(slope, x))
    return MulOp(above, SigmoidOp(MulOp(inner, bend)))


@operation
class LeakyReluOp(Composite):
    """x where x > 0, else `alpha` * x; the gradient at 0 is alpha. ONNX LeakyRelu."""

    name = "graphcore.leaky_relu"
    x = operand_def(TensorType)
    alpha = prop_def(FloatAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, *, alpha: float) -> None:
        super().__init__([x], {"alpha": float(alpha)})

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(FLOATS, self.x)
        return same_type(self.x)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        alpha = self.alpha.value.data
        return (precisely(lambda a: np.where(a > 0, a, alpha * a), x),)

    def either(self, value: Operand) -> Operand:
        """`value` where x > 0, else alpha * `value`."""
        positive = CompareOp(self.x, scalar(0, self.x), "gt")
        return WhereOp(positive, value, MulOp(value, scalar(self.alpha.value.data, self.x)))

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (self.either(dy),)

    def expand(self) -> tuple[Operand, ...]:
        return (self.either(self.x),)


@operation
class DropoutOp(Composite):
    """
    Zeroes random elements of x with probability `ratio` and scales the others by 1 / (1 - ratio).

    `mask` is true where x is kept: where `random_uniform(state, stream)` in f32 is at least ratio.
    ONNX Dropout in training.
    """

    name = "graphcore.dropout"
    x = operand_def(TensorType)
    state = operand_def(TensorType)
    ratio = prop_def(FloatAttr)
    stream = prop_def(IntegerAttr)
    result = result_def(TensorType)
    mask = result_def(TensorType)

    def __init__(self, x: Operand, state: Operand, *, ratio: float, stream: int) -> None:
        super().__init__([x, state], {"ratio": float(ratio), "stream": stream})

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(FLOATS, self.x)
        check_state(self, self.state)
        if not 0 <= self.ratio.value.data < 1:
            raise self.fail(
                f"cannot drop a share of {self.ratio.value.data}. "
                "Please use a value in the interval [0,1)"
            )
        return (*same_type(self.x), TensorType(i1, shape_of(self.x)))

    @property
    def scale(self) -> float:
        return 1 / (1 - self.ratio.value.data)

    def evaluate(self, x: Array, state: Array) -> tuple[Array, ...]:
        random = uniform(state, integer(self.stream), x.shape, f32)
        mask = np.asarray(random >= np.float32(self.ratio.value.data))
        return (precisely(lambda a: np.where(mask, a * self.scale, 0), x), mask)

    def kept(self, value: Operand, mask: Operand) -> Operand:
        scaled = MulOp(value, scalar(self.scale, value))
        return WhereOp(mask, scaled, scalar(0, value))

    def gradient(self, dy: SSAValue | None, dmask: None = None) -> tuple[Operand | None, ...]:
        return (None if dy is None else self.kept(dy, self.mask), None)

    def expand(self) -> tuple[Operand, ...]:
        stream = integer(self.stream)
        random = RandomUniformOp(self.state, shape=shape_of(self.x), dtype=f32, stream=stream)
        mask = CompareOp(random, scalar(self.ratio.value.data, random), "ge")
        return (self.kept(self.x, mask), mask)
