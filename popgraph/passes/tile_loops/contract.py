"""Which loops are around the micro-kernel of a contraction with a schedule?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from xdsl.dialects import arith
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import Linear, offset
from popgraph.dialects.tile.attributes import ScheduleAttr, memory_span
from popgraph.dialects.tile.cut import Part, chunks_of, cut_of
from popgraph.dialects.tile.structured import element
from popgraph.passes.tile_loops.access import (
    Access,
    Group,
    Place,
    Span,
    element_bytes,
    group_loops,
    has_gaps,
    in_place,
    spans,
    tensor,
)
from popgraph.passes.tile_loops.ahead import FEW, Ahead
from popgraph.passes.tile_loops.bodies import lane_type, widest_lane
from popgraph.passes.tile_loops.chunk_by_chunk import SUMS, ChunkByChunk
from popgraph.passes.tile_loops.epilogue import Epilogue, sum_of_two
from popgraph.passes.tile_loops.gaps import clear_gaps
from popgraph.passes.tile_loops.index import Index
from popgraph.passes.tile_loops.microkernel import MicroKernel
from popgraph.passes.tile_loops.panels import (
    Column,
    balanced,
    last_panel,
    split_map,
    split_sizes,
    whole_panel,
)
from popgraph.passes.tile_loops.shareable import (
    LANE_WORK,
    Loop,
    Shareable,
    in_short_pieces,
    touched,
)
from popgraph.passes.tile_loops.tiles import Grid, Tile
from popgraph.passes.tile_loops.vectors import Run, run
from popgraph.passes.tile_loops.writer import Bound, Writer
from popgraph.support.shapes import prod

EmitColumns = Callable[[Sequence[Column]], None]
"""Writes the work on some vectors of the current panel."""

EmitRows = Callable[[int, Index], None]
"""Writes the work on a block of so many rows; how many are before it."""

EmitTile = Callable[[Tile], None]
"""Writes the work on one tile."""

EmitPanel = Callable[[Sequence[Column], Sequence[Run], Sequence[Span]], None]
"""Writes the work on some vectors of the current panel: for these loops around rows, and these."""


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
        self.kind = element(op.lhs)
        kinds = [element(value) for value in values]
        self.finish_in_lanes = widest_lane(kinds, op.finish.block) > 0
        self._check()
        assert not schedule.sweep.data or keeps_sums(op), "the finish of a sweep does nothing"
        self._group()
        self.cut = cut_of(op)

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
        self.rows = self._group_of(self.schedule.rows.data, groups)
        self.lines = self._group_of(self.schedule.lines.data, groups)
        rest = [group for group in groups if group not in (self.rows, self.lines)]
        vectors = [form for form in self.forms[:2] if form.stride(self.lane) == 1]
        shared = [g for g in rest if any(form.uses(d) for form in vectors for d in g.dims)]
        self.before = shared
        self.after = [group for group in rest if group not in shared]
        self.panels = Group((self.panel,), self.sizes[self.panel])
        self.inner = group_loops(range(self.parallel, len(self.sizes)), self.sizes, self.forms[:2])

    def _group_of(self, dim: int, groups: Sequence[Group]) -> Group | None:
        """The loop that a dimension of the contraction runs in, if it has one."""
        at = dim + 1 if dim > self.panel else dim
        return next((group for group in groups if at in group.dims), None)

    @property
    def blocked(self) -> list[Group]:
        """The loops that micro-kernels hold several steps of."""
        return [group for group in (self.lines, self.rows) if group is not None]

    @property
    def loops(self) -> list[Group]:
        if self.schedule.inside.data:
            return [*self.before, *self.after, self.panels, *self.blocked]
        return [*self.before, self.panels, *self.after, *self.blocked]

    def shareable(self) -> Shareable | None:
        """Threads may share any loop, rows only in equal parts of whole blocks."""
        op, schedule = self.op, self.schedule
        if any(map(has_gaps, op.outputs)):
            return None
        loops, window = self.loops, schedule.window.data
        shared = [
            Loop(group.extent, max(1, window) if group is self.panels else 1)
            for group in loops[: len(loops) - len(self.blocked)]
        ]
        if self.rows and not self.lines and not window:
            shared.append(Loop(self.rows.extent, least=schedule.block.data, even=True))
        values = [op.lhs, op.rhs, *op.extras, *op.outputs]
        moved = touched(values, self.forms, loops, len(op.outputs))
        return Shareable(tuple(shared), prod(op.sizes) // LANE_WORK, moved, together=2)

    # Loops

    def kernel(self) -> tile.KernelOp:
        op = self.op
        kernel = tile.KernelOp(
            [op.lhs, op.rhs, *op.extras],
            [tensor(value) for value in op.outputs],
            chunks_of(self.cut),
            self._inplace(),
        )
        writer = Writer(kernel.body.block)
        chunk, *memories = kernel.body.block.args
        short = in_short_pieces(self.cut, op.outputs[0], self.forms[-1], self.loops)
        clear_gaps(writer, op.outputs, memories[2 + len(op.extras) :], self.cut, short=short)
        self.write(writer, [(memory, Index()) for memory in memories], chunk)
        return kernel

    def _inplace(self) -> list[tuple[int, int]]:
        op = self.op
        read = zip(op.extras, (map_.data for map_ in op.extra_maps), strict=True)
        operands = [op.lhs, op.rhs, *op.extras]
        return in_place(operands, read, op.outputs, op.sizes[: op.parallel_rank])

    def write(
        self,
        writer: Writer,
        places: Sequence[tuple[SSAValue, Index]],
        chunk: SSAValue | None = None,
    ) -> None:
        """
        Writes the loops where `writer` stands: all of them, or those of one chunk.

        For each factor, extra and result in turn, `places` tells which memory it is in and from
        where on.
        """
        if 0 in self.op.sizes[: self.op.parallel_rank]:
            return
        self.writer = writer
        self.place = Place(writer, self.sizes)
        found = [
            Access(memory, form, start)
            for (memory, start), form in zip(places, self.forms, strict=True)
        ]
        last = 2 + len(self.op.extras)
        factors, extras, targets = found[:2], found[2:last], found[last:]
        row, width = self.rows.last if self.rows else None, self.schedule.lanes
        line = self.lines.last if self.lines else None
        across = self.rows.extent if self.rows else 1
        grid = Grid(self.place, row, self.lane, width, self.kind, line, across)
        self.ahead = self._ahead(factors)
        self.micro = MicroKernel(
            grid,
            factors,
            self.inner,
            self.schedule.chunk.data,
            self.ahead.ask if self.ahead else lambda: None,
            bool(self.schedule.window.data),
        )
        finish = self.op.finish.block
        self.epilogue = Epilogue(grid, finish, extras, targets, self.finish_in_lanes)
        if self.schedule.sweep.data:
            self._sweeps(chunk)
        else:
            self._nest(
                chunk,
                lambda tile: self.epilogue.finish(tile, self.micro.sums(tile)),
                self._chunk_by_chunk if self._reads_chunks_once() else None,
            )

    def _sweeps(self, chunk: SSAValue | None) -> None:
        """All results begin at zero, and then take in one chunk of terms after the other."""
        epilogue, micro = self.epilogue, self.micro
        self._nest(chunk, lambda tile: epilogue.finish(tile, micro.zeros(tile)))
        adding = replace(epilogue, body=sum_of_two(self.kind), extras=epilogue.targets)

        def sweep(runs: Sequence[Run]) -> None:
            self._nest(chunk, lambda tile: adding.finish(tile, micro.part(tile, runs)))

        micro.each_chunk(sweep)

    def _nest(
        self, chunk: SSAValue | None, emit: EmitTile, emit_panel: EmitPanel | None = None
    ) -> None:
        """The loops over all tiles; `emit_panel` writes those on the rows of a panel itself."""
        loops = self.loops
        cut = self.cut if chunk is not None else None
        parts = spans(self.writer, loops, cut, chunk)
        at = loops.index(self.panels)
        if cut is not None and (part := cut.of_loop(at)) is not None:
            parts[at] = self._dynamic(parts[at], part)
        end = len(loops) - len(self.blocked)
        outer = list(map(Run, loops[:at], parts[:at]))
        between = list(map(Run, loops[at + 1 : end], parts[at + 1 : end]))
        rows = parts[end:]
        beside = [outer.pop()] if self.schedule.window.data and outer else []

        def panels_then_rows(columns: Sequence[Column]) -> None:
            if emit_panel is not None:
                emit_panel(columns, between, rows)
            else:
                self._each_tile(columns, between, rows, lambda tile, _: emit(tile))

        def rows_then_panels(size: int, _: Index) -> None:
            def beside_rows(part: Span) -> None:
                def inside(_: int, carried: list[SSAValue]) -> list[SSAValue]:
                    self._panels(part, lambda columns: emit(Tile(size, tuple(columns))))
                    return carried

                run(self.place, beside, inside)

            self._some_panels(parts[at], beside_rows)

        def tiles(_: int, carried: list[SSAValue]) -> list[SSAValue]:
            if self.schedule.inside.data:
                self._rows(rows, rows_then_panels)
            else:
                self._panels(parts[at], panels_then_rows)
            return carried

        run(self.place, outer, tiles)

    def _each_tile(
        self,
        columns: Sequence[Column],
        around: Sequence[Run],
        rows: Sequence[Span],
        emit: Callable[[Tile, Index], None],
    ) -> None:
        """The tiles of a panel, each with its first row, as the rows of all loops are numbered."""

        def inside(_: int, carried: list[SSAValue]) -> list[SSAValue]:
            before = _turn(self.place, around).scaled(_rows_of(self.blocked))
            self._rows(rows, lambda size, first: emit(Tile(size, tuple(columns)), before + first))
            return carried

        run(self.place, around, inside)

    def _chunk_by_chunk(
        self, columns: Sequence[Column], around: Sequence[Run], rows: Sequence[Span]
    ) -> None:
        """All rows take in one chunk of a panel before the next one comes."""
        assert self.ahead is not None
        each_tile = partial(self._each_tile, columns, around, rows)
        whole = Tile(_rows_of([*self.after, *self.blocked]), tuple(columns))
        ChunkByChunk(self.micro, self.epilogue, self.ahead, whole).write(each_tile)

    def _reads_chunks_once(self) -> bool:
        """Whether blocks of rows are worth taking in a panel together, chunk by chunk."""
        if self.ahead is None or self.micro.cut is None:
            return False
        rows = _rows_of([*self.after, *self.blocked])
        sums = rows * self.schedule.lanes * element_bytes(self.op.lhs)
        return 2 <= self.ahead.blocks <= FEW and sums <= SUMS

    def _ahead(self, factors: Sequence[Access]) -> Ahead | None:
        """What asks for panels that stand one after the other, if they are read in that order."""
        panel = next((access for access in factors if self._is_packed(access.form)), None)
        numbers = self.schedule.numbers
        if panel is None or any(numbers[name] for name in ("inside", "sweep", "window")):
            return None
        blocks = -(-_rows_of(self.blocked) // self.schedule.block.data)
        return Ahead(
            self.place,
            panel,
            self.schedule.lanes,
            range(self.parallel, len(self.sizes)),
            (*self.after, *self.blocked),
            blocks * _rows_of(self.after),
        )

    def _dynamic(self, span: Span, part: Part) -> Span:
        """A chunk of panels; counted from the first when the last panel is a special one."""
        if span.fixed is None or self.extent % self.schedule.lanes == 0:
            return span
        return Span(self.writer.value(span.base), self.writer.value(span.base + part.size))

    def _some_panels(self, part: Span, emit: Callable[[Span], None]) -> None:
        """As many panels at a time as a window takes along; all of them without one."""
        some, fixed = self.schedule.window.data, part.fixed
        if not some or (fixed is not None and fixed <= some):
            emit(part)
            return
        writer = self.writer
        with writer.loop(part.lower, part.upper, some) as loop:
            if fixed is not None and fixed % some == 0 and self.extent % self.schedule.lanes == 0:
                emit(Span(0, some, part.base + Index.of(loop.counter)))
                return
            end = writer.value(Index.of(loop.counter, constant=some))
            upper = writer.once(arith.MinSIOp(end, writer.bound(part.upper)))
            emit(Span(loop.counter, upper, part.base))

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
            form.bounds(self.sizes)[1] < memory_span(tensor(value))[1]
            for form, value in zip(self.forms, (self.op.lhs, self.op.rhs), strict=False)
        )

    def _rows(self, parts: Sequence[Span], emit: EmitRows) -> None:
        """Blocks of rows, or of whole lines of them."""
        if not parts:
            emit(1, Index())
            return
        group, part = self.blocked[0], parts[0]
        across = self.rows.extent if self.lines and self.rows else 1
        extent = part.fixed
        assert extent is not None, "rows are shared in equal parts"
        for blocks in balanced(extent, max(1, self.schedule.block.data // across)):
            size, start = blocks.size, blocks.start
            if blocks.count == 1:
                self.place.bind(group, part.base + start)
                emit(size * across, Index(start * across))
                continue
            with self.writer.loop(start, start + blocks.count * size, size) as loop:
                self.place.bind(group, part.base + Index.of(loop.counter))
                emit(size * across, Index.of(loop.counter, across))

    def _is_packed(self, form: Linear) -> bool:
        """Whether panels of a factor stand one after the other, their lanes side by side."""
        steps = prod(self.sizes[self.parallel :])
        return (
            form.stride(self.lane) == 1 and form.stride(self.panel) == steps * self.schedule.lanes
        )


def _rows_of(groups: Sequence[Group]) -> int:
    """How many rows some loops go over."""
    return prod(group.extent for group in groups)


def _turn(place: Place, loops: Sequence[Run]) -> Index:
    """How often the inside of some loops has run before now, were they to run from zero."""
    turn = Index()
    for one in loops:
        turn = turn.scaled(one.group.extent) + place.where[one.group.last]
    return turn


def keeps_sums(op: tile.ContractOp) -> bool:
    """Whether the finish of a contraction does nothing."""
    block = op.finish.block
    return isinstance(end := block.first_op, tile.YieldOp) and list(end.values) == list(block.args)
