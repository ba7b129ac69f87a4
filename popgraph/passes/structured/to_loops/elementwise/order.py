"""Loops of `tile.order`: a radix sort of keys with their positions, byte by byte."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import i32, i64
from xdsl.ir import SSAValue

from popgraph.dialects import tile
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.to_loops.emit.access import element_index
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.writer import INDEX, Writer
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target

DIGIT = 8
"""Bits of a round; its 256 counters stay in L1."""
BUCKETS = 1 << DIGIT


class OrderLoops(Emitter):
    """
    Writes a radix sort from the lowest byte to the highest; bytes that all keys share are skipped.

    A round moves keys and positions from one half of the memory to the other. It takes 4 ns a key
    for f32; a merge sort takes as long in each of log2(n) rounds, and reads keys by position.
    """

    def __init__(self, op: tile.OrderOp, target: Target) -> None:
        super().__init__(op, target)
        self.op, self.inputs, self.outputs = op, list(op.operands), list(op.results)
        self.work = 16 * prod(op.sizes)

    @property
    def loops(self) -> None:
        """One thread: a round counts all keys before it moves one."""
        return None

    def write(self, body: Body) -> None:
        if 0 not in self.op.sizes:
            _Sort(self.op, body, body.writer).write()


@dataclass(frozen=True)
class _Sort:
    op: tile.OrderOp
    body: Body
    writer: Writer

    def write(self) -> None:
        (length,), rounds = self.op.sizes, -(-self.op.bits.value.data // DIGIT)
        writer, zero = self.writer, self.writer.number(0, i64)
        counts, half = writer.local(i64, rounds * BUCKETS), writer.local(i64, 1)
        writer.store(zero, half, Index())
        with writer.loop(0, rounds * BUCKETS) as loop:
            writer.store(zero, counts, Index.of(loop.counter))
        # One pass counts the bytes of all rounds: moving keys does not change the counts.
        with writer.loop(0, length) as loop:
            at = element_index(writer, tensor(self.op.keys), [loop.counter])
            key = writer.once(arith.BitcastOp(writer.load_input(self.body.inputs[0], at), i64))
            self._put(loop.counter, key, writer.once(arith.IndexCastOp(loop.counter, i32)))
            for number in range(rounds):
                self._count(counts, self._bucket(key, number), 1)
        for number in range(rounds):
            self._round(number, length, counts, half)
        start = self._index(writer.load(half, Index()))
        with writer.loop(0, length) as loop:
            _, position = self._get(writer.value(Index.of(loop.counter) + Index.of(start)))
            result = element_index(writer, tensor(self.op.positions), [loop.counter])
            wide = writer.once(arith.ExtUIOp(position, i64))
            writer.store(wide, self.body.outputs[0], result)

    def _round(self, number: int, length: int, counts: SSAValue, half: SSAValue) -> None:
        """Distributes keys by a byte, unless all keys share it."""
        # `half` is the start of the current half, 0 or `length`: it changes in rounds that move.
        writer, size = self.writer, self.writer.constant(length)
        start = self._index(writer.load(half, Index()))
        key, _ = self._get(start)
        same = self._index(writer.load(counts, self._bucket(key, number)))
        with writer.when(writer.once(arith.CmpiOp(same, size, "ne"))):
            # The other half: length - 0 = length, and length - length = 0.
            target = writer.once(arith.SubiOp(size, start))
            first = writer.once(arith.IndexCastOp(target, i64))
            with writer.loop(0, BUCKETS, carried=[first]) as loop:
                at = Index.of(loop.counter, 1, number * BUCKETS)
                count = writer.load(counts, at)
                writer.store(loop.carried[0], counts, at)
                loop.next([writer.once(arith.AddiOp(loop.carried[0], count))])
            with writer.loop(0, length) as loop:
                key, position = self._get(writer.value(Index.of(loop.counter) + Index.of(start)))
                to = self._count(counts, self._bucket(key, number), 1)
                self._put(self._index(to), key, position)
            writer.store(first, half, Index())

    def _count(self, counts: SSAValue, at: Index, by: int) -> SSAValue:
        """Adds to a counter and returns its old value."""
        before = self.writer.load(counts, at)
        more = self.writer.once(arith.AddiOp(before, self.writer.number(by, i64)))
        self.writer.store(more, counts, at)
        return before

    def _bucket(self, key: SSAValue, number: int) -> Index:
        """The counter for a byte of a key."""
        writer = self.writer
        moved = key
        if number:
            moved = writer.once(arith.ShRUIOp(key, writer.number(DIGIT * number, i64)))
        digit = writer.once(arith.AndIOp(moved, writer.number(BUCKETS - 1, i64)))
        return Index.of(self._index(digit), 1, number * BUCKETS)

    def _index(self, number: SSAValue) -> SSAValue:
        return self.writer.once(arith.IndexCastOp(number, INDEX))

    def _get(self, at: SSAValue) -> tuple[SSAValue, SSAValue]:
        _, keys, positions = self.body.outputs
        key = self.writer.load(keys, Index.of(at))
        return self.writer.once(arith.BitcastOp(key, i64)), self.writer.load(
            positions, Index.of(at)
        )

    def _put(self, at: SSAValue, key: SSAValue, position: SSAValue) -> None:
        _, keys, positions = self.body.outputs
        kind = tensor(self.op.sorting).element_type
        self.writer.store(self.writer.once(arith.BitcastOp(key, kind)), keys, Index.of(at))
        self.writer.store(position, positions, Index.of(at))
