"""Sinks channel shuffles to the next operation that mixes channels: its reads shuffle for free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import AddOp, BatchNormOp, ConvOp, MulOp, ReshapeOp, TransposeOp
from popgraph.dialects.graphcore.base import Operand, integer, shape_of
from popgraph.passes.graphcore.canonicalize.rewriting import Rule, with_operands
from popgraph.support.index_laws import ROW_MAJOR
from popgraph.support.laws import Proof

CHANNELS = 1
"""The axis of channels."""


@dataclass(frozen=True)
class Shuffle:
    """Channels `[outer, inner]` of `source` in the order `[inner, outer]`."""

    source: SSAValue
    outer: int
    inner: int

    @staticmethod
    def of(value: SSAValue) -> Shuffle | None:
        """The shuffle that computes a value with one use: reshape, transpose, reshape."""
        joined = value.owner
        transposed = joined.x.owner if isinstance(joined, ReshapeOp) else None
        split = transposed.x.owner if isinstance(transposed, TransposeOp) else None
        if not isinstance(split, ReshapeOp) or not isinstance(transposed, TransposeOp):
            return None
        shape, pieces = shape_of(split.x), shape_of(split.result)
        halves = pieces[CHANNELS : CHANNELS + 2]
        order = [0, 2, 1, *range(3, len(pieces))]
        whole = len(shape) > CHANNELS and shape == shape_of(value)
        if not whole or pieces != (shape[0], *halves, *shape[CHANNELS + 1 :]):
            return None
        if list(transposed.perm) != order or not value.has_one_use():
            return None
        return Shuffle(split.x, *halves)

    def of_channels(self, value: Operand) -> Operand:
        """Shuffles the channels of another tensor in the same way."""
        return _swapped(value, CHANNELS, self.outer, self.inner)

    def undone(self, value: SSAValue, axis: int, rule: Rule[Any]) -> SSAValue:
        """Reorders numbers per shuffled channel to the channels of `source`."""
        array = rule.array(value)
        if array is None:
            return SSAValue.get(_swapped(value, axis, self.inner, self.outer))
        order = np.arange(self.inner * self.outer).reshape(self.inner, self.outer).T.reshape(-1)
        return SSAValue.get(rule.literal(np.take(array, order, axis)))


def _swapped(value: Operand, axis: int, outer: int, inner: int) -> Operand:
    shape = shape_of(SSAValue.get(value))
    pieces = [*shape[:axis], outer, inner, *shape[axis + 1 :]]
    order = list(range(len(pieces)))
    order[axis : axis + 2] = [axis + 1, axis]
    split = ReshapeOp(value, shape=pieces)
    return ReshapeOp(TransposeOp(split, perm=order), shape=shape)


class SinkShuffleBelowConv(Rule[ConvOp]):
    """
    conv(shuffle x, w)  ->  shuffle(conv(x, w'))

    Only when the convolution is depthwise; w' are the filters in the order of x. No kernel then
    moves the shuffled tensor: ShuffleNet took 0.88 of the time.
    """

    ROOTS = (ConvOp,)
    PROOF = Proof(ROW_MAJOR)

    def rewrite(self, op: ConvOp) -> Operand | None:
        shuffle = Shuffle.of(op.x)
        if shuffle is None:
            return None
        channels = shape_of(op.x)[CHANNELS]
        if not integer(op.groups) == channels == shape_of(op.w)[0]:
            return None
        return shuffle.of_channels(
            with_operands(op, [shuffle.source, shuffle.undone(op.w, 0, self)])
        )


class SinkShuffleBelowNorm(Rule[BatchNormOp]):
    """
    batch_norm(shuffle x, statistics)  ->  shuffle(batch_norm(x, statistics'))
    """

    ROOTS = (BatchNormOp,)
    PROOF = Proof(ROW_MAJOR)

    def rewrite(self, op: BatchNormOp) -> Operand | None:
        shuffle = Shuffle.of(op.x)
        if shuffle is None:
            return None
        numbers = [shuffle.undone(operand, 0, self) for operand in op.operands[1:]]
        return shuffle.of_channels(with_operands(op, [shuffle.source, *numbers]))


class SinkShuffleBelowArithmetic(Rule[AddOp | MulOp]):
    """
    shuffle x + b  ->  shuffle(x + b'), and the same for products

    Only when b has one number per channel.
    """

    ROOTS = (AddOp, MulOp)
    PROOF = Proof(ROW_MAJOR)

    def rewrite(self, op: AddOp | MulOp) -> Operand | None:
        for number, value in enumerate(op.operands):
            shuffle = Shuffle.of(value)
            if shuffle is None:
                continue
            other, wanted = op.operands[1 - number], [1] * len(shape_of(value))
            wanted[CHANNELS] = shape_of(value)[CHANNELS]
            if list(shape_of(other)) != wanted:
                continue
            operands = [shuffle.source, shuffle.undone(other, CHANNELS, self)]
            return shuffle.of_channels(with_operands(op, operands[::-1] if number else operands))
        return None


RULES = (SinkShuffleBelowConv, SinkShuffleBelowNorm, SinkShuffleBelowArithmetic)
