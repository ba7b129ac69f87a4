"""Which concatenations need no copy, because their pieces can be computed where they belong?"""

from __future__ import annotations

from collections.abc import Iterator

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Operation, SSAValue

from popgraph.dialects.program import ReturnOp, UpdateOp, YieldOp
from popgraph.dialects.tile import AssembleOp, LaunchOp, ViewOp
from popgraph.dialects.tile.affine import row_major
from popgraph.dialects.tile.attributes import layout_of
from popgraph.dialects.tile.program import KernelOp
from popgraph.dialects.tile.structured import Structured
from popgraph.support.shapes import Shape, prod

COMPUTED = (Structured, KernelOp, LaunchOp)
"""What writes its results where plan-memory wants them."""


def is_join(op: AssembleOp) -> bool:
    """
    Whether the pieces are one memory, one after the other, and each may be computed there.

    A piece must be computed by the same block for this concatenation alone, and neither a piece
    nor the whole may be what the caller gets: that has memory of its own.
    """
    return (
        all(piece is not None for piece in places(op))
        and sum(_count(piece) for piece in op.pieces) == _count(op.output) > 0
        and not _is_given(op.output)
        and all(_may_move(source_of(piece), op) for piece in op.pieces)
    )


def places(op: AssembleOp) -> Iterator[int | None]:
    """Which element of the whole each piece begins at; None when it is not in one run."""
    assert isinstance(op.output.type, TensorType)
    shape = op.output.type.get_shape()
    strides = row_major(shape)
    for piece, offsets, steps in op.placements():
        assert isinstance(piece.type, TensorType)
        plain = layout_of(piece.type) is None and layout_of(op.output.type) is None
        run = _is_run(piece.type.get_shape(), shape) and set(steps) <= {1}
        start = sum(at * stride for at, stride in zip(offsets, strides, strict=True))
        yield start if plain and run else None


def _is_run(part: Shape, whole: Shape) -> bool:
    """Whether a box of these sizes is contiguous: behind the first that differs, all of it."""
    outer = next((dim for dim, size in enumerate(part) if size != 1), len(part))
    return part[outer + 1 :] == whole[outer + 1 :]


def _count(value: SSAValue) -> int:
    assert isinstance(value.type, TensorType)
    return prod(value.type.get_shape())


def source_of(value: SSAValue) -> SSAValue:
    """The value that `value` is a view of."""
    while isinstance(value.owner, ViewOp):
        value = value.owner.source
    return value


def _readers(value: SSAValue) -> Iterator[Operation]:
    """Everything that reads a value, also through views; twice what reads it twice."""
    for use in value.uses:
        if isinstance(use.operation, ViewOp):
            yield from _readers(use.operation.output)
        else:
            yield use.operation


def _is_given(value: SSAValue) -> bool:
    return any(isinstance(op, ReturnOp | UpdateOp | YieldOp) for op in _readers(value))


def _may_move(value: SSAValue, op: AssembleOp) -> bool:
    maker = value.owner
    if not isinstance(maker, COMPUTED) or maker.parent is not op.parent or _is_given(value):
        return False
    return sum(isinstance(reader, AssembleOp) for reader in _readers(value)) == 1
