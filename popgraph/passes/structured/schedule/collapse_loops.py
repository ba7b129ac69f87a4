"""Loop collapsing: joins adjacent loops of a contraction that are contiguous in all operands."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap

from popgraph.dialects.tile.affine import simplified
from popgraph.passes.structured.schedule.contraction_loops import ContractionLoops
from popgraph.support.shapes import Shape


class Operand:
    """The shape and index map of an operand while loops are collapsed."""

    def __init__(self, shape: Shape, map_: AffineMap, sizes: Shape, is_laid_out: bool) -> None:
        self.shape, self.is_laid_out = shape, is_laid_out
        self.results = list(simplified(map_, sizes[: map_.num_dims]).results)

    def pair(self, dim: int, sizes: Shape) -> int | None:
        """
        The first of two adjacent axes that loops `dim` and `dim + 1` cover completely.

        -1 if the operand uses neither loop; None if they cannot be collapsed.
        """
        # A laid-out operand keeps its axes: its layout is a map from these.
        users = [
            at for at, result in enumerate(self.results) if {dim, dim + 1} & result.used_dims()
        ]
        if not users:
            return -1
        first = users[0]
        alone = users == [first, first + 1] and not self.is_laid_out
        if not alone or [_dim(self.results[at]) for at in users] != [dim, dim + 1]:
            return None
        return first if self.shape[first : first + 2] == sizes[dim : dim + 2] else None

    def join(self, dim: int, at: int, rank: int) -> None:
        """Joins loop `dim` of `rank` with the next one, and the axes that they cover."""
        if at >= 0:
            size = self.shape[at] * self.shape[at + 1]
            self.shape = (*self.shape[:at], size, *self.shape[at + 2 :])
            del self.results[at + 1]
        renumbered = [AffineExpr.dimension(old if old <= dim else old - 1) for old in range(rank)]
        self.results = [result.replace_dims_and_symbols(renumbered, ()) for result in self.results]


def _dim(result: AffineExpr) -> int | None:
    return result.position if isinstance(result, AffineDimExpr) else None


@lru_cache(maxsize=1 << 10)
def collapse_loops(loops: ContractionLoops) -> ContractionLoops:
    """
    Joins adjacent loops that are contiguous in every operand and result.

    A 1x1 convolution over 56 rows of 56 pixels becomes a product over 3136 pixels.
    """
    # Cached, because most contractions of a network have a few forms. One long loop fills blocks
    # better than two short ones: the 49 pixels of a 7x7 image are 13 + 12 + 12 + 12 rows.
    sizes, parallel, running = loops.sizes, loops.parallel, loops.running
    forms = zip(loops.shapes, loops.maps, loops.laid_out, strict=True)
    operands = [Operand(shape, map_, sizes, fixed) for shape, map_, fixed in forms]
    dim = parallel if loops.has_fixed_results else 0
    while dim + 1 < len(sizes):
        axes = [operand.pair(dim, sizes) for operand in operands]
        # A loop over results and a reduction stay two; a size of the call ends an outermost loop.
        if dim + 1 == parallel or dim + 1 in running or None in axes:
            dim += 1
            continue
        for operand, at in zip(operands, axes, strict=True):
            assert at is not None
            operand.join(dim, at, len(sizes))
        sizes = (*sizes[:dim], sizes[dim] * sizes[dim + 1], *sizes[dim + 2 :])
        parallel -= dim + 1 < parallel
        running = frozenset(at - (at > dim) for at in running)
    if sizes == loops.sizes:
        return loops
    left = [len(sizes)] * 2 + [parallel] * (len(operands) - 2)
    return replace(
        loops,
        sizes=sizes,
        parallel=parallel,
        running=running,
        shapes=tuple(operand.shape for operand in operands),
        maps=tuple(
            AffineMap(rank, 0, tuple(operand.results))
            for rank, operand in zip(left, operands, strict=True)
        ),
    )
