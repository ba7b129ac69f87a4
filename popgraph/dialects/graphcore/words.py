"""Matrix products and convolutions of words that hold several small integers each."""

from __future__ import annotations

from functools import reduce
from typing import ClassVar, Unpack

import numpy as np
from xdsl.dialects.builtin import StringAttr, TensorType
from xdsl.irdl import operand_def, prop_def

from popgraph.dialects.graphcore.base import (
    Array,
    Elements,
    Operand,
    Tensor,
    operation,
    shape_of,
)
from popgraph.dialects.graphcore.contractions import (
    Convolution,
    ConvolutionOptions,
    MatrixProduct,
)
from popgraph.dialects.program.interned import tensor_type
from popgraph.support.errors import TypeMismatchError
from popgraph.support.words import WORDS, Words

__all__ = ["DotConvOp", "DotMatMulOp"]

WORD = Elements("i32", frozenset({"i32"}))


def _words(name: StringAttr) -> Words:
    if name.data not in WORDS:
        raise TypeMismatchError(
            f"there are no words {name.data!r}", hint=f"there are {', '.join(WORDS)}"
        )
    return WORDS[name.data]


@operation
class DotMatMulOp(MatrixProduct):
    """Matrix products of words: the product of two is the sum of those of what they hold."""

    name = "graphcore.dot_mat_mul"
    words = prop_def(StringAttr)
    ELEMENTS: ClassVar[Elements] = WORD

    def __init__(self, lhs: Operand, rhs: Operand, *, words: str) -> None:
        super().__init__([lhs, rhs], {"words": words})

    def infer(self) -> tuple[Tensor, ...]:
        _words(self.words)
        return super().infer()

    def evaluate(self, lhs: Array, rhs: Array) -> tuple[Array, ...]:
        words = _words(self.words)
        parts = [
            np.matmul(words.part(lhs, words.lhs, place), words.part(rhs, words.rhs, place))
            for place in range(words.count)
        ]
        return (reduce(np.add, parts),)


@operation
class DotConvOp(Convolution):
    """Convolutions of words: the product of two is the sum of those of what they hold."""

    name = "graphcore.dot_conv"
    x = operand_def(TensorType)
    w = operand_def(TensorType)
    words = prop_def(StringAttr)

    def __init__(
        self, x: Operand, w: Operand, *, words: str, **options: Unpack[ConvolutionOptions]
    ) -> None:
        super().__init__([x, w], {**options, "words": words})

    def infer(self) -> tuple[Tensor, ...]:
        _words(self.words)
        element = self.common_element(WORD, self.x, self.w)
        return (tensor_type(element, self.result_shape(shape_of(self.x), shape_of(self.w))),)

    def evaluate(self, x: Array, w: Array) -> tuple[Array, ...]:
        words = _words(self.words)
        parts = [
            self.convolve(words.part(x, words.lhs, place), words.part(w, words.rhs, place))
            for place in range(words.count)
        ]
        return (reduce(np.add, parts),)
