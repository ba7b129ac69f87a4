"""Loops of `tile.positions`: every position is stored, and only a true element keeps it."""

from __future__ import annotations

from xdsl.dialects import arith
from xdsl.dialects.builtin import i64

from popgraph.dialects import tile
from popgraph.passes.structured.analysis.loops import Group, tensor
from popgraph.passes.structured.to_loops.emit.access import element_index
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.writer import INDEX
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target


class PositionsLoops(Emitter):
    """
    result[k] = i; k += mask[i], without a branch; then zeros from k on.

    A branch on random data is mispredicted every other time: 3 ns an element instead of 0.4.
    """

    def __init__(self, op: tile.PositionsOp, target: Target) -> None:
        super().__init__(op, target)
        self.op, self.inputs, self.outputs = op, [op.mask], [op.output]
        self.groups = [Group((0,), op.sizes[0], self.running.get(0))]
        self.work = prod(op.sizes)

    @property
    def loops(self) -> None:
        """A position in the result depends on all elements before it: one thread."""
        return None

    def write(self, body: Body) -> None:
        op, writer = self.op, body.writer
        (mask,), (result,), (part,) = body.inputs, body.outputs, body.parts
        if 0 in op.sizes:
            return
        with writer.loop(part.lower, part.upper, carried=[writer.constant(0)]) as loop:
            (count,) = loop.carried
            position = writer.once(arith.IndexCastOp(loop.counter, i64))
            writer.store(position, result, element_index(writer, tensor(op.output), [count]))
            at = element_index(writer, tensor(op.mask), [loop.counter])
            kept = writer.once(arith.ExtUIOp(writer.load_input(mask, at), i64))
            step = writer.once(arith.IndexCastOp(kept, INDEX))
            loop.next([writer.value(Index.of(count) + Index.of(step))])
        zero = writer.number(0, i64)
        with writer.loop(loop.results[0], part.upper) as rest:
            writer.store(zero, result, element_index(writer, tensor(op.output), [rest.counter]))
