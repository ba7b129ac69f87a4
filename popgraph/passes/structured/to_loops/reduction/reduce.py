"""Loops of `tile.reduce`: vectorization along results or terms, chunked accumulation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from xdsl.dialects import arith
from xdsl.dialects.builtin import DenseIntOrFPElementsAttr, VectorType, i1
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import Linear, offset
from popgraph.dialects.tile.structured.combiners import Combiner, combiners_of, identity_of
from popgraph.dialects.tile.structured.ops import indexed_dims
from popgraph.passes.structured.analysis.loops import (
    Group,
    group_loops,
    tensor,
)
from popgraph.passes.structured.analysis.parallel_loops import Loop, loops_in_steps
from popgraph.passes.structured.to_loops.emit.access import (
    IterationPoint,
    Source,
    Span,
    full_spans,
    in_place,
    volume,
)
from popgraph.passes.structured.to_loops.emit.bodies import VectorDim, inline, widest_lane
from popgraph.passes.structured.to_loops.emit.chunks import cut_loops
from popgraph.passes.structured.to_loops.emit.create import create_same_type
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import (
    STRIDES,
    NestLoop,
    fitting_lanes,
    in_lanes,
    lanes_of,
    read,
    write,
    write_nest,
)
from popgraph.passes.structured.to_loops.reduction.accumulation import (
    Accumulation,
    chain_terms,
    type_of,
)
from popgraph.support.machine import PORTABLE_BYTES
from popgraph.support.shapes import Shape, prod
from popgraph.support.tuning import Target


class Lanes(Enum):
    """The loop that vectors run along."""

    NOTHING = "scalars only"
    PARALLEL = "the innermost parallel loop: every lane is a result"
    REDUCTION = "the innermost reduction: lanes are partial results"


@dataclass(frozen=True)
class Mode:
    """The vectorization of one reduction."""

    along: Lanes
    lanes: int = 0
    unrolled: int = 1
    masked: bool = False
    """Whether one more vector, with a mask, adds the terms after the last full one."""
    rows: int = 1
    """Results whose partial results are added together, if lanes are partial results."""

    @property
    def width(self) -> int:
        return self.lanes * self.unrolled

    def widths(self, extent: int, *, running: bool = False) -> tuple[int, ...]:
        """
        The steps of the vectorized loop; parallel lanes end in narrower vectors.

        A `running` loop may end anywhere up to its extent.
        """
        steps = [self.width, self.lanes]
        if self.along is Lanes.PARALLEL:
            steps += [narrow for narrow in (16, 8, 4, 2) if narrow < self.lanes]
        elif self.masked and extent % self.lanes:
            steps.append(extent % self.lanes)
        if running:
            return tuple(step for step in dict.fromkeys([*steps, 1]) if step <= extent)
        used = []
        for step in dict.fromkeys([*steps, 1]):
            if extent >= step:
                used.append(step)
                extent %= step
        return tuple(used)


class ReduceLoops(Emitter):
    """
    Writes the loops of one reduction.

    `window` has the number of iterations of each loop, from its index on; by default all.
    """

    def __init__(self, op: tile.ReduceOp, target: Target, window: Shape | None = None) -> None:
        super().__init__(op, target)
        self.op, self.initial = op, tuple(op.initial)
        self.inputs, self.outputs = [*op.inputs, *op.epilogue_inputs], op.outputs
        sizes, parallel = op.sizes, op.parallel_rank
        identity = AffineMap.identity(parallel)
        self.values = [*self.inputs, *self.outputs]
        maps = [*op.input_maps, *op.epilogue_input_maps, *[identity] * len(self.outputs)]
        self.forms = [
            offset(tensor(value), map_, sizes)
            for value, map_ in zip(self.values, maps, strict=True)
        ]
        window = window or sizes
        separate = indexed_dims(op.body.block) | indexed_dims(op.epilogue.block)
        terms = range(parallel, len(sizes))
        self.is_tile = target.portable and tile.is_contraction(op)
        if self.is_tile:
            chain, most = chain_terms(op, target), target.tuning.partial_sums
            separate |= cut_loops({dim: window[dim] for dim in terms}, chain, most)
        self.outer, self.inner = (
            group_loops(dims, window, self.forms, separate, self.running)
            for dims in (range(parallel), terms)
        )
        self.combiners = combiners_of(op.body.block, len(op.inputs))
        self.mode = self._mode()
        if self.mode.along is Lanes.REDUCTION:
            self.outer = self._largest_first()
            self.mode = replace(self.mode, rows=self._rows())
        self.groups, self.work = self.outer, volume(self.outer) * volume(self.inner)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """Threads share results, in full vectors."""
        steps = [1] * len(self.outer)
        if self.mode.along is Lanes.PARALLEL:
            steps[-1] = self.mode.width
        elif self.mode.rows > 1:
            steps[-1] = self.mode.rows
        return loops_in_steps(self.outer, steps)

    # Decisions

    def _mode(self) -> Mode:
        if not self.target.portable:
            found = self._along_results() or self._along_terms(self.target.machine.vector_bytes)
        elif self.is_tile:
            found = self._along_results()  # The order of terms in register tiles.
        else:
            # Whether lanes are partial sums, and how many, must not depend on the vectors of the
            # machine, or on the number of results.
            found = self._along_terms(PORTABLE_BYTES) or self._along_results()
        return found or Mode(Lanes.NOTHING)

    def _along_results(self) -> Mode | None:
        """Vectors of results, if results and operands are contiguous enough along a loop."""
        op, most_vectors = self.op, self.target.tuning.reduction_vectors
        if not (self.outer and self._results_in_lanes()):
            return None
        extent, inner = self.outer[-1].extent, self.outer[-1].last
        results = [tensor(value).element_type for value in [*op.epilogue_inputs, *self.outputs]]
        widest = widest_lane(
            [*self._kinds, *results], op.body.block, op.epilogue.block, along=inner
        )
        lanes = fitting_lanes(extent, self.target.machine.vector_bytes, widest)
        if not lanes or not _readable(self.forms[: len(op.inputs)], self.outer[-1]):
            return None
        return Mode(Lanes.PARALLEL, lanes, max(1, min(most_vectors, extent // lanes)))

    def _along_terms(self, vector_bytes: int) -> Mode | None:
        """Vectors of partial results, if terms are contiguous along a loop."""
        if not self.inner or None in self.combiners:
            return None
        op, extent, inner = self.op, self.inner[-1].extent, self.inner[-1].last
        widest = widest_lane(self._kinds, op.body.block, along=inner)
        lanes = fitting_lanes(extent, vector_bytes, widest)
        if not lanes or not _contiguous(self.forms[: len(op.inputs)], self.inner[-1]):
            return None
        # Several vectors are independent accumulators: 4 cycles of latency take 4 of them to add
        # one vector in each cycle.
        unrolled = max(1, min(self.target.tuning.reduction_vectors, extent // lanes))
        # A mask is a constant: the length of the remainder must be one, too.
        masked = self.inner[-1].running is None
        masked &= not any(type_of(initial) == i1 for initial in self.initial)
        return Mode(Lanes.REDUCTION, lanes, unrolled, masked)

    @property
    def _kinds(self) -> list[Attribute]:
        """The types of inputs and accumulators."""
        kinds = [tensor(value).element_type for value in self.op.inputs]
        return [*kinds, *map(type_of, self.initial)]

    def _rows(self) -> int:
        """
        The number of results whose lanes are added together, a vector of results at the end.

        Only for short rows, where adding lanes takes much of the time, and for results that are
        contiguous along the innermost loop.
        """
        # n rows of n lanes take 2 (n - 1) shuffles and n - 1 additions together, but
        # log2(n) of each for every row alone: for 16 rows, 30 and 15 instead of 64 and 64.
        lanes = self.mode.lanes
        if not (self.outer and self.mode.masked and len(self.inner) == 1):
            return 1
        longest = self.target.tuning.longest_short_row * lanes
        if self.inner[0].extent > longest or not self._results_in_lanes():
            return 1
        kinds = [tensor(value).element_type for value in self.outputs]
        kinds += [tensor(value).element_type for value in self.op.epilogue_inputs]
        kinds += [type_of(initial) for initial in self.initial]
        widest = widest_lane(kinds, self.op.epilogue.block, along=self.outer[-1].last)
        most = min(lanes, self.target.machine.vector_bytes // widest if widest else 1)
        rows = 1
        while 2 * rows <= min(most, self.outer[-1].extent):
            rows *= 2
        return rows if rows >= self.target.tuning.least_rows_together else 1

    def _largest_first(self) -> list[Group]:
        """
        The loops over results, with the loops along the largest input outermost.

        The inner loops then read the same elements of it again, from cache.
        """
        factors = zip(self.op.inputs, self.forms, strict=False)
        _, form = max(factors, key=lambda pair: prod(tensor(pair[0]).get_shape()))
        return sorted(self.outer, key=lambda group: not any(map(form.uses, group.dims)))

    def _results_in_lanes(self) -> bool:
        """Whether results are contiguous along the innermost parallel loop."""
        inner = self.outer[-1].last
        strides = [form.stride(inner) for form in self.forms[len(self.op.inputs) :]]
        return set(strides) <= {0, 1} and set(strides[len(self.op.epilogue_inputs) :]) == {1}

    # Writing

    @property
    def inplace(self) -> list[tuple[int, int]]:
        op = self.op
        read = zip(op.epilogue_inputs, op.epilogue_input_maps, strict=True)
        return in_place(self.inputs, read, self.outputs, op.sizes[: op.parallel_rank])

    def write(self, body: Body) -> None:
        if 0 not in self.op.sizes[: self.op.parallel_rank]:
            point = IterationPoint(body.writer, self.op.sizes)
            self.write_at(point, body.accesses(self.forms), body.parts)

    def write_at(
        self, point: IterationPoint, sources: Sequence[Source], parts: Sequence[Span] | None = None
    ) -> None:
        """
        Writes the loops at `point`.

        `sources` are the sources of `values`, `parts` the ranges of the parallel loops.
        """
        self.point, self.writer = point, point.writer
        first = len(self.op.inputs)
        end = first + len(self.op.epilogue_inputs)
        self.factors, self.epilogue_inputs = sources[:first], sources[first:end]
        self.targets = sources[end:]
        self.accumulation = Accumulation(point, self.op, self.inner, self._inner_widths())
        parts = parts if parts is not None else full_spans(point, self.outer)
        nest = [NestLoop(group, part) for group, part in zip(self.outer, parts, strict=True)]
        if self.mode.along is Lanes.PARALLEL:
            last = self.outer[-1]
            widths = self.mode.widths(last.extent, running=last.running is not None)
            nest[-1] = NestLoop(last, parts[-1], widths)
        elif self.mode.rows > 1:
            nest[-1] = NestLoop(self.outer[-1], parts[-1], (self.mode.rows, 1))
        write_nest(point, nest, self._results)

    def _inner_widths(self) -> tuple[int, ...]:
        if self.mode.along is Lanes.REDUCTION:
            last = self.inner[-1]
            return self.mode.widths(last.extent, running=last.running is not None)
        return (1,)

    def _results(self, width: int, carried: list[SSAValue]) -> list[SSAValue]:
        """Writes one result, or a few vectors of results."""
        if self.mode.along is Lanes.REDUCTION:
            if width > 1:
                self._write_results(self._row_totals(), width)
            else:
                self._write_results(self._totals(self._across_lanes()), 0)
            return carried
        lanes = min(width, self.mode.lanes) if width > 1 else 0
        vectors = width // max(1, lanes)
        dim = self.outer[-1].last if self.outer else 0
        start = self._start([self.writer.literal(initial) for initial in self.initial], lanes)

        def step(_: int, accumulators: list[SSAValue]) -> list[SSAValue]:
            return self._apply(accumulators, dim, lanes, vectors)

        accumulators = self.accumulation.fold(start * vectors, step, 1)
        count = len(self.initial)
        for vector in range(vectors):
            with self.point.shifted(dim, vector * lanes):
                self._write_results(accumulators[vector * count : (vector + 1) * count], lanes)
        return carried

    def _start(self, values: Sequence[SSAValue], lanes: int) -> list[SSAValue]:
        return [in_lanes(self.writer, value, lanes) for value in values]

    def _apply(
        self, accumulators: Sequence[SSAValue], dim: int, lanes: int, vectors: int
    ) -> list[SSAValue]:
        """Writes the body for each vector along `dim`; accumulators are in order of vectors."""
        count = len(self.initial)
        result = []
        for vector in range(vectors):
            with self.point.shifted(dim, vector * lanes):
                values = [read(self.point, access, dim, lanes) for access in self.factors]
                old = accumulators[vector * count : (vector + 1) * count]
                new = inline(self.point, self.op.body.block, [*values, *old], VectorDim(dim, lanes))
            result += [in_lanes(self.writer, value, lanes) for value in new]
        return result

    def _write_results(self, accumulators: Sequence[SSAValue], lanes: int) -> None:
        dim = self.outer[-1].last if self.outer else 0
        epilogue_inputs = [read(self.point, access, dim, lanes) for access in self.epilogue_inputs]
        results = inline(
            self.point,
            self.op.epilogue.block,
            [*accumulators, *epilogue_inputs],
            VectorDim(dim, lanes),
        )
        for value, target in zip(results, self.targets, strict=True):
            write(self.point, target, value, lanes)

    # Lanes along the reduction

    def _across_lanes(self) -> list[SSAValue]:
        """
        Writes the reduction of one result, with partial results in lanes.

        The carried values are the accumulators of each vector, then scalars for the remainder,
        unless it is masked.
        """
        # Lanes start from the neutral element, not from `initial`, which would count once a lane.
        mode, count = self.mode, len(self.initial)
        dim = self.inner[-1].last
        neutral = [
            self.writer.literal(identity_of(combiner, initial))
            for combiner, initial in zip(self.combiners, self.initial, strict=True)
            if combiner is not None
        ]
        start = self._start(neutral, mode.lanes) * mode.unrolled
        if 1 in self._inner_widths() and not mode.masked:
            start += neutral
        scalars = count * mode.unrolled

        def step(width: int, accumulators: list[SSAValue]) -> list[SSAValue]:
            if mode.masked and width < mode.lanes:
                return self._masked(accumulators[:count], dim, width) + accumulators[count:]
            if width == 1:
                return accumulators[:scalars] + self._apply(accumulators[scalars:], dim, 0, 1)
            vectors = width // mode.lanes
            used = count * vectors
            return self._apply(accumulators[:used], dim, mode.lanes, vectors) + accumulators[used:]

        return self.accumulation.fold(start, step, mode.width)

    def _masked(self, accumulators: Sequence[SSAValue], dim: int, rest: int) -> list[SSAValue]:
        """Writes the body for the last vector of a row, which has `rest` new lanes."""
        # The vector ends with the row and overlaps the one before, so it reads no memory after it.
        # 20 terms of 16 lanes: 4..20, where the first 12 lanes keep their accumulators.
        lanes = self.mode.lanes
        with self.point.shifted(dim, rest - lanes):
            values = self._apply(accumulators, dim, lanes, 1)
        type_ = VectorType(i1, [lanes])
        news = [int(lane >= lanes - rest) for lane in range(lanes)]
        mask = self.writer.once(
            arith.ConstantOp(DenseIntOrFPElementsAttr.from_list(type_, news), type_)
        )
        pairs = zip(values, accumulators, strict=True)
        return [self.writer.once(tile.SelectOp(mask, new, old)) for new, old in pairs]

    def _totals(self, accumulators: Sequence[SSAValue]) -> list[SSAValue]:
        """The results of one row, from the accumulators of its lanes."""
        count = len(self.initial)
        return [self._total(accumulators[number::count], number) for number in range(count)]

    def _row_totals(self) -> list[SSAValue]:
        """The results of a few rows, as vectors; lanes of rows are kept in local memory."""
        lanes, rows, count = self.mode.lanes, self.mode.rows, len(self.initial)
        homes = [self.writer.local(type_of(initial), rows * lanes) for initial in self.initial]
        dim, before = self.outer[-1].last, dict(self.point.indices)
        with self.writer.loop(0, rows, 1) as loop:
            row = Index.of(loop.counter)
            self.point.indices[dim] = self.point.indices[dim] + row
            accumulators = self._across_lanes()
            for number, home in enumerate(homes):
                found = self._joined(accumulators[number::count], number)
                self.writer.vector_store(found, home, row.scaled(lanes))
        self.point.indices = before
        return [self._lanes_of_rows(home, number) for number, home in enumerate(homes)]

    def _lanes_of_rows(self, home: SSAValue, number: int) -> SSAValue:
        """A vector with the total of a row in each lane."""
        lanes, rows = self.mode.lanes, self.mode.rows
        combiner, initial = self.combiners[number], self.initial[number]
        assert combiner is not None
        vectors = [self.writer.vector_load(home, Index(row * lanes), lanes) for row in range(rows)]
        part = lanes
        while part > 1:
            part //= 2
            vectors = list(self._halved(combiner, vectors, part))
        (total,) = vectors
        if rows < lanes:
            total = self.writer.shuffle(total, total, range(rows))
        if identity_of(combiner, initial) != initial:
            start = self.writer.broadcast(self.writer.literal(initial), rows)
            total = self.writer.once(combiner(total, start))
        return total

    def _halved(
        self, combiner: Combiner, vectors: Sequence[SSAValue], part: int
    ) -> Iterator[SSAValue]:
        """
        Halves the lanes of each row: pairs of vectors become one, with `part` lanes for each row.

        (a0 a1), (b0 b1) -> (a0 + a1, b0 + b1). An odd last vector is paired with itself: its second
        half is not used.
        """
        lanes = self.mode.lanes
        for at in range(0, len(vectors), 2):
            first, second = vectors[at], vectors[min(at + 1, len(vectors) - 1)]
            low = [lane for lane in range(2 * lanes) if lane // part % 2 == 0]
            high = [lane + part for lane in low]
            one, other = (self.writer.shuffle(first, second, half) for half in (low, high))
            yield self.writer.once(combiner(one, other))

    def _joined(self, parts: Sequence[SSAValue], number: int) -> SSAValue:
        """The accumulators of one row, joined into one vector of partial results."""
        combiner = self.combiners[number]
        assert combiner is not None
        return self._pairwise(combiner, parts)

    def _total(self, parts: Sequence[SSAValue], number: int) -> SSAValue:
        """The total of all lanes and scalars, added in pairs."""
        combiner, initial = self.combiners[number], self.initial[number]
        assert combiner is not None
        vectors = [part for part in parts if lanes_of(part)]
        total = self._all_lanes(combiner, self._pairwise(combiner, vectors))
        scalars = [total, *[part for part in parts if not lanes_of(part)]]
        if identity_of(combiner, initial) != initial:
            scalars.append(self.writer.literal(initial))
        return self._pairwise(combiner, scalars)

    def _all_lanes(self, combiner: Combiner, value: SSAValue) -> SSAValue:
        """The total of the lanes of a vector, by halves: log2(lanes) steps."""
        distance = lanes_of(value) // 2
        while distance:
            swapped = [lane ^ distance for lane in range(lanes_of(value))]
            other = self.writer.shuffle(value, value, swapped)
            value = self.writer.once(create_same_type(combiner, value, other))
            distance //= 2
        return self.writer.extract(value, 0)

    def _pairwise(self, combiner: Combiner, values: Sequence[SSAValue]) -> SSAValue:
        values = list(values)
        while len(values) > 1:
            pairs = zip(values[::2], values[1::2], strict=False)
            odd = values[len(values) - len(values) % 2 :]
            values = [self.writer.once(create_same_type(combiner, *pair)) for pair in pairs] + odd
        return values[0]


def _readable(forms: Sequence[Linear], group: Group) -> bool:
    """Whether all forms can be read as vectors along a loop, and one differs between lanes."""
    strides = {form.stride(group.last) for form in forms}
    return strides <= set(STRIDES) and strides != {0}


def _contiguous(forms: Sequence[Linear], group: Group) -> bool:
    """Whether all forms have stride 0 or 1 along a loop, and at least one has stride 1."""
    strides = {form.stride(group.last) for form in forms}
    return strides <= {0, 1} and 1 in strides
