"""Pseudo-random numbers: functions of a seed, a step, a stream and the element's number alone."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, TensorType, f64, i64
from xdsl.ir import Attribute
from xdsl.irdl import operand_def, prop_def, result_def

from popgraph.dialects import element_types
from popgraph.dialects.graphcore.base import (
    Array,
    Elements,
    GraphcoreOp,
    Operand,
    Random,
    Tensor,
    integer,
    operation,
    tensor_of,
)
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.support import shapes
from popgraph.support.threefry import threefry

SEED = "randomSeed___fromHost"
"""The variable from which all random operations draw: the seed, and the steps taken with it."""

OWN_STREAMS = 2**32
"""Where the streams of nodes with a seed of their own begin: no other node counts so far."""

REPLICA_STREAMS = 2**40
"""From the streams of one replica to those of the next."""

ROUNDING_STREAMS = 2**56
"""Where the streams of roundings begin: behind those of all nodes and replicas."""

STATE = TensorType(i64, [2])
"""What random operations draw from: the seed, and how many steps were taken since it was set."""


def kept_bits(dtype: Attribute) -> int:
    """How many leading bits of a word make a number: all that the type holds exactly."""
    return 53 if dtype == f64 else 24


def uniform(state: Array, stream: int, shape: shapes.Shape, dtype: Attribute) -> Array:
    """
    The numbers of `RandomUniformOp`.

    The seed is the key to the steps; what it makes of this step is the key to the streams, and
    so on to the elements: no sum of two of them, so that no sequence is another one moved.
    """
    key, step = np.asarray(state)
    for counter in (step, np.asarray(stream), np.arange(shapes.prod(shape))):
        key = threefry(key, counter)
    bits = kept_bits(dtype)
    word = key << np.uint64(32) | key >> np.uint64(32)
    number = (word >> np.uint64(64 - bits)).astype(np.float64) / 2.0**bits
    return np.asarray(number.reshape(shape).astype(element_types.from_ir(dtype).numpy))


def check_state(op: GraphcoreOp, state: Operand) -> None:
    """The operand that is drawn from holds a seed and a step."""
    if tensor_of(state) != STATE:
        raise op.fail(f"needs a seed and a step, {STATE}, to draw from, not {tensor_of(state)}")


@operation
class RandomUniformOp(Random):
    """
    Numbers in [0, 1), evenly distributed: element i is the leading bits of its random words.

    `drawn(seed, step, stream, i)` by Threefry; `state` holds the seed and the step. The top 24
    bits of the first word (f64: 53 bits of both), divided by 2^24 (2^53), so the numbers are
    exact and the same wherever they are computed. Elements are numbered in row-major order.
    """

    name = "graphcore.random_uniform"
    state = operand_def(TensorType)
    shape = prop_def(IntsAttr)
    dtype = prop_def(Attribute)
    stream = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def __init__(
        self, state: Operand, *, shape: Sequence[int], dtype: Attribute, stream: int
    ) -> None:
        super().__init__([state], {"shape": shape, "dtype": dtype, "stream": stream})

    def infer(self) -> tuple[Tensor, ...]:
        check_state(self, self.state)
        element = self.made_element(Elements("f32 or f64", frozenset({"f32", "f64"})), self.dtype)
        return (TensorType(element, self.shape.data),)

    def evaluate(self, state: Array) -> tuple[Array, ...]:
        return (uniform(state, integer(self.stream), self.shape.data, self.dtype),)
