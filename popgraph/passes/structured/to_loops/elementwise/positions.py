"""Loops of `tile.positions` and `tile.compress`: true positions of a mask, and slices there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from xdsl.dialects import arith
from xdsl.dialects.builtin import i64
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import offset
from popgraph.dialects.tile.attributes import layout_of
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.passes.structured.analysis.loops import Group, group_loops, tensor
from popgraph.passes.structured.to_loops.emit.access import IterationPoint, element_index
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import NestLoop, fitting_lanes, write_nest
from popgraph.passes.structured.to_loops.emit.writer import INDEX
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target


class PositionsLoops(Emitter):
    """
    Writes result[k] = i; k += mask[i], without a branch; then zeros from k on, and k.

    A branch on random data is mispredicted every other time: 3 ns an element instead of 0.4.
    """

    def __init__(self, op: tile.PositionsOp, target: Target) -> None:
        super().__init__(op, target)
        self.op, self.inputs, self.outputs = op, [op.mask], [*op.results]
        self.groups = [Group((0,), op.sizes[0], self.running.get(0))]
        self.work = prod(op.sizes)

    @property
    def loops(self) -> None:
        """One thread: a position in the result depends on all elements before it."""
        return None

    def write(self, body: Body) -> None:
        op, writer = self.op, body.writer
        (mask,), (result, number), (part,) = body.inputs, body.outputs, body.parts
        with writer.loop(part.lower, part.upper, carried=[writer.constant(0)]) as loop:
            (count,) = loop.carried
            position = writer.once(arith.IndexCastOp(loop.counter, i64))
            writer.store(position, result, element_index(writer, tensor(op.output), [count]))
            at = element_index(writer, tensor(op.mask), [loop.counter])
            kept = writer.once(arith.ExtUIOp(writer.load_input(mask, at), i64))
            step = writer.once(arith.IndexCastOp(kept, INDEX))
            loop.next([writer.value(Index.of(count) + Index.of(step))])
        writer.store(writer.once(arith.IndexCastOp(loop.results[0], i64)), number, Index())
        zero = writer.number(0, i64)
        with writer.loop(loop.results[0], part.upper) as rest:
            writer.store(zero, result, element_index(writer, tensor(op.output), [rest.counter]))


class CompressLoops(Emitter):
    """Writes the selected slices, up to the count; nothing is written after them."""

    def __init__(self, op: tile.CompressOp, target: Target) -> None:
        super().__init__(op, target)
        self.op, self.inputs, self.outputs = op, [*op.operands], [op.output]
        # A gather for all positions up to the bound moved twice the slices that are kept. Without
        # it, 100x64x10 along the middle goes from 0.74 to 1.25 of onnxruntime's speed (3d4ef82e).
        self.axis, shape = op.axis.value.data, op.sizes
        self.form = offset(tensor(op.data), AffineMap.identity(len(shape)), shape)
        self.outer, self.rest = (
            group_loops(dims, shape, [self.form], running=self.running)
            for dims in (range(self.axis), range(self.axis + 1, len(shape)))
        )
        self.groups = [*self.outer, *self.rest]
        self.work = prod(shape)

    @property
    def loops(self) -> None:
        """One thread: the offset of a slice depends on the count."""
        return None

    def write(self, body: Body) -> None:
        if 0 in self.op.sizes:
            return
        writer = body.writer
        count, point = writer.size(body.inputs[2]), IterationPoint(writer, self.op.sizes)
        nest = [NestLoop(*each) for each in zip(self.groups, body.parts, strict=True)]
        outer, rest = nest[: len(self.outer)], nest[len(self.outer) :]
        last = rest.pop() if rest else None

        def kept(start: SSAValue) -> SSAValue:
            with writer.loop(0, count, carried=[start]) as loop:
                at = element_index(writer, tensor(self.op.positions), [loop.counter])
                position = writer.once(
                    arith.IndexCastOp(writer.load_input(body.inputs[1], at), INDEX)
                )
                point.indices[self.axis] = Index.of(position)
                loop.next([_carry_through(point, rest, loop.carried[0], row)])
            return loop.results[0]

        def row(start: SSAValue) -> SSAValue:
            return self._copy(body, point, start, last)

        _carry_through(point, outer, writer.constant(0), kept)

    def _copy(
        self, body: Body, point: IterationPoint, start: SSAValue, last: NestLoop | None
    ) -> SSAValue:
        """Copies contiguous elements to the list from `start` on; returns the new end."""
        writer = body.writer

        def step(width: int, carried: list[SSAValue]) -> list[SSAValue]:
            to = Index.of(start)
            if last is not None:
                to = to + point.indices[last.group.last]
            lanes = width if width > 1 else 0
            value = writer.get(body.inputs[0], point.index(self.form), lanes)
            at = element_index(writer, tensor(self.op.output), [writer.value(to)])
            writer.put(value, body.outputs[0], at)
            return carried

        if last is None:
            step(1, [])
            return writer.value(Index.of(start, 1, 1))
        lanes = self._lanes(last.group)
        write_nest(point, [replace(last, widths=(lanes, 1) if lanes else (1,))], step)
        size = last.part.upper
        return writer.value(Index.of(start) + (size if isinstance(size, int) else Index.of(size)))

    def _lanes(self, group: Group) -> int:
        """The number of lanes of vectors along a loop; 0 if its elements are not contiguous."""
        if self.form.stride(group.last) != 1 or layout_of(tensor(self.op.output)):
            return 0
        lane = lane_bytes(tensor(self.op.data).element_type)
        return fitting_lanes(group.extent, self.target.machine.vector_bytes, lane)


def _carry_through(
    point: IterationPoint,
    nest: Sequence[NestLoop],
    start: SSAValue,
    emit: Callable[[SSAValue], SSAValue],
) -> SSAValue:
    """Writes a nest around `emit`, which carries the end of the list; returns the last end."""
    if not nest:
        return emit(start)
    first, *inner = nest
    with point.writer.loop(first.part.lower, first.part.upper, carried=[start]) as loop:
        point.bind(first.group, first.part.base + Index.of(loop.counter))
        loop.next([_carry_through(point, inner, loop.carried[0], emit)])
    return loop.results[0]
