"""What do 3x3 convolutions cost by Winograd's transforms, and what do they become?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type, f64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import element_types, tile
from popgraph.dialects.program import ConstantOp
from popgraph.dialects.program.shared import tensor_type
from popgraph.dialects.tile.attributes import LayoutAttr, ScheduleAttr
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.dialects.tile.structured.decisions import Way
from popgraph.dialects.tile.structured.winograd import TAPS, transforms
from popgraph.passes.analysis.caches import SECOND, THIRD
from popgraph.passes.analysis.replace import put_in_place
from popgraph.passes.base import Compilation
from popgraph.passes.structured.analysis.conv3x3 import Convolution
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.winograd_scratch import Scratch, apart
from popgraph.passes.structured.parallel.parallel_cost import APART, FAR
from popgraph.passes.structured.schedule.cost import most_rows
from popgraph.passes.structured.winograd.weight_gradients import LATE_TILES, TILE_CYCLES
from popgraph.support.arrays import Array
from popgraph.support.shapes import prod

TERMS = 64
"""Longest chain of float32 additions: transforms make numbers of different size."""

VECTORS = 2
"""Vectors of results beside each other in registers."""

PIXELS = 14
"""Tiles in registers at once, at most."""

SCRATCH = 768 * 1024
"""Bytes of transformed tiles and sums that stay in the second cache while weights go by."""

BUSY = 0.9
"""How much of the time the multipliers are busy in a long sum."""

OUTPUT_CYCLES = {2: 30.0, 4: 90.0}
"""What it costs to transform the results of a tile back, per vector of channels, by its size."""

SHARED = 4
"""Fewer blocks of tiles than this are not for threads to share: panels of weights are."""

FEW = 16
"""So many blocks may read a panel of weights one after the other."""

FAR_FILL, THIRD_FILL = 8.0, 20.0
"""Bytes that come from memory in a cycle, and from the third cache, beside the products."""

CROWD_CYCLES = 0.5
"""Cycles for each byte of a block beyond half of the second cache, as weights go by beside it."""

WEIGHT_CYCLES, TURN_CYCLES = 24.0, 3.0
"""What a vector of transformed weights costs, and a weight before, when that is done every time."""


@dataclass(frozen=True)
class ConvolutionChoice:
    """A size of tiles, how many are transformed at once, and the blocking of their products."""

    found: Convolution
    size: int
    tiles: int
    at_once: bool
    """All tiles are transformed before the first product."""
    vectors: int
    rows: int
    width: int

    @property
    def way(self) -> Way:
        """The choice in words."""
        return Way(size=self.size, tiles=self.tiles)

    def fits(self, way: Way) -> bool:
        return way.size == self.size and way.tiles in (0, self.tiles)

    @property
    def scratch(self) -> int:
        """Bytes of memory that one thread needs."""
        taps, lanes = (self.size + 2) ** 2, self.vectors * self.width
        channels = 0 if self.at_once else self.found.channels
        return Scratch(self.tiles, taps, channels, lanes).size * lane_bytes(self.found.kind)

    @property
    def _lanes(self) -> int:
        """The channels behind, in whole vectors."""
        return -(-self.found.op.sizes[3] // self.width) * self.width

    def _weights(self, taps: int) -> int:
        """The bytes of all weights."""
        return taps * self.found.channels * self._lanes * lane_bytes(self.found.kind)

    def _fetches(self, blocks: int) -> float:
        """
        Cycles in which weights arrive: from memory for the first block, then for each again.

        With those in which tiles come back that had to make room for them.
        """
        size = self._weights((self.size + 2) ** 2)
        again = THIRD_FILL if size <= THIRD else FAR_FILL
        crowd = 0 if self.at_once else max(0, self.scratch - SECOND // 2)
        return size / FAR_FILL + (blocks - 1) * size / again + CROWD_CYCLES * blocks * crowd

    @property
    def cycles(self) -> float:
        """On one thread."""
        blocks = -(-self.found.tiles(self.size) // self.tiles)
        cycles = self._work + self._fetches(blocks)
        if self.at_once:
            cycles += LATE_TILES[self.size] * max(0, self._transformed_bytes - SECOND)
        if not self.found.fixed:
            taps, channels = (self.size + 2) ** 2, self.found.channels
            cycles += WEIGHT_CYCLES * taps * channels * (self._lanes // self.width)
            cycles += TURN_CYCLES * TAPS**2 * channels * self._lanes
        return cycles

    def slowest(self, threads: int) -> float:
        """
        Of so many threads that share blocks of tiles, or panels of weights where tiles stand ready.

        Whoever has some tiles needs all weights; whoever has some panels needs all tiles, and
        writes short pieces of results all over the image.
        """
        blocks = -(-self.found.tiles(self.size) // self.tiles)
        if not self.at_once:
            own = -(-blocks // threads)
            return self._work * own / blocks + self._fetches(own)
        chunks = blocks * (self._lanes // (self.vectors * self.width) or 1)
        results = prod(self.found.op.sizes[:4]) * lane_bytes(self.found.kind)
        afar = self._transformed_bytes / FAR + results / threads / APART
        return self._work * -(-chunks // threads) / chunks + self._fetches(blocks) / threads + afar

    @property
    def _transformed_bytes(self) -> int:
        taps = (self.size + 2) ** 2
        total = self.found.tiles(self.size)
        return taps * total * self.found.channels * lane_bytes(self.found.kind)

    @property
    def _work(self) -> float:
        """Cycles of transforms and products."""
        taps = (self.size + 2) ** 2
        total, channels = self.found.tiles(self.size), self.found.channels
        work = taps * total * channels * self._lanes / (2 * self.width * BUSY)
        short = max(1.0, 8 / (min(self.rows, self.tiles) * self.vectors))
        coming = TILE_CYCLES[self.size] * -(-channels // self.width)
        going = OUTPUT_CYCLES[self.size] * (self._lanes // self.width)
        return work * short + total * (coming + going)

    # The new operations

    def replace(self, compilation: Compilation) -> None:
        """Puts the transforms where the sums stand."""
        weights, tiles, op = self.transformed(compilation), self.image(), self.found.op
        image = tiles[0].output if tiles else self.found.image
        new = self.convolution(image, weights[-1].results[0])
        new.location = op.location
        for made in (*weights, *tiles):
            made.location = op.location
            Rewriter.insert_op(made, InsertPoint.before(op))
        put_in_place(op, new)

    def transformed(self, compilation: Compilation) -> list[Operation]:
        """G w G^T in panels; in float64 and rounded once where that is done once."""
        found = self.found
        kind = f64 if found.fixed else found.kind
        lanes, results = self.vectors * self.width, found.op.sizes[3]
        panels, rest = divmod(results, lanes)
        if rest:
            panels, lanes = 1, results
        p, c, r, s, k = (AffineExpr.dimension(dim) for dim in range(5))
        digits = AffineMap(5, 0, (r, s, c, p * lanes + k))
        turned = tile.MapOp(
            [found.weights],
            [found.weights_map.compose(digits)],
            (panels, found.channels, TAPS, TAPS, lanes),
            _body([found.kind], lambda block: _converted(block, kind)),
            [kind],
        )
        both = _from_both_sides(self.size, kind)
        constant = ConstantOp(compilation.weights.attribute(both))
        p, tap, c, k, r, s = (AffineExpr.dimension(dim) for dim in range(6))
        product = tile.ContractOp(
            constant.result,
            turned.outputs[0],
            [AffineMap(6, 0, (tap, r, s)), AffineMap(6, 0, (p, c, r, s, k))],
            (panels, len(both), found.channels, lanes, TAPS, TAPS),
            4,
            _body([kind], lambda block: _converted(block, found.kind)),
            [found.kind],
        )
        made: list[Operation] = [turned, constant, product]
        return [*made, *self._padded(product.outputs[0])] if rest else made

    def _padded(self, transformed: SSAValue) -> list[Operation]:
        """Panels of which the last one is not full, out of one that is as wide as the result."""
        _, taps, channels, results = tensor(transformed).get_shape()
        lanes = self.vectors * self.width
        tap, c, k = (AffineExpr.dimension(dim) for dim in range(3))
        panels = AffineMap(3, 0, (k // lanes, tap, c, k % lanes))
        layout = LayoutAttr.of(panels, (-(-results // lanes), taps, channels, lanes))
        view = tile.ViewOp(transformed, (taps, channels, results))
        type_ = tensor_type(self.found.kind, (taps, channels, results), layout)
        return [view, tile.PackOp(view.output, type_)]

    def image(self) -> list[tile.TransformTilesOp]:
        """The tiles, transformed, if they are all at once; blocks may read on behind the last."""
        found, taps, total = self.found, (self.size + 2) ** 2, self.found.tiles(self.size)
        if not self.at_once:
            return []
        rows = -(-total // self.tiles) * self.tiles
        layout = LayoutAttr.moved((0, 0, 0), (taps, rows | 1, apart(found.channels)))
        type_ = tensor_type(found.kind, (taps, total, found.channels), layout)
        domain = found.op.sizes[:3]
        return [tile.TransformTilesOp(found.image, domain, found.offset, self.size, type_)]

    def convolution(self, image: SSAValue, weights: SSAValue) -> tile.WinogradOp:
        op = self.found.op
        schedule = ScheduleAttr.of(
            vector=3,
            vectors=self.vectors,
            rows=-1,
            block=self.rows,
            chunk=TERMS if isinstance(self.found.kind, Float32Type) else 0,
            width=self.width,
        )
        return tile.WinogradOp(
            image,
            weights,
            op.sizes[:4],
            self.found.offset,
            self.size,
            self.tiles,
            schedule,
            op.detach_region(op.finish),
            tensor(op.outputs[0]),
            list(op.extras),
            [map_.data for map_ in op.extra_maps],
        )


def convolution_choices(
    found: Convolution, vector_bytes: int, registers: int, threads: int
) -> Iterator[ConvolutionChoice]:
    """All tiles that a convolution can be cut into."""
    width = vector_bytes // lane_bytes(found.kind)
    vectors = min(VECTORS, -(-found.op.sizes[3] // width))
    rows = min(PIXELS, most_rows(registers, vectors))
    for size in (2, 4):
        total = found.tiles(size)
        if min(found.op.sizes[1:3]) < size:
            continue
        for blocks in {-(-total // (rounds * rows)) for rounds in range(1, 5)}:
            tiles = -(-total // blocks)
            few = blocks < (SHARED if threads < 2 else threads)
            choice = ConvolutionChoice(found, size, tiles, few, vectors, rows, width)
            if choice.scratch <= SCRATCH:
                yield choice
            elif blocks < FEW:
                yield replace(choice, at_once=True)


@cache
def _from_both_sides(size: int, kind: Attribute) -> Array:
    """What a window of weights is multiplied by for each place of a tile."""
    matrix = np.array(transforms(size).weights)
    both: Array = np.einsum("ir,js->ijrs", matrix, matrix).reshape(-1, TAPS, TAPS)
    both = both.astype(element_types.from_ir(kind).numpy)
    both.setflags(write=False)  # All who ask get the same array.
    return both


def _body(kinds: Sequence[Attribute], written: Callable[[Block], SSAValue]) -> Region:
    """A body of one result."""
    block = Block(arg_types=kinds)
    block.add_op(tile.YieldOp(written(block)))
    return Region(block)


def _converted(block: Block, kind: Attribute) -> SSAValue:
    """The body's argument in another precision."""
    (value,) = block.args
    if value.type == kind:
        return value
    convert = arith.ExtFOp if kind == f64 else arith.TruncFOp
    op = convert.create(operands=[value], result_types=[kind])
    block.add_op(op)
    return op.results[0]
