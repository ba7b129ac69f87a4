"""Quantization of floats to integers or floats of at most eight bits, and dequantization."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
from xdsl.dialects.builtin import IntegerAttr, TensorType, f32, f64, i32
from xdsl.ir import Attribute, SSAValue
from xdsl.irdl import operand_def, opt_prop_def, prop_def, result_def

from popgraph.dialects import element_types
from popgraph.dialects.graphcore.arithmetic import AddOp, DivOp, MaxOp, MinOp, MulOp, SubOp, WhereOp
from popgraph.dialects.graphcore.base import (
    FLOATS,
    REAL,
    Array,
    Composite,
    Operand,
    Tensor,
    integer,
    operation,
    precisely,
    shape_of,
    tensor_of,
)
from popgraph.dialects.graphcore.broadcasting import broadcasts_to, scalar
from popgraph.dialects.graphcore.functions import CastOp, RoundOp
from popgraph.dialects.graphcore.logic import CompareOp
from popgraph.dialects.program import ConstantOp, DataAttr
from popgraph.dialects.program.interned import tensor_type
from popgraph.support import shapes
from popgraph.support.casts import cast
from popgraph.support.dtypes import DType

MOST_EXACT = 2**22
"""Integers up to this, and sums and differences of two of them, are exact in f32 (24 bits)."""

SMALLEST_SCALE = 2.0**-100
"""A range of 0 gets the scale 1, and a tiny one this scale: the scale must be a normal f32."""


class Quantization(Composite):
    """A function of x, a scale and a zero point; the latter two broadcast to x."""

    x = operand_def(TensorType)
    scale = operand_def(TensorType)
    zero = operand_def(TensorType)
    to = prop_def(Attribute)

    def check_shapes(self) -> None:
        """Checks that the scale and the zero point broadcast to x."""
        for value in (self.scale, self.zero):
            if not broadcasts_to(shape_of(value), shape_of(self.x)):
                raise self.fail(
                    f"cannot broadcast a scale or zero point of {shapes.text(shape_of(value))} "
                    f"to {shapes.text(shape_of(self.x))}"
                )

    @property
    def target(self) -> DType:
        return element_types.from_ir(self.to)


@operation
class QuantizeOp(Quantization):
    """
    x / scale + zero, clamped to `low` and `high`. ONNX QuantizeLinear.

    If `to` is an integer type, or f32 for integers kept as floats, x / scale is first rounded, ties
    to even; NaN becomes `low`, and -0 becomes 0. Other results are floats of at most eight bits:
    NaN stays NaN, and without bounds nothing is clamped. A zero point of 0 keeps -0 in f8 types.
    """

    name = "graphcore.quantize"
    low = opt_prop_def(IntegerAttr)
    high = opt_prop_def(IntegerAttr)
    result = result_def(TensorType)

    def __init__(
        self,
        x: Operand,
        scale: Operand,
        zero: Operand,
        *,
        to: Attribute,
        low: int | None = None,
        high: int | None = None,
    ) -> None:
        super().__init__([x, scale, zero], {"to": to, "low": low, "high": high})

    @staticmethod
    def bounds_of(target: DType, *, saturates: bool = True) -> dict[str, int]:
        """The range of an integer type, or of a saturating f8 type."""
        if target.is_integer:
            ends = ml_dtypes.iinfo(target.numpy)
        elif saturates and target.name.startswith("f8"):
            ends = ml_dtypes.finfo(target.numpy)
        else:
            return {}
        return {"low": int(ends.min), "high": int(ends.max)}

    @property
    def options(self) -> dict[str, Any]:
        """The properties as keyword arguments of the constructor."""
        return {"to": self.to, "low": self.low, "high": self.high}

    @property
    def rounds(self) -> bool:
        """Whether the result holds integers, in an integer type or in f32."""
        return self.target.is_integer or self.to == f32

    @property
    def bounds(self) -> tuple[int, int] | None:
        if self.low is None or self.high is None:
            return None
        return integer(self.low), integer(self.high)

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(FLOATS, self.x, self.scale)
        self.common_element(REAL, self.zero)
        element = self.checked_element(REAL, self.to)
        if self.target.name in FLOATS.names and self.to != f32:
            raise self.fail(
                f"produces integers or floats of at most eight bits, not {self.target.name}"
            )
        if self.rounds and (self.bounds is None or max(map(abs, self.bounds)) > MOST_EXACT):
            raise self.fail(f"needs bounds of at most {MOST_EXACT:,} for integers")
        self.check_shapes()
        return (tensor_type(element, shape_of(self.x)),)

    @property
    def wide(self) -> Attribute:
        """The type in which the zero point is added."""
        is_double = tensor_of(self.x).element_type == f64
        return f64 if is_double and not self.rounds else f32

    def evaluate(self, x: Array, scale: Array, zero: Array) -> tuple[Array, ...]:
        wide = element_types.from_ir(self.wide).numpy
        ratio = precisely(np.divide, x, scale)
        if self.rounds:
            ratio = precisely(np.rint, ratio)
        with np.errstate(all="ignore"):
            value, added = cast(ratio, wide), cast(zero, wide)
            moved = value + added
            if self.keeps_zeros:
                moved = np.where(added == 0, value, moved)
            if self.bounds is not None:
                low, high = self.bounds
                least = np.where(np.isnan(moved), low if self.rounds else moved, moved)
                moved = np.clip(least, low, high)
            if self.rounds:
                moved = moved + wide.type(0)
            return (cast(np.asarray(moved, wide), self.target.numpy),)

    @property
    def keeps_zeros(self) -> bool:
        """Whether a zero point of 0 is skipped: adding it to -0 gives 0."""
        return self.target.name.startswith("f8")

    def expand(self) -> tuple[Operand, ...]:
        ratio = self.x if number_of(self.scale) == 1 else DivOp(self.x, self.scale)
        return (self._integers(ratio) if self.rounds else self._floats(ratio),)

    def _floats(self, ratio: Operand) -> Operand:
        value, added = in_type(ratio, self.wide), in_type(self.zero, self.wide)
        moved = AddOp(value, added).result
        if self.keeps_zeros:
            moved = WhereOp(CompareOp(added, scalar(0, added), "eq"), value, moved).result
        if self.bounds is not None:
            low, high = (scalar(bound, moved) for bound in self.bounds)
            moved = MinOp(MaxOp(moved, low), high).result
        return in_type(moved, self.to)

    def _integers(self, ratio: Operand) -> Operand:
        """
        Clamps before rounding; the bounds are integers, so the order does not change the result.

        The C printer then knows the range of the rounded value: one instruction converts it.
        """
        assert self.bounds is not None, "infer asks for the bounds of integers"
        zero, (low, high) = number_of(self.zero), self.bounds
        if zero is None:
            moved = AddOp(in_type(RoundOp(ratio), f32), in_type(self.zero, f32))
            return in_type(clipped(moved, low, high), self.to)
        value = ratio if tensor_of(ratio).element_type == f64 else in_type(ratio, f32)
        rounded = RoundOp(clipped(value, low - zero, high - zero))
        if self.to == f32:
            single = in_type(rounded, f32)
            return AddOp(single, scalar(zero, single)) if zero or low < 0 else single
        whole = in_type(rounded, i32)
        return in_type(AddOp(whole, scalar(zero, whole)) if zero else whole, self.to)


@operation
class DequantizeOp(Quantization):
    """(x - zero) * scale, computed in f32 and rounded once to `to`. ONNX DequantizeLinear."""

    name = "graphcore.dequantize"
    result = result_def(TensorType)

    def __init__(self, x: Operand, scale: Operand, zero: Operand, *, to: Attribute) -> None:
        super().__init__([x, scale, zero], {"to": to})

    def infer(self) -> tuple[Tensor, ...]:
        for value in self.operands:
            self.common_element(REAL, value)
        self.check_shapes()
        return (tensor_type(self.checked_element(FLOATS, self.to), shape_of(self.x)),)

    def evaluate(self, x: Array, scale: Array, zero: Array) -> tuple[Array, ...]:
        single = np.dtype(np.float32)
        with np.errstate(all="ignore"):
            value, factor, taken = (cast(one, single) for one in (x, scale, zero))
            return (cast(np.asarray((value - taken) * factor), self.target.numpy),)

    def expand(self) -> tuple[Operand, ...]:
        value = SubOp(in_type(self.x, f32), in_type(self.zero, f32))
        return (in_type(MulOp(value, in_type(self.scale, f32)), self.to),)


def in_type(value: Operand, to: Attribute) -> SSAValue:
    """The value converted to an element type; unchanged if it has it."""
    made = value if tensor_of(value).element_type == to else CastOp(value, to=to)
    return SSAValue.get(made)


def number_of(value: SSAValue) -> float | None:
    """The value of a scalar literal; None for any other value."""
    literal = value.owner.literal if isinstance(value.owner, ConstantOp) else None
    return float(literal.array) if isinstance(literal, DataAttr) and not shape_of(value) else None


def clipped(value: Operand, low: float, high: float) -> Operand:
    """The value clamped to [low, high]; NaN becomes low."""
    least = scalar(low, value)
    above = WhereOp(CompareOp(value, least, "gt"), value, least)
    return MinOp(above, scalar(high, value))
