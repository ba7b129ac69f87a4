"""Elementwise arithmetic: sums, products, powers, exponentials, extrema, selection."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import TensorType, i1
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import operand_def

from popgraph.dialects import element_types
from popgraph.dialects.graphcore.base import (
    ANY,
    FLOATS,
    ORDERED,
    Array,
    Binary,
    Elements,
    Elementwise,
    Operand,
    Unary,
    operation,
    precisely,
    shape_of,
    tensor_of,
)
from popgraph.dialects.graphcore.broadcasting import scalar, sum_to
from popgraph.dialects.graphcore.logic import AndOp, CompareOp


@operation
class NegOp(Unary):
    """-x. ONNX Neg."""

    name = "graphcore.neg"
    ONNX: ClassVar[str] = "Neg"
    SCALAR: ClassVar[str] = "neg"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.negative, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (NegOp(dy),)


@operation
class ExpOp(Unary):
    """e^x. ONNX Exp."""

    name = "graphcore.exp"
    ONNX: ClassVar[str] = "Exp"
    SCALAR: ClassVar[str] = "exp"
    ELEMENTS: ClassVar[Elements] = FLOATS

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.exp, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (MulOp(dy, self.result),)


@operation
class ExpNonpositiveOp(Unary):
    """e^x of x <= 0, with the bits of `exp` in fewer instructions; unspecified for x > 40."""

    name = "graphcore.exp_nonpositive"
    SCALAR: ClassVar[str] = "exp_nonpositive"
    ELEMENTS: ClassVar[Elements] = FLOATS

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.exp, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (MulOp(dy, self.result),)


@operation
class LogOp(Unary):
    """The natural logarithm. ONNX Log."""

    name = "graphcore.log"
    ONNX: ClassVar[str] = "Log"
    SCALAR: ClassVar[str] = "log"
    ELEMENTS: ClassVar[Elements] = FLOATS

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(np.log, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (DivOp(dy, self.x),)


@operation
class AddOp(Binary):
    """lhs + rhs. ONNX Add."""

    name = "graphcore.add"
    ONNX: ClassVar[str] = "Add Sum"
    SCALAR: ClassVar[str] = "add"

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (precisely(np.add, lhs, rhs),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (sum_to(dy, shape_of(self.lhs)), sum_to(dy, shape_of(self.rhs)))


@operation
class SubOp(Binary):
    """lhs - rhs. ONNX Sub."""

    name = "graphcore.sub"
    ONNX: ClassVar[str] = "Sub"
    SCALAR: ClassVar[str] = "sub"

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (precisely(np.subtract, lhs, rhs),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (sum_to(dy, shape_of(self.lhs)), sum_to(NegOp(dy), shape_of(self.rhs)))


@operation
class MulOp(Binary):
    """lhs * rhs. ONNX Mul."""

    name = "graphcore.mul"
    ONNX: ClassVar[str] = "Mul"
    SCALAR: ClassVar[str] = "mul"

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (precisely(np.multiply, lhs, rhs),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (
            sum_to(MulOp(dy, self.rhs), shape_of(self.lhs)),
            sum_to(MulOp(dy, self.lhs), shape_of(self.rhs)),
        )


def _divide(lhs: Array, rhs: Array) -> Array:
    if lhs.dtype.kind not in "iu":
        return np.asarray(np.divide(lhs, rhs))
    floor = np.floor_divide(lhs, rhs)
    inexact = (rhs != 0) & (np.multiply(floor, rhs) != lhs)
    return np.asarray(floor + (inexact & ((lhs < 0) != (rhs < 0))))


@operation
class DivOp(Binary):
    """
    lhs / rhs. ONNX Div.

    Integers truncate toward zero; x / 0 is 0, and the least integer divided by -1 is itself.
    """

    name = "graphcore.div"
    ONNX: ClassVar[str] = "Div"
    SCALAR: ClassVar[str] = "div"

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (precisely(_divide, lhs, rhs),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        # dy / rhs may be infinite where the result is 0.
        slope = NegOp(DivOp(self.result, self.rhs))
        return (
            sum_to(DivOp(dy, self.rhs), shape_of(self.lhs)),
            sum_to(MulOp(dy, slope), shape_of(self.rhs)),
        )


@operation
class RemOp(Binary):
    """
    lhs - trunc(lhs / rhs) * rhs: C's fmod, with the sign of lhs. ONNX Mod with fmod=1.

    Exact. The remainder of an integer division by zero is 0.
    """

    name = "graphcore.rem"
    SCALAR: ClassVar[str] = "rem"

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (precisely(np.fmod, lhs, rhs),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        times = DivOp(SubOp(self.lhs, self.result), self.rhs)
        return (
            sum_to(dy, shape_of(self.lhs)),
            sum_to(NegOp(MulOp(dy, times)), shape_of(self.rhs)),
        )


def _power(lhs: Array, rhs: Array) -> Array:
    if lhs.dtype.kind not in "iu":
        return np.asarray(np.power(lhs, rhs))
    sign = np.where(rhs % 2 == 0, np.ones_like(lhs), lhs)
    inverse = np.where((lhs == 1) | (lhs + 1 == 0), sign, np.zeros_like(lhs))
    return np.asarray(np.where(rhs < 0, inverse, np.power(lhs, np.maximum(rhs, 0))))


@operation
class PowOp(Binary):
    """lhs to the power rhs; integers wrap, and negative exponents truncate toward 0. ONNX Pow."""

    name = "graphcore.pow"
    SCALAR: ClassVar[str] = "pow"

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (precisely(_power, lhs, rhs),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        zero, one = scalar(0, self.lhs), scalar(1, self.lhs)
        slope: Operand = MulOp(self.rhs, PowOp(self.lhs, SubOp(self.rhs, one)))
        # The slope of x^0 is 0 even where x^-1 is infinite; that of 0^y (y >= 0) where log 0 is.
        slope = WhereOp(CompareOp(self.rhs, zero, "eq"), zero, slope)
        growth: Operand = MulOp(self.result, LogOp(self.lhs))
        flat = AndOp(CompareOp(self.lhs, zero, "eq"), CompareOp(self.rhs, zero, "ge"))
        growth = WhereOp(flat, zero, growth)
        return (
            sum_to(MulOp(dy, slope), shape_of(self.lhs)),
            sum_to(MulOp(dy, growth), shape_of(self.rhs)),
        )


class _Extremum(Binary):
    """The maximum or minimum; its gradient goes to the chosen operand, half to each if equal."""

    ELEMENTS: ClassVar[Elements] = ORDERED
    WINS: ClassVar[str]

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        equal = CompareOp(self.lhs, self.rhs, "eq")
        half = MulOp(dy, scalar(0.5, dy))

        def share(mine: SSAValue, other: SSAValue) -> Operand:
            whole = WhereOp(CompareOp(mine, other, self.WINS), dy, scalar(0, dy))
            return sum_to(WhereOp(equal, half, whole), shape_of(mine))

        return share(self.lhs, self.rhs), share(self.rhs, self.lhs)


@operation
class MaxOp(_Extremum):
    """max(lhs, rhs); NaN if either is. Equal operands get half of the gradient each. ONNX Max."""

    name = "graphcore.max"
    ONNX: ClassVar[str] = "Max"
    SCALAR: ClassVar[str] = "max"
    WINS: ClassVar[str] = "gt"

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (precisely(np.maximum, lhs, rhs),)


@operation
class MinOp(_Extremum):
    """min(lhs, rhs); NaN if either is. Equal operands get half of the gradient each. ONNX Min."""

    name = "graphcore.min"
    ONNX: ClassVar[str] = "Min"
    SCALAR: ClassVar[str] = "min"
    WINS: ClassVar[str] = "lt"

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (precisely(np.minimum, lhs, rhs),)


@operation
class FmaOp(Elementwise):
    """lhs * rhs + addend, rounded once."""

    name = "graphcore.fma"
    SCALAR: ClassVar[str] = "fma"
    ELEMENTS: ClassVar[Elements] = Elements("f32", frozenset({"f32"}))
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    addend = operand_def(TensorType)

    def __init__(self, lhs: Operand, rhs: Operand, addend: Operand) -> None:
        super().__init__([lhs, rhs, addend])

    def evaluate(self, lhs: Array, rhs: Array, addend: Array) -> tuple[Array, ...]:
        return (precisely(lambda a, b, c: a * b + c, lhs, rhs, addend),)


@operation
class WhereOp(Elementwise):
    """lhs where `condition` is true, else rhs. ONNX Where."""

    name = "graphcore.where"
    ONNX: ClassVar[str] = "Where"
    SCALAR: ClassVar[str] = "where"
    ELEMENTS: ClassVar[Elements] = ANY
    condition = operand_def(TensorType)
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)

    def __init__(self, condition: Operand, lhs: Operand, rhs: Operand) -> None:
        super().__init__([condition, lhs, rhs])

    def result_element(self) -> Attribute:
        element = tensor_of(self.condition).element_type
        if element != i1:
            raise self.fail(
                f"needs a bool condition, not {element_types.from_ir(element).name}",
                "compare it with zero first",
            )
        return self.common_element(self.ELEMENTS, self.lhs, self.rhs)

    def evaluate(self, condition: Array, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (np.asarray(np.where(condition, lhs, rhs)),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        zero = scalar(0, dy)
        return (
            None,
            sum_to(WhereOp(self.condition, dy, zero), shape_of(self.lhs)),
            sum_to(WhereOp(self.condition, zero, dy), shape_of(self.rhs)),
        )
