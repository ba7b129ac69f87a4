"""Which operations ask questions? Comparison and the algebra of bools and bits; no gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
from xdsl.dialects.builtin import StringAttr, TensorType, i1
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def

from popgraph.dialects.graphcore.base import (
    BITS,
    FLOATS,
    ORDERED,
    Array,
    Binary,
    Elements,
    Elementwise,
    Operand,
    Unary,
)

PREDICATES: dict[str, Callable[[Array, Array], Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@irdl_op_definition
class CompareOp(Elementwise):
    """Whether `lhs predicate rhs`; with a NaN only `ne` holds. ONNX Equal, Less, Greater ..."""

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
            raise self.fail(f"knows no predicate {self.predicate.data!r}", f"one of {listed}")
        super().result_element()
        return i1

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        with np.errstate(invalid="ignore"):
            return (np.asarray(PREDICATES[self.predicate.data](lhs, rhs)),)


@irdl_op_definition
class AndOp(Binary):
    """Both, of bools; bit by bit, of integers. ONNX And, BitwiseAnd."""

    name = "graphcore.and"
    SCALAR: ClassVar[str] = "and"
    ELEMENTS: ClassVar[Elements] = BITS

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (np.asarray(np.bitwise_and(lhs, rhs)),)


@irdl_op_definition
class OrOp(Binary):
    """Either, of bools; bit by bit, of integers. ONNX Or, BitwiseOr."""

    name = "graphcore.or"
    SCALAR: ClassVar[str] = "or"
    ELEMENTS: ClassVar[Elements] = BITS

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (np.asarray(np.bitwise_or(lhs, rhs)),)


@irdl_op_definition
class XorOp(Binary):
    """One but not both, of bools; bit by bit, of integers. ONNX Xor, BitwiseXor."""

    name = "graphcore.xor"
    SCALAR: ClassVar[str] = "xor"
    ELEMENTS: ClassVar[Elements] = BITS

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (np.asarray(np.bitwise_xor(lhs, rhs)),)


@irdl_op_definition
class NotOp(Unary):
    """The other bool; all other bits, of integers. ONNX Not, BitwiseNot."""

    name = "graphcore.not"
    SCALAR: ClassVar[str] = "not"
    ELEMENTS: ClassVar[Elements] = BITS

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (np.asarray(np.bitwise_not(x)),)


@irdl_op_definition
class IsNanOp(Unary):
    """Whether the element is not a number. ONNX IsNaN."""

    name = "graphcore.is_nan"
    SCALAR: ClassVar[str] = "is_nan"
    ELEMENTS: ClassVar[Elements] = FLOATS

    def result_element(self) -> Attribute:
        super().result_element()
        return i1

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (np.asarray(np.isnan(x)),)
