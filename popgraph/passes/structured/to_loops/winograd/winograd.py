"""Loops of a Winograd convolution by blocks of tiles: input transform, products, output."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from xdsl.dialects import arith
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile.affine import offset
from popgraph.dialects.tile.attributes import physical_shape
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.dialects.tile.structured.ops import element
from popgraph.passes.structured.analysis.loops import Group, tensor
from popgraph.passes.structured.analysis.panels import (
    Column,
    balanced,
    last_panel,
    split_map,
    split_sizes,
    whole_panel,
)
from popgraph.passes.structured.analysis.parallel_loops import Loop, MemoryAccess
from popgraph.passes.structured.analysis.winograd_scratch import Scratch
from popgraph.passes.structured.to_loops.contraction.epilogue import Epilogue
from popgraph.passes.structured.to_loops.contraction.microkernel import MicroKernel
from popgraph.passes.structured.to_loops.contraction.prefetch import NextSection
from popgraph.passes.structured.to_loops.contraction.tiles import Tile, TileGrid
from popgraph.passes.structured.to_loops.emit.access import (
    Access,
    IterationPoint,
    Span,
    in_place,
)
from popgraph.passes.structured.to_loops.emit.bodies import widest_lane
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.writer import Bound
from popgraph.passes.structured.to_loops.winograd.tile_transforms import (
    LANE,
    PANEL,
    TAP,
    TERM,
    TILE,
    InputTransform,
    N,
    TileOrigin,
    Tiling,
    X,
    Y,
    dim,
    sum_of,
)
from popgraph.passes.structured.to_loops.winograd.transforms import transform_2d
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target


class WinogradLoops(Emitter):
    """
    Writes the loops of one Winograd convolution.

    Tiles are transformed block by block, or stand transformed in memory. Threads share the blocks,
    or else the panels.
    """

    into: Access
    """Where the transformed tiles of the block stand."""

    def __init__(self, op: tile.WinogradOp, target: Target) -> None:
        super().__init__(op, target)
        self.op, self.outputs = op, [op.output]
        self.inputs = [op.x, op.u, *op.epilogue_inputs]
        self.line = target.machine.line_elements(lane_bytes(element(op.x)))
        self.size, self.side = op.size.value.data, op.transforms.side
        self.taps, self.channels = op.transforms.side**2, tensor(op.u).get_shape()[-2]
        self.kind = element(op.x)
        schedule = op.schedule
        self.width, self.lanes = schedule.lanes.data, schedule.nr
        self.total, self.tiles = op.tile_count, op.tiles.value.data
        images = self.running.get(N)
        self.last = images and images.scaled(prod(op.grid))
        self.blocks = Group((TILE,), -(-self.total // self.tiles), self.last, self.tiles)
        self.panels = Group((PANEL,), -(-op.sizes[3] // self.lanes))
        self.groups = [self.panels, self.blocks] if op.is_transformed else [self.blocks]
        self.cut_together = len(self.groups)
        products = self.taps * self.total * self.channels * op.sizes[3]
        self.work = products // target.tuning.products_per_touch

    @property
    def loops(self) -> list[Loop]:
        """Blocks of tiles, and panels where tiles are transformed."""
        return [Loop(group.extent) for group in self.groups]

    @property
    def touched(self) -> list[MemoryAccess]:
        op = self.op
        at = {group: number for number, group in enumerate(self.groups)}
        rows, panels = prod(op.sizes[1:]), op.sizes[3]
        spans = tuple(
            (panels if group is self.panels else rows) * element_bytes(op.output.type)
            for group in self.groups
        )

        def moved(value: SSAValue, *along: Group, written: bool = False) -> MemoryAccess:
            size = prod(physical_shape(tensor(value))) * element_bytes(value.type)
            dims = frozenset(at[group] for group in along if group in at)
            return MemoryAccess(value, size, dims, spans, written)

        return [
            moved(op.x, self.blocks),
            moved(op.u, self.panels),
            *(moved(value, *self.groups) for value in op.epilogue_inputs),
            moved(op.output, *self.groups, written=True),
        ]

    @property
    def writes_short_pieces(self) -> bool:
        return self.cut is not None and self.groups[self.cut.parts[0].loop] is self.panels

    @property
    def inplace(self) -> list[tuple[int, int]]:
        op = self.op
        read = zip(op.epilogue_inputs, op.epilogue_input_maps, strict=True)
        return in_place(self.inputs, read, self.outputs, op.sizes)

    def write(self, body: Body) -> None:
        self.writer = body.writer
        self.tiling = Tiling(self.writer, self.op)
        self.end = Index(self.total)
        if self.last is not None:
            self.end = Index.of(self.writer.sizes[self.last.size], self.last.factor)
        x, u, *others = body.inputs
        self._factors(x, u)
        self._finishing([*others, *body.outputs])
        if self.op.is_transformed:
            panels, blocks = body.parts
            self._panels(
                panels, lambda panel, columns: self._blocks_of_panel(blocks, panel, columns)
            )
        else:
            (blocks,) = body.parts
            self._blocks_in(blocks, x)

    def _blocks_in(self, part: Span, x: SSAValue) -> None:
        """For each block, its tiles come in; then all panels of it."""
        loops = InputTransform(self.tiling, self.op, x, self.width)
        with self.tiling.each(part.lower, part.upper) as block:
            first = (part.base + block).scaled(self.tiles)
            with self.tiling.each(0, self.tiles) as number:
                self.products.indices[TILE] = number
                loops.transform(self._clamped(first + number), self.products, self.into)
            self._panels(
                Span(0, self.panels.extent),
                lambda panel, columns: self._panel(first, panel, columns),
            )

    def _blocks_of_panel(self, part: Span, panel: Index, columns: Sequence[Column]) -> None:
        """For each panel, its blocks; their tiles stand at hand."""
        with self.tiling.each(part.lower, part.upper) as block:
            first = (part.base + block).scaled(self.tiles)
            pitch = self.into.form.stride(TILE)
            assert pitch is not None
            self.into = replace(self.into, start=first.scaled(pitch))
            self._panel(first, panel, columns)

    def _panels(self, part: Span, emit: Callable[[Index, Sequence[Column]], None]) -> None:
        """The panels that are full, then the last one."""
        full, rest = divmod(self.op.sizes[3], self.lanes)
        whole = whole_panel(self.op.schedule.n_vectors.data, self.width)
        if not rest:
            with self.tiling.each(part.lower, part.upper) as panel:
                emit(part.base + panel, whole)
            return
        lower, upper = self._bound(part, part.lower), self._bound(part, part.upper)
        if full:
            with self.tiling.each(lower, self._limited(arith.MinSIOp, upper, full)) as panel:
                emit(panel, whole)
        with self.tiling.each(self._limited(arith.MaxSIOp, lower, full), upper) as panel:
            emit(panel, last_panel(rest, self.width, True))

    def _bound(self, part: Span, bound: Bound) -> Bound:
        """Counted from the first panel of all."""
        index = part.base + (bound if isinstance(bound, int) else Index.of(bound))
        return self.writer.value(index) if index.terms else index.constant

    def _limited(
        self, make: type[arith.MinSIOp | arith.MaxSIOp], bound: Bound, limit: int
    ) -> Bound:
        if isinstance(bound, int):
            return (min if make is arith.MinSIOp else max)(bound, limit)
        return self.writer.once(make(bound, self.writer.constant(limit)))

    # Where everything is

    def _factors(self, x: SSAValue, u: SSAValue) -> None:
        """Local memory for transformed tiles, and for the sums of one panel; the accesses."""
        channels = 0 if self.op.is_transformed else self.channels
        scratch = Scratch(self.tiles, self.taps, channels, self.lanes, self.line)
        sums = self.writer.alloca(self.kind, self.taps * scratch.sums)
        sizes = (self.taps, self.total, self.panels.extent, self.lanes, self.channels)
        self.products = IterationPoint(self.writer, sizes)
        weights = AffineMap(5, 0, (dim(TAP), dim(TERM), dim(PANEL) * self.lanes + dim(LANE)))
        if self.op.is_in_panels:
            weights = AffineMap(5, 0, (dim(PANEL), dim(TAP), dim(TERM), dim(LANE)))
        if self.op.is_transformed:
            at_hand = AffineMap(5, 0, (dim(TAP), dim(TILE), dim(TERM)))
            self.into = Access(x, offset(tensor(self.op.x), at_hand, sizes))
        else:
            data = self.writer.alloca(self.kind, self.taps * scratch.data)
            form = sum_of({TAP: scratch.data, TILE: scratch.pitch, TERM: 1})
            self.into = Access(data, form)
        self.weights = Access(u, offset(tensor(self.op.u), weights, sizes))
        self.totals = Access(sums, sum_of({TAP: scratch.sums, TILE: self.lanes, LANE: 1}))

    def _finishing(self, memories: Sequence[SSAValue]) -> None:
        """One vector of results of one pixel at a time."""
        op, last = self.op, len(self.op.sizes) - 1
        maps = [*op.epilogue_input_maps, AffineMap.identity(last + 1)]
        sizes = split_sizes(op.sizes, last, self.width)
        self.results = IterationPoint(self.writer, sizes)
        values = [*op.epilogue_inputs, op.output]
        *epilogue_inputs, target = (
            Access(memory, offset(tensor(value), split_map(map_, last, self.width), sizes))
            for memory, value, map_ in zip(memories, values, maps, strict=True)
        )
        grid = TileGrid(self.results, None, last + 1, self.width, self.kind)
        body = op.epilogue.block
        in_lanes = widest_lane([element(value) for value in [op.x, *values]], body) > 0
        self.epilogue = Epilogue(grid, body, epilogue_inputs, [target], in_lanes)

    def _clamped(self, number: Index) -> Index:
        """Behind the last tile, the last one again."""
        return number if self._is_even else self.tiling.least(number, self.end + (-1))

    @property
    def _is_even(self) -> bool:
        """Whether all blocks have as many tiles."""
        total = self.total if self.last is None else self.last.factor
        return total % self.tiles == 0

    # Products

    def _panel(self, first: Index, panel: Index, columns: Sequence[Column]) -> None:
        self.products.indices[PANEL], self.products.indices[LANE] = panel, Index()
        with self.tiling.each(0, self.taps) as tap:
            self.products.indices[TAP] = tap
            for blocks in balanced(self.tiles, self.op.schedule.mr.data):
                end = blocks.start + blocks.count * blocks.size
                with self.tiling.each(blocks.start, end, blocks.size) as row:
                    self.products.indices[TILE] = row
                    self._sums(Tile(blocks.size, tuple(columns)))
        self._transform_out(first, panel, columns)

    def _sums(self, block: Tile) -> None:
        grid = TileGrid(self.products, TILE, LANE, self.lanes, self.kind)
        terms = Group((TERM,), self.channels)
        factors = (self.into, self.weights)
        chunk = self.op.schedule.kc.data
        kernel = MicroKernel(grid, factors, [terms], chunk, self._next_tap().recipe)

        def keep(_row: Index, _lane: Index, _column: Column, value: SSAValue) -> None:
            self.writer.put(value, *self.products.of(self.totals))

        grid.each_sum(block, kernel.sums(block), keep)

    def _next_tap(self) -> NextSection:
        """The weights of the next tap: each block of tiles prefetches its share."""
        blocks = -(-self.tiles // self.op.schedule.mr.data)
        return NextSection(
            self.products,
            self.weights.memory,
            self.lanes,
            self.channels * self.lanes,
            [Group((TILE,), self.tiles)],
            blocks,
            -(-self.lanes // blocks // self.line),
        )

    # Results

    def _transform_out(self, first: Index, panel: Index, columns: Sequence[Column]) -> None:
        """A^T m A for a panel of all tiles of the block that there are."""
        last: Bound = self.tiles
        if not self._is_even:
            left = self.writer.value(self.end + first.scaled(-1))
            last = self.writer.once(arith.MinSIOp(left, self.writer.constant(self.tiles)))
        whole = [column for column in columns if column.whole]
        with self.writer.loop(0, last) as loop:
            at = Index.of(loop.counter)
            corner = self.tiling.corner(first + at)
            start = panel.scaled(self.lanes // self.width)
            if whole:
                with self.tiling.each(0, len(whole)) as vector:
                    self._finish(at, corner, start, vector, whole[0])
            for number in range(len(whole), len(columns)):
                self._finish(at, corner, start, Index(number), columns[number])

    def _finish(
        self, at: Index, corner: TileOrigin, start: Index, vector: Index, column: Column
    ) -> None:
        indices = self.products.indices
        indices[TILE], indices[LANE] = at, vector.scaled(self.width)
        loaded = [
            [self._sum(row * self.side + column) for column in range(self.side)]
            for row in range(self.side)
        ]
        results = transform_2d(self.writer, self.op.transforms.output, loaded)
        self.results.indices[N], self.results.indices[3] = corner.image, start + vector
        own = Column(0, self.width, column.valid)
        for row, values in enumerate(results):
            with self.tiling.own(corner, 0, row):
                for column_, value in enumerate(values):
                    with self.tiling.own(corner, 1, column_):
                        self.results.indices[Y] = corner.starts[0] + row
                        self.results.indices[X] = corner.starts[1] + column_
                        self.epilogue.apply_to_vector(own, value)

    def _sum(self, tap: int) -> SSAValue:
        self.products.indices[TAP] = Index(tap)
        return self.writer.get(*self.products.of(self.totals), self.width)
