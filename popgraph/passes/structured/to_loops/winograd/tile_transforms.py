"""Loops of Winograd's input transforms: the tiles of an image, and their transforms."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from xdsl.dialects import arith
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile.affine import linear, offset
from popgraph.dialects.tile.loops.recipes import PREFETCH, PrefetchAheadAttr
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.dialects.tile.structured.ops import element
from popgraph.dialects.tile.structured.winograd import Tiling
from popgraph.passes.structured.analysis.loops import Group, tensor
from popgraph.passes.structured.analysis.parallel_loops import Loop
from popgraph.passes.structured.to_loops.emit.access import Access, IterationPoint, argument_number
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import in_lanes
from popgraph.passes.structured.to_loops.emit.writer import Bound, Writer
from popgraph.passes.structured.to_loops.winograd.transforms import transform_2d
from popgraph.support.tuning import Target

N, Y, X, ROW, COLUMN, CHANNEL = range(6)
"""The dimensions of `TransformTilesOp.window`."""


@contextmanager
def loop_or_step(writer: Writer, lower: Bound, upper: Bound, step: int = 1) -> Iterator[Index]:
    """Opens a loop, unless it has a single step."""
    if isinstance(lower, int) and isinstance(upper, int) and upper - lower <= step:
        yield Index(lower)
        return
    with writer.loop(lower, upper, step) as loop:
        yield Index.of(loop.counter)


def minimum(writer: Writer, number: Index, most: Index | int) -> Index:
    """`min(number, most)`."""
    value, limit = writer.value(number), writer.value(Index() + most)
    return Index.of(writer.once(arith.MinSIOp(value, limit)))


@dataclass(frozen=True)
class ImageTile:
    """One tile: its image, its first row and column, and the first ones of no earlier tile."""

    writer: Writer
    tiling: Tiling
    image: Index
    starts: tuple[Index, Index]
    first_rows: tuple[Index, Index]

    @staticmethod
    def numbered(writer: Writer, tiling: Tiling, number: Index) -> ImageTile:
        point = IterationPoint(writer, (tiling.count,))
        point.indices[0] = number
        image, *steps = (
            point.index(linear(result, point.sizes)) for result in tiling.steps.results
        )
        down, right = (step.scaled(tiling.size) for step in steps)
        # Tiles at the end begin earlier, to stay inside the image: 5 rows in tiles of 4 are 0..4
        # and 1..5. Rows 1 to 3 belong to the first tile.
        starts = [
            minimum(writer, branch_if_first, last) if overlap else branch_if_first
            for branch_if_first, last, overlap in zip(
                (down, right), tiling.last, tiling.overlaps, strict=True
            )
        ]
        return ImageTile(writer, tiling, image, (starts[0], starts[1]), (down, right))

    def is_own(self, axis: int, by: int) -> SSAValue | None:
        """Whether row or column `by` is in no earlier tile; None if that is always true."""
        if by >= self.tiling.overlaps[axis]:
            return None
        position = self.writer.value(self.starts[axis] + by)
        branch_if_first = self.writer.value(self.first_rows[axis])
        return self.writer.once(arith.CmpiOp(position, branch_if_first, "sge"))

    @contextmanager
    def branch_if_first(self, axis: int, by: int) -> Iterator[None]:
        """Opens a branch for row or column `by` if an earlier tile may have it."""
        condition = self.is_own(axis, by)
        if condition is None:
            yield
            return
        with self.writer.when(condition):
            yield


class InputTransform:
    """Writes the transformed tiles of an image to memory `[tap, tile, channel]`."""

    def __init__(
        self,
        writer: Writer,
        op: tile.TransformTilesOp,
        image: SSAValue,
        into: tuple[SSAValue, TensorType[Attribute]],
    ) -> None:
        self.writer, self.op = writer, op
        self.kind = element(op.x)
        # Tiles of a gradient of weights are summed: an element in two tiles must count once.
        self.counts_once = not op.shares_elements
        self.matrix, self.side, self.channels = op.matrix.data, op.side, op.channels
        sizes = (*op.images.data, self.side, self.side, self.channels)
        self.pixels = IterationPoint(writer, sizes)
        self.image = Access(image, offset(tensor(op.x), op.window, sizes))
        memory, type_ = into
        self.transformed = IterationPoint(writer, type_.get_shape())
        self.into = Access(memory, offset(type_, AffineMap.identity(3), type_.get_shape()))
        self.width = writer.target.machine.lanes(lane_bytes(self.kind))

    def transform(self, number: Index, slot: Index) -> None:
        """Writes all channels of one tile, as number `place` in memory."""
        self.tile = ImageTile.numbered(self.writer, self.op.tiling, number)
        corner = (self.tile.image, *self.tile.starts)
        self.pixels.indices |= dict(zip((N, Y, X), corner, strict=True))
        self.transformed.indices[1] = slot
        lanes = min(self.width, 1 << (self.channels.bit_length() - 1))
        whole = self.channels - self.channels % lanes
        with loop_or_step(self.writer, 0, whole, lanes) as channel:
            self._channels(channel, lanes)
        # The last vector overlaps the one before: 20 channels of 16 are 0..16 and 4..20, without
        # scalars.
        if whole < self.channels:
            self._channels(Index(self.channels - lanes), lanes)

    def _channels(self, channel: Index, lanes: int) -> None:
        self.pixels.indices[CHANNEL] = self.transformed.indices[2] = channel
        vectors = lanes if lanes > 1 else 0
        loaded = [[self._pixel(r, s, vectors) for s in range(self.side)] for r in range(self.side)]
        found = transform_2d(self.writer, self.matrix, loaded)
        for tap, value in enumerate(value for row in found for value in row):
            self.transformed.indices[0] = Index(tap)
            self.writer.put(value, *self.transformed.of(self.into))

    def _pixel(self, row: int, column: int, lanes: int) -> SSAValue:
        self.pixels.indices[ROW], self.pixels.indices[COLUMN] = Index(row), Index(column)
        value = self.writer.get(*self.pixels.of(self.image), lanes)
        for axis, by in enumerate((row, column)) if self.counts_once else ():
            branch_if_first = self.tile.is_own(axis, by)
            if branch_if_first is not None:
                nothing = in_lanes(self.writer, self.writer.number(0, self.kind), lanes)
                value = self.writer.add(arith.SelectOp(branch_if_first, value, nothing))
        return value


class TransformLoops(Emitter):
    """Writes the transforms of all tiles of all images, which threads share."""

    def __init__(self, op: tile.TransformTilesOp, target: Target) -> None:
        super().__init__(op, target)
        self.op, self.inputs, self.outputs = op, [op.x], [op.output]
        taps, total, channels = tensor(op.output).get_shape()
        self.groups = [Group((1,), total, self.running.get(0))]
        self.work = taps * total * channels

    @property
    def loops(self) -> list[Loop]:
        return [Loop(group.extent) for group in self.groups]

    def write(self, body: Body) -> None:
        into = body.outputs[0], tensor(self.op.output)
        loops = InputTransform(body.writer, self.op, body.inputs[0], into)
        (part,) = body.parts
        with loop_or_step(body.writer, part.lower, part.upper) as number:
            if number.terms:
                self._prefetch(body)
            loops.transform(part.base + number, part.base + number)

    def _prefetch(self, body: Body) -> None:
        """Marks the loop to prefetch the lines of all taps, some channels ahead of stores."""
        # The 36 taps of a tile go to 36 distant rows; hardware follows 16 (`prefetch_streams`).
        # Results that fit in L2 need no prefetch.
        machine, tuning = self.target.machine, self.target.tuning
        argument = argument_number(body.outputs[0])
        far = self.work * element_bytes(self.op.output.type) > machine.l2_bytes
        if far and argument is not None:
            line = machine.line_elements(lane_bytes(element(self.op.x)))
            by = tuning.transform_ahead_lines * line
            body.writer.mark(PREFETCH, PrefetchAheadAttr.of(argument=argument, by=by))
