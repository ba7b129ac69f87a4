"""Loops of Winograd's input transforms: addressing, clamping and transforming image tiles."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import arith
from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile.affine import Linear, offset
from popgraph.dialects.tile.loops.prefetches import NAME, PrefetchAheadAttr
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.dialects.tile.structured.ops import element
from popgraph.passes.structured.analysis.loops import Group, tensor
from popgraph.passes.structured.analysis.parallel_loops import Loop
from popgraph.passes.structured.to_loops.emit.access import Access, IterationPoint, argument_number
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import in_lanes
from popgraph.passes.structured.to_loops.emit.writer import Bound, Writer
from popgraph.passes.structured.to_loops.winograd.transforms import transform_2d
from popgraph.support.tuning import Target

N, Y, X, R, S, C = range(6)
"""The dimensions of a read: a tile's image, row and column, then row, column, channel in it."""

TAP, TILE, PANEL, LANE, TERM = range(5)
"""The dimensions of the products."""

Transformed: TypeAlias = tile.TransformTilesOp | tile.TransformGradientTilesOp
Tiled: TypeAlias = tile.WinogradOp | Transformed


def dim(number: int) -> AffineExpr:
    return AffineExpr.dimension(number)


def sum_of(terms: dict[int, int]) -> Linear:
    """Dimensions with their distances in memory."""
    return Linear(0, {dim(number): stride for number, stride in terms.items() if stride})


@dataclass(frozen=True)
class TileOrigin:
    """Where a tile's results begin, and from where on they are its own."""

    image: Index
    starts: tuple[Index, Index]
    own: tuple[Index, Index]


class Tiling:
    """The tiles of the images of an operation, by number: row by row, image by image."""

    def __init__(self, writer: Writer, op: Tiled) -> None:
        self.writer = writer
        self.images, *self.extents = op.sizes[:3]
        self.grid, self.size = op.grid, op.size.value.data
        self.total = op.tile_count

    @contextmanager
    def each(self, lower: Bound, upper: Bound, step: int = 1) -> Iterator[Index]:
        """A loop, or its only step."""
        if isinstance(lower, int) and isinstance(upper, int) and upper - lower <= step:
            yield Index(lower)
            return
        with self.writer.loop(lower, upper, step) as loop:
            yield Index.of(loop.counter)

    def corner(self, number: Index) -> TileOrigin:
        """Of a tile by its number."""
        rows, columns = self.grid
        image, number = self._divided(number, rows * columns, self.images)
        row, column = self._divided(number, columns, rows)
        own = row.scaled(self.size), column.scaled(self.size)
        starts = self._inside(own[0], self.extents[0]), self._inside(own[1], self.extents[1])
        return TileOrigin(image, starts, own)

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
        return start if extent % self.size == 0 else self.least(start, Index(extent - self.size))

    def least(self, number: Index, most: Index) -> Index:
        """A number, or `most` where that is less."""
        value, limit = self.writer.value(number), self.writer.value(most)
        return Index.of(self.writer.once(arith.MinSIOp(value, limit)))

    @contextmanager
    def own(self, corner: TileOrigin, axis: int, by: int) -> Iterator[None]:
        """Only if a result is the tile's own: tiles that were moved in leave some to others."""
        condition = self.is_own(corner, axis, by)
        if condition is None:
            yield
            return
        with self.writer.when(condition):
            yield

    def is_own(self, corner: TileOrigin, axis: int, by: int) -> SSAValue | None:
        """Whether it is, or None if it always is."""
        if by >= -self.extents[axis] % self.size:
            return None
        position = self.writer.value(corner.starts[axis] + by)
        own = self.writer.value(corner.own[axis])
        return self.writer.once(arith.CmpiOp(position, own, "sge"))


