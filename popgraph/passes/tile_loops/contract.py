"""How does a contraction with a schedule become a register-blocked micro-kernel?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from xdsl.dialects import arith, vector
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import Linear, offset
from popgraph.dialects.tile.attributes import ScheduleAttr, physical_shape
from popgraph.dialects.tile.structured import element
from popgraph.passes.tile_loops.access import (
    Access,
    Group,
    Place,
    Span,
    clear_gaps,
    group_loops,
    has_gaps,
    spans,
    tensor,
)
from popgraph.passes.tile_loops.bodies import inline, lane_type, works_on_lanes
from popgraph.passes.tile_loops.chunking import Split, split
from popgraph.passes.tile_loops.index import Index
from popgraph.passes.tile_loops.panels import (
    Column,
    balanced,
    last_panel,
    split_map,
    split_sizes,
    whole_panel,
)
from popgraph.passes.tile_loops.sums import chunk_of_terms, chunk_span
from popgraph.passes.tile_loops.vectors import Run, in_lanes, run
from popgraph.passes.tile_loops.writer import Bound, Writer
from popgraph.support.shapes import prod

LANE_WORK = 8
"""So many multiplications count as much as touching one element."""


FEW = 16
"""A panel that more blocks of rows use has long arrived when it is read again."""

LONG = 16 * 1024
"""Elements of a panel that are worth asking for."""

EmitColumns = Callable[[Sequence[Column]], None]
"""Writes the work on some vectors of the current panel."""


@dataclass(frozen=True)
class Tile:
    """What one micro-kernel computes: a number of rows of some vectors."""

    rows: int
    columns: tuple[Column, ...]

    def __iter__(self) -> Iterator[tuple[int, Column]]:
        """All (row, column), row by row."""
        return ((row, column) for row in range(self.rows) for column in self.columns)

    @property
    def lanes(self) -> tuple[int, int]:
        """The first lane and the end of those that are results."""
        return self.columns[0].offset, self.columns[-1].offset + self.columns[-1].valid


class ContractLoops:
    """Writes the loops of one scheduled contraction."""

    def __init__(self, op: tile.ContractOp, schedule: ScheduleAttr) -> None:
        self.op, self.schedule = op, schedule
        dim, lanes = schedule.vector.data, schedule.lanes
        self.panel, self.lane = dim, dim + 1
        self.extent = op.sizes[dim]
        self.sizes = split_sizes(op.sizes, dim, lanes)
        self.parallel = op.parallel_rank + 1
        identity = AffineMap.identity(op.parallel_rank)
        extra_maps = [attribute.data for attribute in op.extra_maps]
        maps = [*op.input_maps, *extra_maps, *[identity] * len(op.outputs)]
        values = [op.lhs, op.rhs, *op.extras, *op.outputs]
        self.forms = [
            offset(tensor(value), split_map(map_, dim, lanes), self.sizes)
            for value, map_ in zip(values, maps, strict=True)
        ]
        kind = lane_type([element(value) for value in values])
        self.kind = element(op.lhs)
        self.finish_in_lanes = kind is not None and works_on_lanes(op.finish.block, kind)
        self._check()
        self._group()
        self.cut = self._cut()

    def _check(self) -> None:
        strides = [form.stride(self.lane) for form in self.forms[:2]]
        assert lane_type([self.kind]) and set(strides) <= {0, 1} and 1 in strides, (
            f"{self.schedule} does not fit: dimension {self.schedule.vector.data} is not "
            f"contiguous in either factor"
        )

    def _group(self) -> None:
        """The loops, outermost first: what vectors depend on, panels, the rest, rows."""
        others = [dim for dim in range(self.parallel) if dim not in (self.panel, self.lane)]
        groups = group_loops(others, self.sizes, self.forms)
        rows = self.schedule.rows.data
        row_dim = rows + 1 if rows > self.panel else rows
        found = [group for group in groups if row_dim in group.dims]
        self.rows = found[0] if found else None
        rest = [group for group in groups if group is not self.rows]
        vectors = [form for form in self.forms[:2] if form.stride(self.lane) == 1]
        shared = [g for g in rest if any(form.uses(d) for form in vectors for d in g.dims)]
        self.before = shared
        self.after = [group for group in rest if group not in shared]
        self.panels = Group((self.panel,), self.sizes[self.panel])
        self.inner = group_loops(range(self.parallel, len(self.sizes)), self.sizes, self.forms[:2])

    @property
    def loops(self) -> list[Group]:
        return [*self.before, self.panels, *self.after, *([self.rows] if self.rows else [])]

    def _cut(self) -> Split | None:
        """Threads share any loop, rows only when they fall into equal parts."""
        if any(map(has_gaps, self.op.outputs)):
            return None
        work = prod(self.op.sizes) // LANE_WORK
        loops = self.loops
        free = loops[:-1] if self.rows else loops
        best = split([group.extent for group in free], work)
        if self.rows and (best is None or best.count < 8):
            extent, least = self.rows.extent, max(1, self.schedule.block.data // 2)
            even = split([extent], work, [least])
            for count in range(even.count if even else 1, 1, -1):
                if extent % count == 0 and (best is None or count > best.count):
                    return Split(len(loops) - 1, count, extent // count)
        return best

    # Loops

    def kernel(self) -> tile.KernelOp:
        op = self.op
        kernel = tile.KernelOp(
            [op.lhs, op.rhs, *op.extras],
            [tensor(value) for value in op.outputs],
            self.cut.count if self.cut else 1,
        )
        self.writer = Writer(kernel.body.block)
        self.place = Place(self.writer, self.sizes)
        chunk, *memories = kernel.body.block.args
        found = [Access(memory, form) for memory, form in zip(memories, self.forms, strict=True)]
        last = 2 + len(op.extras)
        self.factors, self.extras, self.targets = found[:2], found[2:last], found[last:]
        clear_gaps(self.writer, op.outputs, memories[last:])
        if 0 not in op.sizes[: op.parallel_rank]:
            self._nest(chunk)
        return kernel

    def _nest(self, chunk: SSAValue) -> None:
        loops = self.loops
        parts = spans(self.writer, loops, self.cut, chunk)
        at = len(self.before)
        if self.cut is not None and self.cut.position == at:
            parts[at] = self._dynamic(parts[at], self.cut, chunk)
        before = list(map(Run, loops[:at], parts[:at]))
        end = at + 1 + len(self.after)
        after = list(map(Run, self.after, parts[at + 1 : end]))
        rows = parts[end] if self.rows else None

        def panel(columns: Sequence[Column]) -> None:
            def inside(_: int, carried: list[SSAValue]) -> list[SSAValue]:
                self._rows(rows, columns)
                return carried

            run(self.place, after, inside)

        def panels(_: int, carried: list[SSAValue]) -> list[SSAValue]:
            self._panels(parts[at], panel)
            return carried

        run(self.place, before, panels)

    def _dynamic(self, part: Span, cut: Split, chunk: SSAValue) -> Span:
        """A chunk of panels; counted from the first when the last panel is a special one."""
        total = self.panels.extent
        if part.fixed is None or self.extent % self.schedule.lanes == 0:
            return part
        lower = Index.of(chunk, cut.size)
        return Span(self.writer.value(lower), self.writer.value(lower + min(cut.size, total)))

    def _panels(self, part: Span, emit: EmitColumns) -> None:
        """The panels that are full, then the last one."""
        schedule = self.schedule
        whole = whole_panel(schedule.vectors.data, schedule.width.data)
        full, rest = divmod(self.extent, schedule.lanes)
        writer = self.writer
        if not rest:
            self._each_panel(part, part.lower, part.upper, [whole], emit)
            return
        padded = self._may_read_on()
        columns = last_panel(rest, schedule.width.data, padded)
        groups = [
            columns[at : at + schedule.vectors.data]
            for at in range(0, len(columns), schedule.vectors.data)
        ]
        if part.fixed is not None:
            self._each_panel(part, 0, full, [whole], emit)
            self._each_panel(part, full, full + 1, groups, emit)
            return
        middle = writer.constant(full)
        upper = writer.once(arith.MinSIOp(writer.bound(part.upper), middle))
        lower = writer.once(arith.MaxSIOp(writer.bound(part.lower), middle))
        self._each_panel(part, part.lower, upper, [whole], emit)
        self._each_panel(part, lower, part.upper, groups, emit)

    def _each_panel(
        self,
        part: Span,
        lower: Bound,
        upper: Bound,
        groups: Sequence[Sequence[Column]],
        emit: EmitColumns,
    ) -> None:
        if isinstance(lower, int) and isinstance(upper, int) and upper - lower <= 1:
            if lower < upper:
                self.place.bind(self.panels, part.base + lower)
                for columns in groups:
                    emit(columns)
            return
        with self.writer.loop(lower, upper) as loop:
            self.place.bind(self.panels, part.base + Index.of(loop.counter))
            for columns in groups:
                emit(columns)

    def _may_read_on(self) -> bool:
        """Whether the factors have memory behind the last lane of the last panel."""
        return all(
            form.bounds(self.sizes)[1] < prod(physical_shape(tensor(value)))
            for form, value in zip(self.forms, (self.op.lhs, self.op.rhs), strict=False)
        )

    def _rows(self, part: Span | None, columns: Sequence[Column]) -> None:
        if self.rows is None or part is None:
            self._tile(Tile(1, tuple(columns)))
            return
        extent = part.fixed
        assert extent is not None, "rows are shared in equal parts"
        for blocks in balanced(extent, self.schedule.block.data):
            size, start = blocks.size, blocks.start
            if blocks.count == 1:
                self.place.bind(self.rows, part.base + start)
                self._tile(Tile(size, tuple(columns)))
                continue
            with self.writer.loop(start, start + blocks.count * size, size) as loop:
                self.place.bind(self.rows, part.base + Index.of(loop.counter))
                self._tile(Tile(size, tuple(columns)))

    # The micro-kernel

    @contextmanager
    def _at(self, row: int, lane: int | Index) -> Iterator[None]:
        """One row and lane of the current tile."""
        shift = lane if isinstance(lane, Index) else Index(lane)
        before = dict(self.place.where)
        if self.rows is not None:
            self.place.where[self.rows.last] += row
        self.place.where[self.lane] = shift
        yield
        self.place.where = before

    def _tile(self, block: Tile) -> None:
        sums = self._sums(block)
        if self.finish_in_lanes:
            self._finish_lanes(block, sums)
        else:
            self._finish_elements(block, sums)

    def _zeros(self, block: Tile) -> list[SSAValue]:
        nothing = self.writer.number(0, self.kind)
        return [in_lanes(self.writer, nothing, _lanes(column)) for _, column in block]

    def _sums(self, block: Tile) -> list[SSAValue]:
        """The accumulators after the reduction; short sums are added into local memory."""
        zeros = self._zeros(block)
        if 0 in self.sizes[self.parallel :]:
            return zeros

        def step(_: int, sums: list[SSAValue]) -> list[SSAValue]:
            self._ask_for_next_panel()
            return [
                self._added(row, column, old)
                for (row, column), old in zip(block, sums, strict=True)
            ]

        runs = [Run(group, Span(0, group.extent)) for group in self.inner]
        terms = self.schedule.chunk.data
        extents = [group.extent for group in self.inner]
        cut = chunk_of_terms(extents, 1, terms) if terms else None
        if cut is None:
            return run(self.place, runs, step, zeros)
        at, size = cut
        total = self._local(block)
        self._save(block, zeros, total)

        def chunks(_: int, carried: list[SSAValue]) -> list[SSAValue]:
            with self.writer.loop(0, -(-extents[at] // size)) as loop:
                part = chunk_span(self.writer, loop.counter, extents[at], size)
                rest = [replace(runs[at], part=part), *runs[at + 1 :]]
                sums = run(self.place, rest, step, zeros)
                old = self._saved(block, total)
                added = [
                    self.writer.add(arith.AddfOp(*pair)) for pair in zip(old, sums, strict=True)
                ]
                self._save(block, added, total)
            return carried

        run(self.place, runs[:at], chunks)
        return self._saved(block, total)

    def _ask_for_next_panel(self) -> None:
        """
        A line of the next panel, in every step, so that it has arrived when this panel is done.

        Each block of rows asks for its share. Only for panels that few blocks use: they are read
        faster than they come by themselves.
        """
        panel = next((access for access in self.factors if self._is_packed(access.form)), None)
        if panel is None or self.rows is None:
            return
        lanes = self.schedule.lanes
        extents = [group.extent for group in (*self.after, self.rows)]
        blocks = prod(extents[:-1]) * -(-extents[-1] // self.schedule.block.data)
        inner = range(self.parallel, len(self.sizes))
        steps = prod(self.sizes[dim] for dim in inner)
        if not 2 <= blocks <= FEW or steps * lanes < LONG:
            return
        share, index = -(-lanes // blocks), Index(steps * lanes)
        for dim in (*[dim for group in self.before for dim in group.dims], self.panel):
            index += self.place.where[dim].scaled(panel.form.stride(dim) or 0)
        for dim in inner:
            index += self.place.where[dim].scaled((panel.form.stride(dim) or 0) // lanes * share)
        weight = steps * lanes // prod(extents)
        for group, count in zip(reversed((*self.after, self.rows)), reversed(extents), strict=True):
            index += self.place.where[group.last].scaled(weight)
            weight *= count
        self.writer.prefetch(panel.memory, index)

    def _is_packed(self, form: Linear) -> bool:
        """Whether panels of a factor stand one after the other, their lanes side by side."""
        steps = prod(self.sizes[self.parallel :])
        return (
            form.stride(self.lane) == 1 and form.stride(self.panel) == steps * self.schedule.lanes
        )

    def _added(self, row: int, column: Column, old: SSAValue) -> SSAValue:
        lanes = _lanes(column)
        with self._at(row, column.offset):
            lhs, rhs = (self._factor(access, lanes) for access in self.factors)
        if lanes:
            return self.writer.add(vector.FMAOp(lhs, rhs, old))
        product = self.writer.add(arith.MulfOp(lhs, rhs))
        return self.writer.add(arith.AddfOp(old, product))

    def _factor(self, access: Access, lanes: int) -> SSAValue:
        """A factor for all lanes; what several rows or vectors need is loaded once."""
        memory, index = self.place.of(access)
        if lanes and self._contiguous(access):
            return self.writer.vector_load_input(memory, index, lanes)
        return in_lanes(self.writer, self.writer.load_input(memory, index), lanes)

    # Local memory: a row of lanes for every row of a tile

    def _local(self, block: Tile) -> SSAValue:
        return self.writer.alloca(self.kind, block.rows * self.schedule.lanes)

    def _slot(self, row: int, lane: int | Index) -> Index:
        start = Index(row * self.schedule.lanes)
        return start + lane

    def _save(self, block: Tile, values: Sequence[SSAValue], memory: SSAValue) -> None:
        for (row, column), value in zip(block, values, strict=True):
            self.writer.put(value, memory, self._slot(row, column.offset))

    def _saved(self, block: Tile, memory: SSAValue) -> list[SSAValue]:
        return [self._at_slot(memory, row, column) for row, column in block]

    def _at_slot(self, memory: SSAValue, row: int, column: Column) -> SSAValue:
        return self.writer.get(memory, self._slot(row, column.offset), _lanes(column))

    # Results

    def _finish_lanes(self, block: Tile, sums: Sequence[SSAValue]) -> None:
        """The finish on vectors; what is not contiguous goes through local memory."""
        gathered = [self._gathered(block, access) for access in self.extras]
        locals_ = [self._deferred(block, target) for target in self.targets]
        for (row, column), total in zip(block, sums, strict=True):
            with self._at(row, column.offset):
                extras = [
                    self._extra(access, memory, row, column)
                    for access, memory in zip(self.extras, gathered, strict=True)
                ]
                results = inline(self.place, self.op.finish.block, [total, *extras])
                for value, target, local in zip(results, self.targets, locals_, strict=True):
                    value = in_lanes(self.writer, value, _lanes(column))
                    if local is None or (column.whole and self._contiguous(target)):
                        self.writer.put(value, *self.place.of(target))
                    else:
                        self.writer.put(value, local, self._slot(row, column.offset))
        for target, local in zip(self.targets, locals_, strict=True):
            if local is not None:
                self._scatter(block, target, local)

    def _contiguous(self, access: Access) -> bool:
        return access.form.stride(self.lane) == 1

    def _deferred(self, block: Tile, target: Access) -> SSAValue | None:
        """Local memory for a result that vectors cannot store."""
        if self._contiguous(target) and all(column.whole for column in block.columns):
            return None
        return self._local(block)

    def _extra(
        self, access: Access, gathered: SSAValue | None, row: int, column: Column
    ) -> SSAValue:
        """An extra operand for a vector; loaded here, not earlier, to keep registers free."""
        if gathered is not None:
            return self._at_slot(gathered, row, column)
        memory, index = self.place.of(access)
        return self.writer.get(memory, index, _lanes(column) if self._contiguous(access) else 0)

    def _gathered(self, block: Tile, access: Access) -> SSAValue | None:
        """Local memory with the lanes of an extra operand that vectors cannot load."""
        if access.form.stride(self.lane) == 0:
            return None
        if self._contiguous(access) and all(column.whole for column in block.columns):
            return None
        local = self._local(block)
        with self._lane_loop(block.lanes) as lane:
            for row in range(block.rows):
                with self._at(row, lane):
                    value = self.writer.load(*self.place.of(access))
                self.writer.store(value, local, self._slot(row, lane))
        return local

    @contextmanager
    def _lane_loop(self, lanes: tuple[int, int]) -> Iterator[Index]:
        with self.writer.loop(*lanes) as loop:
            yield Index.of(loop.counter)

    def _scatter(self, block: Tile, target: Access, local: SSAValue) -> None:
        """From local memory to where the lanes of a result stand."""
        first, end = block.lanes
        if self._contiguous(target):
            first = next(column.offset for column in block.columns if not column.whole)
        with self._lane_loop((first, end)) as lane:
            for row in range(block.rows):
                value = self.writer.load(local, self._slot(row, lane))
                with self._at(row, lane):
                    self.writer.store(value, *self.place.of(target))

    def _finish_elements(self, block: Tile, sums: Sequence[SSAValue]) -> None:
        """The finish one element at a time."""
        local = self._local(block)
        self._save(block, sums, local)
        with self._lane_loop(block.lanes) as lane:
            for row in range(block.rows):
                total = self.writer.load(local, self._slot(row, lane))
                with self._at(row, lane):
                    extras = [self.writer.load(*self.place.of(access)) for access in self.extras]
                    results = inline(self.place, self.op.finish.block, [total, *extras])
                    for value, target in zip(results, self.targets, strict=True):
                        self.writer.store(value, *self.place.of(target))


def _lanes(column: Column) -> int:
    return column.lanes if column.lanes > 1 else 0
