"""Winograd's transforms of convolutions: their cost model and their operations."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import Float32Type, f64
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import element_types, tile
from popgraph.dialects.program import ConstantOp
from popgraph.dialects.program.interned import tensor_type
from popgraph.dialects.tile.attributes import LayoutAttr, ScheduleAttr
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.dialects.tile.structured.schedule_override import ScheduleSpec
from popgraph.dialects.tile.structured.winograd import Matrix, Tiling, Transforms, transforms
from popgraph.passes.analysis.replace import insert_made_for, replace_op
from popgraph.passes.base import Compilation
from popgraph.passes.structured.analysis.convolutions import Convolution, WeightGradient
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.winograd_scratch import Scratch, padded_pitch
from popgraph.passes.structured.fusion.join import join
from popgraph.passes.structured.schedule.cost import most_rows
from popgraph.support.arrays import Array
from popgraph.support.memo import cached_property
from popgraph.support.shapes import Shape, prod
from popgraph.support.tuning import Target


@dataclass(frozen=True, kw_only=True)
class TileCandidate:
    """A tile size for a convolution, or for the gradient of its weights."""

    found: Convolution | WeightGradient
    size: int
    target: Target

    @cached_property
    def tiling(self) -> Tiling:
        return Tiling.of(self.found.images, self.size)

    @property
    def transforms(self) -> Transforms:
        return transforms(self.size, self.found.window)

    @property
    def taps(self) -> int:
        """The number of elements of a transformed tile."""
        return self.transforms.taps

    @property
    def lane_bytes(self) -> int:
        return lane_bytes(self.found.kind)

    @property
    def width(self) -> int:
        """Lanes of a vector."""
        return self.target.machine.lanes(self.lane_bytes)

    @property
    def line(self) -> int:
        """Elements of a cache line."""
        return self.target.machine.line_elements(self.lane_bytes)

    @property
    def spec(self) -> ScheduleSpec:
        """The spec that selects this candidate."""
        return ScheduleSpec(size=self.size)

    def fits(self, spec: ScheduleSpec) -> bool:
        return spec.size == self.size and spec.tiles in (0, self.spec.tiles)

    def tiles_of(
        self, image: SSAValue, offset: tuple[int, int], matrix: Matrix, rows: int
    ) -> tile.TransformTilesOp:
        """
        The transformed tiles of an image, in memory for `rows` tiles.

        Pitches of tiles and taps are odd numbers of cache lines: neighbours share no cache set.
        """
        taps, total = self.taps, self.tiling.count
        channels = tensor(image).get_shape()[-1]
        pitch = padded_pitch(channels, self.line)
        room = LayoutAttr.moved((0, 0, 0), (taps, rows | 1, pitch))
        type_ = tensor_type(self.found.kind, (taps, total, channels), room)
        return tile.TransformTilesOp(image, self.found.images, offset, self.size, matrix, type_)


@dataclass(frozen=True, kw_only=True)
class WinogradCandidate(TileCandidate):
    """A tile size, the tiles of a block, and the register tile of the products."""

    found: Convolution
    tiles: int
    at_once: bool
    """Whether all tiles are transformed before the first product."""
    vectors: int
    rows: int

    @property
    def spec(self) -> ScheduleSpec:
        return ScheduleSpec(size=self.size, tiles=self.tiles)

    @property
    def scratch(self) -> int:
        """Bytes of scratch memory of one thread."""
        channels = 0 if self.at_once else self.found.channels
        lanes = self.vectors * self.width
        scratch = Scratch(self.tiles, self.taps, channels, lanes, self.line)
        return scratch.size * self.lane_bytes

    @property
    def _lanes(self) -> int:
        """Output channels, rounded up to whole vectors."""
        return -(-self.found.op.sizes[3] // self.width) * self.width

    def _load_cycles(self, blocks: int) -> float:
        """
        Cycles to load weights: from memory for the first block, and again for every other block.

        bytes / memory_bpc + (blocks - 1) * bytes / (l3_bpc or memory_bpc) + crowd_cycles * bytes of
        tiles that weights evict.
        """
        # Zen 5, 512 channels: blocks of 14 tiles take 6979 us, of 49 tiles 4100 us, as the weights
        # are streamed once per block. With few channels, large blocks leave L2: 10 to 30 % slower.
        machine, tuning = self.target.machine, self.target.tuning
        size = self.taps * self.found.channels * self._lanes * self.lane_bytes
        reload_bpc = machine.l3_bpc if size <= machine.l3_bytes else machine.memory_bpc
        kept = self.target.l2(tuning.winograd_kept_l2)
        crowd = 0 if self.at_once else max(0, self.scratch - kept)
        loaded = size / machine.memory_bpc + (blocks - 1) * size / reload_bpc
        return loaded + tuning.winograd_crowd_cycles * blocks * crowd

    @property
    def cycles(self) -> float:
        """
        Cycles on one thread: work + loads - overlap + tiles beyond L2 + transform of weights.

        Overlap: winograd_overlap * min(work, loads). Tiles beyond L2: late_tile_cycles per byte.
        Weights that are not constant: weight_cycles per vector of results and permute_cycles per
        weight.
        """
        tuning = self.target.tuning
        cycles = self._overlapped(self._work, self._load_cycles(self._blocks))
        if self.at_once:
            late = max(0, self._transformed_bytes - self.target.machine.l2_bytes)
            cycles += tuning.late_tile_cycles[self.size] * late
        if not self.found.fixed:  # Constant weights are transformed once, at load.
            taps, channels = self.taps, self.found.channels
            vectors = self._lanes // self.width
            cycles += tuning.winograd_weight_cycles * taps * channels * vectors
            cycles += tuning.winograd_permute_cycles * self.found.window**2 * channels * self._lanes
        return cycles

    def slowest(self, threads: int) -> float:
        """
        Cycles of the slowest thread.

        Threads share panels of weights if all tiles are transformed first, else blocks of tiles. A
        thread with some blocks loads all weights. A thread with some panels loads all tiles, and
        writes short runs of results all over the image.
        """
        blocks = self._blocks
        if not self.at_once:
            own = -(-blocks // threads)
            return self._overlapped(self._work * own / blocks, self._load_cycles(own))
        chunks = blocks * (self._lanes // (self.vectors * self.width) or 1)
        results = prod(self.found.op.sizes[:4]) * self.lane_bytes
        machine = self.target.machine
        remote = self._transformed_bytes / machine.remote_bpc
        remote += results / threads / machine.remote_strided_bpc
        work = self._work * -(-chunks // threads) / chunks
        return self._overlapped(work, self._load_cycles(blocks) / threads) + remote

    def _overlapped(self, work: float, loads: float) -> float:
        return work + loads - self.target.tuning.winograd_overlap * min(work, loads)

    @property
    def _blocks(self) -> int:
        return -(-self.tiling.count // self.tiles)

    @property
    def _transformed_bytes(self) -> int:
        return self.taps * self.tiling.count * self.found.channels * self.lane_bytes

    @property
    def _work(self) -> float:
        """
        Cycles of transforms and products.

        Products: taps * tiles * channels * results / (fmas_per_cycle * lanes * utilization), times
        fmas_per_cycle * fma_latency / sums if there are fewer sums. Transforms: tile_cycles and
        output_cycles per vector.
        """
        # Two FMAs a cycle, ready after four: 8 sums hide the latency.
        machine, tuning = self.target.machine, self.target.tuning
        taps, total, channels = self.taps, self.tiling.count, self.found.channels
        lanes = machine.fmas_per_cycle * self.width
        work = taps * total * channels * self._lanes / (lanes * tuning.winograd_utilization)
        sums = min(self.rows, self.tiles) * self.vectors
        short = max(1.0, machine.fmas_per_cycle * machine.fma_latency / sums)
        per_input = tuning.winograd_tile_cycles[self.size] * -(-channels // self.width)
        per_output = tuning.winograd_output_cycles[self.size] * (self._lanes // self.width)
        # The costs of a tile are of 3x3 windows; fewer taps take proportionally less.
        share = taps / transforms(self.size, 3).taps
        return work * short + total * share * (per_input + per_output)

    # The new operations

    def replace(self, compilation: Compilation) -> None:
        """Replaces the contraction by transforms of tiles around a smaller contraction."""
        op, matrices = self.found.op, self.transforms
        weights, tiles = self.transformed(compilation), self.image()
        product = self.product(tiles.output, weights[-1].results[0])
        into = tile.TransformTilesOp(
            product.outputs[0],
            self.found.images,
            None,
            self.size,
            matrices.output,
            tensor(op.outputs[0]),
            op.detach_region(op.epilogue),
            list(op.epilogue_inputs),
            op.epilogue_input_maps,
        )
        insert_made_for(op, *weights, tiles, product)
        replace_op(op, into)
        count, results, lanes = self.tiling.count, op.sizes[3], self.vectors * self.width
        if self.at_once:
            join([product, into], (results, count), (lanes, self.tiles), [(2, 1), (1, 0)])
        else:
            loops: list[Shape] = [(0,), (1, 2), (0, 1)]
            join([tiles, product, into], (count, results), (self.tiles, lanes), loops)

    def transformed(self, compilation: Compilation) -> list[Operation]:
        """Computes G w G^T in panels; constants in float64, rounded once."""
        found = self.found
        kind = f64 if found.fixed else found.kind
        lanes, results, window = self.vectors * self.width, found.op.sizes[3], found.window
        panels, rest = divmod(results, lanes)
        if rest:
            panels, lanes = 1, results
        p, c, r, s, k = (AffineExpr.dimension(dim) for dim in range(5))
        digits = AffineMap(5, 0, (r, s, c, p * lanes + k))
        permuted = tile.MapOp(
            [found.weights],
            [found.weights_map.compose(digits)],
            (panels, found.channels, window, window, lanes),
            _body([found.kind], lambda block: _converted(block, kind)),
            [kind],
        )
        both = weight_transform(self.size, window, kind)
        constant = ConstantOp(compilation.weights.attribute(both))
        p, tap, c, k, r, s = (AffineExpr.dimension(dim) for dim in range(6))
        product = tile.contraction(
            constant.result,
            permuted.outputs[0],
            [AffineMap(6, 0, (tap, r, s)), AffineMap(6, 0, (p, c, r, s, k))],
            (panels, len(both), found.channels, lanes, window, window),
            4,
            _body([kind], lambda block: _converted(block, found.kind)),
            [found.kind],
        )
        made: list[Operation] = [permuted, constant, product]
        return [*made, *self._padded(product.outputs[0])] if rest else made

    def _padded(self, transformed: SSAValue) -> list[Operation]:
        """Packs one panel as wide as the result into panels of vectors, the last one padded."""
        _, taps, channels, results = tensor(transformed).get_shape()
        lanes = self.vectors * self.width
        tap, c, k = (AffineExpr.dimension(dim) for dim in range(3))
        panels = AffineMap(3, 0, (k // lanes, tap, c, k % lanes))
        layout = LayoutAttr.of(panels, (-(-results // lanes), taps, channels, lanes))
        view = tile.ViewOp(transformed, (taps, channels, results))
        type_ = tensor_type(self.found.kind, (taps, channels, results), layout)
        return [view, tile.PackOp(view.output, type_)]

    def image(self) -> tile.TransformTilesOp:
        """The transform of the image's tiles, with memory of its own if all are transformed."""
        found, matrix = self.found, self.transforms.input
        if self.at_once:  # Memory for whole blocks: the last one may read beyond the last tile.
            return self.tiles_of(found.image, found.offset, matrix, self._blocks * self.tiles)
        type_ = tensor_type(found.kind, (self.taps, self.tiling.count, found.channels))
        return tile.TransformTilesOp(
            found.image, found.images, found.offset, self.size, matrix, type_
        )

    def product(self, tiles: SSAValue, weights: SSAValue) -> tile.ReduceOp:
        """`y[tap, tile, k] = sum over c of tiles[tap, tile, c] * weights[tap, c, k]`."""
        kind, lanes = self.found.kind, self.vectors * self.width
        tap, row, k, c = (AffineExpr.dimension(dim) for dim in range(4))
        in_panels = len(tensor(weights).get_shape()) == 4
        of_weights = (k // lanes, tap, c, k % lanes) if in_panels else (tap, c, k)
        op = tile.contraction(
            tiles,
            weights,
            [AffineMap(4, 0, (tap, row, c)), AffineMap(4, 0, of_weights)],
            (self.taps, self.tiling.count, self.found.op.sizes[3], self.found.channels),
            3,
            _body([kind], lambda block: block.args[0]),
            [kind],
        )
        chain = self.target.tuning.winograd_chain_terms
        op.properties["schedule"] = ScheduleAttr.of(
            n_dim=2,
            n_vectors=self.vectors,
            m_dim=1,
            mr=self.rows,
            # With 512 channels, chains of 64 terms leave an error of 1e-6 of the largest result,
            # a single chain 3.6e-6 (4x4 tiles, Zen 5).
            kc=chain if isinstance(kind, Float32Type) else 0,
            lanes=self.width,
        )
        return op


def fitting_sizes(found: Convolution | WeightGradient) -> list[int]:
    """Tile sizes up to the size of an image."""
    return [size for size in (2, 4) if min(found.images[1:]) >= size]


def winograd_candidates(
    found: Convolution, target: Target, threads: int
) -> Iterator[WinogradCandidate]:
    """Yields candidates by tile size, with blocks of 1 to `winograd_rounds` register tiles."""
    machine, tuning = target.machine, target.tuning
    width = machine.lanes(lane_bytes(found.kind))
    vectors = min(tuning.winograd_vectors, -(-found.op.sizes[3] // width))
    rows = min(tuning.max_tiles_in_registers, most_rows(machine.registers, vectors))
    for size in fitting_sizes(found):
        total = Tiling.of(found.images, size).count
        rounds_of_blocks = range(1, tuning.winograd_rounds + 1)
        for blocks in {-(-total // (rounds * rows)) for rounds in rounds_of_blocks}:
            tiles = -(-total // blocks)
            # Too few blocks leave threads without work: they then share panels of weights.
            few = blocks < (tuning.least_shared_blocks if threads < 2 else threads)
            candidate = WinogradCandidate(
                found=found,
                size=size,
                target=target,
                tiles=tiles,
                at_once=few,
                vectors=vectors,
                rows=rows,
            )
            if candidate.scratch <= target.l2(tuning.winograd_scratch_l2):
                yield candidate
            else:
                yield replace(candidate, at_once=True)


@cache
def weight_transform(size: int, window: int, kind: Attribute) -> Array:
    """The matrix [tap, row, column] of the product `G w G^T`."""
    matrix = np.array(transforms(size, window).weights)
    both: Array = np.einsum("ir,js->ijrs", matrix, matrix).reshape(-1, window, window)
    both = both.astype(element_types.from_ir(kind).numpy)
    both.setflags(write=False)  # The cache returns the same array to all callers.
    return both


def _body(kinds: Sequence[Attribute], written: Callable[[Block], SSAValue]) -> Region:
    """A body with one result."""
    block = Block(arg_types=kinds)
    block.add_op(tile.YieldOp(written(block)))
    return Region(block)


def _converted(block: Block, kind: Attribute) -> SSAValue:
    """Converts the argument of a body to another precision."""
    (value,) = block.args
    if value.type == kind:
        return value
    convert = arith.ExtFOp if kind == f64 else arith.TruncFOp
    op = convert.create(operands=[value], result_types=[kind])
    block.add_op(op)
    return op.results[0]
