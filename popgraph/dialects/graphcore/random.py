"""Where do pseudo-random numbers come from? From a hash of seed, stream and element number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, TensorType, f64, i64
from xdsl.ir import Attribute
from xdsl.irdl import irdl_op_definition, operand_def, prop_def, result_def

from popgraph.dialects import element_types
from popgraph.dialects.graphcore.base import (
    Array,
    Elements,
    Operand,
    Random,
    Tensor,
    integer,
    tensor_of,
)
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.support import shapes

Word = TypeVar("Word")

GOLDEN = 0x9E3779B97F4A7C15
"""2^64 divided by the golden ratio: multiples of it are spread evenly over the 64-bit words."""


@dataclass(frozen=True)
class Words(Generic[Word]):
    """Arithmetic on 64-bit words, modulo 2^64, whatever stands for a word."""

    constant: Callable[[int], Word]
    """The word of a number from 0 to 2^64 - 1."""
    add: Callable[[Word, Word], Word]
    multiply: Callable[[Word, Word], Word]
    xor: Callable[[Word, Word], Word]
    shift_right: Callable[[Word, Word], Word]
    """Filling with zeros."""


def scramble(word: Word, words: Words[Word]) -> Word:
    """The finisher of SplitMix64: every bit of the result depends on every bit of `word`."""
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        word = words.xor(word, words.shift_right(word, words.constant(shift)))
        word = words.multiply(word, words.constant(factor))
    return words.xor(word, words.shift_right(word, words.constant(31)))


def mix(seed: Word, stream: int, index: Word, words: Words[Word]) -> Word:
    """
    The random word of one element: two rounds of SplitMix64 in counter form.

    `mix = scramble(scramble(seed + GOLDEN * stream) + GOLDEN * index)`, modulo 2^64. A seed or
    stream of its own starts a sequence of its own; element `index` is found without the others.
    """
    offset = words.constant(GOLDEN * stream % 2**64)
    start = scramble(words.add(seed, offset), words)
    step = words.multiply(index, words.constant(GOLDEN))
    return scramble(words.add(start, step), words)


def kept_bits(dtype: Attribute) -> int:
    """How many leading bits of a word make a number: all that the type holds exactly."""
    return 53 if dtype == f64 else 24


NUMPY_WORDS: Words[Any] = Words(np.uint64, np.add, np.multiply, np.bitwise_xor, np.right_shift)


def uniform(seed: Array, stream: int, shape: shapes.Shape, dtype: Attribute) -> Array:
    """The numbers of `RandomUniformOp`."""
    index = np.arange(shapes.prod(shape), dtype=np.uint64)
    bits = kept_bits(dtype)
    with np.errstate(over="ignore"):
        word = mix(np.asarray(seed).astype(np.uint64), stream, index, NUMPY_WORDS)
    number = (word >> np.uint64(64 - bits)).astype(np.float64) / 2.0**bits
    return np.asarray(number.reshape(shape).astype(element_types.from_ir(dtype).numpy))


@irdl_op_definition
class RandomUniformOp(Random):
    """
    Numbers in [0, 1), evenly distributed: element i is the leading bits of `mix(seed, stream, i)`.

    The top 24 bits (f64: 53) of the word, divided by 2^24 (2^53), so the numbers are exact and
    the same wherever they are computed. Elements are numbered in row-major order.
    """

    name = "graphcore.random_uniform"
    seed = operand_def(TensorType)
    shape = prop_def(IntsAttr)
    dtype = prop_def(Attribute)
    stream = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def __init__(
        self, seed: Operand, *, shape: Sequence[int], dtype: Attribute, stream: int
    ) -> None:
        super().__init__([seed], {"shape": shape, "dtype": dtype, "stream": stream})

    def infer(self) -> tuple[Tensor, ...]:
        if tensor_of(self.seed) != TensorType(i64, []):
            raise self.fail(f"needs an i64 scalar as its seed, not {tensor_of(self.seed)}")
        element = self.made_element(Elements("f32 or f64", frozenset({"f32", "f64"})), self.dtype)
        return (TensorType(element, self.shape.data),)

    def evaluate(self, seed: Array) -> tuple[Array, ...]:
        return (uniform(seed, integer(self.stream), self.shape.data, self.dtype),)
