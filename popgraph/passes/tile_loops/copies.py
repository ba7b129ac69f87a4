"""How do elements move from one memory to another?"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from itertools import product

from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.tile.affine import Linear
from popgraph.dialects.tile.cut import CutAttr
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.passes.tile_loops.access import Group, Place, Span, group_loops, spans
from popgraph.passes.tile_loops.index import Index
from popgraph.passes.tile_loops.shareable import Loop, Shareable
from popgraph.passes.tile_loops.turned_blocks import turned
from popgraph.passes.tile_loops.vectors import Run, fitting_lanes, lanes_of, run
from popgraph.passes.tile_loops.writer import Writer
from popgraph.support.shapes import Shape, prod

MOST_TURNED = 16
"""A square of so many rows stays in registers."""

NEIGHBOURS = 2
"""Lines that come from memory together."""


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
    loaded: bool = False
    """Parts are whole vectors, too, where vectors are loaded along this dimension."""


def shared_out(
    dims: Sequence[int],
    shape: Shape,
    kind: Attribute,
    vector_bytes: int,
    loaded: Container[int] = (),
) -> Shareable:
    """
    Chunks may share one of these dimensions of a box.

    Of the innermost one they get whole vectors, of those along which vectors are `loaded` whole
    neighbours: what crosses the end of a chunk would write what belongs to the next, or to nobody.
    """
    inner = max((dim for dim, size in enumerate(shape) if size > 1), default=-1)
    width = vector_bytes // (lane_bytes(kind) or vector_bytes)
    steps = [NEIGHBOURS * width if dim in loaded else width if dim == inner else 1 for dim in dims]
    loops = tuple(Loop(shape[dim], step) for dim, step in zip(dims, steps, strict=True))
    return Shareable(loops, prod(shape))


def cut_span(writer: Writer, cut: CutAttr, extent: int, chunk: SSAValue) -> Span:
    alone = CutAttr.of([replace(cut.only, loop=0)])
    return spans(writer, [Group((0,), extent)], alone, chunk)[0]


def copy(
    writer: Writer,
    sizes: Shape,
    source: Source,
    target: tuple[SSAValue, Linear],
    kind: Attribute,
    vector_bytes: int,
    cut: Cut | None = None,
    *,
    turns: bool = True,
) -> None:
    """
    Loops over a box of these sizes; the cut dimension runs over its part only.

    If it `turns`, what stands across is turned in registers, square by square: that is fast, and
    much to compile.
    """
    if 0 in sizes:
        return
    forms = [target[1]] if source.form is None else [source.form, target[1]]
    apart = frozenset() if cut is None else frozenset({cut.dim})
    groups = group_loops(range(len(sizes)), sizes, forms, apart)
    runs = [
        Run(group, cut.part if cut and group.dims == (cut.dim,) else Span(0, group.extent))
        for group in groups
    ]
    place = Place(writer, sizes)
    lanes = _lanes(groups, forms, kind, vector_bytes)
    width = vector_bytes // (lane_bytes(kind) or vector_bytes)
    across = None
    if turns and source.form is not None:
        across = _across(groups, source.form, target[1], width)
    if across is not None and (cut is None or cut.loaded or across.dims != (cut.dim,)):
        _turn(place, runs, across, source, target, width)
        return
    if lanes:
        runs[-1] = Run(groups[-1], runs[-1].part, (lanes, 1))

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


def _across(groups: Sequence[Group], source: Linear, target: Linear, width: int) -> Group | None:
    """
    Where neighbours in the target are none in the source: the loop along which those are.

    Only when both loops are long enough for squares of this width.
    """
    if (
        not groups
        or target.stride(groups[-1].last) != 1
        or source.stride(groups[-1].last) in (0, 1)
    ):
        return None
    found = next((group for group in groups[:-1] if source.stride(group.last) == 1), None)
    fitting = found and 1 < width <= min(MOST_TURNED, found.extent, groups[-1].extent)
    return found if fitting else None


def _turn(
    place: Place,
    runs: Sequence[Run],
    across: Group,
    source: Source,
    target: tuple[SSAValue, Linear],
    lanes: int,
) -> None:
    """
    Squares of so many lanes are loaded by rows and stored by columns; edges go one by one.

    Squares that are written one behind the other follow each other: a cache fetches ahead what is
    to be written so. Where lines are read from afar, it also brings the ones beside them, so that
    they are turned at once.
    """
    assert source.form is not None, "a value stands everywhere"
    writer, form, inner = place.writer, source.form, runs[-1].group
    along = next(one for one in runs if one.group == across)
    outer = [one for one in runs[:-1] if one is not along]

    def square() -> None:
        values = []
        for step in range(lanes):
            with place.shifted(inner.last, step):
                values.append(writer.vector_load(source.value, place.index(form), lanes))
        for step, value in enumerate(turned(writer, values)):
            with place.shifted(across.last, step):
                writer.vector_store(value, target[0], place.index(target[1]))

    def one_by_one(width: int, height: int) -> None:
        for step, further in product(range(height), range(width)):
            with place.shifted(inner.last, step), place.shifted(across.last, further):
                value = writer.load(source.value, place.index(form))
                writer.store(value, target[0], place.index(target[1]))

    def columns(width: int, carried: list[SSAValue]) -> list[SSAValue]:
        def rows(height: int, carried: list[SSAValue]) -> list[SSAValue]:
            if height < lanes or width < lanes:
                one_by_one(width, height)
            elif width == lanes:
                square()
            else:
                start = place.where[across.last]
                with writer.loop(0, width, lanes) as loop:
                    place.where[across.last] = start + Index.of(loop.counter)
                    square()
                place.where[across.last] = start
            return carried

        return run(place, [replace(runs[-1], widths=(lanes, 1))], rows, carried)

    run(place, [*outer, replace(along, widths=(NEIGHBOURS * lanes, lanes, 1))], columns)


def _lanes(groups: list[Group], forms: list[Linear], kind: Attribute, vector_bytes: int) -> int:
    if not groups or any(form.stride(groups[-1].last) != 1 for form in forms):
        return 0
    return fitting_lanes(groups[-1].extent, vector_bytes, lane_bytes(kind))
