"""Loops of `tile.top_k`: entries are chosen by a heap in the result, then sorted there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import i32, i64
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import element_types, tile
from popgraph.dialects.tile.affine import offset
from popgraph.dialects.tile.attributes import layout_of
from popgraph.passes.structured.analysis.loops import Group, tensor
from popgraph.passes.structured.analysis.parallel_loops import Loop
from popgraph.passes.structured.to_loops.emit.access import IterationPoint, element_index
from popgraph.passes.structured.to_loops.emit.bodies import Along, inline
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import in_lanes, or_of_lanes
from popgraph.passes.structured.to_loops.emit.writer import INDEX, Writer
from popgraph.passes.tuning import Target
from popgraph.support.shapes import prod

VECTORS = 4
"""Vectors of elements that are passed over together if all come after the worst of the heap."""


class TopKLoops(Emitter):
    """Row by row: a heap of the first elements, in which better ones take the worst one's place."""

    def __init__(self, op: tile.TopKOp, target: Target) -> None:
        super().__init__(op, target)
        self.op, self.inputs, self.outputs = op, [op.rows], [op.output]
        self.groups = [Group((0,), op.sizes[0], self.running.get(0))]
        self.work = prod(op.sizes) + op.sizes[0] * op.count * op.count.bit_length()

    @property
    def loops(self) -> list[Loop] | None:
        """Threads share the rows."""
        return None if layout_of(tensor(self.op.output)) else [Loop(self.op.sizes[0])]

    def write(self, body: Body) -> None:
        op, writer, tuning = self.op, body.writer, self.target.tuning
        (rows,), (result,), (part,) = body.inputs, body.outputs, body.parts
        if 0 in (*op.sizes, op.count):
            return
        merges = tuning.least_merged <= op.count <= tuning.most_merged
        entries = _Packed if op.key == i32 else _Positions
        spare = writer.local(i64, op.count) if merges else None
        with writer.loop(part.lower, part.upper) as loop:
            row = writer.value(part.base + Index.of(loop.counter))
            _Row(entries(op, writer, rows, result, row), spare).write()


@dataclass(frozen=True)
class _Entries(ABC):
    """The entries of a heap in the memory of a row's result: i64 that know a position."""

    op: tile.TopKOp
    writer: Writer
    rows: SSAValue
    result: SSAValue
    row: SSAValue

    def get(self, at: SSAValue) -> SSAValue:
        return self.writer.load(self.result, self._index(at))

    def put(self, at: SSAValue, entry: SSAValue) -> None:
        self.writer.store(entry, self.result, self._index(at))

    def _index(self, at: SSAValue) -> Index:
        return element_index(self.writer, tensor(self.op.output), [self.row, at])

    @abstractmethod
    def of(self, place: SSAValue) -> SSAValue:
        """The entry of the element at a position."""

    @abstractmethod
    def is_after(self, one: SSAValue, other: SSAValue) -> SSAValue:
        """Whether an element comes after another one; of equals that at the higher position."""

    @abstractmethod
    def some_before(self, start: SSAValue, worst: SSAValue, lanes: int) -> SSAValue:
        """Whether an element of the vectors that begin here may come before another one."""

    @abstractmethod
    def finish(self, at: SSAValue) -> None:
        """Leaves the position of an entry in its place."""

    def key(self, place: SSAValue) -> SSAValue:
        """The key of an element of the row."""
        return self._key(self.writer.load_input(self.rows, self.place(place)), 0)

    def _key(self, elements: SSAValue, lanes: int) -> SSAValue:
        point = IterationPoint(self.writer, self.op.sizes)
        (found,) = inline(point, self.op.body.block, [elements], Along(1, lanes))
        return found

    def place(self, at: SSAValue) -> Index:
        return element_index(self.writer, tensor(self.op.rows), [self.row, at])


