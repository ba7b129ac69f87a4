"""Loops of `tile.segments`: reduces the rows of each segment, in vectors of columns."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import offset
from popgraph.dialects.tile.attributes import layout_of
from popgraph.passes.structured.analysis.loops import Group, tensor
from popgraph.passes.structured.analysis.parallel_loops import Loop
from popgraph.passes.structured.to_loops.emit.access import IterationPoint, Span, element_index
from popgraph.passes.structured.to_loops.emit.bodies import VectorDim, inline, widest_lane
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import (
    NestLoop,
    fitting_lanes,
    in_lanes,
    write_nest,
)
from popgraph.passes.structured.to_loops.emit.writer import INDEX
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target


class SegmentsLoops(Emitter):
    """Writes segment by segment: reduces its rows in a few vectors, which are stored once."""

    def __init__(self, op: tile.SegmentsOp, target: Target) -> None:
        super().__init__(op, target)
        self.op, self.inputs, self.outputs = op, list(op.operands), [op.output]
        segments, columns = op.sizes
        self.groups = [Group((0,), segments, self.running.get(0))]
        kind = tensor(op.rows).element_type
        widest = widest_lane([kind], op.body.block)
        self.lanes = fitting_lanes(columns, target.machine.vector_bytes, widest)
        if not _is_dense(op):
            self.lanes = 0
        # Totals of a few vectors of columns stay in registers over all rows of a segment.
        most = target.tuning.reduction_vectors
        self.vectors = max(1, min(most, columns // self.lanes)) if self.lanes else 1
        self.work = prod(tensor(op.rows).get_shape()) + prod(op.sizes)

    @property
    def loops(self) -> list[Loop] | None:
        """Threads share segments."""
        # Segments have rows of their own, so chunks write disjoint results.
        return None if layout_of(tensor(self.op.output)) else [Loop(self.op.sizes[0])]

    def write(self, body: Body) -> None:
        if 0 in self.op.sizes:
            return
        writer, columns, (part,) = body.writer, self.op.sizes[1], body.parts
        steps = [self.lanes * self.vectors, self.lanes, 1] if self.lanes else [1]
        with writer.loop(part.lower, part.upper) as loop:
            segment = writer.value(part.base + Index.of(loop.counter))
            start, end = (
                writer.once(
                    arith.IndexCastOp(
                        writer.load_input(memory, element_index(writer, tensor(value), [segment])),
                        INDEX,
                    )
                )
                for memory, value in zip(body.inputs[1:], self.inputs[1:], strict=True)
            )
            point = IterationPoint(writer, (columns,))

            def block(width: int, carried: list[SSAValue]) -> list[SSAValue]:
                self._columns(body, point, width, (segment, start, end))
                return carried

            group = Group((0,), columns)
            widths = _used(steps, columns)
            write_nest(point, [NestLoop(group, Span(0, columns), widths)], block)

    def _columns(
        self, body: Body, point: IterationPoint, width: int, segment_rows: Sequence[SSAValue]
    ) -> None:
        """Writes a few adjacent columns of one segment."""
        writer, (segment, start, end) = body.writer, segment_rows
        lanes = self.lanes if width > 1 else 0
        vectors = max(1, width // max(1, lanes))
        nothing = in_lanes(writer, writer.literal(self.op.initial), lanes)
        column = point.indices[0]

        def at(memory_of: SSAValue, row: SSAValue, vector: int) -> Index:
            first = writer.value(column + vector * lanes)
            return element_index(writer, tensor(memory_of), [row, first])

        with writer.loop(start, end, 1, [nothing] * vectors) as loop:
            totals = []
            for vector, total in enumerate(loop.carried):
                row = at(self.op.rows, loop.counter, vector)
                element = writer.get(body.inputs[0], row, lanes)
                (made,) = inline(point, self.op.body.block, [element, total], VectorDim(0, lanes))
                totals.append(made)
            loop.next(totals)
        for vector, total in enumerate(loop.results):
            writer.put(total, body.outputs[0], at(self.op.output, segment, vector))


def _is_dense(op: tile.SegmentsOp) -> bool:
    """Whether rows are contiguous in memory."""
    for value in (op.rows, op.output):
        type_ = tensor(value)
        form = offset(type_, AffineMap.identity(2), type_.get_shape())
        # One column is contiguous whatever its stride.
        if form.stride(1) != 1 and type_.get_shape()[1] > 1:
            return False
    return True


def _used(steps: Sequence[int], extent: int) -> tuple[int, ...]:
    """The steps that a loop of this extent takes, the longest first."""
    used = []
    for step in dict.fromkeys(steps):
        if extent >= step:
            used.append(step)
            extent %= step
    return tuple(used)
