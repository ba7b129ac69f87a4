"""Loop collapsing: neighbouring loops of a contraction that every operand walks as one."""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap

from popgraph.dialects.tile.affine import simplified
from popgraph.passes.structured.schedule.contraction_loops import ContractionLoops
from popgraph.support.shapes import Shape


class Operand:
    """An operand with its index map, both changing as loops are joined."""

    def __init__(self, shape: Shape, map_: AffineMap, sizes: Shape, is_laid_out: bool) -> None:
        self.shape, self.is_laid_out = shape, is_laid_out
        self.results = list(simplified(map_, sizes[: map_.num_dims]).results)

    def pair(self, dim: int, sizes: Shape) -> int | None:
        """Where `dim` and the next stand side by side, whole and alone; -1 if neither is used."""
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
        """`dim` and the next of `rank` become one."""
        if at >= 0:
            size = self.shape[at] * self.shape[at + 1]
            self.shape = (*self.shape[:at], size, *self.shape[at + 2 :])
            del self.results[at + 1]
        renumbered = [AffineExpr.dimension(old if old <= dim else old - 1) for old in range(rank)]
        self.results = [result.replace_dims_and_symbols(renumbered, ()) for result in self.results]


def _dim(result: AffineExpr) -> int | None:
    return result.position if isinstance(result, AffineDimExpr) else None


@lru_cache(maxsize=1 << 10)
def collapse_loops(
    loops: ContractionLoops, ending: frozenset[int] = frozenset()
) -> ContractionLoops:
    """
    Joins loops that every operand and result walks through as one.

    A 1x1 convolution over 56 rows of 56 pixels becomes a product over 3136 pixels. Remembered:
    most contractions of a network are of a few forms. Loops that are `ending` at a size of the call
    are not joined into one around them, which would end at no multiple of it.
    """
    sizes, parallel = loops.sizes, loops.parallel
    separate = {*ending}
    forms = zip(loops.shapes, loops.maps, loops.laid_out, strict=True)
    operands = [Operand(shape, map_, sizes, fixed) for shape, map_, fixed in forms]
    dim = parallel if loops.has_fixed_results else 0
    while dim + 1 < len(sizes):
        places = [operand.pair(dim, sizes) for operand in operands]
        if dim + 1 == parallel or None in places or dim + 1 in separate:
            dim += 1
            continue
        for operand, at in zip(operands, places, strict=True):
            assert at is not None
            operand.join(dim, at, len(sizes))
        sizes = (*sizes[:dim], sizes[dim] * sizes[dim + 1], *sizes[dim + 2 :])
        parallel -= dim + 1 < parallel
        separate = {loop - (loop > dim) for loop in separate}
    if sizes == loops.sizes:
        return loops
    left = [len(sizes)] * 2 + [parallel] * (len(operands) - 2)
    return replace(
        loops,
        sizes=sizes,
        parallel=parallel,
        shapes=tuple(operand.shape for operand in operands),
        maps=tuple(
            AffineMap(rank, 0, tuple(operand.results))
            for rank, operand in zip(left, operands, strict=True)
        ),
    )
