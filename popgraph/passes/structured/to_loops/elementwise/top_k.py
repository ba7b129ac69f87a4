"""Loops of `tile.top_k`: positions are chosen by a heap in the result, then sorted there."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import i1, i32, i64
from xdsl.ir import SSAValue

from popgraph.dialects import tile
from popgraph.dialects.tile.attributes import layout_of
from popgraph.dialects.tile.structured.ops import element
from popgraph.passes.structured.analysis.loops import Group, tensor
from popgraph.passes.structured.analysis.parallel_loops import Loop
from popgraph.passes.structured.to_loops.emit.access import IterationPoint, element_index
from popgraph.passes.structured.to_loops.emit.bodies import inline
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.writer import INDEX, Writer
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target


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
        last = writer.local(element(op.rows), 1)
        merges = tuning.least_merged <= op.count <= tuning.most_merged
        spare = writer.local(i32, op.count) if merges else None
        with writer.loop(part.lower, part.upper) as loop:
            row = writer.value(part.base + Index.of(loop.counter))
            _Row(op, writer, rows, result, row).write(last, spare)


@dataclass(frozen=True)
class _Kept:
    """A position in a heap, and the element of the row that stands there."""

    place: SSAValue
    element: SSAValue


@dataclass(frozen=True)
class _Row:
    """One row: its elements, and the heap of positions that becomes its result."""

    op: tile.TopKOp
    writer: Writer
    rows: SSAValue
    result: SSAValue
    row: SSAValue

    def write(self, last: SSAValue, spare: SSAValue | None) -> None:
        """`last` is memory for the worst element of the heap, `spare` for merged positions."""
        count, size = self.op.count, self.op.sizes[1]
        with self.writer.loop(0, count) as loop:
            self._put(loop.counter, loop.counter)
        if count < size or spare is None:
            self._heap(count)
        if count < size:
            self._choose(count, size, last)
        if spare is not None:
            self._merge_sort(count, spare)
        else:
            with self.writer.loop(0, count - 1) as loop:
                self._take(self._below(count - 1, loop.counter))

    def _heap(self, count: int) -> None:
        """What comes last of all is made the root."""
        with self.writer.loop(0, count // 2) as loop:
            self._sift(self._below(count // 2 - 1, loop.counter), self.writer.constant(count))

    def _choose(self, count: int, size: int, last: SSAValue) -> None:
        """The elements behind those of the heap are tried one by one."""
        self.writer.store(self._element(self._get(self.writer.constant(0))), last, Index())
        with self.writer.loop(count, size) as loop:
            self._try(loop.counter, last)

    def _try(self, place: SSAValue, last: SSAValue) -> None:
        """An element takes the place of the worst one that it comes before."""
        writer, root = self.writer, self.writer.constant(0)
        worst = writer.load(last, Index())
        with writer.when(self._before(self._element(place), worst)):
            self._put(root, place)
            self._sift(root, writer.constant(self.op.count))
            writer.store(self._element(self._get(root)), last, Index())

    def _take(self, end: SSAValue) -> None:
        """The worst one of a heap goes to its end, which is no part of it any more."""
        root = self.writer.constant(0)
        worst, other = self._get(root), self._get(end)
        self._put(root, other)
        self._put(end, worst)
        self._sift(root, end)

    def _merge_sort(self, count: int, spare: SSAValue) -> None:
        """Sorted runs of one position, of two, of four ... are merged, two by two."""
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
                place = writer.load(spare, Index.of(copied.counter))
                self._put(copied.counter, writer.once(arith.IndexCastOp(place, INDEX)))
            loop.next([both])

    def _end(self, start: SSAValue, by: SSAValue, count: int) -> SSAValue:
        """The end of a run, which is no further than that of all."""
        end = self.writer.value(Index.of(start) + Index.of(by))
        return self.writer.once(arith.MinSIOp(end, self.writer.constant(count)))

    def _merge(self, start: SSAValue, middle: SSAValue, end: SSAValue, spare: SSAValue) -> None:
        """The positions of two neighbouring runs in order, from `start` on in `spare`."""
        writer = self.writer
        with writer.loop(start, end, carried=[start, middle]) as loop:
            left, right = loop.carried
            one = self._kept(self._inside(Index.of(left), middle, start))
            other = self._kept(self._inside(Index.of(right), end, start))
            done = writer.once(arith.CmpiOp(left, middle, "sge"))
            more = writer.once(arith.CmpiOp(right, end, "slt"))
            goes = writer.once(arith.OrIOp(done, self._is_behind(one, other)))
            goes = writer.once(arith.AndIOp(goes, more))
            place = self._select(goes, other.place, one.place)
            writer.store(writer.once(arith.IndexCastOp(place, i32)), spare, Index.of(loop.counter))
            further = [writer.value(Index.of(at, 1, 1)) for at in (left, right)]
            loop.next([self._select(goes, left, further[0]), self._select(goes, further[1], right)])

    def _is_behind(self, one: _Kept, other: _Kept) -> SSAValue:
        """Whether an element of a run comes after one of the next run."""
        if self.op.count < self.op.sizes[1]:
            return self._after(one, other)
        # No heap was made: positions in the next run are all higher.
        return self._before(other.element, one.element)

    def _sift(self, start: SSAValue, size: SSAValue) -> None:
        """What stands at `start` goes down as long as one below it is worse."""
        moving = self._kept(start)
        steps = self.op.count.bit_length() - 1
        with self.writer.loop(0, steps, carried=[start]) as loop:
            loop.next([self._step_down(loop.carried[0], size, moving)])
        self._put(loop.results[0], moving.place)

    def _step_down(self, at: SSAValue, size: SSAValue, moving: _Kept) -> SSAValue:
        """The worse of the two below goes up if it is worse than what moves; where that is then."""
        left = self._inside(Index.of(at, 2, 1), size, at)
        right = self._inside(Index.of(at, 2, 2), size, left)
        below, other = self._kept(left), self._kept(right)
        is_right = self._after(other, below)
        worse = _Kept(
            self._select(is_right, other.place, below.place),
            self._select(is_right, other.element, below.element),
        )
        goes = self._after(worse, moving)
        self._put(at, self._select(goes, worse.place, moving.place))
        return self._select(goes, self._select(is_right, right, left), at)

    def _inside(self, at: Index, size: SSAValue, instead: SSAValue) -> SSAValue:
        """A place of the heap, or another one where it has so few elements."""
        place = self.writer.value(at)
        inside = self.writer.once(arith.CmpiOp(place, size, "slt"))
        return self._select(inside, place, instead)

    def _select(self, condition: SSAValue, one: SSAValue, other: SSAValue) -> SSAValue:
        return self.writer.once(arith.SelectOp(condition, one, other))

    def _kept(self, at: SSAValue) -> _Kept:
        place = self._get(at)
        return _Kept(place, self._element(place))

    def _after(self, one: _Kept, other: _Kept) -> SSAValue:
        """Whether an element comes after another one; of equals that at the higher position."""
        writer = self.writer
        further = writer.once(arith.CmpiOp(one.place, other.place, "sgt"))
        is_before = self._before(one.element, other.element)
        tied = self._select(is_before, writer.number(0, i1), further)
        return writer.once(arith.OrIOp(self._before(other.element, one.element), tied))

    def _before(self, one: SSAValue, other: SSAValue) -> SSAValue:
        point = IterationPoint(self.writer, self.op.sizes)
        (result,) = inline(point, self.op.body.block, [one, other])
        return result

    def _element(self, place: SSAValue) -> SSAValue:
        index = element_index(self.writer, tensor(self.op.rows), [self.row, place])
        return self.writer.load_input(self.rows, index)

    def _get(self, at: SSAValue) -> SSAValue:
        """The position that stands somewhere in the heap."""
        place = self.writer.load(self.result, self._index(at))
        return self.writer.once(arith.IndexCastOp(place, INDEX))

    def _put(self, at: SSAValue, place: SSAValue) -> None:
        stored = self.writer.once(arith.IndexCastOp(place, i64))
        self.writer.store(stored, self.result, self._index(at))

    def _index(self, at: SSAValue) -> Index:
        return element_index(self.writer, tensor(self.op.output), [self.row, at])

    def _below(self, end: int, counter: SSAValue) -> SSAValue:
        """Backwards: so many less than `end`."""
        return self.writer.value(Index.of(counter, -1, end))
