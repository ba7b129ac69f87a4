"""Softmax, log-softmax, and their gradients."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, prop_def, result_def

from popgraph.dialects.graphcore.arithmetic import (
    ExpNonpositiveOp,
    LogOp,
    MulOp,
    NegOp,
    SubOp,
    WhereOp,
)
from popgraph.dialects.graphcore.base import (
    FLOATS,
    Array,
    Composite,
    Operand,
    Tensor,
    integer,
    operation,
    precisely,
    shape_of,
)
from popgraph.dialects.graphcore.broadcasting import ReduceSumOp, same_type, scalar
from popgraph.dialects.graphcore.functions import ReciprocalOp
from popgraph.dialects.graphcore.logic import CompareOp, IsNanOp
from popgraph.dialects.graphcore.reductions import ReduceMaxOp
from popgraph.support import shapes


class _Normalised(Composite):
    """A function of x along one axis."""

    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, *, axis: int) -> None:
        super().__init__([x], {"axis": axis})

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(FLOATS, self.x)
        self.check_axes([integer(self.axis)], len(shape_of(self.x)))
        return same_type(self.x)

    def total(self, value: Operand) -> Operand:
        return ReduceSumOp(value, axes=[integer(self.axis)], keepdims=True)

    def shifted(self) -> Operand:
        """x - max(x): leaves the result unchanged and keeps exp from overflowing."""
        return SubOp(self.x, ReduceMaxOp(self.x, axes=[integer(self.axis)], keepdims=True))


@operation
class SoftmaxOp(_Normalised):
    """exp(x) / sum(exp(x)) along `axis`. ONNX Softmax."""

    name = "graphcore.softmax"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        def softmax(x: Array) -> Array:
            exponentials = np.exp(x - x.max(integer(self.axis), keepdims=True))
            return np.asarray(exponentials / exponentials.sum(integer(self.axis), keepdims=True))

        return (precisely(softmax, x) if x.size else x,)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (SoftmaxGradOp(self.result, dy, axis=integer(self.axis)),)

    def expand(self) -> tuple[Operand, ...]:
        if 0 in shape_of(self.x):
            return (self.x,)
        exponentials = ExpNonpositiveOp(self.shifted())
        # One division a row: the total is at least 1, so its reciprocal is a normal number.
        return (MulOp(exponentials, ReciprocalOp(self.total(exponentials))),)


@operation
class LogSoftmaxOp(_Normalised):
    """log(softmax(x)) along `axis`, accurate where softmax underflows. ONNX LogSoftmax."""

    name = "graphcore.log_softmax"

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        def log_softmax(x: Array) -> Array:
            shifted = x - x.max(integer(self.axis), keepdims=True)
            total = np.exp(shifted).sum(integer(self.axis), keepdims=True)
            return np.asarray(shifted - np.log(total))

        return (precisely(log_softmax, x) if x.size else x,)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (LogSoftmaxGradOp(self.result, dy, axis=integer(self.axis)),)

    def expand(self) -> tuple[Operand, ...]:
        if 0 in shape_of(self.x):
            return (self.x,)
        shifted = self.shifted()
        return (SubOp(shifted, LogOp(self.total(ExpNonpositiveOp(shifted)))),)


def times(value: Operand, slope: Operand) -> Operand:
    """value * slope; 0 where the slope is 0, even if the value is NaN or infinite."""
    zero = scalar(0, slope)
    return WhereOp(CompareOp(slope, zero, "eq"), zero, MulOp(value, slope))


def _times(value: Array, slope: Array) -> Array:
    """`times` of arrays."""
    return np.where(slope == 0, np.zeros((), slope.dtype), value * slope)


class _NormalisedGrad(Composite):
    """A gradient that uses only the result y, so that x can be freed."""

    y = operand_def(TensorType)
    dy = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def __init__(self, y: Operand, dy: Operand, *, axis: int) -> None:
        super().__init__([y, dy], {"axis": axis})

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(FLOATS, self.y, self.dy)
        y, dy = shape_of(self.y), shape_of(self.dy)
        self.check_axes([integer(self.axis)], len(y))
        if y != dy:
            raise self.fail(f"needs a gradient of shape {shapes.text(y)}, not {shapes.text(dy)}")
        return same_type(self.y)

    def total(self, value: Operand) -> Operand:
        return ReduceSumOp(value, axes=[integer(self.axis)], keepdims=True)


@operation
class SoftmaxGradOp(_NormalisedGrad):
    """
    The gradient of `softmax`: y * (dy - sum(y * dy)), where 0 times anything is 0.

    So a row of only -inf, whose result is NaN, gets gradient 0 if its dy is 0.
    """

    name = "graphcore.softmax_grad"

    def evaluate(self, y: Array, dy: Array) -> tuple[Array, ...]:
        def slope(y: Array, dy: Array) -> Array:
            mean = _times(y, dy).sum(integer(self.axis), keepdims=True)
            return _times(y, dy - mean)

        return (precisely(slope, y, dy),)

    def gradient(self, slope: SSAValue) -> tuple[Operand | None, ...]:
        # The Jacobian by dy, diag(y) - y y^T, is its own transpose. Linear in the slope, without a
        # comparison of it, for derivatives by the slope.
        mean = self.total(times(self.y, self.dy))
        by_y = SubOp(
            MulOp(slope, SubOp(self.dy, mean)),
            times(self.total(MulOp(self.y, slope)), self.dy),
        )
        return (by_y, SoftmaxGradOp(self.y, slope, axis=integer(self.axis)))

    def expand(self) -> tuple[Operand, ...]:
        mean = self.total(times(self.y, self.dy))
        return (times(self.y, SubOp(self.dy, mean)),)


@operation
class LogSoftmaxGradOp(_NormalisedGrad):
    """
    The gradient of `log_softmax`: dy - exp(y) * sum(dy), where 0 times anything is 0.

    As in `softmax_grad`, a row of only -inf gets gradient 0 if its dy is 0.
    """

    name = "graphcore.log_softmax_grad"

    def evaluate(self, y: Array, dy: Array) -> tuple[Array, ...]:
        def slope(y: Array, dy: Array) -> Array:
            return dy - _times(np.exp(y), dy.sum(integer(self.axis), keepdims=True))

        return (precisely(slope, y, dy),)

    def gradient(self, slope: SSAValue) -> tuple[Operand | None, ...]:
        # Linear in the slope, without a comparison of it, for derivatives by the slope. A row of
        # only -inf, whose result is NaN, counts as 0.
        e = ExpNonpositiveOp(self.y)
        mixed = MulOp(WhereOp(IsNanOp(e), scalar(0, e), e), slope)
        return (NegOp(MulOp(mixed, self.total(self.dy))), SubOp(slope, self.total(mixed)))

    def expand(self) -> tuple[Operand, ...]:
        return (SubOp(self.dy, times(ExpNonpositiveOp(self.y), self.total(self.dy))),)
