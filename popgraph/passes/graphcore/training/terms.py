"""Terms of update rules: constants or graph values, combined by operators into operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.program import ConstantOp, WeightStore
from popgraph.support.dtypes import DType


@dataclass(frozen=True)
class Term:
    """
    An operand of a formula: a constant (a float), or a value that the program computes.

    Operators build graphcore operations under an implicit builder. Constants are folded:
    x + 0, x - 0, x * 1 and x * 0 build nothing.
    """

    value: SSAValue | float
    dtype: DType
    weights: WeightStore

    def _like(self, value: Operand | float) -> Term:
        held = value if isinstance(value, float) else SSAValue.get(value)
        return Term(held, self.dtype, self.weights)

    def known(self, number: float) -> Term:
        """A constant of the same element type."""
        return self._like(number)

    def _other(self, other: Number) -> Term:
        return other if isinstance(other, Term) else self._like(float(other))

    @property
    def operand(self) -> SSAValue:
        """The SSA value; a constant operation if the term is a float."""
        if isinstance(self.value, SSAValue):
            return self.value
        return ConstantOp(self.weights.attribute(np.array(self.value, self.dtype.numpy))).result

    def _is(self, number: float) -> bool:
        return isinstance(self.value, float) and self.value == number

    def __add__(self, other: Number) -> Term:
        other = self._other(other)
        if self._is(0) or other._is(0):
            return other if self._is(0) else self
        if isinstance(self.value, float) and isinstance(other.value, float):
            return self._like(self.value + other.value)
        return self._like(gc.AddOp(self.operand, other.operand))

    def __sub__(self, other: Number) -> Term:
        other = self._other(other)
        if other._is(0):
            return self
        if isinstance(self.value, float) and isinstance(other.value, float):
            return self._like(self.value - other.value)
        return self._like(gc.SubOp(self.operand, other.operand))

    def __rsub__(self, other: float) -> Term:
        return self._other(other) - self

    def __mul__(self, other: Number) -> Term:
        other = self._other(other)
        if self._is(0) or other._is(0):
            return self._like(0.0)
        if self._is(1) or other._is(1):
            return other if self._is(1) else self
        if isinstance(self.value, float) and isinstance(other.value, float):
            return self._like(self.value * other.value)
        return self._like(gc.MulOp(self.operand, other.operand))

    def __truediv__(self, other: Number) -> Term:
        other = self._other(other)
        if other._is(1):
            return self
        return self._like(gc.DivOp(self.operand, other.operand))

    def __pow__(self, other: Term) -> Term:
        return self._like(gc.PowOp(self.operand, other.operand))

    def sqrt(self) -> Term:
        return self._like(gc.SqrtOp(self.operand))

    def abs(self) -> Term:
        return self._like(gc.AbsOp(self.operand))

    def maximum(self, other: Number) -> Term:
        return self._like(gc.MaxOp(self.operand, self._other(other).operand))

    def minimum(self, other: Number) -> Term:
        return self._like(gc.MinOp(self.operand, self._other(other).operand))

    def sum(self) -> Term:
        axes = range(len(shape_of(self.operand)))
        return self._like(gc.ReduceSumOp(self.operand, axes=axes, keepdims=False)) if axes else self

    def equals(self, number: float) -> SSAValue:
        """Elementwise x == number, as booleans."""
        return gc.CompareOp(self.operand, self._other(number).operand, predicate="eq").result

    def less(self, number: float) -> SSAValue:
        """Elementwise x < number, as booleans."""
        return gc.CompareOp(self.operand, self._other(number).operand, predicate="lt").result

    def where(self, condition: SSAValue, other: Number) -> Term:
        """This term if the condition holds, else `other`."""
        return self._like(gc.WhereOp(condition, self.operand, self._other(other).operand))

    def cast(self, dtype: DType) -> Term:
        if isinstance(self.value, float) or dtype_of(self.value) == dtype:
            return Term(self.value, dtype, self.weights)
        return Term(
            gc.CastOp(self.value, to=element_types.to_ir(dtype)).result, dtype, self.weights
        )


Number: TypeAlias = Term | float
