"""Stochastic rounding to f16, which is right on average where rounding to nearest is not."""

from __future__ import annotations

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, TensorType, f16, f32, i32
from xdsl.irdl import operand_def, prop_def, result_def

from popgraph.dialects.graphcore.arithmetic import AddOp, DivOp, MulOp, WhereOp
from popgraph.dialects.graphcore.base import (
    FLOATS,
    Array,
    Composite,
    Operand,
    Tensor,
    integer,
    operation,
    shape_of,
)
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.dialects.graphcore.functions import AbsOp, BitcastOp, CastOp, FloorOp, SignOp
from popgraph.dialects.graphcore.logic import AndOp, CompareOp
from popgraph.dialects.graphcore.random import RandomUniformOp, check_state, uniform

DROPPED = 13
"""Low mantissa bits of f32 that f16 drops: 23 - 10."""
NORMAL, LEAST = 2.0**-14, 2.0**-24
"""The smallest normal f16, and the smallest subnormal."""
LARGEST = float(np.finfo(np.float32).max)


@operation
class RoundStochasticallyOp(Composite):
    """
    Rounds x to one of the two nearest f16 numbers: up with probability (x - lower) / spacing.

    So the mean of many roundings is x. The random bits are the first 13 of
    `random_uniform(state, stream)` in f32; they are added below the bits that f16 keeps. Values
    beyond the largest f16 become infinite with the same probability. f64 operands are first
    converted to f32.
    """

    name = "graphcore.round_stochastically"
    x = operand_def(TensorType)
    state = operand_def(TensorType)
    stream = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, state: Operand, *, stream: int) -> None:
        super().__init__([x, state], {"stream": stream})

    def infer(self) -> tuple[Tensor, ...]:
        self.common_element(FLOATS, self.x)
        check_state(self, self.state)
        return (TensorType(f16, shape_of(self.x)),)

    def evaluate(self, x: Array, state: Array) -> tuple[Array, ...]:
        random = uniform(state, integer(self.stream), x.shape, f32)
        added = np.floor(random * np.float32(2**DROPPED)).astype(np.int32)
        with np.errstate(all="ignore"):
            x = x.astype(np.float32)
            kept = (x.view(np.int32) + added) & np.int32(-(2**DROPPED))
            small = np.floor(np.abs(x) / np.float32(LEAST) + random) * np.float32(LEAST)
            rounded = np.where(np.abs(x) < NORMAL, np.sign(x) * small, kept.view(np.float32))
            return (np.where(np.abs(x) <= LARGEST, rounded, x).astype(np.float16),)

    def expand(self) -> tuple[Operand, ...]:
        x = CastOp(self.x, to=f32)
        stream = integer(self.stream)
        random = RandomUniformOp(self.state, shape=shape_of(x), dtype=f32, stream=stream)
        added = CastOp(FloorOp(MulOp(random, scalar(2.0**DROPPED, random))), to=i32)
        bits = AddOp(BitcastOp(x, to=i32), added)
        # A carry out of the dropped bits rounds up, also into the exponent; the mask drops them.
        kept = BitcastOp(AndOp(bits, scalar(-(2**DROPPED), bits)), to=f32)
        size = AbsOp(x)
        steps = FloorOp(AddOp(DivOp(size, scalar(LEAST, x)), random))
        # Below the normal numbers f16 drops more bits: round in steps of its least subnormal.
        small = MulOp(SignOp(x), MulOp(steps, scalar(LEAST, x)))
        rounded = WhereOp(CompareOp(size, scalar(NORMAL, x), "lt"), small, kept)
        finite = CompareOp(size, scalar(LARGEST, x), "le")
        return (CastOp(WhereOp(finite, rounded, x), to=f16),)
