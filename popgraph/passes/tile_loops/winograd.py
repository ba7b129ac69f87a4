"""Which loops compute a Winograd convolution? Per block of tiles: in, products, out."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import Linear, offset
from popgraph.dialects.tile.structured import element
from popgraph.passes.tile_loops.access import (
    Access,
    Group,
    Place,
    clear_gaps,
    has_gaps,
    in_place,
    spans,
    tensor,
)
from popgraph.passes.tile_loops.bodies import widest_lane
from popgraph.passes.tile_loops.chunking import Split, split
from popgraph.passes.tile_loops.epilogue import Epilogue
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
from popgraph.passes.tile_loops.tiles import Grid, Tile
from popgraph.passes.tile_loops.transforms import from_both_sides
from popgraph.passes.tile_loops.writer import Bound, Writer
from popgraph.support.shapes import prod

LANE_WORK = 8
"""So many multiplications count as much as touching one element."""

LINE = 16
"""Elements of a cache line."""

N, Y, X, R, S, C = range(6)
"""The dimensions of a read: a tile's image, row and column, then row, column, channel in it."""

TAP, TILE, PANEL, LANE, TERM = range(5)
"""The dimensions of the products."""


def dim(number: int) -> AffineExpr:
    return AffineExpr.dimension(number)


def sum_of(terms: dict[int, int]) -> Linear:
    """Dimensions with their distances in memory."""
    return Linear(0, {dim(number): stride for number, stride in terms.items() if stride})


