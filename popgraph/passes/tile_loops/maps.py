"""How does a `tile.map` become loops?"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import Linear, is_identity, offset
from popgraph.passes.tile_loops.access import (
    Place,
    Span,
    accesses,
    clear_gaps,
    group_loops,
    has_gaps,
    spans,
    tensor,
    volume,
)
from popgraph.passes.tile_loops.bodies import (
    indexed_dims,
    inline,
    widest_lane,
)
from popgraph.passes.tile_loops.chunking import split
from popgraph.passes.tile_loops.vectors import Run, fitting_lanes, read, run, write
from popgraph.passes.tile_loops.writer import Writer


class MapLoops:
    """Writes the loops of one map."""

    def __init__(self, op: tile.MapOp, vector_bytes: int) -> None:
        self.op = op
        self.sizes = op.sizes
        maps = [*op.input_maps, *[AffineMap.identity(len(op.sizes))] * len(op.outputs)]
        values = [*op.inputs, *op.outputs]
        forms = [
            offset(tensor(value), map_, self.sizes)
            for value, map_ in zip(values, maps, strict=True)
        ]
        self.groups = group_loops(
            range(len(self.sizes)), self.sizes, forms, indexed_dims(op.body.block)
        )
        self.lanes = self._lanes(forms, vector_bytes)
        steps = [1] * len(self.groups)
        if self.lanes:
            steps[-1] = self.lanes
        gaps = any(map(has_gaps, op.outputs))
        self.cut = (
            None
            if gaps
            else split([group.extent for group in self.groups], volume(self.groups), steps)
        )

    def _lanes(self, forms: Sequence[Linear], vector_bytes: int) -> int:
        """How many elements one vector holds; 0 when the map is not for vectors."""
        op = self.op
        if not self.groups:
            return 0
        inner = self.groups[-1].last
        kinds = [tensor(value).element_type for value in [*op.inputs, *op.outputs]]
        widest = widest_lane(kinds, op.body.block, along=inner)
        strides = [form.stride(inner) for form in forms]
        results = strides[len(op.inputs) :]
        if not set(strides) <= {0, 1} or set(results) != {1}:
            return 0
        return fitting_lanes(self.groups[-1].extent, vector_bytes, widest)

    def kernel(self) -> tile.KernelOp:
        op = self.op
        kernel = tile.KernelOp(
            [*op.inputs, *op.tables],
            [tensor(value) for value in op.outputs],
            self.cut.count if self.cut else 1,
            self._inplace(),
        )
        writer = Writer(kernel.body.block)
        chunk, *memories = kernel.body.block.args
        count = len(op.inputs)
        tables = memories[count : count + len(op.tables)]
        results = memories[count + len(op.tables) :]
        identity = [AffineMap.identity(len(self.sizes))] * len(results)
        self.place = Place(writer, self.sizes)
        self.sources = accesses(memories[:count], op.inputs, op.input_maps, self.sizes)
        self.targets = accesses(results, op.outputs, identity, self.sizes)
        self.tables = tables
        clear_gaps(writer, op.outputs, results)
        if 0 not in self.sizes:
            self._loops(spans(writer, self.groups, self.cut, chunk))
        return kernel

    def _inplace(self) -> list[tuple[int, int]]:
        """Operands that are read where the result is written, and nowhere else."""
        op = self.op
        pairs = []
        operands = [*op.inputs, *op.tables]
        for number, (value, map_) in enumerate(zip(op.inputs, op.input_maps, strict=True)):
            if operands.count(value) == 1 and is_identity(map_, self.sizes):
                pairs += [
                    (number, place)
                    for place, result in enumerate(op.outputs)
                    if result.type == value.type
                ]
        return pairs

    def _loops(self, parts: list[Span]) -> None:
        runs = [Run(group, part) for group, part in zip(self.groups, parts, strict=True)]
        if self.lanes:
            runs[-1] = Run(self.groups[-1], parts[-1], (self.lanes, 1))
        run(self.place, runs, self._element)

    def _element(self, width: int, carried: list[SSAValue]) -> list[SSAValue]:
        lanes = width if width > 1 else 0
        inner = self.groups[-1].last if self.groups else 0
        values = [read(self.place, access, inner, lanes) for access in self.sources]
        results = inline(self.place, self.op.body.block, [*values, *self.tables])
        for value, target in zip(results, self.targets, strict=True):
            write(self.place, target, value, lanes)
        return carried
