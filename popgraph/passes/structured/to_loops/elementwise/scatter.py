"""Loops of `tile.scatter`: starts the result, then combines what comes to its places."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import AnyFloat
from xdsl.ir import SSAValue

from popgraph.dialects import tile
from popgraph.dialects.tile.attributes import layout_of, physical_shape
from popgraph.dialects.tile.cut import chunks_of, cut_of
from popgraph.passes.structured.analysis.loops import Group, tensor
from popgraph.passes.structured.analysis.parallel_loops import Loop, ParallelLoops
from popgraph.passes.structured.to_loops.emit.access import (
    IterationPoint,
    Span,
    accesses,
    element_index,
    spans,
)
from popgraph.passes.structured.to_loops.emit.bodies import inline
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import Run, run
from popgraph.passes.structured.to_loops.emit.writer import Writer
from popgraph.passes.tuning import Target
from popgraph.support.shapes import prod


def scatter_kernel(op: tile.ScatterOp, target: Target) -> tile.KernelOp:
    """Zero or what it starts with, then combine; each chunk in its own part of the result."""
    groups = [Group((dim,), size) for dim, size in enumerate(op.sizes)]
    cut = cut_of(op)
    kernel = tile.KernelOp(op.operands, [tensor(op.output)], chunks_of(cut), _in_place(op))
    writer = Writer(kernel.body.block, target)
    chunk, *sources, result = kernel.body.block.args
    parts = spans(writer, groups, cut, chunk)
    initial = sources.pop() if op.initial is not None else None
    _start(writer, op, initial, result, parts[0] if cut else None)
    if 0 not in op.sizes:
        runs = [Run(*pair) for pair in zip(groups, parts, strict=True)]
        _combine(writer, op, runs, sources, result)
    return kernel


def _in_place(op: tile.ScatterOp) -> list[tuple[int, int]]:
    """What the result starts with may be where the result is."""
    if op.initial is None or op.operands.count(op.initial) > 1:
        return []
    return [(len(op.inputs), 0)]


def scatter_parallel_loops(op: tile.ScatterOp) -> ParallelLoops | None:
    """Only the outermost loop, when it goes over all of the result's outermost dimension."""
    type_ = tensor(op.output)
    if layout_of(type_) or op.parallel_rank == 0 or op.sizes[0] != type_.get_shape()[0]:
        return None
    return ParallelLoops((Loop(op.sizes[0]),), prod(op.sizes))


def _start(
    writer: Writer,
    op: tile.ScatterOp,
    initial: SSAValue | None,
    target: SSAValue,
    part: Span | None,
) -> None:
    shape = physical_shape(tensor(op.output))
    kind = tensor(op.output).element_type
    nothing = writer.number(0, kind) if initial is None else None
    if part is None:
        slices, inside = Span(0, 1, Index()), prod(shape)
    else:
        slices, inside = part, prod(shape[1:])
    with writer.loop(slices.lower, slices.upper) as outer:
        start = (slices.base + Index.of(outer.counter)).scaled(inside)
        with writer.loop(0, inside) as inner:
            place = start + Index.of(inner.counter)
            value = nothing if initial is None else writer.load(initial, place)
            assert value is not None
            writer.store(value, target, place)


def _combine(
    writer: Writer,
    op: tile.ScatterOp,
    runs: list[Run],
    sources: Sequence[SSAValue],
    target: SSAValue,
) -> None:
    point = IterationPoint(writer, op.sizes)
    values = accesses(sources, op.inputs, op.input_maps, op.sizes)
    kind = tensor(op.output).element_type
    sum_ = arith.AddfOp if isinstance(kind, AnyFloat) else arith.AddiOp

    def combined(old: SSAValue, value: SSAValue) -> SSAValue:
        if op.combine is None:
            return writer.add(sum_(old, value))
        return inline(point, op.combine.block, [old, value])[0]

    def add(_: int, carried: list[SSAValue]) -> list[SSAValue]:
        loaded = [writer.load_input(*point.of(access)) for access in values]
        *indices, value = inline(point, op.body.block, loaded)
        index = element_index(writer, tensor(op.output), indices)
        old = writer.load(target, index)
        writer.store(combined(old, value), target, index)
        return carried

    run(point, runs, add)
