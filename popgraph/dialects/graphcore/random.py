"""Pseudo-random numbers: pure functions of seed, step, stream and element index."""

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
"""The state variable of all random operations: the seed and the number of steps since."""

OWN_STREAMS = 2**32
"""The first stream of nodes with a seed of their own; nodes without one are numbered below."""

REPLICA_STREAMS = 2**40
"""The distance between the streams of consecutive replicas."""

ROUNDING_STREAMS = 2**56
"""The first stream of stochastic roundings, above the streams of all nodes and replicas."""

STATE = TensorType(i64, [2])
"""The type of the state: the seed, and the number of steps since it was set."""


def kept_bits(dtype: Attribute) -> int:
    """The random bits of one number: the integers of this width are exact in the type."""
    return 53 if dtype == f64 else 24


def uniform(state: Array, stream: int, shape: shapes.Shape, dtype: Attribute) -> Array:
    """
    The numbers of `RandomUniformOp`.

    Keys are nested: threefry(threefry(threefry(seed, step), stream), element). Counters are not
    added up, so that no stream is a shifted copy of another one.
    """
    key, step = np.asarray(state)
    for counter in (step, np.asarray(stream), np.arange(shapes.prod(shape))):
        key = threefry(key, counter)
    bits = kept_bits(dtype)
    word = key << np.uint64(32) | key >> np.uint64(32)
    number = (word >> np.uint64(64 - bits)).astype(np.float64) / 2.0**bits
    return np.asarray(number.reshape(shape).astype(element_types.from_ir(dtype).numpy))


def check_state(op: GraphcoreOp, state: Operand) -> None:
    """Checks that the state operand is a seed and a step."""
    if tensor_of(state) != STATE:
        raise op.fail(f"needs a state of seed and step, {STATE}, not {tensor_of(state)}")


@operation
class RandomUniformOp(Random):
    """
    Uniform random numbers in [0, 1): element i is the leading bits of its random words.

    Threefry computes the words from seed, step, stream and i; `state` holds the seed and the step.
    The result is the top 24 bits of the first word / 2^24 (f64: 53 bits of both / 2^53): exact, so
    every backend computes the same numbers. Elements are numbered in row-major order.
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
        element = self.checked_element(
            Elements("f32 or f64", frozenset({"f32", "f64"})), self.dtype
        )
        return (TensorType(element, self.shape.data),)

    def evaluate(self, state: Array) -> tuple[Array, ...]:
        return (uniform(state, integer(self.stream), self.shape.data, self.dtype),)
