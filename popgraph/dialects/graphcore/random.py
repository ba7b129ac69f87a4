"""Pseudo-random numbers: functions of a seed, a step, a stream and the element's number alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeAlias, TypeVar

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

Word = TypeVar("Word")
Pair: TypeAlias = tuple[Word, Word]
"""A number of 64 bits as two words: the low one, the high one."""

SEED = "randomSeed___fromHost"
"""The variable from which all random operations draw: the seed, and the steps taken with it."""

OWN_STREAMS = 2**32
"""Where the streams of nodes with a seed of their own begin: no other node counts so far."""

REPLICA_STREAMS = 2**40
"""From the streams of one replica to those of the next."""

ROUNDING_STREAMS = 2**56
"""Where the streams of roundings begin: behind those of all nodes and replicas."""

ROTATIONS = (13, 15, 26, 6, 17, 29, 16, 24)
PARITY = 0x1BD11BDA
ROUNDS = 20

STATE = TensorType(i64, [2])
"""What random operations draw from: the seed, and how many steps were taken since it was set."""


@dataclass(frozen=True)
class Words(Generic[Word]):
    """Arithmetic on 32-bit words, modulo 2^32, whatever stands for a word."""

    constant: Callable[[int], Word]
    """The word of a number from 0 to 2^32 - 1."""
    add: Callable[[Word, Word], Word]
    xor: Callable[[Word, Word], Word]
    rotate: Callable[[Word, int], Word]
    """To the left, by a number of bits."""

    def pair(self, number: int) -> Pair[Word]:
        """A constant of 64 bits."""
        return self.constant(number % 2**32), self.constant(number // 2**32 % 2**32)


def threefry(key: Pair[Word], counter: Pair[Word], words: Words[Word]) -> Pair[Word]:
    """
    Threefry-2x32 with 20 rounds: for each key, a permutation of all pairs that looks random.

    Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3", 2011.
    """
    schedule = (*key, words.xor(words.xor(key[0], key[1]), words.constant(PARITY)))
    left, right = words.add(counter[0], schedule[0]), words.add(counter[1], schedule[1])
    for done in range(ROUNDS):
        left = words.add(left, right)
        right = words.xor(words.rotate(right, ROTATIONS[done % len(ROTATIONS)]), left)
        if done % 4 == 3:
            number = done // 4 + 1
            left = words.add(left, schedule[number % 3])
            right = words.add(right, schedule[(number + 1) % 3])
            right = words.add(right, words.constant(number))
    return left, right


def drawn(
    seed: Pair[Word], step: Pair[Word], stream: int, element: Pair[Word], words: Words[Word]
) -> Pair[Word]:
    """
    The random words of one element.

    The seed is the key to the steps; what it makes of this step is the key to the streams, and
    so on to the elements: no sum of two of them, so that no sequence is another one moved.
    """
    key = seed
    for counter in (step, words.pair(stream), element):
        key = threefry(key, counter, words)
    return key


def kept_bits(dtype: Attribute) -> int:
    """How many leading bits of a word make a number: all that the type holds exactly."""
    return 53 if dtype == f64 else 24


def _rotated(word: Any, bits: int) -> Any:
    return (word << np.uint32(bits)) | (word >> np.uint32(32 - bits))


NUMPY_WORDS: Words[Any] = Words(np.uint32, np.add, np.bitwise_xor, _rotated)


def _pair(number: Array) -> Pair[Any]:
    whole = number.astype(np.uint64)
    return whole.astype(np.uint32), (whole >> np.uint64(32)).astype(np.uint32)


def uniform(state: Array, stream: int, shape: shapes.Shape, dtype: Attribute) -> Array:
    """The numbers of `RandomUniformOp`."""
    seed, step = (_pair(each) for each in np.asarray(state))
    element = _pair(np.arange(shapes.prod(shape)))
    with np.errstate(over="ignore"):
        first, second = drawn(seed, step, stream, element, NUMPY_WORDS)
    word = first.astype(np.uint64) << np.uint64(32) | second
    bits = kept_bits(dtype)
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
