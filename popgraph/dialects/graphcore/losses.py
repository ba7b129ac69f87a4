"""Losses of one operand: L1 and identity."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import (
    FloatAttr,
    StringAttr,
    TensorType,
)
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, prop_def, result_def

from popgraph.dialects.graphcore.arithmetic import MulOp
from popgraph.dialects.graphcore.base import (
    FLOATS,
    Array,
    Composite,
    Operand,
    Tensor,
    operation,
    precisely,
    shape_of,
)
from popgraph.dialects.graphcore.broadcasting import (
    BroadcastOp,
    ReduceSumOp,
    scalar,
)
from popgraph.dialects.graphcore.functions import AbsOp, SignOp
from popgraph.dialects.graphcore.reductions import ReduceMeanOp, divided
from popgraph.support import shapes
from popgraph.support.shapes import Shape


class Loss(Composite):
    """One value per sample, reduced: "mean" (NaN without samples), "sum" or "none"."""

    reduction = prop_def(StringAttr)

    def reduced_shape(self, samples: Shape) -> Shape:
        if self.reduction.data not in ("mean", "sum", "none"):
            raise self.fail(
                f"does not support reduction {self.reduction.data!r}",
                'use one of "mean", "sum", "none"',
            )
        return samples if self.reduction.data == "none" else ()

    def reduce(self, value: Operand) -> Operand:
        axes = range(len(shape_of(value)))
        match self.reduction.data:
            case "mean":
                return ReduceMeanOp(value, axes=axes, keepdims=False)
            case "sum":
                return ReduceSumOp(value, axes=axes, keepdims=False)
        return value

    def reduced(self, value: Array) -> Array:
        """`reduce` of an array."""
        match self.reduction.data:
            case "mean":
                return np.asarray(value.sum() / value.size)
            case "sum":
                return np.asarray(value.sum())
        return value

    def distributed(self, dloss: Operand, samples: Shape) -> Operand:
        """The gradient with respect to each sample's loss."""
        if self.reduction.data == "mean":
            dloss = divided(dloss, shapes.prod(samples))
        return dloss


@operation
class IdentityLossOp(Loss):
    """x, averaged, summed or unchanged. PopART identityloss."""

    name = "graphcore.identity_loss"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def __init__(self, x: Operand, *, reduction: str) -> None:
        super().__init__([x], {"reduction": reduction})

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(FLOATS, self.x)
        return (TensorType(element, self.reduced_shape(shape_of(self.x))),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(self.reduced, x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        shape = shape_of(self.x)
        share = self.distributed(dy, shape)
        return (share if shape_of(share) == shape else BroadcastOp(share, shape=shape),)

    def expand(self) -> tuple[Operand, ...]:
        return (self.reduce(self.x),)


@operation
class L1LossOp(Loss):
    """scale * |x|, averaged, summed or unchanged; the gradient at 0 is 0. PopART l1loss."""

    name = "graphcore.l1_loss"
    x = operand_def(TensorType)
    scale = prop_def(FloatAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, *, scale: float, reduction: str) -> None:
        super().__init__([x], {"scale": float(scale), "reduction": reduction})

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(FLOATS, self.x)
        return (TensorType(element, self.reduced_shape(shape_of(self.x))),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        scale = self.scale.value.data
        return (precisely(lambda a: scale * self.reduced(np.abs(a)), x),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        share = self.distributed(MulOp(dy, scalar(self.scale.value.data, dy)), shape_of(self.x))
        return (MulOp(share, SignOp(self.x)),)

    def expand(self) -> tuple[Operand, ...]:
        return (MulOp(self.reduce(AbsOp(self.x)), scalar(self.scale.value.data, self.x)),)
