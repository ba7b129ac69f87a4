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
from popgraph.passes.structured.to_loops.emit.vectors import in_lanes, of_lanes
from popgraph.passes.structured.to_loops.emit.writer import INDEX, Writer
from popgraph.passes.tuning import Target
from popgraph.support.shapes import prod

VECTORS = 4
"""Vectors of elements that are passed over together if all come after the worst of the heap."""
GROUPS = 4
"""Groups of elements for each chosen one: their largest keys say what need not be tried."""
LEAST_STEPS = 4
"""Elements of a group: of fewer, the largest keys are a sort of their own."""
MOST_BOUNDED = 4096
"""Chosen elements up to which there are groups: 64 KiB of the stack at most."""


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
        lanes = self._lanes
        groups = _Groups.of(op, writer, lanes)
        with writer.loop(part.lower, part.upper) as loop:
            row = writer.value(part.base + Index.of(loop.counter))
            _Row(entries(op, writer, rows, result, row), spare, lanes, groups).write()

    @property
    def _lanes(self) -> int:
        """Elements of a vector; 0 where they are not side by side, or not of 32 bits."""
        type_ = tensor(self.op.rows)
        form = offset(type_, AffineMap.identity(2), type_.get_shape())
        if element_types.from_ir(type_.element_type).bits != 32 or form.stride(1) != 1:
            return 0
        return self.target.machine.vector_bytes // 4


@dataclass(frozen=True)
class _Groups:
    """
    Groups of elements, of which the largest keys bound what can be chosen.

    As many groups as there are elements to choose have a key that is not below the bound, so
    nothing below it is chosen. Of random elements, 1.15 times as many are left as are chosen.
    """

    largest: SSAValue
    """Local memory for the largest key of each group."""
    lanes: int
    vectors: int
    """The lanes of as many vectors are the groups."""
    steps: int
    """Elements of a group."""

    @staticmethod
    def of(op: tile.TopKOp, writer: Writer, lanes: int) -> _Groups | None:
        """None if there are too few elements, or too many to choose."""
        if not lanes or op.count > MOST_BOUNDED:
            return None
        vectors = -(-GROUPS * op.count // lanes)
        steps = op.sizes[1] // (vectors * lanes)
        if steps < LEAST_STEPS:
            return None
        return _Groups(writer.local(i32, vectors * lanes), lanes, vectors, steps)

    def bound(self, entries: _Entries) -> SSAValue:
        """The largest key that is not above those of as many groups as are chosen, bit by bit."""
        writer = entries.writer
        self._find(entries)
        above = self.vectors * self.lanes - entries.op.count
        least, one = writer.number(0, i32), writer.number(1, i32)
        with writer.loop(0, 32, carried=[least]) as loop:
            at = writer.once(arith.IndexCastOp(loop.counter, i32))
            bit = writer.once(arith.ShRUIOp(writer.number(-(1 << 31), i32), at))
            tried = writer.once(arith.OrIOp(loop.carried[0], bit))
            ones, than = (in_lanes(writer, value, self.lanes) for value in (one, tried))
            start = in_lanes(writer, least, self.lanes)
            with writer.loop(0, self.vectors, carried=[start]) as each:
                keys = writer.vector_load(
                    self.largest, Index.of(each.counter, self.lanes), self.lanes
                )
                differs = writer.once(arith.XOrIOp(writer.once(arith.MaxUIOp(keys, than)), keys))
                is_less = writer.once(arith.MinUIOp(differs, ones))
                each.next([writer.once(arith.AddiOp(each.carried[0], is_less))])
            less = of_lanes(writer, each.results[0], arith.AddiOp)
            enough = writer.once(arith.CmpiOp(less, writer.number(above, i32), "sle"))
            loop.next([writer.once(arith.SelectOp(enough, tried, loop.carried[0]))])
        return loop.results[0]

    def _find(self, entries: _Entries) -> None:
        """The largest key of each group."""
        writer, lanes = entries.writer, self.lanes
        nothing = in_lanes(writer, writer.number(0, i32), lanes)
        with writer.loop(0, self.vectors) as vector:
            first = writer.value(Index.of(vector.counter, self.steps * lanes))
            with writer.loop(0, self.steps, carried=[nothing]) as step:
                at = writer.value(Index.of(first) + Index.of(step.counter, lanes))
                keys = entries.keys(at, lanes)
                step.next([writer.once(arith.MaxUIOp(keys, step.carried[0]))])
            at_vector = Index.of(vector.counter, lanes)
            writer.vector_store(step.results[0], self.largest, at_vector)


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

    def keys(self, place: SSAValue, lanes: int = 0, further: int = 0) -> SSAValue:
        """The key of an element of the row, or those of a vector."""
        writer, point = self.writer, IterationPoint(self.writer, self.op.sizes)
        at = element_index(writer, tensor(self.op.rows), [self.row, place]) + further
        if lanes:
            elements = writer.vector_load_input(self.rows, at, lanes)
        else:
            elements = writer.load_input(self.rows, at)
        (found,) = inline(point, self.op.body.block, [elements], Along(1, lanes))
        return found


@dataclass(frozen=True)
class _Packed(_Entries):
    """
    Keys of 32 bits, followed by the complement of the position: the larger one comes first.

    A comparison of integers, where one of floats asks for NaN, and for the positions of equals.
    """

    def of(self, place: SSAValue) -> SSAValue:
        writer = self.writer
        low = writer.once(arith.XOrIOp(self._number(place), writer.number((1 << 32) - 1, i64)))
        high = writer.once(arith.ExtUIOp(self.keys(place), i64))
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
            keys = self.keys(start, lanes, number * lanes)
            largest = writer.once(arith.MaxUIOp(keys, largest))
        larger = of_lanes(writer, writer.once(arith.XOrIOp(largest, last)), arith.OrIOp)
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
            self.keys(writer.once(arith.IndexCastOp(entry, INDEX))) for entry in (one, other)
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
    lanes: int
    groups: _Groups | None

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
        writer, least = self.writer, self._least
        block = VECTORS * self.lanes
        whole = (size - count) // block * block if block else 0
        if whole:
            with writer.loop(count, count + whole, block) as loop:
                worst = self._worst(least)
                with writer.when(self.entries.some_before(loop.counter, worst, self.lanes)):
                    end = writer.value(Index.of(loop.counter, 1, block))
                    with writer.loop(loop.counter, end) as inner:
                        self._try(inner.counter, least)
        with writer.loop(count + whole, size) as loop:
            self._try(loop.counter, least)

    @property
    def _least(self) -> SSAValue | None:
        """An entry that comes after all that are chosen, if one is known."""
        writer = self.writer
        if self.groups is None:
            return None
        key = writer.once(arith.ExtUIOp(self.groups.bound(self.entries), i64))
        entry = writer.once(arith.ShLIOp(key, writer.number(32, i64)))
        below = writer.once(arith.MinUIOp(entry, writer.number(1, i64)))
        return writer.once(arith.SubiOp(entry, below))

    def _worst(self, least: SSAValue | None) -> SSAValue:
        """What an entry has to come before to be chosen."""
        worst = self.entries.get(self.writer.constant(0))
        return worst if least is None else self.writer.once(arith.MaxUIOp(worst, least))

    def _try(self, place: SSAValue, least: SSAValue | None) -> None:
        """An element takes the place of the worst one that it comes before."""
        tried, worst = self.entries.of(place), self._worst(least)
        with self.writer.when(self.entries.is_after(worst, tried)):
            self._sift(self.writer.constant(0), tried, self.writer.constant(self.op.count))

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
