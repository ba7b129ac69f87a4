"""Winograd's transforms of the gradients of 3x3 weights: cost model and operations."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir import Block, Region
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.program import ConstantOp
from popgraph.dialects.value_types import set_type
from popgraph.passes.analysis.replace import insert_made_for, replace_op
from popgraph.passes.base import Compilation
from popgraph.passes.structured.analysis.convolutions import WeightGradient
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.winograd.convolutions import (
    TileCandidate,
    fitting_sizes,
    weight_transform,
)
from popgraph.support.tuning import Target


@dataclass(frozen=True, kw_only=True)
class WinogradGradientCandidate(TileCandidate):
    """A tile size for the gradient of weights."""

    found: WeightGradient

    @property
    def cycles(self) -> float:
        """
        Cycles of products, transforms of tiles and sums, and traffic beyond L2.

        Products: taps * tiles * pairs of channels / (fmas_per_cycle * lanes * utilization).
        """
        tuning, machine = self.target.tuning, self.target.machine
        size, taps, width = self.size, self.taps, self.width
        total = self.tiling.count
        inputs, outputs = self.found.channels
        vectors = -(-inputs // width) + -(-outputs // width)
        pairs = inputs * outputs
        products = (
            taps * total * pairs / (machine.fmas_per_cycle * width * tuning.gradient_utilization)
        )
        back = tuning.gradient_back_cycles * taps * self.found.window**2 * pairs / width
        tiles = self._bytes_beyond_l2(taps * total * inputs) + self._bytes_beyond_l2(
            taps * total * outputs
        )
        # The taps of a tile go to 16 or 36 distant rows: more than prefetchers follow with 36.
        late = tuning.late_tile_cycles[size] * tiles
        late += tuning.late_sum_cycles[size] * self._bytes_beyond_l2(taps * pairs)
        return products + tuning.winograd_tile_cycles[size] * total * vectors + back + late

    def _bytes_beyond_l2(self, elements: int) -> int:
        """Bytes beyond the capacity of L2."""
        return max(0, elements * self.lane_bytes - self.target.machine.l2_bytes)

    # The new operations

    def replace(self, compilation: Compilation) -> None:
        """Replaces the contraction by the transforms."""
        found, op, transforms = self.found, self.found.op, self.transforms
        tiles = (
            self.tiles_of(found.image, found.offset, transforms.input, self.tiling.count),
            self.tiles_of(found.slope, (0, 0), transforms.gradient, self.tiling.count),
        )
        sums = self._sums(*tiles)
        matrix = self._matrix(compilation)
        back = self._back(matrix, sums)
        insert_made_for(op, *tiles, sums, matrix)
        replace_op(op, back)

    def _sums(self, image: tile.TransformTilesOp, slope: tile.TransformTilesOp) -> tile.ReduceOp:
        """The sums over tiles, by tap, output channel and input channel."""
        inputs, outputs = self.found.channels
        tap, k, c, number = (AffineExpr.dimension(dim) for dim in range(4))
        epilogue = Block(arg_types=[self.found.kind])
        epilogue.add_op(tile.YieldOp(*epilogue.args))
        return tile.contraction(
            image.output,
            slope.output,
            [AffineMap(4, 0, (tap, number, c)), AffineMap(4, 0, (tap, number, k))],
            (self.taps, outputs, inputs, self.tiling.count),
            3,
            Region(epilogue),
            [self.found.kind],
        )

    def _matrix(self, compilation: Compilation) -> ConstantOp:
        """The contribution of each tap to each position of the window: [row, column, tap]."""
        by_tap = weight_transform(self.size, self.found.window, self.found.kind)
        return ConstantOp(compilation.weights.attribute(by_tap.transpose(1, 2, 0).copy()))

    def _back(self, matrix: ConstantOp, sums: tile.ReduceOp) -> tile.ReduceOp:
        """Computes G^T m G, with the epilogue of the old contraction."""
        op = self.found.op
        row, column, c, k, tap = (AffineExpr.dimension(dim) for dim in (*self.found.dims, 4))
        new = tile.contraction(
            matrix.result,
            sums.outputs[0],
            [AffineMap(5, 0, (row, column, tap)), AffineMap(5, 0, (tap, k, c))],
            (*op.sizes[:4], self.taps),
            4,
            op.detach_region(op.epilogue),
            [tensor(output).element_type for output in op.outputs],
            list(op.epilogue_inputs),
            op.epilogue_input_maps,
        )
        for old, result in zip(op.outputs, new.outputs, strict=True):
            set_type(result, tensor(old))
        return new


def winograd_gradient_candidates(
    found: WeightGradient, target: Target
) -> list[WinogradGradientCandidate]:
    """One candidate for each tile size that fits."""
    return [
        WinogradGradientCandidate(found=found, size=size, target=target)
        for size in fitting_sizes(found)
    ]
