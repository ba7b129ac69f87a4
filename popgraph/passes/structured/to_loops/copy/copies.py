"""Copies of boxes of elements from one memory to another."""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass, replace
from functools import partial

from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.tile.affine import Linear
from popgraph.dialects.tile.cut import CutAttr
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.passes.structured.analysis.loops import Group, group_loops
from popgraph.passes.structured.analysis.parallel_loops import Loop, ParallelLoops
from popgraph.passes.structured.to_loops.emit.access import IterationPoint, Span, spans
from popgraph.passes.structured.to_loops.emit.transpose_in_registers import CopyPlan
from popgraph.passes.structured.to_loops.emit.vectors import Run, fitting_lanes, lanes_of, run
from popgraph.passes.structured.to_loops.emit.writer import Writer
from popgraph.passes.tuning import Target
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
    loaded: bool = False
    """Parts are whole vectors, too, where vectors are loaded along this dimension."""


def shared_out(
    dims: Sequence[int],
    shape: Shape,
    kind: Attribute,
    target: Target,
    loaded: Container[int] = (),
) -> ParallelLoops:
    """
    Chunks may share one of these dimensions of a box.

    Of the innermost one they get whole vectors, of those along which vectors are `loaded` whole
    neighbours: what crosses the end of a chunk would write what belongs to the next, or to nobody.
    """
    inner = max((dim for dim, size in enumerate(shape) if size > 1), default=-1)
    vector_bytes, together = target.machine.vector_bytes, target.machine.lines_together
    width = vector_bytes // (lane_bytes(kind) or vector_bytes)
    steps = [together * width if dim in loaded else width if dim == inner else 1 for dim in dims]
    loops = tuple(Loop(shape[dim], step) for dim, step in zip(dims, steps, strict=True))
    return ParallelLoops(loops, prod(shape))


def cut_span(writer: Writer, cut: CutAttr, extent: int, chunk: SSAValue) -> Span:
    alone = CutAttr.of([replace(cut.only, loop=0)])
    return spans(writer, [Group((0,), extent)], alone, chunk)[0]


def copy(
    writer: Writer,
    sizes: Shape,
    source: Source,
    target: tuple[SSAValue, Linear],
    kind: Attribute,
    cut: Cut | None = None,
    *,
    transposes: bool = True,
) -> None:
    """
    Loops over a box of these sizes; the cut dimension runs over its part only.

    If it `transposes`, what stands across is transposed in registers, square by square: that is
    fast, and much to compile.
    """
    if 0 in sizes:
        return
    vector_bytes = writer.target.machine.vector_bytes
    forms = [target[1]] if source.form is None else [source.form, target[1]]
    separate = frozenset() if cut is None else frozenset({cut.dim})
    groups = group_loops(range(len(sizes)), sizes, forms, separate)
    runs = [
        Run(group, cut.part if cut and group.dims == (cut.dim,) else Span(0, group.extent))
        for group in groups
    ]
    point = IterationPoint(writer, sizes)
    if transposes and source.form is not None:
        ends = CopyPlan(source.value, source.form, *target)
        shared = next((one for one in groups if cut and one.dims == (cut.dim,)), None)
        lanes = vector_bytes // (lane_bytes(kind) or vector_bytes)
        squares = ends.squares(point, groups, lanes, shared)
        if squares and (cut is None or cut.loaded or squares.across.dims != (cut.dim,)):
            squares.write(runs)
            return
    lanes = _lanes(groups, forms, kind, vector_bytes)
    if lanes:
        runs[-1] = Run(groups[-1], runs[-1].part, (lanes, 1))
    run(point, runs, partial(_move, point, source, target))


def _move(
    point: IterationPoint,
    source: Source,
    target: tuple[SSAValue, Linear],
    width: int,
    carried: list[SSAValue],
) -> list[SSAValue]:
    """So many elements go from the source to the target."""
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
