"""Loops of `tile.top_k`: a heap in the result selects entries, which are then sorted there."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import NamedTuple

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
from popgraph.passes.structured.to_loops.emit.bodies import VectorDim, inline
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import in_lanes, of_lanes, vector_lanes
from popgraph.passes.structured.to_loops.emit.writer import INDEX, Writer
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target

VECTORS = 4
"""Vectors of elements that are skipped together if all come after the worst of the heap."""
GROUPS = (4, 2)
"""
Groups of elements per result: their largest keys bound the keys of results from below.

Of random elements, four groups leave 1.15 candidates per result, two leave 1.4.
"""
LEAST_STEPS = 4
"""Elements of a group, at least: with fewer, their maxima are nearly a sort."""
BUCKETS = 256
"""Counters of a radix sort's round: the values of a byte."""


class Digit(NamedTuple):
    """A byte by which entries are sorted: of one of their words, at a shift."""

    word: int
    shift: int


class TopKLoops(Emitter):
    """Writes row by row: a heap of the first elements, whose worst one better ones replace."""

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
        # Zen 5: 50 of 2,000 take 8.3 us with the heap, 8.8 by their bytes. More than 32,768 would
        # take over 256 KiB of the stack.
        distributes = tuning.least_distributed <= op.count <= tuning.most_distributed
        entries = _Packed if op.key == i32 else _Positions
        spare = writer.local(i64, op.count) if distributes else None
        lanes = self._lanes
        groups = _Groups.of(op, writer, lanes, tuning.most_distributed)
        with writer.loop(part.lower, part.upper) as loop:
            row = writer.value(part.base + Index.of(loop.counter))
            _Row(entries(op, writer, rows, result, row), spare, lanes, groups).write()

    @property
    def _lanes(self) -> int:
        """Elements of a vector; 0 without vectors, and if they have gaps or not 32 bits."""
        type_ = tensor(self.op.rows)
        form = offset(type_, AffineMap.identity(2), type_.get_shape())
        if element_types.from_ir(type_.element_type).bits != 32 or form.stride(1) != 1:
            return 0
        return vector_lanes(self.target.machine)


