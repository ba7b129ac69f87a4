"""The loop nest around the micro-kernel of a scheduled contraction, also chunk by chunk."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from xdsl.ir import Block, SSAValue

from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile.affine import Linear, offset
from popgraph.dialects.tile.attributes import ScheduleAttr, memory_span, physical_shape
from popgraph.dialects.tile.running import Extent
from popgraph.dialects.tile.structured.ops import element
from popgraph.dialects.tile.structured.product import factor_body
from popgraph.passes.structured.analysis.loops import (
    Group,
    group_loops,
    has_identity_epilogue,
    sum_type,
    tensor,
)
from popgraph.passes.structured.analysis.panels import (
    Column,
    split_map,
    split_sizes,
)
from popgraph.passes.structured.analysis.parallel_loops import Loop
from popgraph.passes.structured.to_loops.contraction.epilogue import Epilogue
from popgraph.passes.structured.to_loops.contraction.k_outer import KOuterLoops
from popgraph.passes.structured.to_loops.contraction.microkernel import BlockSums, MicroKernel
from popgraph.passes.structured.to_loops.contraction.prefetch import (
    NextSection,
    PanelPrefetch,
    Prefetch,
    no_prefetch,
)
from popgraph.passes.structured.to_loops.contraction.tile_nest import TileLoops, TileNest, rows_of
from popgraph.passes.structured.to_loops.contraction.tiles import Tile, TileGrid, TileSums
from popgraph.passes.structured.to_loops.emit.access import (
    Access,
    IterationPoint,
    Span,
    in_place,
    whole,
)
from popgraph.passes.structured.to_loops.emit.bodies import widest_lane
from popgraph.passes.structured.to_loops.emit.chunks import blocked_sum, cut_loops
from popgraph.passes.structured.to_loops.emit.emitter import Body, Emitter
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import NestLoop
from popgraph.passes.structured.to_loops.emit.writer import Writer
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target


class ContractLoops(Emitter):
    """Writes the loops of one scheduled contraction."""

    most_cut_loops = 2

    def __init__(self, op: tile.ReduceOp, schedule: ScheduleAttr, target: Target) -> None:
        super().__init__(op, target)
        self.op, self.schedule, self.inputs, self.outputs = op, schedule, op.operands, op.outputs
        dim, lanes = schedule.n_dim.data, schedule.nr
        self.panel, self.lane = dim, dim + 1
        self.extent = op.sizes[dim]
        self.sizes = split_sizes(op.sizes, dim, lanes)
        self.parallel = op.parallel_rank + 1
        self.values = [value for value, _ in op.mapped]
        self.forms = [
            offset(tensor(value), split_map(map_, dim, lanes), self.sizes)
            for value, map_ in op.mapped
        ]
        self.kind = op.sum_type
        kinds = [op.total_type, *(element(value) for value, _ in op.mapped[2:])]
        self.epilogue_in_lanes = widest_lane(kinds, op.epilogue.block) > 0
        self._check()
        assert not schedule.k_outer.data or (has_identity_epilogue(op) and op.block is None), (
            "a contraction with K outermost has no epilogue, and no blocks"
        )
        self.nested = self._nested()
        self.groups = self.nested.all
        self.work = prod(op.sizes) // target.tuning.products_per_touch
        self.blocked = op.blocked_rank + 1
        terms = range(self.blocked, len(self.sizes))
        apart = frozenset[int]()
        if target.portable:
            extents = {dim: self.sizes[dim] for dim in terms}
            apart = cut_loops(extents, schedule.kc.data, target.tuning.partial_sums)
        self.inner = group_loops(terms, self.sizes, self.forms[:2], apart, self._running())
        self.reads_on = self._may_read_on()
        """Whether vectors may read memory after the last lane of the last panel."""

    def _check(self) -> None:
        strides = [form.stride(self.lane) for form in self.forms[:2]]
        assert sum_type(self.op, scalar=True) and set(strides) <= {0, 1} and self._vectors(), (
            f"{self.schedule} does not fit: dimension {self.schedule.n_dim.data} is not "
            f"contiguous in either factor"
        )

    def _vectors(self) -> list[Linear]:
        """The factors that are read as vectors; a panel of one scalar has no loop over lanes."""
        panel, single = self.panel, self.schedule.nr == 1
        return [
            form
            for form in self.forms[:2]
            if form.stride(self.lane) == 1 or (single and form.uses(panel))
        ]

    def _nested(self) -> TileLoops:
        """The parallel loops, in the order of TileLoops."""
        # The vectorized factor depends on `shared` loops, such as a batch or a group: they are
        # around its panels, so that a panel stays in L1 while the other loops reuse it.
        others = [dim for dim in range(self.parallel) if dim not in (self.panel, self.lane)]
        groups = group_loops(others, self.sizes, self.forms, running=self._running())
        rows = self._group_of(self.schedule.m_dim.data, groups)
        lines = self._group_of(self.schedule.m_outer_dim.data, groups)
        rest = [group for group in groups if group not in (rows, lines)]
        shared = [g for g in rest if any(form.uses(d) for form in self._vectors() for d in g.dims)]
        return TileLoops(
            shared,
            self._panels(),
            [group for group in rest if group not in shared],
            lines,
            rows,
            bool(self.schedule.n_inner.data),
        )

    def _running(self) -> dict[int, Extent]:
        """The ends of loops that have one, numbered like `sizes`."""
        return {dim + (dim > self.panel): end for dim, end in self.running.items()}

    def _panels(self) -> Group:
        """The loop over panels, which ends at a size of the call if the lanes do."""
        end = self.running.get(self.panel)
        together = 1 if end is None else self.schedule.nr
        return Group((self.panel,), self.sizes[self.panel], end, together)

    def _group_of(self, dim: int, groups: Sequence[Group]) -> Group | None:
        """The loop of a dimension of the contraction, if it has one."""
        at = dim + 1 if dim > self.panel else dim
        return next((group for group in groups if at in group.dims), None)

    @property
    def loops(self) -> list[Loop]:
        """Threads may share any loop, rows only in equal parts of at least a block."""
        # Unequal parts of rows would not be balanced blocks: their remainders go in powers of two.
        # A window slides along rows, and lines are blocks already: neither is cut.
        loops, window = self.nested, self.schedule.window_panels.data
        shared = [
            Loop(group.extent, max(1, window) if group is loops.panels else 1)
            for group in loops.all[: len(loops.all) - len(loops.blocked)]
        ]
        if loops.rows and not loops.lines and not window:
            shared.append(Loop(loops.rows.extent, least=self.schedule.mr.data, even=True))
        return shared

    # Writing

    @property
    def inplace(self) -> list[tuple[int, int]]:
        op = self.op
        read = zip(op.epilogue_inputs, op.epilogue_input_maps, strict=True)
        return in_place(op.operands, read, op.outputs, op.sizes[: op.parallel_rank])

    def write(self, body: Body) -> None:
        starts = [(memory, Index()) for memory in (*body.inputs, *body.outputs)]
        self.write_at(body.writer, starts, body.parts)

    def write_at(
        self,
        writer: Writer,
        starts: Sequence[tuple[SSAValue, Index]],
        parts: Sequence[Span] | None = None,
    ) -> None:
        """
        Writes these parts of the loops, by default all of them, at the position of `writer`.

        `starts` has the memory and the start of each operand, then of each result.
        """
        if 0 in self.op.sizes[: self.op.parallel_rank]:
            return
        self.point = IterationPoint(writer, self.sizes)
        found = [
            Access(memory, form, start)
            for (memory, start), form in zip(starts, self.forms, strict=True)
        ]
        last, end = 2 + len(self.op.epilogue_inputs), len(self.op.operands)
        factors, epilogue_inputs, targets = found[:2], found[2:last], found[end:]
        grid = self._grid()
        self.panel_prefetch = self._panel_prefetch(factors)
        self.micro = MicroKernel(
            grid,
            factors,
            self.inner,
            self.schedule.kc.data,
            self.prefetch(factors),
            bool(self.schedule.window_panels.data) or self.op.looks_up_factors,
            self.op.words,
            self._bodies(),
            self._blocks(found[last:end]),
            self.op.product.fused,
        )
        epilogue, finished = self.op.epilogue.block, replace(grid, kind=self.op.total_type)
        self.epilogue = Epilogue(
            finished, epilogue, epilogue_inputs, targets, self.epilogue_in_lanes
        )
        padded = self.extent % self.schedule.nr > 0 and self.reads_on
        parts = parts or [whole(writer, group) for group in self.groups]
        self.nest = TileNest(self.point, self.schedule, self.nested, parts, self.extent, padded)
        if self.schedule.k_outer.data:
            self._k_outer_loops()
        else:
            self.nest.write(
                lambda tile: self.epilogue.apply(tile, self.micro.sums(tile)),
                self._panel_by_chunks if self._reads_chunks_once() else None,
            )

    def prefetch(self, factors: Sequence[Access]) -> Prefetch:
        """The recipe for the loops of the reduction."""
        return self.panel_prefetch.recipe if self.panel_prefetch else no_prefetch

    def _bodies(self) -> list[Block | None]:
        """The body of each factor, such as a conversion; None if elements are used as stored."""
        # Bodies read indices by number, and the loop over panels is an additional dimension.
        both = zip(self.op.product.factors, self.op.body.block.args, strict=False)
        return [
            factor_body(value, one, lambda dim: dim + (dim > self.panel)) for value, one in both
        ]

    def _blocks(self, inputs: Sequence[Access]) -> BlockSums | None:
        """The loops over blocks of terms and the body that scales their sums, if there are any."""
        if self.op.block is None:
            return None
        dims = range(self.parallel, self.blocked)
        forms = [*self.forms[:2], *(access.form for access in inputs)]
        loops = group_loops(dims, self.sizes, forms)
        return BlockSums(loops, self.op.block.block, inputs, self.op.total_type)

    def _grid(self) -> TileGrid:
        rows, lines = self.nested.rows, self.nested.lines
        return TileGrid(
            self.point,
            rows.last if rows else None,
            self.lane,
            self.schedule.nr,
            self.kind,
            lines.last if lines else None,
            rows.extent if rows else 1,
        )

    def _k_outer_loops(self) -> None:
        """Writes the loops with chunks of terms outermost; results accumulate in memory."""
        elements = prod(physical_shape(tensor(self.op.outputs[0])))
        KOuterLoops(self.micro, self.epilogue, self.nest.write, elements).write()

    def _panel_by_chunks(
        self, columns: Sequence[Column], around: Sequence[NestLoop], rows: Sequence[Span]
    ) -> None:
        """Adds one chunk of a panel to the sums of all rows before the next chunk is read."""
        assert self.panel_prefetch is not None
        each_tile = partial(self.nest.each_tile, columns, around, rows)
        whole = Tile(rows_of(self.nested.panel_users), tuple(columns))
        micro = replace(self.micro, prefetch=self.panel_prefetch.chunk_recipe(self.micro.shortest))
        PanelByChunks(micro, self.epilogue, whole).write(each_tile)

    def _reads_chunks_once(self) -> bool:
        """Whether all blocks of rows share each chunk of a panel, instead of rereading panels."""
        # A panel from memory then streams past once. With prefetches, VGG-19 and AlexNet are 1.08
        # times as fast, the encoder of 12x768 1.04 times (9122259e). The sums of all rows must fit
        # in a share of L2, and one block has nothing to share.
        if self.panel_prefetch is None or not self.micro.shortest or self.op.block is not None:
            return False
        rows = rows_of(self.nested.panel_users)
        levels = len(self.micro.levels()) - 1
        sums = levels * rows * self.schedule.nr * element_bytes(self.op.lhs.type)
        tuning = self.target.tuning
        few = 2 <= self.panel_prefetch.blocks <= tuning.prefetched_blocks
        return few and sums <= self.target.l2(tuning.chunk_sums_l2)

    def _panel_prefetch(self, factors: Sequence[Access]) -> PanelPrefetch | None:
        """The prefetches of packed panels, if they are read in memory order."""
        # With panels innermost, K outermost or windows, the next panel in memory is not the next
        # one to be read.
        panel = next((access for access in factors if self._is_packed(access.form)), None)
        numbers = self.schedule.numbers
        if panel is None or any(numbers[name] for name in ("n_inner", "k_outer", "window_panels")):
            return None
        own = self.nested.rows is not None and panel.form.uses(self.nested.rows.last)
        blocks = -(-rows_of(self.nested.blocked) // self.schedule.mr.data)
        section = NextSection(
            self.point,
            panel.memory,
            self.schedule.nr,
            self._steps(panel.form) * self.schedule.nr,
            self.nested.panel_users,
            1 if own else blocks * rows_of(self.nested.after),
        )
        streams = self.schedule.mr.data if own else 1
        alternating = self.cut is not None and self.cut.alternating
        return PanelPrefetch(section, streams, alternating, self.target)

    def _may_read_on(self) -> bool:
        """Whether the operands of sums have memory after the last lane of the last panel."""
        # 23 lanes of vectors of 16: reading 32 is valid if the operand is padded, or is not at its
        # end. Block inputs are read by vectors, too.
        op = self.op
        operands = list(zip(self.forms, op.operands, strict=False))
        read = operands[:2] + operands[len(op.operands) - len(op.block_inputs) :]
        return all(
            form.bounds(self.sizes)[1] < memory_span(tensor(value))[1] for form, value in read
        )

    def _is_packed(self, form: Linear) -> bool:
        """Whether the panels of a factor are stored consecutively, with contiguous lanes."""
        pitch = self._steps(form) * self.schedule.nr
        return form.stride(self.lane) == 1 and form.stride(self.panel) == pitch

    def _steps(self, form: Linear) -> int:
        """The number of terms in a panel of a factor."""
        terms = range(self.parallel, len(self.sizes))
        return prod(self.sizes[dim] for dim in terms if form.uses(dim))


EachTile = Callable[[Callable[[Tile, Index], None]], None]
"""Writes the loops over tiles around the computation of one: (tile, number of its first row)."""


@dataclass(frozen=True)
class PanelByChunks:
    """Keeps the sums of all rows in local memory, as one tile `whole`, until the epilogue."""

    micro: MicroKernel
    epilogue: Epilogue
    whole: Tile

    def write(self, each_tile: EachTile) -> None:
        micro = self.micro
        levels = micro.levels()
        grid, count = micro.grid, len(levels) - 1
        memories = [grid.local(self.whole, grid.kind) for _ in range(count)]
        totals = PanelTotals(micro, each_tile, memories)
        blocked_sum(grid.point, levels, totals)
        total = memories[-1]
        each_tile(lambda tile, first: self.epilogue.apply(tile, TileSums(total, first)))


@dataclass(frozen=True)
class PanelTotals:
    """The sums of all rows of a panel, by levels of chunks."""

    micro: MicroKernel
    each_tile: EachTile
    memories: Sequence[SSAValue]

    @property
    def grid(self) -> TileGrid:
        return self.micro.grid

    def clear(self, level: int) -> None:
        memory = self.memories[level]
        self.each_tile(lambda tile, first: self.grid.clear(tile, TileSums(memory, first)))

    def add(self, nest: Sequence[NestLoop]) -> None:
        self.each_tile(lambda tile, first: self._add(tile, first, nest))

    def _add(self, tile: Tile, first: Index, nest: Sequence[NestLoop]) -> None:
        self.grid.add(tile, TileSums(self.memories[0], first), self.micro.sums_over(tile, nest))

    def carry(self, level: int) -> None:
        part, total = self.memories[level - 1], self.memories[level]
        self.each_tile(
            lambda tile, first: self.grid.add(tile, TileSums(total, first), TileSums(part, first))
        )
