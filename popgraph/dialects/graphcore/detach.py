"""Detach: the identity that stops gradients."""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, result_def

from popgraph.dialects.graphcore.base import (
    Array,
    Composite,
    Operand,
    Tensor,
    operation,
)
from popgraph.dialects.graphcore.broadcasting import same_type


@operation
class DetachOp(Composite):
    """x; no gradient flows through it. PopART detach."""

    name = "graphcore.detach"
    x = operand_def(TensorType)
    result = result_def(TensorType)

    def __init__(self, x: Operand) -> None:
        super().__init__([x])

    def infer(self) -> tuple[Tensor, ...]:
        return same_type(self.x)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        return (x,)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (None,)

    def expand(self) -> tuple[Operand, ...]:
        return (self.x,)
