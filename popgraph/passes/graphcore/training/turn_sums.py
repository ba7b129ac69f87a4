"""Sums over the iterations of a loop: matmuls become one matmul after it, others are carried."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import reduce
from typing import TypeAlias

from xdsl.builder import ImplicitBuilder
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import (
    AddOp,
    LoopOp,
    MatMulOp,
    ReduceSumOp,
    ReshapeOp,
    TransposeOp,
)
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.graphcore.broadcasting import reshaped
from popgraph.dialects.graphcore.movement import swapped
from popgraph.passes.graphcore.training.loop_draft import LoopDraft
from popgraph.passes.graphcore.training.reverse_mode import ReverseMode, zeros

After: TypeAlias = Callable[[LoopOp], Operand]
"""Builds the value of a sum after the loop."""


@dataclass
class IterationSums:
    """
    Sums of values of a body over all iterations.

    sum_t a_t @ b_t             ->  concat_t(a_t, columns) @ concat_t(b_t, rows), after the loop
    sum_t reduce_sum(x_t)       ->  one reduction after the loop, if the rows x_t are stacked anyway
    sum_t of any other value    ->  a carried accumulator
    """

    outer: ReverseMode
    forward: LoopOp
    draft: LoopDraft

    def of(self, values: list[SSAValue | None]) -> list[After | None]:
        """For each value, a function that builds its sum after the finished loop."""
        products = [
            leaf
            for value in values
            if value is not None
            for leaf in self._leaves(value)
            if isinstance(leaf.owner, MatMulOp)
        ]
        for value in products:
            self._product(value)
        return [None if value is None else self._total(value) for value in values]

    def _leaves(self, value: SSAValue) -> Iterator[SSAValue]:
        """Terms of a value, through sums and linear functions."""
        for term in _terms(value):
            linear = self._linear(term)
            if linear is None:
                yield term
            else:
                yield from self._leaves(linear[0])

    def _total(self, value: SSAValue) -> After:
        parts = [self._total_of_term(term) for term in _terms(value)]

        def total(made: LoopOp) -> Operand:
            return reduce(AddOp, [part(made) for part in parts])

        return total

    def _total_of_term(self, value: SSAValue) -> After:
        linear = self._linear(value)
        if linear is not None:
            inner, function = linear
            total = self._total(inner)
            return lambda made: function(total(made))
        # A carried sum of matmuls would read and write the whole gradient in each iteration.
        if isinstance(value.owner, MatMulOp):
            return self._product(value)
        if isinstance(value.owner, ReduceSumOp) and self._has_rows(value.owner.x):
            return self._reduction(value.owner)
        if self._has_rows(value):
            rows = self._rows(value)
            return lambda made: ReduceSumOp(rows(made), axes=[0], keepdims=False)
        return self._carried(value)

    def _linear(self, value: SSAValue) -> tuple[SSAValue, Callable[[Operand], Operand]] | None:
        """x and f if a value is f(x), with f linear and equal in all iterations."""
        match value.owner:
            case ReshapeOp() as op:
                return op.x, lambda total: ReshapeOp(total, shape=op.shape.data)
            case TransposeOp() as op:
                return op.x, lambda total: TransposeOp(total, perm=op.perm.data)
            case MatMulOp() as op:
                left, right = self._outside(op.lhs), self._outside(op.rhs)
                if left is not None:
                    return op.rhs, lambda total: MatMulOp(left(), total)
                if right is not None:
                    return op.lhs, lambda total: MatMulOp(total, right())
        return None

    def _outside(self, value: SSAValue) -> Callable[[], Operand] | None:
        """Builds the value outside the loop that equals a captured one, through moves."""
        operand = self.draft.captured_operand(value)
        if operand is not None:
            return lambda: operand
        if not isinstance(value.owner, ReshapeOp | TransposeOp):
            return None
        moved, inner = value.owner, self._outside(value.owner.x)
        if inner is None:
            return None
        if isinstance(moved, ReshapeOp):
            return lambda: ReshapeOp(inner(), shape=moved.shape.data)
        return lambda: TransposeOp(inner(), perm=moved.perm.data)

    def _product(self, value: SSAValue) -> After:
        """One matmul over all iterations, whose inner dimension concatenates theirs."""
        op = value.owner
        assert isinstance(op, MatMulOp)
        left, right = self._joined(op.lhs, -1), self._joined(op.rhs, -2)
        return lambda made: MatMulOp(left(made), right(made))

    def _joined(self, value: SSAValue, axis: int) -> After:
        """Concatenates a value of all iterations along `axis`, -1 or -2."""
        if _swaps(value):
            assert isinstance(value.owner, TransposeOp)
            inner = self._joined(value.owner.x, -3 - axis)
            return lambda made: swapped(inner(made))
        rows, shape = self._rows(value), shape_of(value)
        place = len(shape) + axis

        def joined(made: LoopOp) -> Operand:
            stacked: Operand = rows(made)
            trips = shape_of(stacked)[0]
            if place:
                order = [*range(1, place + 1), 0, *range(place + 1, len(shape) + 1)]
                stacked = TransposeOp(stacked, perm=order)
            merged = (*shape[:place], trips * shape[place], *shape[place + 1 :])
            return ReshapeOp(stacked, shape=merged)

        return joined

    def _rows(self, value: SSAValue) -> After:
        """Stacks a value of all iterations along a new first axis."""
        operand = self._stacked(value)
        if operand is not None:
            return lambda made: operand
        match value.owner:
            case ReshapeOp() as op:
                inner, shape = self._rows(op.x), op.shape.data
                return lambda made: _reshaped_rows(inner(made), shape)
            case TransposeOp() as op:
                inner, order = self._rows(op.x), [0, *(1 + axis for axis in op.perm)]
                return lambda made: TransposeOp(inner(made), perm=order)
        place = self.draft.row(value)
        return lambda made: made.stacked[place]

    def _stacked(self, value: SSAValue) -> SSAValue | None:
        """
        The scanned operand that has a value of the body as its row.

        None if iterations may be skipped: a zero gradient times an infinite unused row is NaN.
        The forward loop's own results are exempt: their unused rows are zeros.
        """
        operand = self.draft.scanned_operand(value)
        if operand is None or (self.forward.ends_early and operand.owner is not self.forward):
            return None
        return operand

    def _has_rows(self, value: SSAValue) -> bool:
        """Whether the rows of a value are scanned or stacked already."""
        while isinstance(value.owner, ReshapeOp | TransposeOp):
            value = value.owner.x
        return self._stacked(value) is not None or value in self.draft.rows

    def _reduction(self, op: ReduceSumOp) -> After:
        rows, shape = self._rows(op.x), shape_of(op.result)
        axes = [0, *(1 + axis for axis in op.axes)]
        return lambda made: reshaped(ReduceSumOp(rows(made), axes=axes, keepdims=False), shape)

    def _carried(self, value: SSAValue) -> After:
        with self.outer.building():
            first = SSAValue.get(zeros(value))
        place = len(self.draft.carried)
        known = self.draft.carry(first)
        with ImplicitBuilder(self.draft.block):
            self.draft.following.append(AddOp(known, value).result)
        return lambda made: made.finals[place]


def _terms(value: SSAValue) -> list[SSAValue]:
    """The addends of a value. A sum with other uses is one addend."""
    found, waiting = [], [value]
    while waiting:
        one = waiting.pop()
        op = one.owner
        if isinstance(op, AddOp) and op.lhs.type == op.rhs.type and one.uses.get_length() < 2:
            waiting += [op.rhs, op.lhs]
        else:
            found.append(one)
    return found


def _swaps(value: SSAValue) -> bool:
    """Whether a value is a transpose of the last two axes."""
    if not isinstance(value.owner, TransposeOp):
        return False
    *batch, row, column = range(len(value.owner.perm))
    return list(value.owner.perm) == [*batch, column, row]


def _reshaped_rows(rows: Operand, shape: tuple[int, ...]) -> Operand:
    return ReshapeOp(rows, shape=(shape_of(rows)[0], *shape))