class InputTransform:
    """
    Writes B^T d B: the tiles of an image, transformed, into memory by (tap, tile, channel).

    For gradients, A dy A^T; there, elements that another tile has count as zero.
    """

    def __init__(self, tiling: Tiling, op: Tiled, image: SSAValue, width: int) -> None:
        self.tiling, self.writer, self.width = tiling, tiling.writer, width
        self.once = isinstance(op, tile.TransformGradientTilesOp)
        self.matrix = op.transforms.input if isinstance(op, tile.WinogradOp) else op.matrix
        self.side = len(self.matrix[0])
        self.channels = tensor(op.x).get_shape()[3]
        sizes = (*op.sizes[:3], self.side, self.side, self.channels)
        down, right = op.offset.data
        window = AffineMap(6, 0, (dim(N), dim(Y) + dim(R) + down, dim(X) + dim(S) + right, dim(C)))
        self.pixels = IterationPoint(self.writer, sizes)
        self.image = Access(image, offset(tensor(op.x), window, sizes))
        self.kind = element(op.x)

    def transform(self, number: Index, point: IterationPoint, into: Access) -> None:
        """All channels of one tile."""
        corner = self.tiling.corner(number)
        indices = self.pixels.indices
        indices[N], (indices[Y], indices[X]) = corner.image, corner.starts
        self.corner = corner
        lanes = min(self.width, 1 << (self.channels.bit_length() - 1))
        whole = self.channels - self.channels % lanes
        with self.tiling.each(0, whole, lanes) as channel:
            self._channels(channel, lanes, point, into)
        if whole < self.channels:
            self._channels(Index(self.channels - lanes), lanes, point, into)

    def _channels(self, channel: Index, lanes: int, point: IterationPoint, into: Access) -> None:
        self.pixels.indices[C] = point.indices[TERM] = channel
        vectors = lanes if lanes > 1 else 0
        loaded = [[self._pixel(r, s, vectors) for s in range(self.side)] for r in range(self.side)]
        found = transform_2d(self.writer, self.matrix, loaded)
        for tap, value in enumerate(value for row in found for value in row):
            point.indices[TAP] = Index(tap)
            self.writer.put(value, *point.of(into))

    def _pixel(self, row: int, column: int, lanes: int) -> SSAValue:
        self.pixels.indices[R], self.pixels.indices[S] = Index(row), Index(column)
        value = self.writer.get(*self.pixels.of(self.image), lanes)
        for axis, by in enumerate((row, column)) if self.once else ():
            own = self.tiling.is_own(self.corner, axis, by)
            if own is not None:
                nothing = in_lanes(self.writer, self.writer.number(0, self.kind), lanes)
                value = self.writer.add(arith.SelectOp(own, value, nothing))
        return value


class TransformLoops(Emitter):
    """Writes the loops over all tiles of all images, which threads share."""

    def __init__(self, op: Transformed, target: Target) -> None:
        super().__init__(op, target)
        self.op, self.inputs, self.outputs = op, [op.x], [op.output]
        self.taps, self.total, self.channels = tensor(op.output).get_shape()
        self.groups, self.work = (
            [Group((TILE,), self.total, self.running.get(TILE))],
            self.taps * self.total * self.channels,
        )

    @property
    def loops(self) -> list[Loop]:
        return [Loop(self.total)]

    def write(self, body: Body) -> None:
        op, machine = self.op, self.target.machine
        tiling = Tiling(body.writer, op)
        width = machine.vector_bytes // lane_bytes(element(op.x))
        loops = InputTransform(tiling, op, body.inputs[0], width)
        sizes = (self.taps, self.total, 1, 1, self.channels)
        point = IterationPoint(body.writer, sizes)
        taps = AffineMap(5, 0, (dim(TAP), dim(TILE), dim(TERM)))
        into = Access(body.outputs[0], offset(tensor(op.output), taps, sizes))
        (part,) = body.parts
        with tiling.each(part.lower, part.upper) as number:
            if number.terms:
                self._prefetch(body)
            point.indices[TILE] = part.base + number
            loops.transform(part.base + number, point, into)

    def _prefetch(self, body: Body) -> None:
        """
        Prefetches the lines of all taps, some channels before they are written.

        A tile goes to as many remote lines as there are taps, which no core foresees.
        """
        machine, tuning = self.target.machine, self.target.tuning
        argument = argument_number(body.outputs[0])
        far = self.work * element_bytes(self.op.output.type) > machine.l2_bytes
        if far and argument is not None:
            line = machine.line_elements(lane_bytes(element(self.op.x)))
            by = tuning.transform_ahead_lines * line
            body.writer.mark(NAME, PrefetchAheadAttr.of(argument=argument, by=by))
