"""Elementwise functions: rounding, roots, trigonometry, sigmoids, casts."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import TensorType, f32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import operand_def, prop_def

from popgraph.dialects import element_types
from popgraph.dialects.graphcore.arithmetic import AddOp, DivOp, ExpOp, MulOp, NegOp, SubOp, WhereOp
from popgraph.dialects.graphcore.base import (
    FLOATS,
    REAL,
    Array,
    Elements,
    Elementwise,
    Operand,
    Unary,
    dtype_of,
    is_float,
    operation,
    precisely,
    shape_of,
    tensor_of,
)
from popgraph.dialects.graphcore.broadcasting import BroadcastOp, scalar
from popgraph.dialects.graphcore.logic import CompareOp
from popgraph.support import casts

erf = np.vectorize(math.erf, otypes=[np.float64])


class FloatUnary(Unary):
    """An elementwise function of floats."""

    ELEMENTS: ClassVar[Elements] = FLOATS


class Step(Unary):
    """A piecewise constant function: its gradient is zero."""

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (BroadcastOp(scalar(0, dy), shape=shape_of(self.x)),)


@operation
class SignOp(Step):
    """-1, 0 or 1; NaN for NaN. ONNX Sign."""

    name = "graphcore.sign"
    ONNX: ClassVar[str] = "Sign"
    SCALAR: ClassVar[str] = "sign"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.sign, x),)


@operation
class FloorOp(Step):
    """The largest integer <= x. ONNX Floor."""

    name = "graphcore.floor"
    ONNX: ClassVar[str] = "Floor"
    SCALAR: ClassVar[str] = "floor"
    ELEMENTS: ClassVar[Elements] = FLOATS

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.floor, x),)


@operation
class CeilOp(Step):
    """The smallest integer >= x. ONNX Ceil."""

    name = "graphcore.ceil"
    ONNX: ClassVar[str] = "Ceil"
    SCALAR: ClassVar[str] = "ceil"
    ELEMENTS: ClassVar[Elements] = FLOATS

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.ceil, x),)


@operation
class RoundOp(Step):
    """The nearest integer, ties to even. ONNX Round."""

    name = "graphcore.round"
    ONNX: ClassVar[str] = "Round ai.graphcore.Round ai.graphcore.NearbyInt"
    SCALAR: ClassVar[str] = "round"
    ELEMENTS: ClassVar[Elements] = FLOATS

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.rint, x),)


@operation
class AbsOp(Unary):
    """|x|; its gradient at 0 is 0. ONNX Abs."""

    name = "graphcore.abs"
    ONNX: ClassVar[str] = "Abs"
    SCALAR: ClassVar[str] = "abs"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.abs, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (MulOp(dy, SignOp(self.x)),)


@operation
class ReluOp(Unary):
    """max(x, 0); its gradient at 0 is 0. ONNX Relu."""

    name = "graphcore.relu"
    ONNX: ClassVar[str] = "Relu"
    SCALAR: ClassVar[str] = "relu"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(lambda a: np.where(a < 0, np.zeros_like(a), a), x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        # The result is positive exactly where x is, so x can be freed before the backward pass.
        zero = scalar(0, dy)
        return (WhereOp(CompareOp(self.result, zero, "gt"), dy, zero),)


@operation
class SqrtOp(FloatUnary):
    """The square root. ONNX Sqrt."""

    name = "graphcore.sqrt"
    ONNX: ClassVar[str] = "Sqrt"
    SCALAR: ClassVar[str] = "sqrt"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.sqrt, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (DivOp(MulOp(dy, scalar(0.5, dy)), self.result),)


@operation
class ReciprocalOp(FloatUnary):
    """1 / x. ONNX Reciprocal."""

    name = "graphcore.reciprocal"
    ONNX: ClassVar[str] = "Reciprocal"
    SCALAR: ClassVar[str] = "reciprocal"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(lambda a: 1 / a, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (NegOp(MulOp(dy, MulOp(self.result, self.result))),)


@operation
class Log1pOp(FloatUnary):
    """log(1 + x), accurate for small x. PopART log1p."""

    name = "graphcore.log1p"
    ONNX: ClassVar[str] = "ai.graphcore.Log1p"
    SCALAR: ClassVar[str] = "log1p"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.log1p, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (DivOp(dy, AddOp(scalar(1, dy), self.x)),)


@operation
class Expm1Op(FloatUnary):
    """e^x - 1, accurate for small x. PopART expm1."""

    name = "graphcore.expm1"
    ONNX: ClassVar[str] = "ai.graphcore.Expm1"
    SCALAR: ClassVar[str] = "expm1"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.expm1, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (MulOp(dy, AddOp(self.result, scalar(1, dy))),)


@operation
class SinOp(FloatUnary):
    """The sine. ONNX Sin."""

    name = "graphcore.sin"
    ONNX: ClassVar[str] = "Sin"
    SCALAR: ClassVar[str] = "sin"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.sin, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (MulOp(dy, CosOp(self.x)),)


@operation
class CosOp(FloatUnary):
    """The cosine. ONNX Cos."""

    name = "graphcore.cos"
    ONNX: ClassVar[str] = "Cos"
    SCALAR: ClassVar[str] = "cos"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.cos, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (NegOp(MulOp(dy, SinOp(self.x))),)


@operation
class TanOp(FloatUnary):
    """The tangent. ONNX Tan."""

    name = "graphcore.tan"
    ONNX: ClassVar[str] = "Tan"
    SCALAR: ClassVar[str] = "tan"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.tan, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        cosine = CosOp(self.x)
        return (DivOp(dy, MulOp(cosine, cosine)),)


@operation
class AtanOp(FloatUnary):
    """The inverse tangent, in [-pi/2, pi/2]. ONNX Atan."""

    name = "graphcore.atan"
    ONNX: ClassVar[str] = "Atan"
    SCALAR: ClassVar[str] = "atan"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.arctan, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (DivOp(dy, AddOp(scalar(1, dy), MulOp(self.x, self.x))),)


@operation
class ErfOp(FloatUnary):
    """The error function. ONNX Erf."""

    name = "graphcore.erf"
    ONNX: ClassVar[str] = "Erf"
    SCALAR: ClassVar[str] = "erf"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(erf, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        bell = ExpOp(NegOp(MulOp(self.x, self.x)))
        return (MulOp(dy, MulOp(bell, scalar(2 / math.sqrt(math.pi), dy))),)


@operation
class TanhOp(FloatUnary):
    """The hyperbolic tangent. ONNX Tanh."""

    name = "graphcore.tanh"
    ONNX: ClassVar[str] = "Tanh"
    SCALAR: ClassVar[str] = "tanh"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.tanh, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        # In terms of the result, so that x can be freed before the backward pass.
        square = MulOp(self.result, self.result)
        return (MulOp(dy, SubOp(scalar(1, dy), square)),)


@operation
class SigmoidOp(FloatUnary):
    """1 / (1 + e^-x). ONNX Sigmoid."""

    name = "graphcore.sigmoid"
    ONNX: ClassVar[str] = "Sigmoid"
    SCALAR: ClassVar[str] = "sigmoid"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(lambda a: 1 / (1 + np.exp(-a)), x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        # In terms of the result, so that x can be freed before the backward pass.
        slope = MulOp(self.result, SubOp(scalar(1, dy), self.result))
        return (MulOp(dy, slope),)


@operation
class CastOp(Elementwise):
    """
    Converts elements to another type. ONNX Cast.

    Floats round to nearest, ties to even. The bf16 type and floats of at most eight bits are
    converted from f32, whatever the operand type. Integers wrap: the low bits remain. Floats
    truncate toward zero, then wrap as integers do; infinities and NaN give 0. Any nonzero value
    is true.
    """

    name = "graphcore.cast"
    SCALAR: ClassVar[str] = "cast"
    x = operand_def(TensorType)
    to = prop_def(Attribute)

    def __init__(self, x: Operand, *, to: Attribute) -> None:
        super().__init__([x], {"to": to})

    def result_element(self) -> Attribute:
        self.common_element(REAL, self.x)
        return self.checked_element(REAL, self.to)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (casts.cast(x, element_types.from_ir(self.to).numpy),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (CastOp(dy, to=tensor_of(self.x).element_type) if is_float(self.x) else None,)


WITH_BITS = Elements("real", REAL.names - {"bool", "f6e2m3", "f6e3m2"})
"""Types whose bits can be reinterpreted; cast a bool first."""


@operation
class BitcastOp(Elementwise):
    """Reinterprets the bits of an element as another type of the same width. ONNX BitCast."""

    name = "graphcore.bitcast"
    SCALAR: ClassVar[str] = "bitcast"
    x = operand_def(TensorType)
    to = prop_def(Attribute)

    def __init__(self, x: Operand, *, to: Attribute) -> None:
        super().__init__([x], {"to": to})

    def result_element(self) -> Attribute:
        self.common_element(WITH_BITS, self.x)
        element = self.checked_element(WITH_BITS, self.to)
        source, target = dtype_of(self.x), element_types.from_ir(element)
        if source.bits != target.bits:
            raise self.fail(
                f"cannot reinterpret {source.bits} bits of {source.name} "
                f"as {target.bits} bits of {target.name}",
                "cast first to a type of the same width",
            )
        return element

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (x.view(element_types.from_ir(self.to).numpy),)


def in_single(x: SSAValue, function: Callable[[SSAValue], Operand]) -> Operand:
    """`function` of x, in f32 and rounded once if x is narrower."""
    if dtype_of(x).numpy.itemsize >= f32.size:
        return function(x)
    result = function(CastOp(x, to=f32).result)
    return CastOp(result, to=tensor_of(x).element_type)
