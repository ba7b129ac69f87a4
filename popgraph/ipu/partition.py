"""Partitions loops among tiles by a cost model: compute, exchange, reduction of partial sums."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile import ReduceOp, is_contraction
from popgraph.dialects.tile.affine import linear
from popgraph.ipu.costs import (
    body_cycles,
    product_cycles,
    rounds,
    vector_cycles,
)
from popgraph.ipu.machine import Ipu
from popgraph.ipu.stages import held_bytes, may_split_sums
from popgraph.support.arrays import Array
from popgraph.support.memo import cached_property
from popgraph.support.shapes import Shape, prod

Operand: TypeAlias = tuple[SSAValue, AffineMap]

MOST_CUT_LOOPS = 3
"""Most parallel loops to partition: batch, rows and columns."""
MOST_PARTITIONS = 1 << 17
"""Most partitions to compare; the arrays of their costs take a few MB."""


@dataclass(frozen=True)
class Blocks:
    """The block extents of every candidate partition of an operation's loops, one row each."""

    sizes: Shape
    parts: Array
    """Number of parts of each loop."""

    @cached_property
    def extents(self) -> Array:
        found: Array = np.ceil(np.array(self.sizes) / self.parts).astype(np.int64)
        return found

    def of_dims(self, dims: Sequence[int]) -> Array:
        """Iterations of a block along some loops."""
        found: Array = self.extents[:, list(dims)].prod(axis=1)
        return found

    def read(self, operand: Operand) -> Array:
        """Elements of an operand that a block reads."""
        value, map_ = operand
        assert isinstance(value.type, TensorType)
        found = np.ones(len(self.parts), np.int64)
        for result, size in zip(map_.results, value.type.get_shape(), strict=True):
            found = found * np.minimum(size, self._reached(result, size))
        return found

    def _reached(self, result: AffineExpr, size: int) -> Array:
        extent = np.ones(len(self.parts), np.int64)
        for atom, factor in linear(result, self.sizes).terms.items():
            if not isinstance(atom, AffineDimExpr):
                return np.full(len(self.parts), size)
            extent = extent + abs(factor) * (self.extents[:, atom.position] - 1)
        return extent