@dataclass(frozen=True)
class _Groups:
    """
    Groups of elements whose largest keys give a lower bound of the keys of results.

    At least `count` groups have a key that is not below the bound, so no key below it is a result.
    """

    largest: SSAValue
    """Local memory for the largest key of each group."""
    lanes: int
    vectors: int
    """Vectors of groups: each lane is one group."""
    steps: int
    """Elements of a group."""

    @staticmethod
    def of(op: tile.TopKOp, writer: Writer, lanes: int, most: int) -> _Groups | None:
        """Allocates at most `most` groups; None if there are too few elements, or more results."""
        for groups in GROUPS if lanes else ():
            vectors = -(-groups * op.count // lanes)
            steps = op.sizes[1] // (vectors * lanes)
            if steps >= LEAST_STEPS and vectors * lanes <= most:
                return _Groups(writer.local(i32, vectors * lanes), lanes, vectors, steps)
        return None

    def bound(self, entries: _Entries) -> SSAValue:
        """The largest key that at least `count` group maxima reach, found bit by bit."""
        # 32 passes over the maxima, from the highest bit: a bit stays set if enough maxima reach
        # the key with it. min(max(key, tried) ^ key, 1) is 1 for a key below.
        writer = entries.writer
        self._find(entries)
        above = self.vectors * self.lanes - entries.op.count
        least, one = writer.number(0, i32), writer.number(1, i32)
        with writer.loop(0, 32, carried=[least]) as loop:
            at = writer.once(arith.IndexCastOp(loop.counter, i32))
            bit = writer.once(arith.ShRUIOp(writer.number(-(1 << 31), i32), at))
            tried = writer.once(arith.OrIOp(loop.carried[0], bit))
            ones, limit = (in_lanes(writer, value, self.lanes) for value in (one, tried))
            start = in_lanes(writer, least, self.lanes)
            with writer.loop(0, self.vectors, carried=[start]) as each:
                keys = writer.vector_load(
                    self.largest, Index.of(each.counter, self.lanes), self.lanes
                )
                differs = writer.once(arith.XOrIOp(writer.once(arith.MaxUIOp(keys, limit)), keys))
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
    """The entries of a heap in the memory of a row's result: i64 that contain a position."""

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
    def of(self, position: SSAValue) -> SSAValue:
        """The entry of the element at a position."""

    @abstractmethod
    def is_after(self, one: SSAValue, other: SSAValue) -> SSAValue:
        """Whether an entry comes after another one; among equal keys, by position."""

    @abstractmethod
    def any_before(self, start: SSAValue, worst: SSAValue, lanes: int) -> SSAValue:
        """Whether an element of the vectors from `start` on may come before `worst`."""

    @abstractmethod
    def digits(self, in_order: bool) -> list[Digit]:
        """The bytes to sort by, lowest first; without positions if entries are `in_order`."""

    @abstractmethod
    def word(self, entry: SSAValue, number: int) -> SSAValue:
        """A word of an entry, an i64 with bytes to sort by."""

    @abstractmethod
    def finish(self, at: SSAValue) -> None:
        """Replaces an entry by its position."""

    def keys(self, position: SSAValue, lanes: int = 0, further: int = 0) -> SSAValue:
        """The key of an element of the row, or the keys of a vector of elements."""
        writer, point = self.writer, IterationPoint(self.writer, self.op.sizes)
        at = element_index(writer, tensor(self.op.rows), [self.row, position]) + further
        if lanes:
            elements = writer.vector_load_input(self.rows, at, lanes)
        else:
            elements = writer.load_input(self.rows, at)
        (found,) = inline(point, self.op.body.block, [elements], VectorDim(1, lanes))
        return found


@dataclass(frozen=True)
class _Packed(_Entries):
    """
    Keys of 32 bits, then the complement of the position: the larger entry comes first.

    One comparison of integers; one of floats would test for NaN, and compare positions of ties.
    """

    def of(self, position: SSAValue) -> SSAValue:
        writer = self.writer
        low = writer.once(arith.XOrIOp(self._number(position), writer.number((1 << 32) - 1, i64)))
        high = writer.once(arith.ExtUIOp(self.keys(position), i64))
        high = writer.once(arith.ShLIOp(high, writer.number(32, i64)))
        return writer.once(arith.OrIOp(high, low))

    def _number(self, position: SSAValue) -> SSAValue:
        return self.writer.once(arith.IndexCastOp(position, i64))

    def is_after(self, one: SSAValue, other: SSAValue) -> SSAValue:
        return self.writer.once(arith.CmpiOp(one, other, "ult"))

    def any_before(self, start: SSAValue, worst: SSAValue, lanes: int) -> SSAValue:
        writer = self.writer
        high = writer.once(arith.ShRUIOp(worst, writer.number(32, i64)))
        last = largest = in_lanes(writer, writer.once(arith.TruncIOp(high, i32)), lanes)
        for number in range(VECTORS):
            keys = self.keys(start, lanes, number * lanes)
            largest = writer.once(arith.MaxUIOp(keys, largest))
        larger = of_lanes(writer, writer.once(arith.XOrIOp(largest, last)), arith.OrIOp)
        return writer.once(arith.CmpiOp(larger, writer.number(0, i32), "ne"))

    def digits(self, in_order: bool) -> list[Digit]:
        return [Digit(0, shift) for shift in range(32 if in_order else 0, 64, 8)]

    def word(self, entry: SSAValue, number: int) -> SSAValue:
        return entry

    def finish(self, at: SSAValue) -> None:
        writer = self.writer
        low = writer.once(arith.TruncIOp(self.get(at), i32))
        position = writer.once(arith.XOrIOp(low, writer.number(-1, i32)))
        self.put(at, writer.once(arith.ExtUIOp(position, i64)))


@dataclass(frozen=True)
class _Positions(_Entries):
    """Positions; keys of 64 bits are read from the row."""

    def of(self, position: SSAValue) -> SSAValue:
        return self.writer.once(arith.IndexCastOp(position, i64))

    def is_after(self, one: SSAValue, other: SSAValue) -> SSAValue:
        writer = self.writer
        key, other_key = (
            self.keys(writer.once(arith.IndexCastOp(entry, INDEX))) for entry in (one, other)
        )
        further = writer.once(arith.CmpiOp(one, other, "sgt"))
        is_tied = writer.once(arith.CmpiOp(key, other_key, "eq"))
        is_less = writer.once(arith.CmpiOp(key, other_key, "ult"))
        return writer.once(arith.OrIOp(is_less, writer.once(arith.AndIOp(is_tied, further))))

    def any_before(self, start: SSAValue, worst: SSAValue, lanes: int) -> SSAValue:
        raise AssertionError("keys of 64 bits have no vectors")

    def digits(self, in_order: bool) -> list[Digit]:
        positions = [] if in_order else [Digit(0, shift) for shift in range(0, 32, 8)]
        return [*positions, *(Digit(1, shift) for shift in range(0, 64, 8))]

    def word(self, entry: SSAValue, number: int) -> SSAValue:
        writer = self.writer
        if number:
            return self.keys(writer.once(arith.IndexCastOp(entry, INDEX)))
        return writer.once(arith.XOrIOp(entry, writer.number(-1, i64)))

    def finish(self, at: SSAValue) -> None:
        """Entries are positions already."""


@dataclass(frozen=True)
class _Row:
    """One row: its result becomes a heap, then a sorted list."""

    entries: _Entries
    spare: SSAValue | None
    """Local memory for a radix sort; None if the heap sorts the entries."""
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
            self._distribute(count, self.spare)
        else:
            with writer.loop(0, count - 1) as loop:
                self._take(self._below(count - 1, loop.counter))
        with writer.loop(0, count) as loop:
            entries.finish(loop.counter)

    def _heap(self, count: int) -> None:
        """Heapifies the first `count` elements: the worst one is the root."""
        with self.writer.loop(0, count // 2) as loop:
            start = self._below(count // 2 - 1, loop.counter)
            self._sift(start, self.entries.get(start), self.writer.constant(count))

    def _choose(self, count: int, size: int) -> None:
        """Tries the elements after the first `count`, and skips blocks without a candidate."""
        # One test of 4 vectors skips 64 elements with AVX-512.
        writer, least = self.writer, self._lower_bound
        block = VECTORS * self.lanes
        whole = (size - count) // block * block if block else 0
        if whole:
            with writer.loop(count, count + whole, block) as loop:
                worst = self._worst(least)
                with writer.when(self.entries.any_before(loop.counter, worst, self.lanes)):
                    end = writer.value(Index.of(loop.counter, 1, block))
                    with writer.loop(loop.counter, end) as inner:
                        self._try(inner.counter, least)
        with writer.loop(count + whole, size) as loop:
            self._try(loop.counter, least)

    @property
    def _lower_bound(self) -> SSAValue | None:
        """An entry that comes after all results, if one is known."""
        writer = self.writer
        if self.groups is None:
            return None
        key = writer.once(arith.ExtUIOp(self.groups.bound(self.entries), i64))
        entry = writer.once(arith.ShLIOp(key, writer.number(32, i64)))
        # One less than the smallest entry with the key: `_try` keeps entries that come before it. 0
        # stays.
        below = writer.once(arith.MinUIOp(entry, writer.number(1, i64)))
        return writer.once(arith.SubiOp(entry, below))

    def _worst(self, least: SSAValue | None) -> SSAValue:
        """The entry that a candidate must come before."""
        worst = self.entries.get(self.writer.constant(0))
        return worst if least is None else self.writer.once(arith.MaxUIOp(worst, least))

    def _try(self, position: SSAValue, least: SSAValue | None) -> None:
        """Replaces the worst entry of the heap by an element, if that comes before it."""
        tried, worst = self.entries.of(position), self._worst(least)
        with self.writer.when(self.entries.is_after(worst, tried)):
            self._sift(self.writer.constant(0), tried, self.writer.constant(self.op.count))

    def _take(self, end: SSAValue) -> None:
        """Moves the worst entry of a heap to its end, and shortens the heap."""
        root = self.writer.constant(0)
        worst, other = self.entries.get(root), self.entries.get(end)
        self.entries.put(end, worst)
        self._sift(root, other, end)

    def _distribute(self, count: int, spare: SSAValue) -> None:
        """Radix sort, byte by byte from the lowest; bytes that all entries share are skipped."""
        # Zen 5: all of 64 elements take 4.1 us, 5.0 with the heap.
        digits = self.entries.digits(count == self.op.sizes[1])
        writer, zero = self.writer, self.writer.number(0, i32)
        counts = writer.local(i32, len(digits) * BUCKETS)
        with writer.loop(0, len(digits) * BUCKETS) as loop:
            writer.store(zero, counts, Index.of(loop.counter))
        with writer.loop(0, count) as loop:
            entry = self.entries.get(loop.counter)
            for number, digit in enumerate(digits):
                self._next_of(counts, self._bucket(entry, number, digit))
        for number, digit in enumerate(digits):
            first = self._bucket(self.entries.get(writer.constant(0)), number, digit)
            alike = writer.once(arith.IndexCastOp(writer.load(counts, first), INDEX))
            differs = writer.once(arith.CmpiOp(alike, writer.constant(count), "ne"))
            with writer.when(differs):
                self._round(count, counts, spare, number, digit)

    def _round(
        self, count: int, counts: SSAValue, spare: SSAValue, number: int, digit: Digit
    ) -> None:
        """Distributes entries by a byte, the largest first, and copies them back."""
        writer, entries = self.writer, self.entries
        with writer.loop(0, BUCKETS, carried=[writer.number(0, i32)]) as loop:
            at = Index.of(self._below(BUCKETS - 1, loop.counter), 1, number * BUCKETS)
            before = writer.load(counts, at)
            writer.store(loop.carried[0], counts, at)
            loop.next([writer.once(arith.AddiOp(loop.carried[0], before))])
        with writer.loop(0, count) as loop:
            entry = entries.get(loop.counter)
            to = self._next_of(counts, self._bucket(entry, number, digit))
            writer.store(entry, spare, Index.of(writer.once(arith.IndexCastOp(to, INDEX))))
        with writer.loop(0, count) as loop:
            entries.put(loop.counter, writer.load(spare, Index.of(loop.counter)))

    def _bucket(self, entry: SSAValue, number: int, digit: Digit) -> Index:
        """The counter of an entry's byte."""
        writer, shift = self.writer, digit.shift
        word = self.entries.word(entry, digit.word)
        moved = writer.once(arith.ShRUIOp(word, writer.number(shift, i64))) if shift else word
        byte = writer.once(arith.AndIOp(moved, writer.number(BUCKETS - 1, i64)))
        return Index.of(writer.once(arith.IndexCastOp(byte, INDEX)), 1, number * BUCKETS)

    def _next_of(self, counts: SSAValue, at: Index) -> SSAValue:
        """Increments a counter and returns its old value."""
        before = self.writer.load(counts, at)
        more = self.writer.once(arith.AddiOp(before, self.writer.number(1, i32)))
        self.writer.store(more, counts, at)
        return before

    def _sift(self, start: SSAValue, moving: SSAValue, size: SSAValue) -> None:
        """Sifts an entry down from `start` while a child is worse."""
        # From the root of n entries, floor(log2(n)) steps reach a leaf, without an early exit.
        steps = self.op.count.bit_length() - 1
        with self.writer.loop(0, steps, carried=[start]) as loop:
            loop.next([self._step_down(loop.carried[0], size, moving)])
        self.entries.put(loop.results[0], moving)

    def _step_down(self, at: SSAValue, size: SSAValue, moving: SSAValue) -> SSAValue:
        """Moves the worse child up if it is worse than `moving`; returns the new node."""
        # Selects instead of branches, as the number of steps is fixed: an entry that has arrived is
        # stored again.
        left = self._inside(Index.of(at, 2, 1), size, at)
        right = self._inside(Index.of(at, 2, 2), size, left)
        below, other = self.entries.get(left), self.entries.get(right)
        is_right = self.entries.is_after(other, below)
        worse = self._select(is_right, other, below)
        goes = self.entries.is_after(worse, moving)
        self.entries.put(at, self._select(goes, worse, moving))
        return self._select(goes, self._select(is_right, right, left), at)

    def _inside(self, at: Index, size: SSAValue, instead: SSAValue) -> SSAValue:
        """A node of the heap, or `instead` if the heap is shorter."""
        position = self.writer.value(at)
        inside = self.writer.once(arith.CmpiOp(position, size, "slt"))
        return self._select(inside, position, instead)

    def _select(self, condition: SSAValue, one: SSAValue, other: SSAValue) -> SSAValue:
        return self.writer.once(arith.SelectOp(condition, one, other))

    def _below(self, end: int, counter: SSAValue) -> SSAValue:
        """`end - counter`, to iterate backwards."""
        return self.writer.value(Index.of(counter, -1, end))
