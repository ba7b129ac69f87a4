"""Matmuls and convolutions of 32-bit words that pack several small numbers each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import ClassVar, Unpack

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, StringAttr, TensorType
from xdsl.irdl import operand_def, prop_def, result_def

from popgraph.dialects.element_types import words_accumulator
from popgraph.dialects.graphcore.base import (
    Array,
    Elements,
    GraphcoreOp,
    Operand,
    Tensor,
    integer,
    operation,
    shape_of,
)
from popgraph.dialects.graphcore.contractions import (
    Convolution,
    ConvolutionOptions,
    MatrixProduct,
)
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.program.interned import tensor_type
from popgraph.support import shapes
from popgraph.support.errors import TypeMismatchError
from popgraph.support.words import WORD as STORED
from popgraph.support.words import WORDS, WordFormat

__all__ = ["DotConvInputGradOp", "DotConvOp", "DotConvWeightGradOp", "DotMatMulOp", "PartsOp"]

WORD = Elements("i32", frozenset({"i32"}))


def _words(name: StringAttr) -> WordFormat:
    if name.data not in WORDS:
        raise TypeMismatchError(
            f"unknown packed words {name.data!r}", hint=f"use one of {', '.join(WORDS)}"
        )
    return WORDS[name.data]


def _sums(words: Tensor, name: StringAttr) -> Tensor:
    """The accumulator type of products of words."""
    return tensor_type(words_accumulator(_words(name).name), words.get_shape())


def _dots(
    product: Callable[[Array, Array], Array], lhs: Array, rhs: Array, name: StringAttr
) -> Array:
    """The sum of a contraction over the numbers at each position of the words."""
    words = _words(name)
    parts = [
        product(words.unpacked(lhs, words.lhs, place), words.unpacked(rhs, words.rhs, place))
        for place in range(words.count)
    ]
    return reduce(np.add, parts)


@operation
class DotMatMulOp(MatrixProduct):
    """Matmul of packed words: the product of two words is the dot product of their numbers."""

    name = "graphcore.dot_mat_mul"
    words = prop_def(StringAttr)
    ELEMENTS: ClassVar[Elements] = WORD

    def __init__(self, lhs: Operand, rhs: Operand, *, words: str) -> None:
        super().__init__([lhs, rhs], {"words": words})

    def infer(self) -> tuple[Tensor, ...]:
        (words,) = super().infer()
        return (_sums(words, self.words),)

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        return (_dots(np.matmul, lhs, rhs, self.words),)


@operation
class DotConvOp(Convolution):
    """Convolution of packed words: the product of two is the dot product of their numbers."""

    name = "graphcore.dot_conv"
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    words = prop_def(StringAttr)

    def __init__(
        self, x: Operand, w: Operand, *, words: str, **options: Unpack[ConvolutionOptions]
    ) -> None:
        super().__init__([x, w], {**options, "words": words})

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(WORD, self.x, self.w)
        words = tensor_type(element, self.result_shape(shape_of(self.x), shape_of(self.w)))
        return (_sums(words, self.words),)

    def evaluate(self, x: Array, w: Array) -> tuple[Array, ...]:
        return (_dots(self.convolve, x, w, self.words),)


@operation
class DotConvInputGradOp(Convolution):
    """The gradient of a convolution for x of `shape`; words hold neighbouring maps."""

    name = "graphcore.dot_conv_input_grad"
    dy = operand_def(TensorType)
    w = operand_def(TensorType)
    shape = prop_def(IntsAttr)
    words = prop_def(StringAttr)

    def __init__(
        self,
        dy: Operand,
        w: Operand,
        *,
        shape: Sequence[int],
        words: str,
        **options: Unpack[ConvolutionOptions],
    ) -> None:
        super().__init__([dy, w], {**options, "shape": shape, "words": words})

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(WORD, self.dy, self.w)
        self.check_gradient(self.shape.data, shape_of(self.w), shape_of(self.dy))
        return (_sums(tensor_type(element, self.shape.data), self.words),)

    def evaluate(self, dy: Array, w: Array) -> tuple[Array, ...]:
        return (_dots(lambda dy, w: self.spread(dy, w, self.shape.data), dy, w, self.words),)


@operation
class DotConvWeightGradOp(Convolution):
    """The gradient of a convolution for w of `shape`; words hold neighbouring samples."""

    name = "graphcore.dot_conv_weight_grad"
    x = operand_def(TensorType)
    dy = operand_def(TensorType)
    shape = prop_def(IntsAttr)
    words = prop_def(StringAttr)

    def __init__(
        self,
        x: Operand,
        dy: Operand,
        *,
        shape: Sequence[int],
        words: str,
        **options: Unpack[ConvolutionOptions],
    ) -> None:
        super().__init__([x, dy], {**options, "shape": shape, "words": words})

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(WORD, self.x, self.dy)
        self.check_gradient(shape_of(self.x), self.shape.data, shape_of(self.dy))
        return (_sums(tensor_type(element, self.shape.data), self.words),)

    def evaluate(self, x: Array, dy: Array) -> tuple[Array, ...]:
        return (_dots(lambda x, dy: self.correlate(x, dy, self.shape.data), x, dy, self.words),)


@operation
class PartsOp(GraphcoreOp):
    """
    Unpacks the small numbers of each word along `axis`, lowest bits first.

    `count` numbers of each word are consecutive: `(x >> i * bits) & mask` for i = 0, 1, ...
    """

    name = "graphcore.parts"
    x = operand_def(TensorType)
    axis = prop_def(IntegerAttr)
    count = prop_def(IntegerAttr)
    bits = prop_def(IntegerAttr)
    mask = prop_def(IntegerAttr)
    result = result_def(TensorType)

    def __init__(self, x: Operand, *, axis: int, count: int, bits: int, mask: int) -> None:
        super().__init__([x], {"axis": axis, "count": count, "bits": bits, "mask": mask})

    @property
    def shifts(self) -> list[int]:
        """The bit offset of each number in its word."""
        return [place * integer(self.bits) for place in range(integer(self.count))]

    def infer(self) -> tuple[Tensor, ...]:
        shape = list(shape_of(self.x))
        if not 0 <= integer(self.axis) < len(shape) or max(self.shifts) >= 8 * STORED.itemsize:
            raise TypeMismatchError(
                f"parts must lie within the 32 bits of {shapes.text(shape)} words"
            )
        shape[integer(self.axis)] *= integer(self.count)
        return (tensor_type(self.common_element(WORD, self.x), shape),)

    def evaluate(self, x: Array) -> tuple[Array, ...]:
        axis, mask = integer(self.axis), STORED.type(integer(self.mask))
        found = np.stack([(x >> shift) & mask for shift in self.shifts], axis + 1)
        return (found.reshape(shape_of(self.result)),)
