"""Packs neighbouring numbers of few bits into 32-bit words."""

from __future__ import annotations

from xdsl.dialects.builtin import IntegerType, Signedness, i32
from xdsl.ir import SSAValue

from popgraph.dialects.graphcore import (
    AndOp,
    BitcastOp,
    CastOp,
    OrOp,
    PadOp,
    ShiftOp,
    SliceOp,
    TransposeOp,
)
from popgraph.dialects.graphcore.base import Operand, dtype_of, is_float, shape_of
from popgraph.dialects.graphcore.broadcasting import scalar
from popgraph.support.words import WORD


def packed(value: SSAValue, axis: int, count: int) -> SSAValue:
    """
    Packs `count` neighbours along an axis into each word, with zeros after the last.

    A transposed value is packed first and then transposed: there are fewer words than numbers,
    and their order in memory may be that of the numbers.
    """
    if isinstance(value.owner, TransposeOp):
        perm = value.owner.perm.data
        words = packed(value.owner.x, perm[axis], count)
        return TransposeOp(words, perm=perm).result
    shape, bits = shape_of(value), 8 * WORD.itemsize // count
    narrow = _narrow(value, bits)
    missing = -shape[axis] % count
    if missing:
        none, high = [0] * len(shape), [0] * len(shape)
        high[axis] = missing
        narrow = PadOp(narrow, low=none, high=high, interior=none, value=0).result
    made: Operand | None = None
    for place in range(count):
        part = CastOp(every(narrow, axis, place, count), to=i32).result
        if place < count - 1 and not (
            dtype_of(narrow).is_unsigned and dtype_of(narrow).bits <= bits
        ):
            part = AndOp(part, scalar((1 << bits) - 1, part)).result
        if place:
            part = ShiftOp(part, scalar(bits * place, part), direction="left").result
        made = part if made is None else OrOp(made, part)
    assert made is not None, "words hold something"
    return SSAValue.get(made)


def _narrow(value: SSAValue, bits: int) -> SSAValue:
    """Integers of at most `bits` bits in the narrowest type that stores them; floats as bits."""
    if is_float(value):
        return BitcastOp(value, to=IntegerType(bits, Signedness.UNSIGNED)).result
    op = value.owner
    if isinstance(op, CastOp) and dtype_of(op.x).is_integer:
        value = op.x
    stored = max(bits, 8)
    if dtype_of(value).is_integer and dtype_of(value).bits <= stored:
        return value
    return CastOp(value, to=IntegerType(stored, Signedness.UNSIGNED)).result


def every(value: SSAValue, axis: int, first: int, step: int) -> SSAValue:
    """Every `step`th element along an axis, starting at `first`."""
    sizes = list(shape_of(value))
    starts, steps = [0] * len(sizes), [1] * len(sizes)
    starts[axis], steps[axis], sizes[axis] = first, step, sizes[axis] // step
    return SliceOp(value, starts=starts, sizes=sizes, steps=steps).result
