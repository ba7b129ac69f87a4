"""Loops of `tile.suppress`: candidates from a heap are compared with vectors of kept boxes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from xdsl.dialects import arith
from xdsl.dialects.builtin import i1, i32, i64
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import offset
from popgraph.dialects.tile.lanes import vector_of
from popgraph.dialects.tile.structured.selection import LANES, SIDES, padded
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.to_loops.emit.access import IterationPoint, element_index
from popgraph.passes.structured.to_loops.emit.bodies import VectorDim, inline
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import (
    in_lanes,
    lanes_of,
    of_lanes,
    vector_lanes,
)
from popgraph.passes.structured.to_loops.emit.writer import INDEX, Writer
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target

CHUNK = 16
"""Candidates between two tests whether enough are kept: `scf.for` has no early exit."""
KEYS = 2
"""Vectors of keys that are skipped together if none is a candidate."""
VECTORS = 8
"""Vectors of kept boxes between two tests whether one of them suppresses the candidate."""


class SuppressLoops(Emitter):
    """
    Writes row by row: the keys of candidates become a heap, from which they are taken best first.

    Only candidates that are examined are sorted: 100 boxes of 100,000 take 0.1 of a full sort.
    """

    def __init__(self, op: tile.SuppressOp, target: Target) -> None:
        super().__init__(op, target)
        self.op, self.inputs, self.outputs = op, list(op.operands), list(op.results)
        self.work = 8 * prod(op.sizes)

    @property
    def loops(self) -> None:
        """One thread: all rows share one heap."""
        return None

    def write(self, body: Body) -> None:
        batches, rows, length = self.op.sizes
        if 0 in self.op.sizes or not self.op.count:
            return
        with body.writer.loop(0, batches) as batch, body.writer.loop(0, rows) as row:
            _Row(self.op, body, batch.counter, row.counter).write(length)


@dataclass(frozen=True)
class _Row:
    """One row of keys."""

    op: tile.SuppressOp
    body: Body
    batch: SSAValue
    row: SSAValue

    @property
    def writer(self) -> Writer:
        return self.body.writer

    @property
    def heap(self) -> SSAValue:
        return self.body.outputs[1]

    def write(self, length: int) -> None:
        size = self._collect(length)
        levels, top = self._levels(size, length)
        self._order(size, levels, top)
        count = self._choose(size, levels)
        nowhere = self.writer.number(-1, i64)
        with self.writer.loop(count, self.op.count) as loop:
            self.writer.store(nowhere, self.body.outputs[0], self._result(loop.counter))

    def _collect(self, length: int) -> SSAValue:
        """Fills the heap: heap[k] = key; k += key != 0. Returns the number of candidates."""
        writer, lanes = self.writer, self._key_lanes
        count = writer.local(i64, 1)
        writer.store(writer.number(0, i64), count, Index())
        block = KEYS * lanes
        whole = length - length % block if block else 0
        if whole:
            with writer.loop(0, whole, block) as loop:
                vectors = [
                    writer.vector_load_input(
                        self.body.inputs[1], self._key(loop.counter) + vector * lanes, lanes
                    )
                    for vector in range(KEYS)
                ]
                any_bits = of_lanes(
                    writer, reduce(self._either, map(self._bits, vectors)), arith.OrIOp
                )
                is_one = writer.once(arith.CmpiOp(any_bits, writer.number(0, i32), "ne"))
                with writer.when(is_one):
                    end = writer.value(Index.of(loop.counter, 1, block))
                    self._collect_each(loop.counter, end, count)
        self._collect_each(writer.constant(whole), writer.constant(length), count)
        return self._number(count)

    def _collect_each(self, start: SSAValue, end: SSAValue, count: SSAValue) -> None:
        """Collects the candidates of a range, without a branch on each key."""
        # Candidates are clustered: among them, the next key is often one, too.
        writer = self.writer
        with writer.loop(start, end, carried=[self._number(count)]) as loop:
            key = self._bits(writer.load_input(self.body.inputs[1], self._key(loop.counter)))
            self._put(loop.carried[0], self._heap_key(key, loop.counter))
            is_one = writer.once(arith.CmpiOp(key, writer.number(0, i32), "ne"))
            step = writer.once(arith.IndexCastOp(writer.once(arith.ExtUIOp(is_one, i64)), INDEX))
            loop.next([writer.value(Index.of(loop.carried[0]) + Index.of(step))])
        writer.store(writer.once(arith.IndexCastOp(loop.results[0], i64)), count, Index())

    @property
    def _key_lanes(self) -> int:
        """Keys of a vector; 0 without vectors, and if they are not contiguous."""
        type_ = tensor(self.op.keys)
        form = offset(type_, AffineMap.identity(3), type_.get_shape())
        return vector_lanes(self.writer.target.machine) if form.stride(2) == 1 else 0

    def _key(self, at: SSAValue) -> Index:
        return element_index(self.writer, tensor(self.op.keys), [self.batch, self.row, at])

    def _bits(self, keys: SSAValue) -> SSAValue:
        """Keys as signless integers."""
        lanes = lanes_of(keys)
        return self.writer.once(arith.BitcastOp(keys, vector_of(i32, lanes) if lanes else i32))

    def _heap_key(self, key: SSAValue, position: SSAValue) -> SSAValue:
        """A key of the heap: the key, then the complement of the position."""
        # One comparison of integers: among equal keys, that of the lower position is larger.
        writer = self.writer
        high, at = (
            writer.once(arith.ExtUIOp(half, i64)) for half in (key, self._low_half(position))
        )
        high = writer.once(arith.ShLIOp(high, writer.number(32, i64)))
        low = writer.once(arith.XOrIOp(at, writer.number((1 << 32) - 1, i64)))
        return writer.once(arith.OrIOp(high, low))

    def _low_half(self, position: SSAValue) -> SSAValue:
        return self.writer.once(arith.IndexCastOp(position, i32))

    def _either(self, one: SSAValue, other: SSAValue) -> SSAValue:
        return self.writer.once(arith.OrIOp(one, other))

    def _levels(self, size: SSAValue, length: int) -> tuple[SSAValue, SSAValue]:
        """The depth of the heap, and the largest power of two up to its size."""
        writer, one = self.writer, self.writer.constant(1)
        start = [writer.constant(0), one]
        with writer.loop(0, length.bit_length(), carried=start) as loop:
            levels, top = loop.carried
            twice = writer.value(Index.of(top, 2))
            fits = writer.once(arith.CmpiOp(twice, size, "sle"))
            more = writer.value(Index.of(levels, 1, 1))
            loop.next([self._select(fits, more, levels), self._select(fits, twice, top)])
        return loop.results[0], loop.results[1]

    def _order(self, size: SSAValue, levels: SSAValue, top: SSAValue) -> None:
        """Heapifies level by level, from the bottom."""
        # Level by level, since `_sift` runs a fixed number of steps: a node of the lowest inner
        # level takes 1, the root `levels`.
        writer = self.writer
        half = writer.once(arith.DivSIOp(size, writer.constant(2)))
        with writer.loop(0, levels, carried=[top]) as level:
            before = writer.once(arith.DivSIOp(level.carried[0], writer.constant(2)))
            first = writer.value(Index.of(before, 1, -1))
            after = writer.value(Index.of(before, 2, -1))
            last = writer.once(arith.MinSIOp(after, half))
            steps = writer.value(Index.of(level.counter, 1, 1))
            with writer.loop(first, last) as node:
                self._sift(node.counter, self._get(node.counter), size, steps)
            level.next([before])

    def _choose(self, size: SSAValue, levels: SSAValue) -> SSAValue:
        """Takes candidates off the heap until enough are kept; returns their number."""
        writer = self.writer
        limit = writer.once(
            arith.IndexCastOp(writer.load_input(self.body.inputs[2], Index()), INDEX)
        )
        most = writer.once(arith.MinSIOp(limit, writer.constant(self.op.count)))
        count = writer.local(i64, 1)
        self._clear(writer.constant(0))
        writer.store(writer.number(0, i64), count, Index())
        with writer.loop(0, size, CHUNK) as chunk:
            further = writer.value(Index.of(chunk.counter, 1, CHUNK))
            end = writer.once(arith.MinSIOp(further, size))
            wants = writer.add(arith.CmpiOp(self._number(count), most, "slt"))
            with writer.loop(chunk.counter, self._select(wants, end, chunk.counter)) as loop:
                self._try(self._take(size, loop.counter, levels), count, most)
        return writer.once(arith.MaxSIOp(self._number(count), writer.constant(0)))

    def _take(self, size: SSAValue, number: SSAValue, levels: SSAValue) -> SSAValue:
        """Removes the best candidate from the heap and returns its position."""
        writer = self.writer
        root = writer.constant(0)
        best = self._get(root)
        left = writer.value(Index.of(size, 1, -1) + Index.of(number, -1))
        self._sift(root, self._get(left), left, levels)
        low = writer.once(arith.TruncIOp(best, i32))
        position = writer.once(arith.XOrIOp(low, writer.number(-1, i32)))
        return writer.once(arith.IndexCastOp(writer.once(arith.ExtUIOp(position, i64)), INDEX))

    def _try(self, position: SSAValue, count: SSAValue, most: SSAValue) -> None:
        """Keeps a candidate unless a kept one suppresses it."""
        writer, boxes = self.writer, self.body.inputs[0]
        box = [
            writer.load_input(
                boxes,
                element_index(
                    writer, tensor(self.op.boxes), [self.batch, position, writer.constant(side)]
                ),
            )
            for side in range(SIDES)
        ]
        box = inline(IterationPoint(writer, ()), self.op.corners.block, box)
        number = self._number(count)
        free = writer.add(arith.CmpiOp(number, most, "slt"))
        alone = writer.add(arith.CmpiOp(self._suppressed(box, number), writer.number(0, i32), "eq"))
        with writer.when(writer.once(arith.AndIOp(free, alone))):
            for side, value in enumerate(box):
                writer.store(value, self.body.outputs[2], self._side(side, number))
            stored = writer.once(arith.IndexCastOp(position, i64))
            writer.store(stored, self.body.outputs[0], self._result(number))
            more = writer.value(Index.of(number, 1, 1))
            writer.store(writer.once(arith.IndexCastOp(more, i64)), count, Index())
            rest = writer.once(arith.RemSIOp(more, writer.constant(LANES)))
            is_full = writer.once(arith.CmpiOp(rest, writer.constant(0), "eq"))
            with writer.when(is_full):
                self._clear(more)

    def _suppressed(self, box: Sequence[SSAValue], count: SSAValue) -> SSAValue:
        """An integer, not 0 if a kept box suppresses this one."""
        writer, lanes = self.writer, self._lanes
        threshold = writer.load_input(self.body.inputs[3], Index())
        nothing, ones = (in_lanes(writer, writer.number(value, i32), lanes) for value in (0, -1))
        chunk = max(1, lanes) * VECTORS
        with writer.loop(0, count, chunk, [writer.number(0, i32)]) as outer:
            further = writer.value(Index.of(outer.counter, 1, chunk))
            end = writer.once(arith.MinSIOp(further, count))
            open_ = writer.once(arith.CmpiOp(outer.carried[0], writer.number(0, i32), "eq"))
            end = self._select(open_, end, outer.counter)
            with writer.loop(outer.counter, end, max(1, lanes), [nothing]) as inner:
                kept = [
                    writer.get(self.body.outputs[2], self._side(side, inner.counter), lanes)
                    for side in range(SIDES)
                ]
                point = IterationPoint(writer, (padded(self.op.count),))
                (found,) = inline(
                    point, self.op.body.block, [*kept, *box, threshold], VectorDim(0, lanes)
                )
                chosen = tile.SelectOp if lanes else arith.SelectOp
                inner.next([writer.once(chosen(found, ones, inner.carried[0]))])
            total = of_lanes(writer, inner.results[0], arith.OrIOp)
            outer.next([writer.once(arith.OrIOp(outer.carried[0], total))])
        return outer.results[0]

    @property
    def _lanes(self) -> int:
        return min(LANES, vector_lanes(self.writer.target.machine))

    def _clear(self, start: SSAValue) -> None:
        """Fills the next vector of kept boxes with empty ones."""
        # Vectors compare with all their lanes: boxes without an area suppress nothing.
        nothing = self.writer.number(0, tensor(self.op.boxes).element_type)
        with self.writer.loop(0, LANES) as loop:
            for side in range(SIDES):
                at = self._side(side, start) + Index.of(loop.counter)
                self.writer.store(nothing, self.body.outputs[2], at)

    # The heap: the largest key is the root.

    def _sift(self, start: SSAValue, moving: SSAValue, size: SSAValue, steps: SSAValue) -> None:
        """Sifts a key down from `start` while a child is larger."""
        with self.writer.loop(0, steps, carried=[start]) as loop:
            loop.next([self._step_down(loop.carried[0], size, moving)])
        self._put(loop.results[0], moving)

    def _step_down(self, at: SSAValue, size: SSAValue, moving: SSAValue) -> SSAValue:
        """Moves the larger child up if it is larger than `moving`; returns the new node."""
        # Selects instead of branches, as the number of steps is fixed: a key that has arrived is
        # stored again.
        writer = self.writer
        left = self._inside(Index.of(at, 2, 1), size, at)
        right = self._inside(Index.of(at, 2, 2), size, left)
        one, other = self._get(left), self._get(right)
        is_right = writer.once(arith.CmpiOp(other, one, "ugt"))
        larger = self._select(is_right, other, one)
        goes = writer.once(arith.CmpiOp(larger, moving, "ugt"))
        self._put(at, self._select(goes, larger, moving))
        return self._select(goes, self._select(is_right, right, left), at)

    def _inside(self, at: Index, size: SSAValue, instead: SSAValue) -> SSAValue:
        position = self.writer.value(at)
        return self._select(
            self.writer.once(arith.CmpiOp(position, size, "slt")), position, instead
        )

    def _select(self, condition: SSAValue, one: SSAValue, other: SSAValue) -> SSAValue:
        assert condition.type == i1
        return self.writer.once(arith.SelectOp(condition, one, other))

    def _get(self, at: SSAValue) -> SSAValue:
        key = self.writer.load(self.heap, Index.of(at))
        return self.writer.once(arith.BitcastOp(key, i64))

    def _put(self, at: SSAValue, key: SSAValue) -> None:
        stored = self.writer.once(arith.BitcastOp(key, tensor(self.op.heap).element_type))
        self.writer.store(stored, self.heap, Index.of(at))

    def _number(self, memory: SSAValue) -> SSAValue:
        return self.writer.once(arith.IndexCastOp(self.writer.load(memory, Index()), INDEX))

    def _result(self, at: SSAValue) -> Index:
        type_ = tensor(self.op.positions)
        return element_index(self.writer, type_, [self.batch, self.row, at])

    def _side(self, side: int, at: SSAValue) -> Index:
        return Index.of(at, 1, side * padded(self.op.count))
