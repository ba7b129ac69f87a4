"""The micro-kernel: the sums of one tile, in registers during the reduction."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from xdsl.dialects import arith, math
from xdsl.dialects.builtin import IntegerType, StringAttr
from xdsl.ir import Attribute, Block, SSAValue

from popgraph.dialects.tile import DotOp, SumPairsOp
from popgraph.dialects.tile.loops.recipes import INTERCHANGED, PREFETCH, UNROLLED
from popgraph.dialects.unchecked import create_unchecked
from popgraph.passes.structured.analysis.loops import Group
from popgraph.passes.structured.to_loops.contraction.prefetch import Prefetch, no_prefetch
from popgraph.passes.structured.to_loops.contraction.tiles import (
    Tile,
    TileGrid,
    TileSums,
)
from popgraph.passes.structured.to_loops.emit.access import Access, whole
from popgraph.passes.structured.to_loops.emit.bodies import inline
from popgraph.passes.structured.to_loops.emit.chunks import (
    LevelLoops,
    blocked_sum,
    chunk_levels,
    chunked_reduction,
)
from popgraph.passes.structured.to_loops.emit.create import create_same_type
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.passes.structured.to_loops.emit.vectors import NestLoop, write_nest
from popgraph.support.shapes import prod


@dataclass(frozen=True)
class BlockSums:
    """The loops over blocks of terms, and the body that maps a block's sum to what totals add."""

    loops: Sequence[Group]
    body: Block
    inputs: Sequence[Access]
    kind: Attribute

    @property
    def adds_pairs(self) -> bool:
        """Whether the sums of a block have 16 bits."""
        return isinstance(self.body.first_op, SumPairsOp)

    @property
    def starts_at_offset(self) -> bool:
        """
        Whether sums can start at the offset that the body adds, instead of at zero.

        Both wrap, and an addition per block is saved.
        """
        first = self.body.first_op
        return isinstance(first, SumPairsOp) and first.offset is self.body.args[1]


