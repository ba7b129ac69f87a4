"""Matmuls and convolutions of 32-bit words that pack several small numbers each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import reduce
from typing import ClassVar, Unpack

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, StringAttr, TensorType
from xdsl.irdl import operand_def, opt_operand_def, prop_def, result_def

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
from popgraph.support.shapes import Shape
from popgraph.support.words import IN_PAIRS, WORDS, WordFormat, sum_pairs, word_of
from popgraph.support.words import WORD as STORED

__all__ = [
    "ConvInPairsOp",
    "DotConvInputGradOp",
    "DotConvOp",
    "DotConvWeightGradOp",
    "DotMatMulOp",
    "MatMulInPairsOp",
    "PartsOp",
]

WORD = Elements("i32", frozenset({"i32"}))


def _words(name: StringAttr) -> WordFormat:
    known = [each.name for each in WORDS.values() if not each.in_pairs]
    if name.data not in known:
        raise TypeMismatchError(
            f"unknown packed words {name.data!r}", hint=f"use one of {', '.join(known)}"
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


def _sums_of_pairs(
    product: Callable[[Array, Array], Array], lhs: Array, rhs: Array, offset: Array
) -> Array:
    """
    Sums of products of words over a few terms, in 16 bits.

    Sums of two neighbouring products must fit them.
    """
    halves = []
    for place in (0, 2):
        parts = [
            product(
                IN_PAIRS.unpacked(lhs, IN_PAIRS.lhs, at), IN_PAIRS.unpacked(rhs, IN_PAIRS.rhs, at)
            )
            for at in (place, place + 1)
        ]
        halves.append(parts[0] + parts[1])
    return np.asarray(sum_pairs(word_of(*halves), offset))


@operation
class MatMulInPairsOp(MatrixProduct):
    """
    Matmul of words of four bytes with a matrix, whose sums have 16 bits for `block` words.

    A word of `offset` [blocks, columns], if any, is added to the two sums of a block: of the
    products of the low and of the high bytes. y is the sum of all of them.
    """

    name = "graphcore.mat_mul_in_pairs"
    lhs = operand_def(TensorType)
    rhs = operand_def(TensorType)
    offset = opt_operand_def(TensorType)
    block = prop_def(IntegerAttr)
    ELEMENTS: ClassVar[Elements] = WORD

    def __init__(
        self, lhs: Operand, rhs: Operand, offset: Operand | None = None, *, block: int
    ) -> None:
        super().__init__([lhs, rhs, offset], {"block": block})

    def infer(self) -> tuple[Tensor, ...]:
        terms, columns = _matrix(self, self.rhs)
        blocks = _blocks(self, terms)
        if self.offset is not None:
            _check_offset(self, self.offset, (*blocks, columns))
        return super().infer()

    def evaluate(self, lhs: Array, rhs: Array, offset: Array | None = None) -> tuple[Array, ...]:
        block, (result,) = integer(self.block), self.infer()
        total = np.zeros(result.get_shape(), STORED)
        for at in range(0, len(rhs), block):
            terms = slice(at, at + block)
            added = np.zeros((), STORED) if offset is None else offset[at // block]
            own = np.broadcast_to(added, total.shape)
            total += _sums_of_pairs(np.matmul, lhs[..., terms], rhs[terms], own)
        return (total,)


@operation
class ConvInPairsOp(Convolution):
    """
    Convolution of words of four bytes, whose sums have 16 bits for `block` channels of words.

    A word of `offset` [kernel..., blocks, maps] is added to the two sums of a block and a position
    of the kernel: of the products of the low and of the high bytes. y is the sum of all of them.
    """

    name = "graphcore.conv_in_pairs"
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    offset = operand_def(TensorType)
    block = prop_def(IntegerAttr)

    def __init__(
        self,
        x: Operand,
        w: Operand,
        offset: Operand,
        *,
        block: int,
        **options: Unpack[ConvolutionOptions],
    ) -> None:
        super().__init__([x, w, offset], {**options, "block": block})

    def infer(self) -> tuple[Tensor, ...]:
        element = self.common_element(WORD, self.x, self.w)
        shape = self.result_shape(shape_of(self.x), shape_of(self.w))
        if integer(self.groups) != 1:
            raise self.fail("convolves without groups")
        maps, channels, *kernel = shape_of(self.w)
        _check_offset(self, self.offset, (*kernel, *_blocks(self, channels), maps))
        return (tensor_type(element, shape),)

    def evaluate(self, x: Array, w: Array, offset: Array) -> tuple[Array, ...]:
        block, (result,) = integer(self.block), self.infer()
        total = np.zeros(result.get_shape(), STORED)
        window = (1, -1, *(1,) * (w.ndim - 2))
        for at in range(0, w.shape[1], block):
            channels = slice(at, at + block)
            for position in np.ndindex(*w.shape[2:]):
                taken = (slice(None), channels, *position)
                alone = np.zeros_like(w[:, channels])
                alone[(slice(None), slice(None), *position)] = w[taken]
                own = offset[(*position, at // block)].reshape(window)
                own = np.broadcast_to(own, total.shape)
                total += _sums_of_pairs(self.convolve, x[:, channels], alone, own)
        return (total,)


def _matrix(op: GraphcoreOp, value: Operand) -> Shape:
    shape = shape_of(value)
    if len(shape) != 2:
        raise op.fail(f"multiplies by a matrix, not {shapes.text(shape)}")
    return shape


def _blocks(op: MatMulInPairsOp | ConvInPairsOp, terms: int) -> tuple[int]:
    """The number of blocks of the contracted axis, as a shape."""
    block = integer(op.block)
    if block < 1 or terms % block:
        raise op.fail(f"cannot divide {terms} words into blocks of {block}")
    return (terms // block,)


def _check_offset(op: GraphcoreOp, offset: Operand, wanted: Shape) -> None:
    op.common_element(WORD, offset)
    if shape_of(offset) != wanted:
        raise op.fail(
            f"needs offsets of shape {shapes.text(wanted)}, not {shapes.text(shape_of(offset))}"
        )


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
