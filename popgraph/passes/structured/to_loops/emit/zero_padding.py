"""Zeroes the halos and padding of results that no loop writes."""

from __future__ import annotations

from collections.abc import Container, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.ir.affine import AffineExpr

from popgraph.dialects.tile.affine import Linear, row_major
from popgraph.dialects.tile.attributes import halo_of, physical_shape
from popgraph.dialects.tile.cut import CutAttr
from popgraph.passes.structured.analysis.loops import has_gaps, tensor
from popgraph.passes.structured.to_loops.emit.access import IterationPoint
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.writer import Bound, Writer
from popgraph.support.shapes import Shape, prod


def zero_unwritten(
    writer: Writer,
    values: Sequence[SSAValue],
    memories: Sequence[SSAValue],
    cut: CutAttr | None = None,
    *,
    short: bool = False,
    in_place: Container[int] = (),
) -> None:
    """
    Zeroes the memory of results that no loop writes: halos and gaps.

    Each chunk zeroes a share of a halo, close to its results: of the last axis if it writes `short`
    pieces, else of an outer one. A kernel whose results have gaps is not cut. Results `in_place`
    may have the memory of an operand, and slices that of other results: only halos are zeroed.
    """
    most = writer.target.tuning.most_halo_boxes
    for number, (value, memory) in enumerate(zip(values, memories, strict=True)):
        type_ = tensor(value)
        physical = physical_shape(type_)
        boxes = list(halo_boxes(type_))
        halo = halo_of(type_)
        is_own = halo is not None and halo.part < 0 and number not in in_place
        many = is_own and cut is None and len(boxes) > most
        # Gaps are scattered between elements, so all memory is zeroed; a halo is a few boxes.
        if has_gaps(value) or many:
            clear_box(writer, type_, memory, (0,), (prod(physical),))
        if not boxes or many:
            continue
        mine = None if cut is None else _part_of(writer, memories[0], physical, cut.count, short)
        for start, sizes in boxes:
            clear_box(writer, type_, memory, start, sizes, mine)


@dataclass(frozen=True)
class ChunkShare:
    """The range of an axis that one chunk zeroes."""

    axis: int
    first: SSAValue
    end: SSAValue


def _shared_axis(physical: Shape, chunks: int, short: bool) -> int:
    """The last axis for short pieces, else the first with an index per chunk, else the longest."""
    if short:
        return len(physical) - 1
    long = (axis for axis, size in enumerate(physical) if size >= chunks)
    return next(long, max(range(len(physical)), key=lambda axis: physical[axis]))


def _part_of(
    writer: Writer, memory: SSAValue, physical: Shape, chunks: int, short: bool
) -> ChunkShare:
    """The share of this chunk: chunk * size / chunks to (chunk + 1) * size / chunks."""
    # Both ends round down, so that shares of neighbors meet: 5 rows in 2 shares are 0..2 and 2..5.
    block = memory.owner
    assert isinstance(block, Block)
    axis, count = _shared_axis(physical, chunks, short), writer.constant(chunks)
    begin = Index.of(block.args[0], physical[axis])
    first, end = (
        writer.once(arith.DivSIOp(writer.value(at), count))
        for at in (begin, begin + physical[axis])
    )
    return ChunkShare(axis, first, end)


def halo_boxes(type_: TensorType[Attribute]) -> Iterator[tuple[Shape, Shape]]:
    """The boxes of a tensor's halo: start and sizes of each in memory."""
    halo = halo_of(type_)
    if halo is None:
        return
    physical, shape = physical_shape(type_), type_.get_shape()
    origin, sizes = [0] * len(shape), list(physical)
    if halo.part >= 0:
        sizes[halo.part] = shape[halo.part]
    for dim, low, high in halo.own:
        for start, size in ((0, low), (physical[dim] - high, high)):
            if size:
                origin[dim], sizes[dim] = start, size
                yield tuple(origin), tuple(sizes)
        # Later axes skip what this one has covered: corners are zeroed once.
        origin[dim], sizes[dim] = low, shape[dim]


def clear_box(
    writer: Writer,
    type_: TensorType[Attribute],
    memory: SSAValue,
    start: Shape,
    sizes: Shape,
    mine: ChunkShare | None = None,
) -> None:
    """Zeroes a box of a tensor's memory, or the share of this chunk, `mine`."""
    physical = physical_shape(type_) if len(start) > 1 else sizes
    axis = mine.axis if mine else -1
    # An axis that the box covers is joined with the next outer one: rows of 3 pixels of 16 channels
    # become one loop of 48. The axis that chunks share stays.
    while len(sizes) > 1 and sizes[-1] == physical[-1] and axis < len(sizes) - 2:
        inner = sizes[-1]
        physical, start, sizes = (
            (*shape[:-2], shape[-2] * inner) for shape in (physical, start, sizes)
        )
    form = Linear(0, {AffineExpr.dimension(dim): by for dim, by in enumerate(row_major(physical))})
    nothing = writer.number(0, type_.element_type)
    spans = [
        _within(writer, begin, begin + size, mine if dim == axis else None)
        for dim, (begin, size) in enumerate(zip(start, sizes, strict=True))
    ]
    point = IterationPoint(writer, physical)
    with ExitStack() as stack:
        for dim, (lower, upper) in enumerate(spans):
            loop = stack.enter_context(writer.loop(lower, upper))
            point.indices[dim] = Index.of(loop.counter)
        writer.store(nothing, memory, point.index(form))


def _within(writer: Writer, first: int, end: int, mine: ChunkShare | None) -> tuple[Bound, Bound]:
    if mine is None:
        return first, end
    lower = writer.once(arith.MaxSIOp(mine.first, writer.constant(first)))
    return lower, writer.once(arith.MinSIOp(mine.end, writer.constant(end)))
