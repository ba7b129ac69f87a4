"""Analysis of concatenations whose pieces can be computed in place, without a copy."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Operation, SSAValue

from popgraph.dialects.program import CallCondOp, CallLoopOp, ReturnOp, UpdateOp, YieldOp
from popgraph.dialects.tile import AssembleOp, FusedOp, LaunchOp, ViewOp
from popgraph.dialects.tile.affine import row_major
from popgraph.dialects.tile.attributes import halo_of, layout_of, memory_span, physical_shape
from popgraph.dialects.tile.structured.ops import Structured, element
from popgraph.passes.analysis.induction import holds
from popgraph.support.shapes import Shape, prod

COMPUTED = (Structured, FusedOp, LaunchOp)
"""Operations that write their results to memory that plan-memory assigns."""


class Joins:
    """
    The concatenations whose pieces can all be computed in the memory of the whole.

    Each piece is computed in the same block and read by no other concatenation. Neither a piece nor
    the whole is returned to the caller, who has memory of its own. Answers are cached, so the
    module must not change meanwhile.
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
    """The concatenations that are pieces of `op`."""
    for piece in op.pieces:
        maker = source_of(piece).owner
        if isinstance(maker, AssembleOp):
            yield maker


def is_contiguous_concat(op: AssembleOp) -> bool:
    """Whether each piece is one contiguous run of the whole."""
    return all(_is_run(piece, _shape(op.output)) for piece in map(_shape, op.pieces))


def places(op: AssembleOp) -> Iterator[int | None]:
    """Yields the element of the whole at which each piece begins; None for memory of its own."""
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
    """Whether a piece has the layout of the whole, shifted by `offsets`."""
    own, other = halo_of(piece), halo_of(whole)
    if own is None or other is None or own.part < 0:
        return False
    low = [start + at for start, at in zip(other.low, offsets, strict=True)]
    return list(own.low) == low and physical_shape(piece) == physical_shape(whole)


def _shape(value: SSAValue) -> Shape:
    assert isinstance(value.type, TensorType)
    return value.type.get_shape()


def _is_run(part: Shape, whole: Shape) -> bool:
    """Whether a box is contiguous: after its first axis longer than 1, all axes are whole."""
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
    """Yields the readers of a value, also through views, once per use."""
    seen = [value]
    while seen:
        for use in seen.pop().uses:
            if isinstance(use.operation, ViewOp):
                seen.append(use.operation.output)
            else:
                yield use.operation


def escapes(value: SSAValue) -> bool:
    """Whether a value leaves the graph: to the caller, a variable or another graph."""
    takers = (ReturnOp, UpdateOp, YieldOp, CallCondOp, CallLoopOp)
    return any(isinstance(op, takers) for op in _readers(value))


def can_write_into(value: SSAValue, op: AssembleOp) -> bool:
    """Whether a value can be computed, or concatenated, in the memory of a concatenation."""
    maker = value.owner
    if not isinstance(maker, (*COMPUTED, AssembleOp)):
        return False
    if maker.parent is not op.parent:
        return False
    wholes = (reader for reader in _readers(value) if isinstance(reader, AssembleOp))
    # Stop at two: if n concatenations read a piece, each of them checks it, in n * n steps.
    return len(list(islice(wholes, 2))) == 1 and not escapes(value)
