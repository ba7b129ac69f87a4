"""Inverse sine and cosine, hyperbolic functions and their inverses."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore.arithmetic import (
    AddOp,
    DivOp,
    MaxOp,
    MinOp,
    MulOp,
    NegOp,
    SubOp,
    WhereOp,
)
from popgraph.dialects.graphcore.base import (
    FLOATS,
    Array,
    Binary,
    Elements,
    Operand,
    operation,
    precisely,
    shape_of,
)
from popgraph.dialects.graphcore.broadcasting import scalar, sum_to
from popgraph.dialects.graphcore.functions import AbsOp, FloatUnary, SqrtOp
from popgraph.dialects.graphcore.logic import CompareOp


def _one_minus_square(x: SSAValue) -> Operand:
    """1 - x^2 as (1 - x)(1 + x): x^2 would round away the difference where x is near 1."""
    one = scalar(1, x)
    return MulOp(SubOp(one, x), AddOp(one, x))


@operation
class AsinOp(FloatUnary):
    """The inverse sine, in [-pi/2, pi/2]; NaN outside [-1, 1]. ONNX Asin."""

    name = "graphcore.asin"
    ONNX: ClassVar[str] = "Asin"
    SCALAR: ClassVar[str] = "asin"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.arcsin, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (DivOp(dy, SqrtOp(_one_minus_square(self.x))),)


@operation
class AcosOp(FloatUnary):
    """The inverse cosine, in [0, pi]; NaN outside [-1, 1]. ONNX Acos."""

    name = "graphcore.acos"
    ONNX: ClassVar[str] = "Acos"
    SCALAR: ClassVar[str] = "acos"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.arccos, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (NegOp(DivOp(dy, SqrtOp(_one_minus_square(self.x)))),)


@operation
class Atan2Op(Binary):
    """The angle of the point (x = rhs, y = lhs) seen from the origin. PopART atan2."""

    name = "graphcore.atan2"
    ONNX: ClassVar[str] = "ai.graphcore.Atan2"
    SCALAR: ClassVar[str] = "atan2"
    ELEMENTS: ClassVar[Elements] = FLOATS

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (precisely(np.arctan2, lhs, rhs),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        """dy (rhs, -lhs) / (lhs^2 + rhs^2), scaled so that no square overflows; 0 at the origin."""
        zero, one = scalar(0, dy), scalar(1, dy)
        larger = MaxOp(AbsOp(self.lhs), AbsOp(self.rhs))
        somewhere = WhereOp(CompareOp(larger, zero, "eq"), one, larger).result
        up, along = DivOp(self.lhs, somewhere), DivOp(self.rhs, somewhere)
        squares = AddOp(MulOp(up, up), MulOp(along, along))
        nowhere = CompareOp(squares, zero, "eq")
        length = WhereOp(nowhere, one, squares).result
        rising, falling = (DivOp(DivOp(part, length), somewhere) for part in (along, up))
        return (
            sum_to(MulOp(dy, rising), shape_of(self.lhs)),
            sum_to(NegOp(MulOp(dy, falling)), shape_of(self.rhs)),
        )


@operation
class SinhOp(FloatUnary):
    """(e^x - e^-x) / 2. ONNX Sinh."""

    name = "graphcore.sinh"
    ONNX: ClassVar[str] = "Sinh"
    SCALAR: ClassVar[str] = "sinh"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.sinh, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (MulOp(dy, CoshOp(self.x)),)


@operation
class CoshOp(FloatUnary):
    """(e^x + e^-x) / 2. ONNX Cosh."""

    name = "graphcore.cosh"
    ONNX: ClassVar[str] = "Cosh"
    SCALAR: ClassVar[str] = "cosh"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.cosh, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (MulOp(dy, SinhOp(self.x)),)


@operation
class AsinhOp(FloatUnary):
    """The inverse hyperbolic sine. ONNX Asinh."""

    name = "graphcore.asinh"
    ONNX: ClassVar[str] = "Asinh"
    SCALAR: ClassVar[str] = "asinh"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.arcsinh, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        """dy / sqrt(1 + x^2), with max(|x|, 1) factored out of the root: no square overflows."""
        one, size = scalar(1, dy), AbsOp(self.x)
        larger = MaxOp(size, one)
        ratio = DivOp(MinOp(size, one), larger)
        return (DivOp(DivOp(dy, larger), SqrtOp(AddOp(one, MulOp(ratio, ratio)))),)


@operation
class AcoshOp(FloatUnary):
    """The inverse hyperbolic cosine, from 0 up; NaN below 1. ONNX Acosh."""

    name = "graphcore.acosh"
    ONNX: ClassVar[str] = "Acosh"
    SCALAR: ClassVar[str] = "acosh"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.arccosh, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        """dy / sqrt(x^2 - 1) as dy / (sqrt(x - 1) sqrt(x + 1)): no square overflows."""
        one = scalar(1, dy)
        below, above = SqrtOp(SubOp(self.x, one)), SqrtOp(AddOp(self.x, one))
        return (DivOp(DivOp(dy, above), below),)


@operation
class AtanhOp(FloatUnary):
    """The inverse hyperbolic tangent; NaN outside [-1, 1]. ONNX Atanh."""

    name = "graphcore.atanh"
    ONNX: ClassVar[str] = "Atanh"
    SCALAR: ClassVar[str] = "atanh"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.arctanh, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (DivOp(dy, _one_minus_square(self.x)),)
