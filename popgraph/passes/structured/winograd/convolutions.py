"""Winograd's transforms of 3x3 convolutions: their cost model and their operations."""

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
from popgraph.dialects.tile.structured.winograd import TAPS, transforms
from popgraph.passes.analysis.replace import insert_made_for, replace_op
from popgraph.passes.base import Compilation
from popgraph.passes.structured.analysis.conv3x3 import Convolution
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.winograd_scratch import Scratch, padded_pitch
from popgraph.passes.structured.schedule.cost import most_rows
from popgraph.support.arrays import Array
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target


@dataclass(frozen=True)
class WinogradCandidate:
    """A size of tiles, how many are transformed at once, and the blocking of their products."""

    found: Convolution
    size: int
    tiles: int
    at_once: bool
    """All tiles are transformed before the first product."""
    vectors: int
    rows: int
    width: int
    target: Target

    @property
    def spec(self) -> ScheduleSpec:
        """The candidate in words."""
        return ScheduleSpec(size=self.size, tiles=self.tiles)

    def fits(self, spec: ScheduleSpec) -> bool:
        return spec.size == self.size and spec.tiles in (0, self.tiles)

    @property
    def scratch(self) -> int:
        """Bytes of memory that one thread needs."""
        taps, lanes = (self.size + 2) ** 2, self.vectors * self.width
        channels = 0 if self.at_once else self.found.channels
        return Scratch(self.tiles, taps, channels, lanes, self._line).size * lane_bytes(
            self.found.kind
        )

    @property
    def _line(self) -> int:
        """Elements of a cache line."""
        return self.target.machine.line_elements(lane_bytes(self.found.kind))

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

        bytes / memory_bpc + (blocks - 1) * bytes / (l3_bpc or memory_bpc), and crowd_cycles for
        each byte of tiles that had to make room for weights.
        """
        machine, tuning = self.target.machine, self.target.tuning
        size = self._weights((self.size + 2) ** 2)
        again = machine.l3_bpc if size <= machine.l3_bytes else machine.memory_bpc
        kept = self.target.l2(tuning.winograd_kept_l2)
        crowd = 0 if self.at_once else max(0, self.scratch - kept)
        fetched = size / machine.memory_bpc + (blocks - 1) * size / again
        return fetched + tuning.winograd_crowd_cycles * blocks * crowd

    @property
    def cycles(self) -> float:
        """
        Cycles on one thread: work + fetches - overlap + (late tiles) + (transform of weights).

        Weights arrive while products are summed: of the shorter of both, `winograd_overlap`.
        Late tiles cost late_tile_cycles for each byte beyond L2; the transform of weights that are
        not constant costs weight_cycles per vector of results and permute_cycles per weight.
        """
        tuning = self.target.tuning
        blocks = -(-self.found.tiles(self.size) // self.tiles)
        cycles = self._together(self._work, self._fetches(blocks))
        if self.at_once:
            late = max(0, self._transformed_bytes - self.target.machine.l2_bytes)
            cycles += tuning.late_tile_cycles[self.size] * late
        if not self.found.fixed:
            taps, channels = (self.size + 2) ** 2, self.found.channels
            vectors = self._lanes // self.width
            cycles += tuning.winograd_weight_cycles * taps * channels * vectors
            cycles += tuning.winograd_permute_cycles * TAPS**2 * channels * self._lanes
        return cycles

    def slowest(self, threads: int) -> float:
        """
        Cycles of the slowest of so many threads that share blocks of tiles, or panels of weights.

        They share panels where tiles stand ready.

        Whoever has some tiles needs all weights; whoever has some panels needs all tiles, and
        writes short pieces of results all over the image.
        """
        blocks = -(-self.found.tiles(self.size) // self.tiles)
        if not self.at_once:
            own = -(-blocks // threads)
            return self._together(self._work * own / blocks, self._fetches(own))
        chunks = blocks * (self._lanes // (self.vectors * self.width) or 1)
        results = prod(self.found.op.sizes[:4]) * lane_bytes(self.found.kind)
        machine = self.target.machine
        remote = self._transformed_bytes / machine.remote_bpc
        remote += results / threads / machine.remote_strided_bpc
        work = self._work * -(-chunks // threads) / chunks
        return self._together(work, self._fetches(blocks) / threads) + remote

    def _together(self, work: float, fetches: float) -> float:
        return work + fetches - self.target.tuning.winograd_overlap * min(work, fetches)

    @property
    def _transformed_bytes(self) -> int:
        taps = (self.size + 2) ** 2
        total = self.found.tiles(self.size)
        return taps * total * self.found.channels * lane_bytes(self.found.kind)

    @property
    def _work(self) -> float:
        """
        Cycles of transforms and products.

        Products: taps * tiles * channels * results / (fmas_per_cycle * lanes * utilization), more
        where few sums are in registers; transforms: tile_cycles and output_cycles per vector.
        """
        machine, tuning = self.target.machine, self.target.tuning
        taps = (self.size + 2) ** 2
        total, channels = self.found.tiles(self.size), self.found.channels
        lanes = machine.fmas_per_cycle * self.width
        work = taps * total * channels * self._lanes / (lanes * tuning.winograd_utilization)
        sums = min(self.rows, self.tiles) * self.vectors
        short = max(1.0, machine.fmas_per_cycle * machine.fma_latency / sums)
        coming = tuning.winograd_tile_cycles[self.size] * -(-channels // self.width)
        going = tuning.winograd_output_cycles[self.size] * (self._lanes // self.width)
        return work * short + total * (coming + going)

    # The new operations

    def replace(self, compilation: Compilation) -> None:
        """Puts the transforms where the sums stand."""
        weights, tiles, op = self.transformed(compilation), self.image(), self.found.op
        image = tiles[0].output if tiles else self.found.image
        new = self.convolution(image, weights[-1].results[0])
        insert_made_for(op, *weights, *tiles)
        replace_op(op, new)

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
        permuted = tile.MapOp(
            [found.weights],
            [found.weights_map.compose(digits)],
            (panels, found.channels, TAPS, TAPS, lanes),
            _body([found.kind], lambda block: _converted(block, kind)),
            [kind],
        )
        both = _from_both_sides(self.size, kind)
        constant = ConstantOp(compilation.weights.attribute(both))
        p, tap, c, k, r, s = (AffineExpr.dimension(dim) for dim in range(6))
        product = tile.contraction(
            constant.result,
            permuted.outputs[0],
            [AffineMap(6, 0, (tap, r, s)), AffineMap(6, 0, (p, c, r, s, k))],
            (panels, len(both), found.channels, lanes, TAPS, TAPS),
            4,
            _body([kind], lambda block: _converted(block, found.kind)),
            [found.kind],
        )
        made: list[Operation] = [permuted, constant, product]
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
        layout = LayoutAttr.moved(
            (0, 0, 0), (taps, rows | 1, padded_pitch(found.channels, self._line))
        )
        type_ = tensor_type(found.kind, (taps, total, found.channels), layout)
        domain = found.op.sizes[:3]
        return [tile.TransformTilesOp(found.image, domain, found.offset, self.size, type_)]

    def convolution(self, image: SSAValue, weights: SSAValue) -> tile.WinogradOp:
        op = self.found.op
        chain = self.target.tuning.winograd_chain_terms
        schedule = ScheduleAttr.of(
            n_dim=3,
            n_vectors=self.vectors,
            m_dim=-1,
            mr=self.rows,
            kc=chain if isinstance(self.found.kind, Float32Type) else 0,
            lanes=self.width,
        )
        return tile.WinogradOp(
            image,
            weights,
            op.sizes[:4],
            self.found.offset,
            self.size,
            self.tiles,
            schedule,
            op.detach_region(op.epilogue),
            tensor(op.outputs[0]),
            list(op.epilogue_inputs),
            op.epilogue_input_maps,
        )


def winograd_candidates(
    found: Convolution, target: Target, threads: int
) -> Iterator[WinogradCandidate]:
    """All tiles that a convolution can be cut into."""
    machine, tuning = target.machine, target.tuning
    width = machine.vector_bytes // lane_bytes(found.kind)
    vectors = min(tuning.winograd_vectors, -(-found.op.sizes[3] // width))
    rows = min(tuning.max_tiles_in_registers, most_rows(machine.registers, vectors))
    for size in (2, 4):
        total = found.tiles(size)
        if min(found.op.sizes[1:3]) < size:
            continue
        rounds_of_blocks = range(1, tuning.winograd_rounds + 1)
        for blocks in {-(-total // (rounds * rows)) for rounds in rounds_of_blocks}:
            tiles = -(-total // blocks)
            few = blocks < (tuning.least_shared_blocks if threads < 2 else threads)
            candidate = WinogradCandidate(found, size, tiles, few, vectors, rows, width, target)
            if candidate.scratch <= target.l2(tuning.winograd_scratch_l2):
                yield candidate
            else:
                yield replace(candidate, at_once=True)


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
