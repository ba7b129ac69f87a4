"""Winograd's transforms of the gradients of 3x3 weights: cost model and operations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Block, Region
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import element_types, tile
from popgraph.dialects.program import ConstantOp
from popgraph.dialects.program.interned import tensor_type
from popgraph.dialects.tile.attributes import LayoutAttr
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.dialects.tile.structured.schedule_override import ScheduleSpec
from popgraph.dialects.tile.structured.winograd import TAPS, transforms
from popgraph.dialects.value_types import set_type
from popgraph.passes.analysis.replace import insert_made_for, replace_op
from popgraph.passes.base import Compilation
from popgraph.passes.structured.analysis.conv3x3 import WeightGradient
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.winograd_scratch import padded_pitch
from popgraph.support.tuning import Target


@dataclass(frozen=True)
class WinogradGradientCandidate:
    """A size of tiles for the gradient of weights."""

    found: WeightGradient
    size: int
    width: int
    target: Target

    @property
    def spec(self) -> ScheduleSpec:
        """The candidate in words."""
        return ScheduleSpec(size=self.size)

    def fits(self, spec: ScheduleSpec) -> bool:
        return spec.size == self.size and spec.tiles == 0

    @property
    def cycles(self) -> float:
        """
        Cycles of products, transforms of tiles, the transform of sums, and what L2 does not hold.

        Products: taps * tiles * pairs / (fmas_per_cycle * lanes * utilization).
        """
        tuning, machine = self.target.tuning, self.target.machine
        size, taps, width = self.size, self._taps, self.width
        total = self.found.tiles(size)
        before, behind = self.found.channels
        vectors = -(-before // width) + -(-behind // width)
        pairs = before * behind
        products = (
            taps * total * pairs / (machine.fmas_per_cycle * width * tuning.gradient_utilization)
        )
        back = tuning.gradient_back_cycles * taps * TAPS**2 * pairs / width
        tiles = self._late(taps * total * before) + self._late(taps * total * behind)
        late = tuning.late_tile_cycles[size] * tiles
        late += tuning.late_sum_cycles[size] * self._late(taps * pairs)
        return products + tuning.winograd_tile_cycles[size] * total * vectors + back + late

    @property
    def _taps(self) -> int:
        return (self.size + 2) ** 2

    def _late(self, elements: int) -> int:
        """Bytes that the second cache does not hold."""
        return max(0, elements * lane_bytes(self.found.kind) - self.target.machine.l2_bytes)

    # The new operations

    def replace(self, compilation: Compilation) -> None:
        """Puts the transforms where the sums stand."""
        op = self.found.op
        tiles = self._image(), self._slope()
        sums = self._sums(*tiles)
        matrix = self._matrix(compilation)
        back = self._back(matrix, sums)
        insert_made_for(op, *tiles, sums, matrix)
        replace_op(op, back)

    def _image(self) -> tile.TransformTilesOp:
        found = self.found
        type_ = self._type(found.channels[0])
        return tile.TransformTilesOp(found.image, found.images, found.offset, self.size, type_)

    def _slope(self) -> tile.TransformGradientTilesOp:
        found = self.found
        type_ = self._type(found.channels[1])
        return tile.TransformGradientTilesOp(found.slope, found.images, (0, 0), self.size, type_)

    def _type(self, channels: int) -> TensorType:
        """Neither tiles nor taps stand where their neighbours meet the same set of a cache."""
        shape = (self._taps, self.found.tiles(self.size), channels)
        line = self.target.machine.line_elements(lane_bytes(self.found.kind))
        room = LayoutAttr.moved((0, 0, 0), (shape[0], shape[1] | 1, padded_pitch(channels, line)))
        return tensor_type(self.found.kind, shape, room)

    def _sums(
        self, image: tile.TransformTilesOp, slope: tile.TransformGradientTilesOp
    ) -> tile.ReduceOp:
        """By tap and both channels."""
        before, behind = self.found.channels
        tap, k, c, number = (AffineExpr.dimension(dim) for dim in range(4))
        epilogue = Block(arg_types=[self.found.kind])
        epilogue.add_op(tile.YieldOp(*epilogue.args))
        return tile.contraction(
            image.output,
            slope.output,
            [AffineMap(4, 0, (tap, number, c)), AffineMap(4, 0, (tap, number, k))],
            (self._taps, behind, before, self.found.tiles(self.size)),
            3,
            Region(epilogue),
            [self.found.kind],
        )

    def _matrix(self, compilation: Compilation) -> ConstantOp:
        """What each tap adds to each place in the window."""
        weights = np.array(transforms(self.size).weights)
        both = np.einsum("ir,js->rsij", weights, weights).reshape(TAPS, TAPS, -1)
        kind = element_types.from_ir(self.found.kind).numpy
        return ConstantOp(compilation.weights.attribute(both.astype(kind)))

    def _back(self, matrix: ConstantOp, sums: tile.ReduceOp) -> tile.ReduceOp:
        """G^T m G, finished as the sums were."""
        op = self.found.op
        row, column, c, k, tap = (AffineExpr.dimension(dim) for dim in (*self.found.dims, 4))
        new = tile.contraction(
            matrix.result,
            sums.outputs[0],
            [AffineMap(5, 0, (row, column, tap)), AffineMap(5, 0, (tap, k, c))],
            (*op.sizes[:4], self._taps),
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
    """All sizes of tiles."""
    width = target.machine.vector_bytes // lane_bytes(found.kind)
    sizes = [size for size in (2, 4) if min(found.images[1:]) >= size]
    return [WinogradGradientCandidate(found, size, width, target) for size in sizes]