@dataclass(frozen=True)
class _Packed(_Entries):
    """
    Keys of 32 bits, followed by the complement of the position: the larger one comes first.

    A comparison of integers, where one of floats asks for NaN, and for the positions of equals.
    """

    def of(self, place: SSAValue) -> SSAValue:
        writer = self.writer
        low = writer.once(arith.XOrIOp(self._number(place), writer.number((1 << 32) - 1, i64)))
        high = writer.once(arith.ExtUIOp(self.key(place), i64))
        high = writer.once(arith.ShLIOp(high, writer.number(32, i64)))
        return writer.once(arith.OrIOp(high, low))

    def _number(self, place: SSAValue) -> SSAValue:
        return self.writer.once(arith.IndexCastOp(place, i64))

    def is_after(self, one: SSAValue, other: SSAValue) -> SSAValue:
        return self.writer.once(arith.CmpiOp(one, other, "ult"))

    def some_before(self, start: SSAValue, worst: SSAValue, lanes: int) -> SSAValue:
        writer = self.writer
        high = writer.once(arith.ShRUIOp(worst, writer.number(32, i64)))
        last = largest = in_lanes(writer, writer.once(arith.TruncIOp(high, i32)), lanes)
        for number in range(VECTORS):
            at = self.place(start) + number * lanes
            keys = self._key(writer.vector_load_input(self.rows, at, lanes), lanes)
            largest = writer.once(arith.MaxUIOp(keys, largest))
        larger = or_of_lanes(writer, writer.once(arith.XOrIOp(largest, last)))
        return writer.once(arith.CmpiOp(larger, writer.number(0, i32), "ne"))

    def finish(self, at: SSAValue) -> None:
        writer = self.writer
        low = writer.once(arith.TruncIOp(self.get(at), i32))
        place = writer.once(arith.XOrIOp(low, writer.number(-1, i32)))
        self.put(at, writer.once(arith.ExtUIOp(place, i64)))


@dataclass(frozen=True)
class _Positions(_Entries):
    """Positions, by which keys of 64 bits are read."""

    def of(self, place: SSAValue) -> SSAValue:
        return self.writer.once(arith.IndexCastOp(place, i64))

    def is_after(self, one: SSAValue, other: SSAValue) -> SSAValue:
        writer = self.writer
        key, than = (
            self.key(writer.once(arith.IndexCastOp(entry, INDEX))) for entry in (one, other)
        )
        further = writer.once(arith.CmpiOp(one, other, "sgt"))
        is_tied = writer.once(arith.CmpiOp(key, than, "eq"))
        is_less = writer.once(arith.CmpiOp(key, than, "ult"))
        return writer.once(arith.OrIOp(is_less, writer.once(arith.AndIOp(is_tied, further))))

    def some_before(self, start: SSAValue, worst: SSAValue, lanes: int) -> SSAValue:
        raise AssertionError("elements of 64 bits are tried one by one")

    def finish(self, at: SSAValue) -> None:
        """Nothing is to be done."""


