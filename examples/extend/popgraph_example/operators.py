"""Two operators of the domain com.example: one by a function, one by a class."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
from xdsl.dialects.builtin import FloatAttr, TensorType
from xdsl.ir import Operation, SSAValue
from xdsl.irdl import operand_def, prop_def, result_def

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore import same_type, scalar
from popgraph.dialects.graphcore.base import FLOATS, Array, Operand, Tensor, precisely
from popgraph.extend import Composite, Node, add_operator, lowers


@lowers("SquaredRelu", domain="com.example")
def squared_relu(node: Node) -> Operation:
    """relu(x)^2, whose gradient follows from its operations."""
    positive = gc.ReluOp(node[0])
    return gc.MulOp(positive, positive)


@add_operator
class SoftsignScaledOp(Composite):
    """scale * x / (1 + |x|). com.example SoftsignScaled."""

    name = "example.softsign_scaled"
    ONNX: ClassVar[str] = "com.example.SoftsignScaled"
    x = operand_def(TensorType)
    scale = prop_def(FloatAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, *, scale: float = 1.0) -> None:
        super().__init__([x], {"scale": float(scale)})

    @property
    def factor(self) -> float:
        return self.scale.value.data

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(FLOATS, self.x)
        return same_type(self.x)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (precisely(lambda wide: self.factor * wide / (1 + np.abs(wide)), x),)

    def expand(self) -> tuple[Operand, ...]:
        below = gc.AddOp(gc.AbsOp(self.x), scalar(1.0, self.x))
        return (gc.DivOp(gc.MulOp(self.x, scalar(self.factor, self.x)), below),)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        """scale / (1 + |x|)^2, without the cancellation of the quotient rule."""
        below = gc.AddOp(gc.AbsOp(self.x), scalar(1.0, self.x))
        return (gc.DivOp(gc.MulOp(dy, scalar(self.factor, dy)), gc.MulOp(below, below)),)
