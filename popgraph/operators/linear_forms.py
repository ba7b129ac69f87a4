"""Linear forms of integers: an index in the body of a loop as a function of the iteration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import i64
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import dtype_of, integer, shape_of
from popgraph.operators.context import LoweringContext
from popgraph.support.shapes import prod


@dataclass(frozen=True)
class LinearForm:
    """`constant + sum of factor * element`; an element is a (value, index) pair."""

    constant: int = 0
    terms: Mapping[tuple[SSAValue, int], int] = field(default_factory=dict)

    def plus(self, other: LinearForm, times: int = 1) -> LinearForm:
        """self + times * other"""
        terms = dict(self.terms)
        for element, factor in other.terms.items():
            terms[element] = terms.get(element, 0) + factor * times
        kept = {element: factor for element, factor in terms.items() if factor}
        return LinearForm(self.constant + other.constant * times, kept)

    def known(self) -> int | None:
        """The constant, if the form has no other terms."""
        return None if self.terms else self.constant

    def is_of_scalars(self) -> bool:
        """Whether all elements are scalars, as `computed` requires."""
        return all(prod(shape_of(value)) == 1 for value, _ in self.terms)

    def bounds(self, trips: Mapping[SSAValue, int]) -> tuple[int, int] | None:
        """The minimum and maximum over all iterations; None if it depends on other values."""
        low = high = self.constant
        for (value, _), factor in self.terms.items():
            if value not in trips:
                return None
            last = factor * max(0, trips[value] - 1)
            low, high = low + min(0, last), high + max(0, last)
        return low, high


def linear_form(value: SSAValue, place: int, lowering: LoweringContext) -> LinearForm:
    """The form of one element of a tensor of integers; `place` is its row-major index."""
    known = lowering.array(value)
    if known is not None:
        return LinearForm(int(known.reshape(-1)[place]))
    match value.owner:
        case gc.ReshapeOp() as op:
            return linear_form(op.x, place, lowering)
        case gc.CastOp() as op if dtype_of(op.x).is_integer:
            return linear_form(op.x, place, lowering)
        case gc.AddOp() | gc.SubOp() | gc.MulOp() as op:
            return _of_two(op, place, lowering)
        case gc.ConcatOp() as op if len(shape_of(value)) == 1 and integer(op.axis) == 0:
            for piece in op.xs:
                if place < prod(shape_of(piece)):
                    return linear_form(piece, place, lowering)
                place -= prod(shape_of(piece))
    return LinearForm(0, {(value, place): 1})


def _of_two(
    op: gc.AddOp | gc.SubOp | gc.MulOp, place: int, lowering: LoweringContext
) -> LinearForm:
    count = prod(shape_of(op.result))
    if any(prod(shape_of(operand)) not in (1, count) for operand in (op.lhs, op.rhs)):
        return LinearForm(0, {(op.result, place): 1})
    lhs, rhs = (
        linear_form(operand, place if prod(shape_of(operand)) > 1 else 0, lowering)
        for operand in (op.lhs, op.rhs)
    )
    if not isinstance(op, gc.MulOp):
        return lhs.plus(rhs, -1 if isinstance(op, gc.SubOp) else 1)
    for form, factor in ((lhs, rhs.known()), (rhs, lhs.known())):
        if factor is not None:
            return LinearForm().plus(form, factor)
    return LinearForm(0, {(op.result, place): 1})


def computed(form: LinearForm, lowering: LoweringContext) -> SSAValue:
    """Emits the computation of a form of scalars, as an i64 scalar."""
    total = lowering.literal(np.array(form.constant))
    for (value, _), factor in form.terms.items():
        scalar = gc.CastOp(gc.ReshapeOp(value, shape=()), to=i64)
        total = gc.AddOp(total, gc.MulOp(scalar, lowering.literal(np.array(factor)))).result
    return total
