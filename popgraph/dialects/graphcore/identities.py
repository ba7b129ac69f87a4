"""Identities: `detach` stops gradients, `later` orders recomputation."""

from __future__ import annotations

from xdsl.dialects.builtin import TensorType
from xdsl.ir import SSAValue
from xdsl.irdl import operand_def, result_def

from popgraph.dialects.graphcore.base import (
    Array,
    Composite,
    Movement,
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


@operation
class LaterOp(Movement):
    """
    x, but not before `after` is computed: a barrier for recomputation.

    It keeps common subexpression elimination from merging recomputed values with the originals.
    """

    name = "graphcore.later"
    x = operand_def(TensorType)
    after = operand_def(TensorType)
    result = result_def(TensorType)

    def __init__(self, x: Operand, after: Operand) -> None:
        super().__init__([x, after])

    def infer(self) -> tuple[Tensor, ...]:
        return same_type(self.x)

    def evaluate(self, x: Array, after: Array) -> tuple[Array, ...]:
        return (x,)

    def gradient(self, dy: SSAValue) -> tuple[Operand | None, ...]:
        return (dy, None)