def apart(elements: int) -> int:
    """At least so many elements, in an odd number of cache lines: neighbours share no set."""
    return (-(-elements // LINE) | 1) * LINE


@dataclass(frozen=True)
class Scratch:
    """How far apart transformed tiles stand, in elements, and the sums of a panel."""

    tiles: int
    taps: int
    channels: int
    lanes: int

    @property
    def pitch(self) -> int:
        """From tile to tile."""
        return apart(self.channels)

    @property
    def data(self) -> int:
        """From tap to tap of transformed tiles."""
        return apart(self.tiles * self.pitch)

    @property
    def sums(self) -> int:
        """From tap to tap of sums."""
        return apart(self.tiles * self.lanes)

    @property
    def size(self) -> int:
        """All of it."""
        return self.taps * (self.data + self.sums)


@dataclass(frozen=True)
class Corner:
    """Where a tile's results begin, and from where on they are its own."""

    image: Index
    starts: tuple[Index, Index]
    own: tuple[Index, Index]


class WinogradLoops:
    """Writes the loops of one Winograd convolution."""

    def __init__(self, op: tile.WinogradOp) -> None:
        self.op = op
        self.size, self.side = op.size.value.data, op.transforms.side
        self.taps, self.channels, _ = tensor(op.u).get_shape()
        self.kind = element(op.x)
        schedule = op.schedule
        self.width, self.lanes = schedule.width.data, schedule.lanes
        self.total = op.sizes[0] * prod(op.grid)
        self.tiles = op.tiles.value.data
        self.blocks = -(-self.total // self.tiles)
        self.cut = self._cut()

    def _cut(self) -> Split | None:
        if has_gaps(self.op.output):
            return None
        work = self.taps * self.total * self.channels * self.op.sizes[3]
        return split([self.blocks], work // LANE_WORK)

    def kernel(self) -> tile.KernelOp:
        op = self.op
        operands = [op.x, op.u, *op.extras]
        read = zip(op.extras, (map_.data for map_ in op.extra_maps), strict=True)
        kernel = tile.KernelOp(
            operands,
            [tensor(op.output)],
            self.cut.count if self.cut else 1,
            in_place(operands, read, [op.output], op.sizes),
        )
        self.writer = Writer(kernel.body.block)
        chunk, x, u, *others = kernel.body.block.args
        clear_gaps(self.writer, [op.output], others[-1:])
        self._scratch(u)
        self._reading(x)
        self._finishing(others)
        (part,) = spans(self.writer, [Group((TILE,), self.blocks)], self.cut, chunk)
        with self._each(part.lower, part.upper) as block:
            self._block((part.base + block).scaled(self.tiles))
        return kernel

    # Where everything is

    def _scratch(self, u: SSAValue) -> None:
        """Memory for the transformed tiles and for the sums of one panel, and the accesses."""
        scratch = Scratch(self.tiles, self.taps, self.channels, self.lanes)
        data = self.writer.alloca(self.kind, self.taps * scratch.data)
        sums = self.writer.alloca(self.kind, self.taps * scratch.sums)
        panels = -(-self.op.sizes[3] // self.lanes)
        sizes = (self.taps, self.tiles, panels, self.lanes, self.channels)
        self.products = Place(self.writer, sizes)
        weights = AffineMap(5, 0, (dim(TAP), dim(TERM), dim(PANEL) * self.lanes + dim(LANE)))
        self.into = Access(data, sum_of({TAP: scratch.data, TILE: scratch.pitch, TERM: 1}))
        self.weights = Access(u, offset(tensor(self.op.u), weights, sizes))
        self.totals = Access(sums, sum_of({TAP: scratch.sums, TILE: self.lanes, LANE: 1}))

    def _reading(self, x: SSAValue) -> None:
        n, height, width, _ = self.op.sizes
        sizes = (n, height, width, self.side, self.side, self.channels)
        down, right = self.op.offset.data
        window = AffineMap(6, 0, (dim(N), dim(Y) + dim(R) + down, dim(X) + dim(S) + right, dim(C)))
        self.pixels = Place(self.writer, sizes)
        self.image = Access(x, offset(tensor(self.op.x), window, sizes))

    def _finishing(self, memories: Sequence[SSAValue]) -> None:
        """One vector of results of one pixel at a time."""
        op, last = self.op, len(self.op.sizes) - 1
        maps = [*(map_.data for map_ in op.extra_maps), AffineMap.identity(last + 1)]
        sizes = split_sizes(op.sizes, last, self.width)
        self.results = Place(self.writer, sizes)
        values = [*op.extras, op.output]
        *extras, target = (
            Access(memory, offset(tensor(value), split_map(map_, last, self.width), sizes))
            for memory, value, map_ in zip(memories, values, maps, strict=True)
        )
        grid = Grid(self.results, None, last + 1, self.width, self.kind)
        body = op.finish.block
        in_lanes = widest_lane([element(value) for value in [op.x, *values]], body) > 0
        self.epilogue = Epilogue(grid, body, extras, [target], in_lanes)

    # Tiles

    @contextmanager
    def _each(self, lower: Bound, upper: Bound, step: int = 1) -> Iterator[Index]:
        """A loop, or its only step."""
        if isinstance(lower, int) and isinstance(upper, int) and upper - lower <= step:
            yield Index(lower)
            return
        with self.writer.loop(lower, upper, step) as loop:
            yield Index.of(loop.counter)

    def _corner(self, number: Index) -> Corner:
        """Of a tile by its number, row by row and image by image."""
        _, height, width, _ = self.op.sizes
        rows, columns = self.op.grid
        image, number = self._divided(number, rows * columns, self.op.sizes[0])
        row, column = self._divided(number, columns, rows)
        own = row.scaled(self.size), column.scaled(self.size)
        starts = self._inside(own[0], height), self._inside(own[1], width)
        return Corner(image, starts, own)

    def _divided(self, number: Index, by: int, most: int) -> tuple[Index, Index]:
        """Quotient and rest; the quotient is less than `most`."""
        if most == 1:
            return Index(), number
        if by == 1:
            return number, Index()
        value, divisor = self.writer.value(number), self.writer.constant(by)
        quotient = self.writer.once(arith.DivSIOp(value, divisor))
        rest = self.writer.once(arith.RemSIOp(value, divisor))
        return Index.of(quotient), Index.of(rest)

    def _inside(self, start: Index, extent: int) -> Index:
        """Tiles end where the image ends."""
        return start if extent % self.size == 0 else self._least(start, extent - self.size)

    def _least(self, number: Index, most: int) -> Index:
        value, limit = self.writer.value(number), self.writer.constant(most)
        return Index.of(self.writer.once(arith.MinSIOp(value, limit)))

    def _block(self, first: Index) -> None:
        with self._each(0, self.tiles) as number:
            self._transform_in(number, first + number)
        full, rest = divmod(self.op.sizes[3], self.lanes)
        if full:
            with self._each(0, full) as panel:
                self._panel(first, panel, whole_panel(self.op.schedule.vectors.data, self.width))
        if rest:
            self._panel(first, Index(full), last_panel(rest, self.width, True))

    def _transform_in(self, at: Index, number: Index) -> None:
        """B^T d B for all channels of a tile; behind the last tile, the last one again."""
        if self.total % self.tiles:
            number = self._least(number, self.total - 1)
        corner = self._corner(number)
        where = self.pixels.where
        where[N], (where[Y], where[X]) = corner.image, corner.starts
        self.products.where[TILE] = at
        lanes = min(self.width, 1 << (self.channels.bit_length() - 1))
        whole = self.channels - self.channels % lanes
        with self._each(0, whole, lanes) as channel:
            self._channels(channel, lanes)
        if whole < self.channels:
            self._channels(Index(self.channels - lanes), lanes)

    def _channels(self, channel: Index, lanes: int) -> None:
        self.pixels.where[C] = self.products.where[TERM] = channel
        vectors = lanes if lanes > 1 else 0
        loaded = [[self._pixel(r, s, vectors) for s in range(self.side)] for r in range(self.side)]
        found = from_both_sides(self.writer, self.op.transforms.input, loaded)
        for tap, value in enumerate(value for row in found for value in row):
            self.products.where[TAP] = Index(tap)
            self.writer.put(value, *self.products.of(self.into))

    def _pixel(self, row: int, column: int, lanes: int) -> SSAValue:
        self.pixels.where[R], self.pixels.where[S] = Index(row), Index(column)
        return self.writer.get(*self.pixels.of(self.image), lanes)

    # Products

    def _panel(self, first: Index, panel: Index, columns: Sequence[Column]) -> None:
        self.products.where[PANEL], self.products.where[LANE] = panel, Index()
        with self._each(0, self.taps) as tap:
            self.products.where[TAP] = tap
            for blocks in balanced(self.tiles, self.op.schedule.block.data):
                end = blocks.start + blocks.count * blocks.size
                with self._each(blocks.start, end, blocks.size) as row:
                    self.products.where[TILE] = row
                    self._sums(Tile(blocks.size, tuple(columns)))
        self._transform_out(first, panel, columns)

    def _sums(self, block: Tile) -> None:
        grid = Grid(self.products, TILE, LANE, self.lanes, self.kind)
        terms = Group((TERM,), self.channels)
        factors = (self.into, self.weights)
        chunk = self.op.schedule.chunk.data
        kernel = MicroKernel(grid, factors, [terms], chunk, self._ask_for_next_panel)
        for (row, column), value in zip(block, kernel.sums(block), strict=True):
            with grid.at(row, column.offset):
                self.writer.put(value, *self.products.of(self.totals))

    def _ask_for_next_panel(self) -> None:
        """The weights of the next tap: each block of tiles asks for its share, step by step."""
        blocks = -(-self.tiles // self.op.schedule.block.data)
        share, size = -(-self.lanes // blocks), self.channels * self.lanes
        where = self.products.where
        index = self.products.index(self.weights.form) + size
        index += where[TERM].scaled(share - self.lanes) + where[TILE].scaled(size // self.tiles)
        for line in range(0, share, LINE):
            self.writer.prefetch(self.weights.memory, index + line)

    # Results

    def _transform_out(self, first: Index, panel: Index, columns: Sequence[Column]) -> None:
        """A^T m A for a panel of all tiles of the block that there are."""
        last: Bound = self.tiles
        if self.total % self.tiles:
            left = self.writer.value(Index(self.total) + first.scaled(-1))
            last = self.writer.once(arith.MinSIOp(left, self.writer.constant(self.tiles)))
        whole = [column for column in columns if column.whole]
        with self.writer.loop(0, last) as loop:
            at = Index.of(loop.counter)
            corner = self._corner(first + at)
            start = panel.scaled(self.lanes // self.width)
            if whole:
                with self._each(0, len(whole)) as vector:
                    self._finish(at, corner, start, vector, whole[0])
            for number in range(len(whole), len(columns)):
                self._finish(at, corner, start, Index(number), columns[number])

    def _finish(
        self, at: Index, corner: Corner, start: Index, vector: Index, column: Column
    ) -> None:
        where = self.products.where
        where[TILE], where[LANE] = at, vector.scaled(self.width)
        loaded = [
            [self._sum(row * self.side + column) for column in range(self.side)]
            for row in range(self.side)
        ]
        results = from_both_sides(self.writer, self.op.transforms.output, loaded)
        self.results.where[N], self.results.where[3] = corner.image, start + vector
        block = Tile(1, (Column(0, self.width, column.valid),))
        for row, values in enumerate(results):
            with self._own(corner, 0, row):
                for column_, value in enumerate(values):
                    with self._own(corner, 1, column_):
                        self.results.where[Y] = corner.starts[0] + row
                        self.results.where[X] = corner.starts[1] + column_
                        self.epilogue.finish(block, [value])

    def _sum(self, tap: int) -> SSAValue:
        self.products.where[TAP] = Index(tap)
        return self.writer.get(*self.products.of(self.totals), self.width)

    @contextmanager
    def _own(self, corner: Corner, axis: int, by: int) -> Iterator[None]:
        """Only if a result is the tile's own: tiles that were moved in leave some to others."""
        moved = -self.op.sizes[1 + axis] % self.size
        if by >= moved:
            yield
            return
        place = self.writer.value(corner.starts[axis] + by)
        own = self.writer.value(corner.own[axis])
        with self.writer.when(self.writer.once(arith.CmpiOp(place, own, "sge"))):
            yield