@dataclass(frozen=True)
class _Row:
    """One row, whose result becomes a heap and then a list in order."""

    entries: _Entries
    spare: SSAValue | None
    """Local memory for merged entries; None where none are merged."""

    @property
    def op(self) -> tile.TopKOp:
        return self.entries.op

    @property
    def writer(self) -> Writer:
        return self.entries.writer

    def write(self) -> None:
        entries, writer, count, size = self.entries, self.writer, self.op.count, self.op.sizes[1]
        with writer.loop(0, count) as loop:
            entries.put(loop.counter, entries.of(loop.counter))
        if count < size or self.spare is None:
            self._heap(count)
        if count < size:
            self._choose(count, size)
        if self.spare is not None:
            self._merge_sort(count, self.spare)
        else:
            with writer.loop(0, count - 1) as loop:
                self._take(self._below(count - 1, loop.counter))
        with writer.loop(0, count) as loop:
            entries.finish(loop.counter)

    def _heap(self, count: int) -> None:
        """What comes last of all is made the root."""
        with self.writer.loop(0, count // 2) as loop:
            start = self._below(count // 2 - 1, loop.counter)
            self._sift(start, self.entries.get(start), self.writer.constant(count))

    def _choose(self, count: int, size: int) -> None:
        """Tries the elements that follow those of the heap, one by one unless none will do."""
        writer, lanes = self.writer, self._lanes
        block = VECTORS * lanes
        whole = (size - count) // block * block if block else 0
        if whole:
            with writer.loop(count, count + whole, block) as loop:
                worst = self.entries.get(writer.constant(0))
                with writer.when(self.entries.some_before(loop.counter, worst, lanes)):
                    end = writer.value(Index.of(loop.counter, 1, block))
                    with writer.loop(loop.counter, end) as inner:
                        self._try(inner.counter)
        with writer.loop(count + whole, size) as loop:
            self._try(loop.counter)

    @property
    def _lanes(self) -> int:
        """Elements of a vector; 0 where they are not side by side, or not of 32 bits."""
        type_ = tensor(self.op.rows)
        form = offset(type_, AffineMap.identity(2), type_.get_shape())
        if element_types.from_ir(type_.element_type).bits != 32 or form.stride(1) != 1:
            return 0
        return self.writer.target.machine.vector_bytes // 4

    def _try(self, place: SSAValue) -> None:
        """An element takes the place of the worst one that it comes before."""
        root = self.writer.constant(0)
        tried, worst = self.entries.of(place), self.entries.get(root)
        with self.writer.when(self.entries.is_after(worst, tried)):
            self._sift(root, tried, self.writer.constant(self.op.count))

    def _take(self, end: SSAValue) -> None:
        """The worst one of a heap goes to its end, which is no part of it any more."""
        root = self.writer.constant(0)
        worst, other = self.entries.get(root), self.entries.get(end)
        self.entries.put(end, worst)
        self._sift(root, other, end)

    def _merge_sort(self, count: int, spare: SSAValue) -> None:
        """Sorted runs of one entry, of two, of four ... are merged, two by two."""
        writer = self.writer
        rounds = (count - 1).bit_length()
        with writer.loop(0, rounds, carried=[writer.constant(1)]) as loop:
            (width,) = loop.carried
            both = writer.value(Index.of(width, 2))
            runs = writer.once(arith.DivSIOp(writer.value(Index.of(both, 1, count - 1)), both))
            with writer.loop(0, runs) as pair:
                start = writer.once(arith.MuliOp(pair.counter, both))
                middle, end = (self._end(start, by, count) for by in (width, both))
                self._merge(start, middle, end, spare)
            with writer.loop(0, count) as copied:
                entry = writer.load(spare, Index.of(copied.counter))
                self.entries.put(copied.counter, entry)
            loop.next([both])

    def _end(self, start: SSAValue, by: SSAValue, count: int) -> SSAValue:
        """The end of a run, which is no further than that of all."""
        end = self.writer.value(Index.of(start) + Index.of(by))
        return self.writer.once(arith.MinSIOp(end, self.writer.constant(count)))

    def _merge(self, start: SSAValue, middle: SSAValue, end: SSAValue, spare: SSAValue) -> None:
        """The entries of two neighbouring runs in order, from `start` on in `spare`."""
        writer, entries = self.writer, self.entries
        with writer.loop(start, end, carried=[start, middle]) as loop:
            left, right = loop.carried
            one = entries.get(self._inside(Index.of(left), middle, start))
            other = entries.get(self._inside(Index.of(right), end, start))
            done = writer.once(arith.CmpiOp(left, middle, "sge"))
            more = writer.once(arith.CmpiOp(right, end, "slt"))
            goes = writer.once(arith.OrIOp(done, entries.is_after(one, other)))
            goes = writer.once(arith.AndIOp(goes, more))
            writer.store(self._select(goes, other, one), spare, Index.of(loop.counter))
            further = [writer.value(Index.of(at, 1, 1)) for at in (left, right)]
            loop.next([self._select(goes, left, further[0]), self._select(goes, further[1], right)])

    def _sift(self, start: SSAValue, moving: SSAValue, size: SSAValue) -> None:
        """An entry goes down from `start` as long as one below it is worse."""
        steps = self.op.count.bit_length() - 1
        with self.writer.loop(0, steps, carried=[start]) as loop:
            loop.next([self._step_down(loop.carried[0], size, moving)])
        self.entries.put(loop.results[0], moving)

    def _step_down(self, at: SSAValue, size: SSAValue, moving: SSAValue) -> SSAValue:
        """The worse of the two below goes up if it is worse than what moves; where that is then."""
        left = self._inside(Index.of(at, 2, 1), size, at)
        right = self._inside(Index.of(at, 2, 2), size, left)
        below, other = self.entries.get(left), self.entries.get(right)
        is_right = self.entries.is_after(other, below)
        worse = self._select(is_right, other, below)
        goes = self.entries.is_after(worse, moving)
        self.entries.put(at, self._select(goes, worse, moving))
        return self._select(goes, self._select(is_right, right, left), at)

    def _inside(self, at: Index, size: SSAValue, instead: SSAValue) -> SSAValue:
        """A place of the heap, or another one where it has so few elements."""
        place = self.writer.value(at)
        inside = self.writer.once(arith.CmpiOp(place, size, "slt"))
        return self._select(inside, place, instead)

    def _select(self, condition: SSAValue, one: SSAValue, other: SSAValue) -> SSAValue:
        return self.writer.once(arith.SelectOp(condition, one, other))

    def _below(self, end: int, counter: SSAValue) -> SSAValue:
        """Backwards: so many less than `end`."""
        return self.writer.value(Index.of(counter, -1, end))
