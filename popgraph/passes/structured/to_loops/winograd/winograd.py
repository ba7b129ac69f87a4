"""Loops of a Winograd convolution by blocks of tiles: input transform, products, output."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects import arith
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.program.interned import tensor_type
from popgraph.dialects.tile.affine import offset
from popgraph.dialects.tile.attributes import LayoutAttr, physical_shape
from popgraph.dialects.tile.scalars import lane_bytes
from popgraph.dialects.tile.structured.ops import element, maps_attribute
from popgraph.dialects.value_types import set_type
from popgraph.passes.structured.analysis.loops import Group, tensor
from popgraph.passes.structured.analysis.panels import Column, split_map, split_sizes
from popgraph.passes.structured.analysis.parallel_loops import Loop, MemoryAccess
from popgraph.passes.structured.analysis.winograd_scratch import Scratch
from popgraph.passes.structured.to_loops.contraction.contract import ContractLoops
from popgraph.passes.structured.to_loops.contraction.epilogue import Epilogue
from popgraph.passes.structured.to_loops.contraction.prefetch import NextSection, Prefetch
from popgraph.passes.structured.to_loops.contraction.tile_nest import TileLoops, TileNest
from popgraph.passes.structured.to_loops.contraction.tiles import TileGrid
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
    ImageTile,
    InputTransform,
    loop_or_step,
    minimum,
)
from popgraph.passes.structured.to_loops.winograd.transforms import transform_2d
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target

BLOCK, PANEL = range(2)
"""The loops of a convolution: blocks of tiles, and panels of weights."""

N, Y, X, K = range(4)
"""The dimensions of the result."""


class TapProducts(ContractLoops):
    """
    Writes the products of a panel of weights and a block of tiles; taps are a batch dimension.

    `sums[tap, tile, k] = sum over c of tiles[tap, tile, c] * weights[tap, c, k]`
    """

    def prefetch(self, factors: Sequence[Access]) -> Prefetch:
        """The recipe for the weights of the next tap: each block of rows prefetches its share."""
        # A panel has the weights of all taps in order, so this crosses into the next panel, too.
        _, tiles, _, channels = self.op.sizes
        lanes, blocks = self.schedule.nr, -(-tiles // self.schedule.mr.data)
        line = self.target.machine.line_elements(lane_bytes(self.kind))
        return NextSection(
            self.point,
            factors[1].memory,
            lanes,
            channels * lanes,
            [Group((1,), tiles)],
            blocks,
            -(-lanes // blocks // line),
        ).recipe


class WinogradLoops(Emitter):
    """
    Writes the loops of a `tile.fused` that is a Winograd convolution.

    Tiles are transformed block by block, or before the operation. Threads share the blocks; also
    the panels, if tiles are transformed before.
    """

    # Fewer than 4 blocks are too few for threads. With panels outermost, weights are read once:
    # 512 to 512 channels at 28x28 are 3.3 times as fast as direct (a2ae98a1).

    def __init__(self, op: tile.FusedOp, target: Target) -> None:
        super().__init__(op, target)
        *transforms, product, into = op.members
        assert isinstance(product, tile.ReduceOp) and isinstance(into, tile.TransformTilesOp)
        assert product.schedule is not None, "verified"
        self.product, self.into, self.schedule = product, into, product.schedule
        self.transform = next((one for one in transforms), None)
        """The transform of the input, if it is block by block."""
        outside = dict[SSAValue, SSAValue](zip(op.body.block.args, op.inputs, strict=True))
        x = self.transform.operands[0] if self.transform else product.lhs
        self.read = [x, product.rhs, *into.epilogue_inputs]
        self.inputs, self.outputs = [outside[value] for value in self.read], op.outputs
        self.kind, self.tiling = element(x), into.tiling
        self.taps, total, results, self.channels = product.sizes
        self.width, self.lanes = self.schedule.lanes.data, self.schedule.nr
        self.sizes = (*into.images.data, results)
        """The shape of the result."""
        tiles, panels = (0, 1) if self.transform else (1, 0)
        self.tiles = op.steps.data[tiles]
        self.last = self.running.get(tiles)
        self.blocks = Group((BLOCK,), -(-total // self.tiles), self.last, self.tiles)
        self.panels = Group((PANEL,), -(-results // op.steps.data[panels]))
        self.groups = [self.blocks] if self.transform else [self.panels, self.blocks]
        self.most_cut_loops = len(self.groups)
        products = prod(product.sizes)
        self.work = products // target.tuning.products_per_touch

    @property
    def loops(self) -> list[Loop]:
        """Threads share blocks of tiles, and panels if tiles are transformed before."""
        return [Loop(group.extent) for group in self.groups]

    @property
    def touched(self) -> list[MemoryAccess]:
        x, weights, *epilogue_inputs = self.inputs
        (output,) = self.outputs
        at = {group: number for number, group in enumerate(self.groups)}
        rows, panels = prod(self.sizes[1:]), self.sizes[K]
        spans = tuple(
            (panels if group is self.panels else rows) * element_bytes(output.type)
            for group in self.groups
        )

        def moved(value: SSAValue, *along: Group, written: bool = False) -> MemoryAccess:
            size = prod(physical_shape(tensor(value))) * element_bytes(value.type)
            dims = frozenset(at[group] for group in along if group in at)
            return MemoryAccess(value, size, dims, spans, written)

        return [
            moved(x, self.blocks),
            moved(weights, self.panels),
            *(moved(value, *self.groups) for value in epilogue_inputs),
            moved(output, *self.groups, written=True),
        ]

    @property
    def writes_short_pieces(self) -> bool:
        return self.cut is not None and self.groups[self.cut.parts[0].loop] is self.panels

    @property
    def inplace(self) -> list[tuple[int, int]]:
        read = zip(self.inputs[2:], self.into.epilogue_input_maps, strict=True)
        return in_place(self.inputs, read, self.outputs, self.sizes)

    def write(self, body: Body) -> None:
        self.writer = body.writer
        self.end = Index(self.tiling.count)
        if self.last is not None:
            self.end = Index.of(self.writer.sizes[self.last.size], self.last.factor)
        self.point = IterationPoint(self.writer, (self.blocks.extent, self.panels.extent))
        x, self.weights, *others = body.inputs
        self._allocate(x)
        self._prepare_epilogue([*others, *body.outputs])
        nest = TileNest(
            self.point,
            self.schedule,
            TileLoops([], self.panels, [self.blocks], None, None, False),
            body.parts,
            self.sizes[K],
            True,
        )
        if self.transform is None:
            panels, blocks = body.parts
            nest.each_panel(panels, lambda columns: self._blocks_of_panel(blocks, columns))
        else:
            self._blocks_in(body.parts[0], nest)

    def _blocks_in(self, part: Span, nest: TileNest) -> None:
        """Writes the loop over blocks: transforms the tiles of a block, then computes panels."""
        with loop_or_step(self.writer, part.lower, part.upper) as block:
            first = (part.base + block).scaled(self.tiles)
            with loop_or_step(self.writer, 0, self.tiles) as number:
                self.input_transform.transform(self._clamped(first + number), number)
            panels = Span(0, self.panels.extent)
            nest.each_panel(panels, lambda columns: self._panel(first, Index(), columns))

    def _blocks_of_panel(self, part: Span, columns: Sequence[Column]) -> None:
        """Writes the loop over the blocks of a panel, whose tiles are in memory."""
        with loop_or_step(self.writer, part.lower, part.upper) as block:
            first = (part.base + block).scaled(self.tiles)
            self._panel(first, first, columns)

    def _clamped(self, number: Index) -> Index:
        """The number of a tile, or of the last tile for those after it."""
        # The register tiles of a block have a fixed number of rows: the last block repeats a tile
        # whose sums are not used.
        return number if self._is_even else minimum(self.writer, number, self.end + (-1))

    @property
    def _is_even(self) -> bool:
        """Whether all blocks are full."""
        total = self.tiling.count if self.last is None else self.last.factor
        return total % self.tiles == 0

    def _allocate(self, x: SSAValue) -> None:
        """Allocates local memory for the sums of one panel, and for transformed tiles."""
        taps, tiles, line = self.taps, self.tiles, self._line
        channels = self.channels if self.transform else 0
        # Tiles and taps have pitches of an odd number of cache lines: with a power of two, the taps
        # of a tile would share cache sets.
        scratch = Scratch(tiles, taps, channels, self.lanes, line)
        sums = self.writer.alloca(self.kind, taps * scratch.sums)
        self.sums_type = self._rows(self.lanes, self.lanes, scratch.sums)
        shape = self.sums_type.get_shape()
        self.sums = Access(sums, offset(self.sums_type, AffineMap.identity(3), shape))
        self.sums_point = IterationPoint(self.writer, shape)
        self.weights_type = tensor_type(self.kind, (taps, self.channels, self.lanes))
        self.data, self.data_type = x, tensor(self.inputs[0])
        if self.transform is not None:
            assert isinstance(self.transform, tile.TransformTilesOp), "verified"
            self.data = self.writer.alloca(self.kind, taps * scratch.data)
            self.data_type = self._rows(self.channels, scratch.pitch, scratch.data)
            into = self.data, self.data_type
            self.input_transform = InputTransform(self.writer, self.transform, x, into)

    @property
    def _line(self) -> int:
        """The number of elements of a cache line."""
        return self.target.machine.line_elements(lane_bytes(self.kind))

    def _rows(self, elements: int, pitch: int, size: int) -> TensorType[Attribute]:
        """The type `[tap, tile, element]`, with `pitch` between tiles and `size` between taps."""
        tap, row, at = (AffineExpr.dimension(dim) for dim in range(3))
        layout = LayoutAttr.of(AffineMap(3, 0, (tap, row * pitch + at)), (self.taps, size))
        return tensor_type(self.kind, (self.taps, self.tiles, elements), layout)

    def _prepare_epilogue(self, memories: Sequence[SSAValue]) -> None:
        """Prepares the epilogue, for one vector of channels of one pixel at a time."""
        op, last = self.into, K
        assert op.epilogue is not None, "verified"
        maps = [*op.epilogue_input_maps, AffineMap.identity(last + 1)]
        sizes = split_sizes(self.sizes, last, self.width)
        self.results = IterationPoint(self.writer, sizes)
        values = [*self.inputs[2:], *self.outputs]
        *epilogue_inputs, target = (
            Access(memory, offset(tensor(value), split_map(map_, last, self.width), sizes))
            for memory, value, map_ in zip(memories, values, maps, strict=True)
        )
        grid = TileGrid(self.results, None, last + 1, self.width, self.kind)
        body = op.epilogue.block
        in_lanes = widest_lane([element(value) for value in [op.x, *values]], body) > 0
        self.epilogue = Epilogue(grid, body, epilogue_inputs, [target], in_lanes)

    # One panel of a block

    def _panel(self, first: Index, slot: Index, columns: Sequence[Column]) -> None:
        """Writes one panel of a block, whose first tile is `first`, at `place` in memory."""
        self._products(slot, columns)
        self._transform_out(first, columns)

    def _products(self, slot: Index, columns: Sequence[Column]) -> None:
        """Writes the sums of all taps, for all lanes of their vectors."""
        shape = self.data_type.get_shape()
        pitch = offset(self.data_type, AffineMap.identity(3), shape).stride(1)
        assert pitch is not None, "tiles have a constant stride"
        op, panel = self._contraction(len(columns) * self.width), self.point.indices[PANEL]
        starts = [
            (self.data, slot.scaled(pitch)),
            (self.weights, panel.scaled(prod(self.weights_type.get_shape()))),
            (self.sums.memory, Index()),
        ]
        TapProducts(op, self.schedule, self.target).write_at(self.writer, starts)
        op.erase()

    def _contraction(self, lanes: int) -> tile.ReduceOp:
        """The contraction of `lanes` of a panel with a block of tiles."""
        tap, _, k, c = (AffineExpr.dimension(dim) for dim in range(4))
        op = self.product.clone()
        op.operands = Block(arg_types=[self.data_type, self.weights_type]).args
        op.properties["domain"] = IntsAttr.of((self.taps, self.tiles, lanes, self.channels))
        op.properties["maps"] = maps_attribute([op.input_maps[0], AffineMap(4, 0, (tap, c, k))])
        set_type(op.outputs[0], self.sums_type)
        return op

    def _transform_out(self, first: Index, columns: Sequence[Column]) -> None:
        """Writes `A^T m A` for a panel, for all tiles of the block that exist."""
        last: Bound = self.tiles
        if not self._is_even:
            left = self.writer.value(self.end + first.scaled(-1))
            last = self.writer.once(arith.MinSIOp(left, self.writer.constant(self.tiles)))
        whole = [column for column in columns if column.whole]
        with self.writer.loop(0, last) as loop:
            at = Index.of(loop.counter)
            tile_ = ImageTile.numbered(self.writer, self.tiling, first + at)
            if whole:
                with loop_or_step(self.writer, 0, len(whole)) as vector:
                    self._transform_vector(at, tile_, vector, whole[0])
            for number in range(len(whole), len(columns)):
                self._transform_vector(at, tile_, Index(number), columns[number])

    def _transform_vector(self, at: Index, tile_: ImageTile, vector: Index, column: Column) -> None:
        matrix, panel = self.into.matrix.data, self.point.indices[PANEL]
        self.sums_point.indices[1], self.sums_point.indices[2] = at, vector.scaled(self.width)
        side = range(self.into.side)
        loaded = [[self._sum(row * len(side) + column) for column in side] for row in side]
        results = transform_2d(self.writer, matrix, loaded)
        (y, x), vectors = tile_.starts, self.lanes // self.width
        self.results.indices |= {N: tile_.image, K: panel.scaled(vectors) + vector}
        branch_if_first = Column(0, self.width, column.valid)
        for row, values in enumerate(results):
            with tile_.branch_if_first(0, row):
                for across, value in enumerate(values):
                    with tile_.branch_if_first(1, across):
                        self.results.indices |= {Y: y + row, X: x + across}
                        self.epilogue.apply_to_vector(branch_if_first, value)

    def _sum(self, tap: int) -> SSAValue:
        self.sums_point.indices[0] = Index(tap)
        return self.writer.get(*self.sums_point.of(self.sums), self.width)
