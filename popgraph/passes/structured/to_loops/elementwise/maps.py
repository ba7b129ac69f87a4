"""The kernel of a `tile.map`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import Linear, offset
from popgraph.dialects.tile.scalars import is_approximated
from popgraph.dialects.tile.structured.ops import indexed_dims
from popgraph.passes.structured.analysis.loops import (
    Group,
    group_loops,
    lane_type,
    tensor,
)
from popgraph.passes.structured.analysis.parallel_loops import Loop, loops_in_steps
from popgraph.passes.structured.to_loops.emit.access import (
    Access,
    IterationPoint,
    Register,
    Source,
    Span,
    full_spans,
    in_place,
    volume,
)
from popgraph.passes.structured.to_loops.emit.bodies import (
    VectorDim,
    inline,
    widest_lane,
    widest_lane_of_rows,
)
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.transpose_in_registers import (
    BlockTranspose,
    Strides,
)
from popgraph.passes.structured.to_loops.emit.vectors import (
    NestLoop,
    fitting_lanes,
    in_lanes,
    interleave,
    read,
    write,
    write_nest,
)
from popgraph.support.shapes import Shape
from popgraph.support.tuning import Target


class MapLoops(Emitter):
    """
    Writes the loops of one map.

    `window` has the number of iterations of each loop, from its index on; by default all. A map
    that runs `once`, at load, does not transpose in registers.
    """

    def __init__(
        self, op: tile.MapOp, target: Target, window: Shape | None = None, *, once: bool = False
    ) -> None:
        super().__init__(op, target)
        self.op, self.inputs, self.outputs = op, [*op.inputs, *op.tables], op.outputs
        vector_bytes = target.machine.vector_bytes
        self.sizes = op.sizes
        maps = [*op.input_maps, *[AffineMap.identity(len(op.sizes))] * len(op.outputs)]
        self.values = [*op.inputs, *op.outputs]
        self.forms = [
            offset(tensor(value), map_, self.sizes)
            for value, map_ in zip(self.values, maps, strict=True)
        ]
        self.groups = group_loops(
            range(len(self.sizes)),
            window or self.sizes,
            self.forms,
            indexed_dims(op.body.block),
            self.running,
        )
        self.lanes = self._lanes(self.forms, vector_bytes)
        self.in_rows = window is not None
        self.together = self._vectors_together()
        self.interleaved = 0 if self.lanes or window else self._interleaved_lanes(vector_bytes)
        vectors = window or once or self.lanes or self.interleaved
        self.blocks = None if vectors else self._blocks()
        self.work = volume(self.groups)

    @property
    def loops(self) -> tuple[Loop, ...]:
        """Threads share loops in full vectors, interleaved ones, and full transposed blocks."""
        steps = [1] * len(self.groups)
        if self.lanes:
            steps[-1] = self.lanes
        if self.interleaved:
            steps[-2:] = self.interleaved, self.groups[-1].extent
        if self.blocks:
            together = self.target.machine.lines_together
            steps[-1] = self._square
            steps[self.groups.index(self.blocks.across)] = self._square * together
        return loops_in_steps(self.groups, steps)

    def _lanes(self, forms: Sequence[Linear], vector_bytes: int) -> int:
        """The number of lanes along the innermost loop; 0 if the map is not vectorized."""
        # Results must be contiguous; inputs may be broadcast. Other strides would be gathered.
        op = self.op
        if not self.groups:
            return 0
        inner = self.groups[-1].last
        kinds = [tensor(value).element_type for value in [*op.inputs, *op.outputs]]
        strides = [form.stride(inner) for form in forms]
        results = strides[len(op.inputs) :]
        if not set(strides) <= {0, 1} or set(results) != {1}:
            return 0
        widest = widest_lane(kinds, op.body.block, along=inner)
        if op.tables:
            moving = [stride != 0 for stride in strides[: len(op.inputs)]]
            widest = widest_lane_of_rows(kinds[len(op.inputs) :], op.body.block, inner, moving)
        return fitting_lanes(self.groups[-1].extent, vector_bytes, widest)

    def _vectors_together(self) -> int:
        """The number of vectors that a step computes: several, if the body is a long chain."""
        # The results of a step are stored after all loads: its chains are independent.
        functions = sum(map(is_approximated, self.op.body.block.ops))
        if not self.lanes or self.in_rows or not functions:
            return 1
        vectors = self.groups[-1].extent // self.lanes
        most = min(self.target.tuning.most_chains // functions, vectors)
        whole = [count for count in range(2, most + 1) if vectors % count == 0]
        return max(1, max(whole, default=most))

    def _interleaved_lanes(self, vector_bytes: int) -> int:
        """
        The number of lanes along the last but one loop, if the last one is short; 0 otherwise.

        Results are contiguous along both loops: the vectors of a step are interleaved.
        """
        # y[i, c] = f(x[c, i]) with 3 channels c has no vectors along c, but 3 interleaved ones
        # along i (6231430b).
        if len(self.groups) < 2 or self.groups[-1].extent > self.target.tuning.most_interleaved:
            return 0
        around, inner = self.groups[-2], self.groups[-1]
        if inner.running is not None:
            return 0
        inputs = len(self.op.inputs)
        strides = [form.stride(around.last) for form in self.forms]
        inner_strides = {form.stride(inner.last) for form in self.forms[inputs:]}
        if not set(strides[:inputs]) <= {0, 1} or inner_strides != {1}:
            return 0
        kinds = [tensor(value).element_type for value in self.values]
        if set(strides[inputs:]) != {inner.extent} or lane_type(kinds) is None:
            return 0
        widest = widest_lane(kinds, self.op.body.block, along=around.last)
        return fitting_lanes(around.extent, vector_bytes, widest)

    @property
    def _square(self) -> int:
        """The side of a block that is transposed in registers, in elements."""
        kinds = [tensor(value).element_type for value in self.values]
        size = widest_lane(kinds, self.op.body.block)
        most = self.target.tuning.most_transposed
        return min(most, self.target.machine.lanes(size)) if size else 1

    @property
    def inplace(self) -> list[tuple[int, int]]:
        read = zip(self.op.inputs, self.op.input_maps, strict=True)
        return in_place(self.inputs, read, self.outputs, self.sizes)

    def write(self, body: Body) -> None:
        if 0 not in self.sizes:
            count = len(self.op.inputs)
            elements = replace(body, inputs=body.inputs[:count])
            point = IterationPoint(body.writer, self.sizes)
            self.write_at(point, elements.accesses(self.forms), body.inputs[count:], body.parts)

    def write_at(
        self,
        point: IterationPoint,
        sources: Sequence[Source],
        tables: Sequence[SSAValue],
        parts: Sequence[Span] | None = None,
    ) -> None:
        """
        Writes the loops at `point`.

        `sources` are the sources of `values`, `parts` the ranges of the loops.
        """
        self.point, self.tables = point, tables
        self.sources, self.targets = sources[: len(self.op.inputs)], sources[len(self.op.inputs) :]
        parts = parts if parts is not None else full_spans(point, self.groups)
        nest = [NestLoop(group, part) for group, part in zip(self.groups, parts, strict=True)]
        if self.interleaved:
            *before, around, inner = nest
            widened = replace(around, widths=(self.interleaved, 1))

            def interleaved_step(width: int, carried: list[SSAValue]) -> list[SSAValue]:
                if width == 1:
                    return write_nest(point, [inner], self._element, carried)
                self._interleave(width)
                return carried

            write_nest(point, [*before, widened], interleaved_step)
            return
        if self.lanes:
            # Chunks begin at multiples of one vector, not of the vectors of a step.
            aligned = self.together == 1
            nest[-1] = NestLoop(self.groups[-1], parts[-1], self._widths(), aligned)
        elif self.blocks:
            self._write_blocks(nest)
            return
        write_nest(point, nest, self._element)

    def _write_blocks(self, nest: Sequence[NestLoop]) -> None:
        shared = None if self.cut is None else self.groups[self.cut.only.loop]
        blocks = self._blocks(shared)
        if blocks is None:
            write_nest(self.point, nest, self._element)
            return
        inputs = [one for one in self.sources if isinstance(one, Access)]
        outputs = [one for one in self.targets if isinstance(one, Access)]
        blocks.write(self.point, nest, inputs, outputs, self._inline)

    def _widths(self) -> tuple[int, ...]:
        """The steps of the vectorized loop; narrower vectors end the rows of a fused operation."""
        # 20 elements of 16 lanes are 16 + 4 in a fused row, which runs often; elsewhere 16 + 4
        # scalars.
        if not self.in_rows:
            return tuple(dict.fromkeys((self.lanes * self.together, self.lanes, 1)))
        last = self.groups[-1]
        running = last.running is not None
        widths, rest = [self.lanes], self.lanes if running else last.extent % self.lanes
        narrow = self.lanes
        while rest and narrow > 1:
            narrow //= 2
            if running:
                widths.append(narrow)
            elif rest >= narrow:
                widths.append(narrow)
                rest -= narrow
        return tuple(widths)

    def _blocks(self, cut: Group | None = None) -> BlockTranspose | None:
        """The transpose in registers of this map, if it is one; chunks share the `cut` loop."""
        # The lanes of a block have one index: a body that reads indices is computed one by one.
        if self.op.tables or indexed_dims(self.op.body.block):
            return None
        count = len(self.op.inputs)
        strides = Strides(self.forms[:count], self.forms[count:])
        return strides.blocks(self.target, self.groups, self._square, cut)

    def _inline(self, values: list[SSAValue], dim: int, lanes: int) -> list[SSAValue]:
        """Writes the body for one element, or for `lanes` of them."""
        return inline(self.point, self.op.body.block, values, VectorDim(dim, lanes))

    def _interleave(self, lanes: int) -> None:
        """Computes a vector along the last but one loop per index of the last; interleaves them."""
        point, inner = self.point, self.groups[-1]
        columns = []
        for step in range(inner.extent):
            with point.shifted(inner.last, step):
                columns.append(self._results(self.groups[-2].last, lanes))
        for target, vectors in zip(self.targets, zip(*columns, strict=True), strict=True):
            assert not isinstance(target, Register)
            memory, index = point.of(target)
            wide = [in_lanes(point.writer, vector, lanes) for vector in vectors]
            for number, vector in enumerate(interleave(point.writer, wide)):
                point.writer.vector_store(vector, memory, index + number * lanes)

    def _results(self, along: int, lanes: int) -> list[SSAValue]:
        """Writes the body for one element at the current index, or for `lanes` of them."""
        values = [read(self.point, access, along, lanes) for access in self.sources]
        arguments = [*values, *self.tables]
        return inline(self.point, self.op.body.block, arguments, VectorDim(along, lanes))

    def _element(self, width: int, carried: list[SSAValue]) -> list[SSAValue]:
        lanes = min(width, self.lanes) if width > 1 else 0
        inner = self.groups[-1].last if self.groups else 0
        steps, computed = range(0, width, max(1, lanes)), []
        for step in steps:
            with self.point.shifted(inner, step):
                computed.append(self._results(inner, lanes))
        for step, results in zip(steps, computed, strict=True):
            with self.point.shifted(inner, step):
                for value, target in zip(results, self.targets, strict=True):
                    write(self.point, target, value, lanes)
        return carried