@dataclass(frozen=True)
class PartitionProblem:
    """A contraction or reduction to be partitioned, and the target."""

    op: ReduceOp
    ipu: Ipu

    @property
    def inputs(self) -> list[Operand]:
        return list(zip(self.op.inputs, self.op.input_maps, strict=True))

    @property
    def sum_bytes(self) -> int:
        """Bytes of a partial result; f16 accumulates in f32."""
        if is_contraction(self.op):
            return max(4, element_bytes(self.op.sum_type))
        return sum(element_bytes(_type(initial)) for initial in self.op.initial)

    def parts(self) -> list[int]:
        """Parts of each loop in the cheapest partition."""
        blocks = self._candidates()
        cycles, sums = self._cycles(blocks), self._sums(blocks)
        fits = sums <= self.ipu.operand_bytes
        ranked = np.where(fits, cycles, np.inf) if fits.any() else sums
        best: list[int] = blocks.parts[int(np.argmin(ranked))].tolist()
        return best

    def _candidates(self) -> Blocks:
        sizes, rank = self.op.sizes, self.op.parallel_rank
        largest = sorted((dim for dim in range(rank) if sizes[dim] > 1), key=lambda d: -sizes[d])
        cut = largest[:MOST_CUT_LOOPS]
        if may_split_sums(self.op):
            inner = [dim for dim in range(rank, len(sizes)) if sizes[dim] > 1]
            cut += sorted(inner, key=lambda dim: -sizes[dim])[:1]
        most = max(2, int(MOST_PARTITIONS ** (1 / max(1, len(cut)))))
        tiles = self._most_tiles()
        choices = [_candidate_counts(sizes[dim], tiles, most) for dim in cut]
        grids = np.meshgrid(*choices, indexing="ij") if choices else []
        parts = np.ones((grids[0].size if grids else 1, len(sizes)), np.int64)
        for dim, grid in zip(cut, grids, strict=True):
            parts[:, dim] = grid.reshape(-1)
        return Blocks(sizes, parts[parts.prod(axis=1) <= tiles])

    def _most_tiles(self) -> int:
        """Number of tiles for which work per tile outweighs synchronization."""
        whole = Blocks(self.op.sizes, np.ones((1, len(self.op.sizes)), np.int64))
        results = prod(self.op.sizes[: self.op.parallel_rank]) * self.sum_bytes
        touched = int(self._received_bytes(whole)[0]) + results
        return max(1, min(self.ipu.total_tiles, touched // self.ipu.least_tile_bytes))

    def _cycles(self, blocks: Blocks) -> Array:
        received = self._received_bytes(blocks)
        moving = received / self.ipu.exchange_bytes
        again = (rounds(self.ipu, received) - 1) * self.ipu.sync_cycles
        found: Array = (
            moving + again + self._compute_cycles(blocks) + self._reduction_cycles(blocks)
        )
        return found + self._link_cycles(blocks)

    def _link_cycles(self, blocks: Blocks) -> Array:
        """Cycles to exchange operands between IPUs: each receives the other IPUs' operands."""
        ipus = np.ceil(blocks.parts.prod(axis=1) / self.ipu.tiles)
        whole = Blocks(self.op.sizes, np.ones((1, len(self.op.sizes)), np.int64))
        moved = int(self._received_bytes(whole)[0]) * (ipus - 1) / ipus / self.ipu.link_bytes
        waits = self.ipu.link_sync_cycles - self.ipu.sync_cycles
        found: Array = np.where(ipus > 1, moved + waits, 0)
        return found

    def _received_bytes(self, blocks: Blocks) -> Array:
        """Bytes that a tile receives."""
        return sum(
            (blocks.read(one) * held_bytes(one[0]) for one in self.inputs),
            np.zeros(len(blocks.parts), np.int64),
        )

    def _compute_cycles(self, blocks: Blocks) -> Array:
        dims = range(len(self.op.sizes))
        if not is_contraction(self.op):
            loaded = sum(held_bytes(value) for value, _ in self.inputs)
            each = body_cycles(self.ipu, self.op.body.block)
            return vector_cycles(self.ipu, blocks.of_dims(dims), each, loaded, 0)
        kinds = kinds_of_loops(self.op)
        extents = {
            kind: blocks.of_dims([dim for dim in dims if kinds[dim] == kind]) for kind in KINDS
        }
        return product_cycles(self.ipu, max(map(held_bytes, (self.op.lhs, self.op.rhs))), **extents)

    def _reduction_cycles(self, blocks: Blocks) -> Array:
        """Cycles to reduce the partial sums of several tiles."""
        rank = self.op.parallel_rank
        joined = blocks.parts[:, rank:].prod(axis=1)
        moved = blocks.of_dims(range(rank)) * self.sum_bytes * (joined - 1) / joined
        each = 1 / self.ipu.exchange_bytes + 1 / self.ipu.vector_bytes
        fixed = self.ipu.sync_cycles + self.ipu.launch_cycles
        found: Array = moved * each + np.where(joined > 1, fixed, 0)
        return found

    def _sums(self, blocks: Blocks) -> Array:
        """Bytes of a tile's partial sums, and of received partial sums."""
        found: Array = 2 * blocks.of_dims(range(self.op.parallel_rank)) * self.sum_bytes
        return found


BATCH, ROWS, COLUMNS, TERMS = KINDS = ("batch", "rows", "columns", "terms")


def kinds_of_loops(op: ReduceOp) -> list[str]:
    """The kind of each loop of a contraction: batch, rows, columns or terms."""
    left, right = (
        {dim for result in map_.results for dim in result.used_dims()} for map_ in op.input_maps
    )
    found = []
    for dim in range(len(op.sizes)):
        if dim >= op.parallel_rank:
            found.append(TERMS)
        elif (dim in left) == (dim in right):
            found.append(BATCH)
        else:
            found.append(ROWS if dim in left else COLUMNS)
    return found


def _type(initial: Attribute) -> Attribute:
    found: Attribute = initial.type  # type: ignore[attr-defined]
    return found


def _candidate_counts(size: int, tiles: int, most: int) -> Array:
    """
    Candidate part counts of a loop: distinct block sizes, at most `most`, geometrically spaced.
    """
    counts: Array = np.unique(-(-size // np.arange(1, size + 1)))
    counts = counts[counts <= tiles]
    if len(counts) <= most:
        return counts
    wanted = np.geomspace(1, counts[-1], most)
    chosen: Array = np.unique(counts[np.searchsorted(counts, wanted).clip(0, len(counts) - 1)])
    return chosen
