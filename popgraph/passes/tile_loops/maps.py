"""How does a `tile.map` become loops?"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import Linear, is_identity, offset
from popgraph.passes.tile_loops.access import (
    Access,
    Place,
    Source,
    Span,
    clear_gaps,
    group_loops,
    has_gaps,
    spans,
    tensor,
    volume,
    windows,
)
from popgraph.passes.tile_loops.bodies import (
    Along,
    indexed_dims,
    inline,
    widest_lane,
)
from popgraph.passes.tile_loops.chunking import Split, split
from popgraph.passes.tile_loops.vectors import Run, fitting_lanes, read, run, write
from popgraph.passes.tile_loops.writer import Writer
from popgraph.support.shapes import Shape


class MapLoops:
    """
    Writes the loops of one map.

    `window` tells how much of each loop runs, from where the place stands; all of it by default.
    """

    def __init__(self, op: tile.MapOp, vector_bytes: int, window: Shape | None = None) -> None:
        self.op = op
        self.sizes = op.sizes
        maps = [*op.input_maps, *[AffineMap.identity(len(op.sizes))] * len(op.outputs)]
        self.values = [*op.inputs, *op.outputs]
        self.forms = [
            offset(tensor(value), map_, self.sizes)
            for value, map_ in zip(self.values, maps, strict=True)
        ]
        self.groups = group_loops(
            range(len(self.sizes)), window or self.sizes, self.forms, indexed_dims(op.body.block)
        )
        self.lanes = self._lanes(self.forms, vector_bytes)

    def _cut(self) -> Split | None:
        """How threads share the loops."""
        if any(map(has_gaps, self.op.outputs)):
            return None
        steps = [1] * len(self.groups)
        if self.lanes:
            steps[-1] = self.lanes
        return split([group.extent for group in self.groups], volume(self.groups), steps)

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
        cut = self._cut()
        kernel = tile.KernelOp(
            [*op.inputs, *op.tables],
            [tensor(value) for value in op.outputs],
            cut.count if cut else 1,
            self._inplace(),
        )
        writer = Writer(kernel.body.block)
        chunk, *memories = kernel.body.block.args
        inputs, results = len(op.inputs), len(op.inputs) + len(op.tables)
        tables = memories[inputs:results]
        clear_gaps(writer, op.outputs, memories[results:])
        if 0 not in self.sizes:
            found = [
                Access(memory, form)
                for memory, form in zip(
                    [*memories[:inputs], *memories[results:]], self.forms, strict=True
                )
            ]
            parts = spans(writer, self.groups, cut, chunk)
            self.write(Place(writer, self.sizes), found, tables, parts)
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

    def write(
        self,
        place: Place,
        sources: Sequence[Source],
        tables: Sequence[SSAValue],
        parts: Sequence[Span] | None = None,
    ) -> None:
        """
        Writes the loops where `place` stands.

        `sources` tells where each of `values` is, `parts` which part of each loop runs.
        """
        self.place, self.tables = place, tables
        self.sources, self.targets = sources[: len(self.op.inputs)], sources[len(self.op.inputs) :]
        parts = parts if parts is not None else windows(place, self.groups)
        runs = [Run(group, part) for group, part in zip(self.groups, parts, strict=True)]
        if self.lanes:
            runs[-1] = Run(self.groups[-1], parts[-1], (self.lanes, 1))
        run(place, runs, self._element)

    def _element(self, width: int, carried: list[SSAValue]) -> list[SSAValue]:
        lanes = width if width > 1 else 0
        inner = self.groups[-1].last if self.groups else 0
        values = [read(self.place, access, inner, lanes) for access in self.sources]
        arguments = [*values, *self.tables]
        results = inline(self.place, self.op.body.block, arguments, Along(inner, lanes))
        for value, target in zip(results, self.targets, strict=True):
            write(self.place, target, value, lanes)
        return carried
