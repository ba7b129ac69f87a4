"""Comparisons, boolean and bitwise operations, shifts; none is differentiable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import StringAttr, TensorType, i1
from xdsl.ir import Attribute
from xdsl.irdl import operand_def, prop_def

from popgraph.dialects.graphcore.base import (
    BITS,
    FLOATS,
    INTEGERS,
    ORDERED,
    Array,
    Binary,
    Elements,
    Elementwise,
    Operand,
    Unary,
    operation,
)

PREDICATES: dict[str, Callable[[Array, Array], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}
ORDERS = frozenset({"lt", "le", "gt", "ge"})
"""Ordering predicates: monotone in each operand, so the result changes at most once."""


@operation
class CompareOp(Elementwise):
    """`lhs predicate rhs`; with a NaN only `ne` is true. ONNX Equal, Less, Greater ..."""

    name = "graphcore.compare"
    SCALAR: ClassVar[str] = "compare"
    ELEMENTS: ClassVar[Elements] = ORDERED
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    predicate = prop_def(StringAttr)

    def __init__(self, lhs: Operand, rhs: Operand, predicate: str) -> None:
        super().__init__([lhs, rhs], {"predicate": predicate})

    def result_element(self) -> Attribute:
        if self.predicate.data not in PREDICATES:
            listed = ", ".join(PREDICATES)
            raise self.fail(
                f"does not support predicate {self.predicate.data!r}", f"use one of {listed}"
            )
        super().result_element()
        return i1

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        with np.errstate(invalid="ignore"):
            return (np.asarray(PREDICATES[self.predicate.data](lhs, rhs)),)


@operation
class AndOp(Binary):
    """Logical and of bools, bitwise and of integers. ONNX And, BitwiseAnd."""

    name = "graphcore.and"
    ONNX: ClassVar[str] = "And BitwiseAnd ai.graphcore.BitwiseAnd"
    SCALAR: ClassVar[str] = "and"
    ELEMENTS: ClassVar[Elements] = BITS

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (np.asarray(np.bitwise_and(lhs, rhs)),)


@operation
class OrOp(Binary):
    """Logical or of bools, bitwise or of integers. ONNX Or, BitwiseOr."""

    name = "graphcore.or"
    ONNX: ClassVar[str] = "Or BitwiseOr ai.graphcore.BitwiseOr"
    SCALAR: ClassVar[str] = "or"
    ELEMENTS: ClassVar[Elements] = BITS

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (np.asarray(np.bitwise_or(lhs, rhs)),)


@operation
class XorOp(Binary):
    """Exclusive or of bools, bitwise exclusive or of integers. ONNX Xor, BitwiseXor."""

    name = "graphcore.xor"
    ONNX: ClassVar[str] = "Xor BitwiseXor ai.graphcore.BitwiseXor"
    SCALAR: ClassVar[str] = "xor"
    ELEMENTS: ClassVar[Elements] = BITS

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (np.asarray(np.bitwise_xor(lhs, rhs)),)


@operation
class NotOp(Unary):
    """Logical not of bools, bitwise complement of integers. ONNX Not, BitwiseNot."""

    name = "graphcore.not"
    ONNX: ClassVar[str] = "Not BitwiseNot ai.graphcore.BitwiseNot"
    SCALAR: ClassVar[str] = "not"
    ELEMENTS: ClassVar[Elements] = BITS

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (np.asarray(np.bitwise_not(x)),)


SHIFTS: dict[str, Callable[[Array, Array], Any]] = {
    "left": np.left_shift,
    "right": np.right_shift,
}


@operation
class ShiftOp(Elementwise):
    """
    lhs shifted left or right by rhs bits. ONNX BitShift.

    A left shift fills with zeros; a right shift with the sign bit, or with zeros if unsigned.
    A shift by a negative number, or by at least the width, shifts out all bits.
    """

    name = "graphcore.shift"
    SCALAR: ClassVar[str] = "shift"
    ELEMENTS: ClassVar[Elements] = INTEGERS
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    direction = prop_def(StringAttr)

    def __init__(self, lhs: Operand, rhs: Operand, *, direction: str) -> None:
        super().__init__([lhs, rhs], {"direction": direction})

    def result_element(self) -> Attribute:
        if self.direction.data not in SHIFTS:
            raise self.fail(
                f"does not support direction {self.direction.data!r}", "use left or right"
            )
        return super().result_element()

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (np.asarray(SHIFTS[self.direction.data](lhs, rhs)),)


@operation
class IsNanOp(Unary):
    """Whether an element is NaN. ONNX IsNaN."""

    name = "graphcore.is_nan"
    ONNX: ClassVar[str] = "IsNaN"
    SCALAR: ClassVar[str] = "is_nan"
    ELEMENTS: ClassVar[Elements] = FLOATS

    def result_element(self) -> Attribute:
        super().result_element()
        return i1

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (np.asarray(np.isnan(x)),)
