"""Copies of boxes of elements from one memory to another."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.tile.affine import Linear
from popgraph.dialects.tile.running import Extent
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.passes.structured.analysis.loops import Group, group_loops
from popgraph.passes.structured.analysis.parallel_loops import Loop
from popgraph.passes.structured.to_loops.emit.access import Access, IterationPoint, Span
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.transpose_in_registers import Strides
from popgraph.passes.structured.to_loops.emit.vectors import (
    NestLoop,
    fitting_lanes,
    interleave,
    lanes_of,
    write_nest,
)
from popgraph.passes.structured.to_loops.emit.writer import Writer
from popgraph.support.shapes import Shape
from popgraph.support.tuning import Target


@dataclass(frozen=True)
class CopySource:
    """The source of a copy: elements of a memory, or one value everywhere (without a form)."""

    value: SSAValue
    form: Linear | None = None


def innermost(sizes: Shape) -> int | None:
    """The last dimension with more than one index, if there is any."""
    return max((dim for dim, size in enumerate(sizes) if size > 1), default=None)


@dataclass(frozen=True)
class Cut:
    """The dimension that chunks share, and the range of this chunk."""

    dim: int
    part: Span
    running: Extent | None = None
    """The end of the dimension in a call, if it differs from the extent."""
    loaded: bool = False
    """Whether ranges are multiples of vectors along a dimension of vector loads, too."""


def loops_of_box(
    dims: Sequence[int],
    shape: Shape,
    kind: Attribute,
    target: Target,
    loaded: Container[int] = (),
    along: Container[int | None] = (),
) -> list[Loop]:
    """
    The loops over these dimensions of a box; chunks may share one of them.

    Chunks have multiples of a vector in the innermost dimension, and in the dimensions `along`
    which pieces run. In dimensions of vector loads (`loaded`), they have multiples of cache lines.
    """
    # A vector that crosses the end of a chunk would write elements of the next chunk, or padding
    # of nobody.
    inner = innermost(shape)
    machine, together = target.machine, target.machine.lines_together
    width = machine.lanes(lane_bytes(kind) or machine.vector_bytes)
    whole = {dim for dim in dims if dim == inner or dim in along}
    steps = [together * width if dim in loaded else width if dim in whole else 1 for dim in dims]
    return [Loop(shape[dim], step) for dim, step in zip(dims, steps, strict=True)]


def shared_loops(groups: Sequence[Group], loops: Sequence[Loop]) -> list[Loop]:
    """The loops that chunks may share: the one that ends at a size of the call, if any."""
    # Copies know one range, that of `Cut`: a loop with a size and another one that is cut would be
    # two.
    if all(group.running is None for group in groups):
        return list(loops)
    return [
        Loop(1) if group.running is None else loop
        for group, loop in zip(groups, loops, strict=True)
    ]


def cut_of_chunk(emitter: Emitter, body: Body, *, loaded: bool = False) -> Cut | None:
    """The range of a box that a chunk copies; each group is one dimension of the box."""
    running = [at for at, group in enumerate(emitter.groups) if group.running is not None]
    if emitter.cut is None and not running:
        return None
    at = emitter.cut.only.loop if emitter.cut is not None else running[0]
    group = emitter.groups[at]
    return Cut(group.last, body.parts[at], group.running, loaded)


def copy(
    writer: Writer,
    sizes: Shape,
    source: CopySource,
    target: tuple[SSAValue, Linear],
    kind: Attribute,
    cut: Cut | None = None,
    *,
    transposes: bool = True,
) -> None:
    """
    Writes the copy of a box of these sizes; the cut dimension runs over its range only.

    With `transposes`, a source that is contiguous along another dimension than the target is
    transposed in registers: fast code, but much of it to compile.
    """
    if 0 in sizes:
        return
    vector_bytes = writer.target.machine.vector_bytes
    forms = [target[1]] if source.form is None else [source.form, target[1]]
    groups = _groups(sizes, forms, cut)
    nest = _nest(groups, cut)
    point = IterationPoint(writer, sizes)
    if transposes and source.form is not None:
        shared = next((one for one in groups if cut and one.dims == (cut.dim,)), None)
        lanes = writer.target.machine.lanes(lane_bytes(kind) or vector_bytes)
        blocks = Strides([source.form], [target[1]]).blocks(writer.target, groups, lanes, shared)
        # Vectors are loaded along `across`: if that loop is cut, its ranges must be multiples of
        # them.
        if blocks and (cut is None or cut.loaded or blocks.across.dims != (cut.dim,)):
            blocks.write(point, nest, [Access(source.value, source.form)], [Access(*target)])
            return
    lanes = _lanes(groups, forms, kind, vector_bytes)
    if lanes:
        nest[-1] = NestLoop(groups[-1], nest[-1].part, (lanes, 1))
    write_nest(point, nest, partial(_copy_elements, point, source, target))


@dataclass(frozen=True, eq=False)
class Piece:
    """A box to copy: its sizes, its source, and its offsets in the target (`form`)."""

    sizes: Shape
    source: SSAValue
    source_form: Linear
    form: Linear

    @property
    def inner(self) -> int | None:
        """The innermost loop, if there is any."""
        return innermost(self.sizes)


def alternating_groups(pieces: Sequence[Piece], most: int) -> list[list[Piece]]:
    """Groups pieces that alternate in memory, up to `most`: y[2i] = a[i], y[2i + 1] = b[i]."""
    at = {(piece.sizes, piece.form.constant): piece for piece in pieces}
    found, taken = list[list[Piece]](), set[Piece]()
    for first in sorted(pieces, key=lambda one: one.form.constant):
        if first not in taken:
            group = _alternating_with(first, at, most) or [first]
            found.append(group)
            taken.update(group)
    return found


def _alternating_with(
    first: Piece, at: Mapping[tuple[Shape, int], Piece], most: int
) -> list[Piece] | None:
    """A piece with the pieces that fill the gaps between its elements; None if any is missing."""
    inner, start = first.inner, first.form.constant
    count = None if inner is None else first.form.stride(inner)
    if inner is None or count is None or not 1 < count <= most:
        return None
    group = [at.get((first.sizes, start + step)) for step in range(count)]
    found = [
        one
        for one in group
        if one and one.form.terms == first.form.terms and one.source_form.stride(inner) == 1
    ]
    return found if len(found) == count else None


def copy_alternating(
    writer: Writer,
    pieces: Sequence[Piece],
    target: SSAValue,
    kind: Attribute,
    cut: Cut | None = None,
) -> None:
    """Writes pieces that alternate in memory: a vector of each, interleaved in registers."""
    # Stores with stride n are scalars; interleaved vectors are stored whole (6231430b).
    sizes, forms = pieces[0].sizes, [piece.source_form for piece in pieces]
    groups = _groups(sizes, [*forms, pieces[0].form], cut)
    nest = _nest(groups, cut)
    lanes = fitting_lanes(groups[-1].extent, writer.target.machine.vector_bytes, lane_bytes(kind))
    if lanes:
        nest[-1] = NestLoop(groups[-1], nest[-1].part, (lanes, 1))
    point = IterationPoint(writer, sizes)

    def step(width: int, carried: list[SSAValue]) -> list[SSAValue]:
        if width == 1:
            for one in pieces:
                _copy_elements(
                    point, CopySource(one.source, one.source_form), (target, one.form), 1, carried
                )
            return carried
        index = point.index(pieces[0].form)
        vectors = [
            writer.vector_load(one.source, point.index(one.source_form), width) for one in pieces
        ]
        for number, vector in enumerate(interleave(writer, vectors)):
            writer.vector_store(vector, target, index + number * width)
        return carried

    write_nest(point, nest, step)


def _groups(sizes: Shape, forms: Sequence[Linear], cut: Cut | None) -> list[Group]:
    """The loops over a box; the cut dimension is not joined with others."""
    # A joined loop has no single range for a range of one of its dimensions.
    if cut is None:
        return group_loops(range(len(sizes)), sizes, forms)
    running = {} if cut.running is None else {cut.dim: cut.running}
    return group_loops(range(len(sizes)), sizes, forms, frozenset({cut.dim}), running)


def _nest(groups: Sequence[Group], cut: Cut | None) -> list[NestLoop]:
    """The loops of a nest; the cut one runs over its range only."""
    return [
        NestLoop(group, cut.part if cut and group.dims == (cut.dim,) else Span(0, group.extent))
        for group in groups
    ]


def _copy_elements(
    point: IterationPoint,
    source: CopySource,
    target: tuple[SSAValue, Linear],
    width: int,
    carried: list[SSAValue],
) -> list[SSAValue]:
    """Copies `width` elements from the source to the target."""
    writer, value = point.writer, source.value
    if source.form is not None and width > 1:
        value = writer.vector_load(value, point.index(source.form), width)
    elif source.form is not None:
        value = writer.load_input(value, point.index(source.form))
    elif width > 1:
        value = writer.broadcast(value, width)
    store = writer.vector_store if lanes_of(value) else writer.store
    store(value, target[0], point.index(target[1]))
    return carried


def _lanes(groups: list[Group], forms: list[Linear], kind: Attribute, vector_bytes: int) -> int:
    if not groups or any(form.stride(groups[-1].last) != 1 for form in forms):
        return 0
    return fitting_lanes(groups[-1].extent, vector_bytes, lane_bytes(kind))
