"""The loops over the register tiles of a contraction: panels, blocks of rows, edges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.ir import SSAValue

from popgraph.dialects.tile.attributes import ScheduleAttr
from popgraph.dialects.tile.loops.recipes import IN_BLOCKS
from popgraph.passes.structured.analysis.loops import Group
from popgraph.passes.structured.analysis.panels import Column, last_panel, whole_panel
from popgraph.passes.structured.to_loops.contraction.tiles import Tile
from popgraph.passes.structured.to_loops.emit.access import IterationPoint, Span
from popgraph.passes.structured.to_loops.emit.create import create_same_type
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import NestLoop, whole_steps, write_nest
from popgraph.passes.structured.to_loops.emit.writer import Bound
from popgraph.support.shapes import prod

EmitColumns = Callable[[Sequence[Column]], None]
"""Writes the computation of these vectors of the current panel."""

EmitRows = Callable[[int, SSAValue | None, Index], None]
"""Writes the computation of a block: (rows, `Tile.count`, number of the first row)."""

EmitTile = Callable[[Tile], None]
"""Writes the computation of one tile."""

EmitPanel = Callable[[Sequence[Column], Sequence[NestLoop], Sequence[Span]], None]
"""Writes the computation of vectors of the current panel: (vectors, outer loops, rows)."""


@dataclass(frozen=True)
class TileLoops:
    """The parallel loops of a contraction, by their position in the nest."""

    before: Sequence[Group]
    """Outer loops, such as batches: the vectorized factor depends on them."""
    panels: Group
    after: Sequence[Group]
    """Loops inside a panel, whose iterations read it again."""
    lines: Group | None
    """The second loop of rows, if one row is shorter than a block (`m_outer_dim`)."""
    rows: Group | None
    n_inner: bool
    """Whether panels are innermost, inside the loop over blocks of rows."""

    @property
    def blocked(self) -> list[Group]:
        """The loops that a register tile has several iterations of."""
        return [group for group in (self.lines, self.rows) if group is not None]

    @property
    def all(self) -> list[Group]:
        """All parallel loops, outermost first."""
        if self.n_inner:
            return [*self.before, *self.after, self.panels, *self.blocked]
        return [*self.before, self.panels, *self.after, *self.blocked]

    @property
    def panel_users(self) -> list[Group]:
        """The loops that read a panel again, rows included."""
        return [*self.after, *self.blocked]


@dataclass
class TileNest:
    """
    Writes the loops over tiles for one chunk, which runs these `parts` of the loops.

    There are `extent` lanes; if factors are `padded`, the last vectors read memory after them.
    """

    point: IterationPoint
    schedule: ScheduleAttr
    loops: TileLoops
    parts: Sequence[Span]
    extent: int
    padded: bool

    def write(self, emit: EmitTile, emit_panel: EmitPanel | None = None) -> None:
        """Writes the loops over all tiles; `emit_panel`, if given, those inside a panel."""
        loops, parts = self.loops.all, self.parts
        at = loops.index(self.loops.panels)
        panels = self._from_first_panel(parts[at])
        end = len(loops) - len(self.loops.blocked)
        outer = list(map(NestLoop, loops[:at], parts[:at]))
        between = list(map(NestLoop, loops[at + 1 : end], parts[at + 1 : end]))
        rows = parts[end:]
        # Panels of a window move along the loop next to its rows: that loop joins them, innermost.
        moves = self.schedule.window_panels.data and self.loops.n_inner and outer
        window_loops = [outer.pop()] if moves else []

        def panels_then_rows(columns: Sequence[Column]) -> None:
            if emit_panel is not None:
                emit_panel(columns, between, rows)
            else:
                self.each_tile(columns, between, rows, lambda tile, _: emit(tile))

        def rows_then_panels(size: int, count: SSAValue | None, _: Index) -> None:
            def group_of_panels(part: Span) -> None:
                def inside(_: int, carried: list[SSAValue]) -> list[SSAValue]:
                    self._panels(part, lambda columns: emit(Tile(size, tuple(columns), count)))
                    return carried

                write_nest(self.point, window_loops, inside)

            self._panel_groups(panels, group_of_panels)

        def tiles(_: int, carried: list[SSAValue]) -> list[SSAValue]:
            if self.loops.n_inner:
                self._rows(rows, rows_then_panels)
            else:
                self._panels(panels, panels_then_rows)
            return carried

        write_nest(self.point, outer, tiles)

    def each_tile(
        self,
        columns: Sequence[Column],
        around: Sequence[NestLoop],
        rows: Sequence[Span],
        emit: Callable[[Tile, Index], None],
    ) -> None:
        """Writes the loops over the tiles of a panel, each with the number of its first row."""

        def inside(_: int, carried: list[SSAValue]) -> list[SSAValue]:
            before = _iteration_number(self.point, around).scaled(rows_of(self.loops.blocked))

            def tile(size: int, count: SSAValue | None, first: Index) -> None:
                emit(Tile(size, tuple(columns), count), before + first)

            self._rows(rows, tile)
            return carried

        write_nest(self.point, around, inside)

    def each_panel(self, part: Span, emit: EmitColumns) -> None:
        """Writes the loops over the panels of one chunk: the full ones, then the last one."""
        self._panels(self._from_first_panel(part), emit)

    def _from_first_panel(self, span: Span) -> Span:
        """A range of panels, counted from panel 0 if the last panel is partial."""
        # Only the chunk with the last panel has its narrower vectors: bounds must be compared with
        # its number.
        if span.static_extent is None or not span.base.terms or self.extent % self.schedule.nr == 0:
            return span
        value = self.point.writer.value
        return Span(value(span.base), value(span.base + span.static_extent))

    def _panel_groups(self, part: Span, emit: Callable[[Span], None]) -> None:
        """Splits panels into groups for one pass of the window; one group without a window."""
        group_size, static_extent = self.schedule.window_panels.data, part.static_extent
        if not group_size or (static_extent is not None and static_extent <= group_size):
            emit(part)
            return
        writer = self.point.writer
        with writer.loop(part.lower, part.upper, group_size) as loop:
            if (
                static_extent is not None
                and static_extent % group_size == 0
                and self.extent % self.schedule.nr == 0
            ):
                emit(Span(0, group_size, part.base + Index.of(loop.counter)))
                return
            end = writer.value(Index.of(loop.counter, constant=group_size))
            upper = writer.once(arith.MinSIOp(end, writer.bound(part.upper)))
            emit(Span(loop.counter, upper, part.base))

    def _panels(self, part: Span, emit: EmitColumns) -> None:
        """Writes the full panels, then the last one."""
        schedule = self.schedule
        whole = whole_panel(schedule.n_vectors.data, schedule.lanes.data)
        full, rest = divmod(self.extent, schedule.nr)
        writer = self.point.writer
        if self.loops.panels.running is not None:
            self._running_panels(part, whole, emit)
            return
        if not rest:
            self._each_panel(part, part.lower, part.upper, [whole], emit)
            return
        # The last panel may have more vectors than a full one, narrower ones: 15 lanes in panels of
        # one vector of 16 are 8 + 4 + 1 + 1 + 1. Registers hold sums of `n_vectors` at a time.
        columns = last_panel(rest, schedule.lanes.data, self.padded)
        groups = [
            columns[at : at + schedule.n_vectors.data]
            for at in range(0, len(columns), schedule.n_vectors.data)
        ]
        if part.static_extent is not None:
            self._each_panel(part, 0, full, [whole], emit)
            self._each_panel(part, full, full + 1, groups, emit)
            return
        middle = writer.constant(full)
        upper = writer.once(arith.MinSIOp(writer.bound(part.upper), middle))
        lower = writer.once(arith.MaxSIOp(writer.bound(part.lower), middle))
        self._each_panel(part, part.lower, upper, [whole], emit)
        self._each_panel(part, lower, part.upper, groups, emit)

    def _running_panels(self, part: Span, whole: Sequence[Column], emit: EmitColumns) -> None:
        """Writes the panels of a loop whose lanes end at a size of the call."""
        writer, nr, panels = self.point.writer, self.schedule.nr, self.loops.panels
        assert panels.running is not None and not part.base.terms
        end = writer.times(writer.sizes[panels.running.size], panels.running.factor)
        full = writer.once(arith.DivSIOp(end, writer.constant(nr)))
        middle = writer.once(arith.MinSIOp(writer.bound(part.upper), full))
        self._each_panel(part, part.lower, middle, [whole], emit)
        lower = writer.once(arith.MaxSIOp(writer.bound(part.lower), middle))
        with writer.loop(lower, part.upper) as loop:
            self.point.bind(panels, Index.of(loop.counter))
            before = writer.once(arith.MuliOp(loop.counter, writer.constant(nr)))
            self._lanes(writer.once(arith.SubiOp(end, before)), emit)

    def _lanes(self, count: SSAValue, emit: EmitColumns) -> None:
        """Writes the first lanes of a panel: in vectors, in quarters of vectors, one by one."""
        # The count is unknown when code is written: three loops cover all counts, in code for three
        # widths. 23 lanes of 16 take 1 + 1 + 3 iterations.
        writer, lane = self.point.writer, self.loops.panels.last + 1
        lanes = self.schedule.lanes.data
        lower: Bound = 0
        for width in dict.fromkeys((lanes, max(1, lanes // 4), 1)):
            upper = count if width == 1 else whole_steps(writer, lower, count, width)
            with writer.loop(lower, upper, width) as loop:
                self.point.indices[lane] = Index.of(loop.counter)
                emit([Column(0, width, width)])
            lower = upper
        self.point.indices[lane] = Index()

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
                self.point.bind(self.loops.panels, part.base + lower)
                for columns in groups:
                    emit(columns)
            return
        with self.point.writer.loop(lower, upper) as loop:
            self.point.bind(self.loops.panels, part.base + Index.of(loop.counter))
            for columns in groups:
                emit(columns)

    def _rows(self, parts: Sequence[Span], emit: EmitRows) -> None:
        """Writes blocks of rows, or of whole lines of rows."""
        if not parts:
            emit(1, None, Index())
            return
        group, part, rows = self.loops.blocked[0], parts[0], self.loops.rows
        across = rows.extent if self.loops.lines and rows else 1
        extent, most = part.static_extent, max(1, self.schedule.mr.data // across)
        if extent is None:
            self._running_rows(group, part, across, emit)
            return
        if extent <= most:
            self.point.bind(group, part.base)
            emit(extent * across, None, Index())
            return
        # One body for all blocks, as the largest needs it: `split-loops` balances them, and copies
        # the body for each size.
        writer = self.point.writer
        with writer.loop(0, extent, most, recipes=IN_BLOCKS if most > 1 else {}) as loop:
            self.point.bind(group, part.base + Index.of(loop.counter))
            count = self._count(loop.counter, extent, most) if most > 1 else None
            emit(most * across, count, Index.of(loop.counter, across))

    def _count(self, first: SSAValue, extent: int, most: int) -> SSAValue:
        """The number of iterations of a block."""
        writer = self.point.writer
        left = writer.once(create_same_type(arith.SubiOp, writer.constant(extent), first))
        return writer.once(create_same_type(arith.MinSIOp, writer.constant(most), left))

    def _running_rows(self, group: Group, part: Span, across: int, emit: EmitRows) -> None:
        """
        Writes the loops over rows that end at a size of the call.

        The rows after the last full block go in blocks of powers of two, the largest first: code
        for log2(mr) sizes of blocks, where a block of each size would need mr. Sizes are mostly
        multiples of small powers of two: after 4 blocks of 14, 64 rows need one of 8.
        """
        writer, size = self.point.writer, max(1, self.schedule.mr.data // across)
        lower: Bound = part.lower
        while size:
            upper = part.upper if size == 1 else whole_steps(writer, lower, part.upper, size)
            with writer.loop(lower, upper, size) as loop:
                self.point.bind(group, part.base + Index.of(loop.counter))
                emit(size * across, None, Index.of(loop.counter, across))
            lower, size = upper, (1 << (size - 1).bit_length()) // 2


def rows_of(groups: Sequence[Group]) -> int:
    """The number of rows of these loops."""
    return prod(group.extent for group in groups)


def _iteration_number(point: IterationPoint, loops: Sequence[NestLoop]) -> Index:
    """The number of the current iteration of a nest, counted over full loops."""
    count = Index()
    for one in loops:
        count = count.scaled(one.group.extent) + point.indices[one.group.last]
    return count
