"""How do elements move from one memory to another?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.tile.affine import Linear
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.passes.tile_loops.access import Group, Place, Span, group_loops, spans
from popgraph.passes.tile_loops.chunking import Split, split
from popgraph.passes.tile_loops.vectors import Run, fitting_lanes, lanes_of, run
from popgraph.passes.tile_loops.writer import Writer
from popgraph.support.shapes import Shape, prod


@dataclass(frozen=True)
class Source:
    """What is copied: the elements of a memory, or one value everywhere (without a form)."""

    value: SSAValue
    form: Linear | None = None


@dataclass(frozen=True)
class Cut:
    """The dimension that chunks share out, and the part of it that this chunk has."""

    dim: int
    part: Span


def shared_out(
    dims: Sequence[int], shape: Shape, kind: Attribute, vector_bytes: int
) -> Split | None:
    """
    How chunks share one of these dimensions of a box.

    Of the innermost one they get whole vectors: a vector that crosses the end of a chunk would
    write what belongs to the next one, or to nobody.
    """
    inner = max((dim for dim, size in enumerate(shape) if size > 1), default=-1)
    width = vector_bytes // (lane_bytes(kind) or vector_bytes)
    steps = [width if dim == inner else 1 for dim in dims]
    return split([shape[dim] for dim in dims], prod(shape), steps)


def cut_span(writer: Writer, cut: Split, extent: int, chunk: SSAValue) -> Span:
    return spans(writer, [Group((0,), extent)], Split(0, cut.count, cut.size), chunk)[0]


def copy(
    writer: Writer,
    sizes: Shape,
    source: Source,
    target: tuple[SSAValue, Linear],
    kind: Attribute,
    vector_bytes: int,
    cut: Cut | None = None,
) -> None:
    """Loops over a box of these sizes; the cut dimension runs over its part only."""
    if 0 in sizes:
        return
    forms = [target[1]] if source.form is None else [source.form, target[1]]
    apart = frozenset() if cut is None else frozenset({cut.dim})
    groups = group_loops(range(len(sizes)), sizes, forms, apart)
    runs = [
        Run(group, cut.part if cut and group.dims == (cut.dim,) else Span(0, group.extent))
        for group in groups
    ]
    lanes = _lanes(groups, forms, kind, vector_bytes)
    if lanes:
        runs[-1] = Run(groups[-1], runs[-1].part, (lanes, 1))
    place = Place(writer, sizes)

    def move(width: int, carried: list[SSAValue]) -> list[SSAValue]:
        value = source.value
        if source.form is not None and width > 1:
            value = writer.vector_load(value, place.index(source.form), width)
        elif source.form is not None:
            value = writer.load_input(value, place.index(source.form))
        elif width > 1:
            value = writer.broadcast(value, width)
        store = writer.vector_store if lanes_of(value) else writer.store
        store(value, target[0], place.index(target[1]))
        return carried

    run(place, runs, move)


def _lanes(groups: list[Group], forms: list[Linear], kind: Attribute, vector_bytes: int) -> int:
    if not groups or any(form.stride(groups[-1].last) != 1 for form in forms):
        return 0
    return fitting_lanes(groups[-1].extent, vector_bytes, lane_bytes(kind))