@dataclass(frozen=True)
class MicroKernel:
    """
    Sums of products of a tile, with an accumulator for each row and vector.

    `inner` are the reduction loops: of one block, if there are `blocks`. After `terms` terms, a sum
    is added to a total (0: never). `prefetch` returns the recipe of the innermost loop.
    `written_out` unrolls the innermost reduction, whose iterations then share loads. `words` is the
    format of packed sub-byte vectors, `bodies` convert the elements of each factor. Products are
    `fused` into sums where the body says so.
    """

    grid: TileGrid
    factors: Sequence[Access]
    inner: Sequence[Group]
    terms: int
    prefetch: Prefetch = no_prefetch
    unrolls_taps: bool = False
    words: StringAttr | None = None
    bodies: Sequence[Block | None] = (None, None)
    blocks: BlockSums | None = None
    fused: bool = False

    def zeros(self, tile: Tile) -> TileSums:
        """Sums of zero terms."""
        sums = self.grid.registers(tile)
        self.grid.clear(tile, sums)
        return sums

    def sums(self, tile: Tile, levels: Sequence[LevelLoops] | None = None) -> TileSums:
        """The sums after the reduction; sums of chunks are added to totals in local memory."""
        if self.blocks is not None:
            return self._in_blocks(self.blocks, tile)
        *shorter, loops = levels or self.levels()
        if not shorter:
            return self.sums_over(tile, loops())
        totals = TileTotals(self, tile, len(shorter), self.grid.writer.depth)
        blocked_sum(self.grid.point, [*shorter, loops], totals)
        return totals.saved[-1]

    def _in_blocks(self, blocks: BlockSums, tile: Tile) -> TileSums:
        """The totals after all blocks of terms, whose sums the body of `blocks` scales."""
        grid = replace(self.grid, kind=blocks.kind)
        totals = grid.registers(tile)
        grid.clear(tile, totals)
        inner, outside = self._full_nest(self.inner), self.grid.writer.depth

        def add_finished(row: Index, lane: Index, value: SSAValue) -> None:
            read = [self._loaded(access) for access in blocks.inputs]
            if blocks.starts_at_offset:
                read = [grid.writer.number(0, grid.kind)]
            (added,) = inline(grid.point, blocks.body, [value, *read])
            grid.put(grid.sum(grid.read(totals, row, lane), added), totals, row, lane)

        def block(_: int, carried: list[SSAValue]) -> list[SSAValue]:
            start = blocks.inputs[0] if blocks.starts_at_offset else None
            grid.each_sum(tile, self.sums_over(tile, inner, outside, start), add_finished)
            return carried

        write_nest(grid.point, self._full_nest(blocks.loops), block)
        return totals

    def sums_over(
        self,
        tile: Tile,
        nest: Sequence[NestLoop],
        outside: int | None = None,
        start: Access | None = None,
    ) -> TileSums:
        """
        Writes the sums over these loops; the reduction is deeper than level `outside`.

        They start at an element of `start`, or at zero.

        The loops over the tile are outermost here. `interchange-loops` moves them into the
        reduction, where a factor is read once for all rows or vectors that share it.
        """
        grid, writer = self.grid, self.grid.writer
        outside = writer.depth if outside is None else outside
        sums = grid.registers(tile)
        taps = nest[-1].part.static_extent if self._unrolls_last and nest else None
        rolled = nest if taps is None else nest[:-1]
        # A loop of one iteration is not opened, and a recipe counts the open ones.
        opened = sum(one.part.static_extent != 1 for one in rolled)
        loops = writer.depth + opened - outside
        recipe = self.prefetch(loops, outside) if loops else None
        if recipe is not None and not opened:
            writer.mark(PREFETCH, recipe)
        with grid.each_element(tile, {**UNROLLED, **INTERCHANGED}) as (row, lane):

            def add_product() -> None:
                lhs, rhs = map(self._factor, range(len(self.factors)))
                old = grid.read(sums, row, lane)
                grid.put(self._added(lhs, rhs, old), sums, row, lane)

            def step(_: int, carried: list[SSAValue]) -> list[SSAValue]:
                if recipe is not None and opened:
                    writer.mark(PREFETCH, recipe)
                if taps is None:
                    add_product()
                else:
                    # A chunk of the taps, which may be fewer than the group has.
                    with writer.loop(0, taps, recipes=UNROLLED) as loop:
                        last = nest[-1]
                        grid.point.bind(last.group, last.part.base + Index.of(loop.counter))
                        add_product()
                return carried

            if start is None:
                grid.clear_at(row, lane, sums)
            else:
                grid.put(self._loaded(start), sums, row, lane)
            if all(one.group.extent for one in nest):
                write_nest(grid.point, rolled, step)
        return sums

    @property
    def _unrolls_last(self) -> bool:
        """Whether the innermost loop is written out: taps, or the words of 16-bit sums."""
        # Zen 5, AVX2: blocks of 2, 3, 4 words reach 307, 349, 375 GFLOP/s, in a loop 279, 322, 348.
        return self.unrolls_taps or (self.blocks is not None and self.blocks.adds_pairs)

    def levels(self, longer: int = 0) -> list[LevelLoops]:
        """The reduction loops, in levels of chunks."""
        nest = self._full_nest(self.inner)
        # A reduction of zero terms has no chunks: its sums stay zero.
        terms = 0 if any(group.extent == 0 for group in self.inner) else self.terms
        return chunk_levels(self.grid.point, nest, terms, longer=longer)

    def _full_nest(self, groups: Sequence[Group]) -> list[NestLoop]:
        """Loops over the full range of these groups."""
        return [NestLoop(group, whole(self.grid.writer, group)) for group in groups]

    @property
    def steps(self) -> int:
        """The number of terms."""
        return prod(group.extent for group in self.inner)

    @property
    def shortest(self) -> int:
        """The number of terms of a chunk; 0 without chunks."""
        extents = [group.extent for group in self.inner]
        cut = chunked_reduction(extents, 1, self.terms) if self.terms else None
        return prod([cut[1], *extents[cut[0] + 1 :]]) if cut else 0

    def _added(self, lhs: SSAValue, rhs: SSAValue, old: SSAValue) -> SSAValue:
        writer = self.grid.writer
        if self.words is not None:
            return writer.add(
                create_unchecked(DotOp, lhs, rhs, old, types=(old.type,), words=self.words)
            )
        whole = isinstance(old.type, IntegerType)
        if self.fused and not whole:
            return writer.add(create_same_type(math.FmaOp, lhs, rhs, old))
        # Two operations while lanes are scalars: `vectorize-loops` fuses them into
        # `vector.fma`. A scalar sum is a product and a sum, which C compilers contract.
        product = writer.add(create_same_type(arith.MuliOp if whole else arith.MulfOp, lhs, rhs))
        return writer.add(create_same_type(arith.AddiOp if whole else arith.AddfOp, old, product))

    def _factor(self, number: int) -> SSAValue:
        """A factor of the current product."""
        value = self._loaded(self.factors[number])
        if (body := self.bodies[number]) is not None:
            (value,) = inline(self.grid.point, body, [value])
        return value

    def _loaded(self, access: Access) -> SSAValue:
        """Loads an element that the kernel does not write, shared by rows or lanes."""
        return self.grid.writer.load_input(*self.grid.point.of(access))


class TileTotals:
    """The totals of one tile in local memory, by levels of chunks."""

    # Two sets of accumulators would not fit: 14 rows of 2 vectors take 28 of 32 registers.

    def __init__(self, kernel: MicroKernel, tile: Tile, levels: int, outside: int) -> None:
        self.kernel, self.grid, self.tile, self.outside = kernel, kernel.grid, tile, outside
        self.saved = [TileSums(self.grid.local(tile, self.grid.kind)) for _ in range(levels)]

    def clear(self, level: int) -> None:
        self.grid.clear(self.tile, self.saved[level])

    def add(self, nest: Sequence[NestLoop]) -> None:
        self.grid.add(
            self.tile, self.saved[0], self.kernel.sums_over(self.tile, nest, self.outside)
        )

    def carry(self, level: int) -> None:
        self.grid.add(self.tile, self.saved[level], self.saved[level - 1])
