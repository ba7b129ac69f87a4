"""Analysis of concatenations whose pieces can be computed in place, without a copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from popgraph.dialects.program import CallCondOp, CallLoopOp, ReturnOp, UpdateOp, YieldOp
from popgraph.dialects.tile import AssembleOp, LaunchOp, ViewOp
from popgraph.dialects.tile.affine import row_major
from popgraph.dialects.tile.attributes import halo_of, layout_of, memory_span, physical_shape
from popgraph.dialects.tile.structured.ops import Structured, element
from popgraph.passes.analysis.induction import holds
from popgraph.support.shapes import Shape, prod

COMPUTED = (Structured, LaunchOp)
"""What writes its results where plan-memory wants them."""


class Joins:
    """
    The concatenations whose pieces are one memory, and each of which may be computed there.

    A piece must be computed by the same block for this concatenation alone, and neither a piece
    nor the whole may be what the caller gets: that has memory of its own. Answers stay, so nothing
    may change meanwhile.
    """

    def __init__(self) -> None:
        self._known: dict[AssembleOp, bool] = {}

    def __contains__(self, op: AssembleOp) -> bool:
        return holds(op, self._known, _joined, self._is_join)

    def _is_join(self, op: AssembleOp) -> bool:
        return (
            all(piece is not None for piece in places(op))
            and sum(_count(piece) for piece in op.pieces) == _count(op.output) > 0
            and not escapes(op.output)
            and all(can_write_into(source_of(piece), op) for piece in op.pieces)
            and all(self._known[inner] for inner in _joined(op))
        )


def _joined(op: AssembleOp) -> Iterator[AssembleOp]:
    """The concatenations that are pieces of one."""
    for piece in op.pieces:
        maker = source_of(piece).owner
        if isinstance(maker, AssembleOp):
            yield maker


def is_contiguous_concat(op: AssembleOp) -> bool:
    """Whether the pieces stand in the whole one after the other."""
    return all(_is_run(piece, _shape(op.output)) for piece in map(_shape, op.pieces))


def places(op: AssembleOp) -> Iterator[int | None]:
    """Which element of the whole the memory of each piece begins at; None when it is its own."""
    shape = _shape(op.output)
    strides = row_major(shape)
    for piece, offsets, steps in op.placements():
        assert isinstance(piece.type, TensorType) and isinstance(op.output.type, TensorType)
        if _is_part(piece.type, op.output.type, offsets):
            yield memory_span(piece.type)[0] - memory_span(op.output.type)[0]
            continue
        plain = layout_of(piece.type) is None and layout_of(op.output.type) is None
        run = _is_run(piece.type.get_shape(), shape) and set(steps) <= {1}
        start = sum(at * stride for at, stride in zip(offsets, strides, strict=True))
        yield start if plain and run else None


def _is_part(
    piece: TensorType[Attribute], whole: TensorType[Attribute], offsets: Sequence[int]
) -> bool:
    """Whether the layout of a piece is that of the whole, further on."""
    own, other = halo_of(piece), halo_of(whole)
    if own is None or other is None or own.part < 0:
        return False
    low = [start + at for start, at in zip(other.low, offsets, strict=True)]
    return list(own.low) == low and physical_shape(piece) == physical_shape(whole)


def _shape(value: SSAValue) -> Shape:
    assert isinstance(value.type, TensorType)
    return value.type.get_shape()


def _is_run(part: Shape, whole: Shape) -> bool:
    """Whether a box of these sizes is contiguous: behind the first that differs, all of it."""
    outer = next((dim for dim, size in enumerate(part) if size != 1), len(part))
    return part[outer + 1 :] == whole[outer + 1 :]


def _count(value: SSAValue) -> int:
    assert isinstance(value.type, TensorType)
    return prod(value.type.get_shape())


def source_of(value: SSAValue) -> SSAValue:
    """The value that `value` is a view of, with the same elements."""
    while isinstance(view := value.owner, ViewOp) and element(view.source) == element(value):
        value = view.source
    return value


def _readers(value: SSAValue) -> Iterator[Operation]:
    """Everything that reads a value, also through views; twice what reads it twice."""
    seen = [value]
    while seen:
        for use in seen.pop().uses:
            if isinstance(use.operation, ViewOp):
                seen.append(use.operation.output)
            else:
                yield use.operation


def escapes(value: SSAValue) -> bool:
    """Whether the caller gets a value, or a variable, or another graph."""
    takers = (ReturnOp, UpdateOp, YieldOp, CallCondOp, CallLoopOp)
    return any(isinstance(op, takers) for op in _readers(value))


def can_write_into(value: SSAValue, op: AssembleOp) -> bool:
    """Whether a value may be computed, or joined, where it belongs in a concatenation."""
    maker = value.owner
    if not isinstance(maker, (*COMPUTED, AssembleOp)):
        return False
    if maker.parent is not op.parent:
        return False
    wholes = (reader for reader in _readers(value) if isinstance(reader, AssembleOp))
    # Two are enough to know: many may read a piece, and each of them asks.
    return len(list(islice(wholes, 2))) == 1 and not escapes(value)
