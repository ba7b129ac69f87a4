"""Splitting of the N loop of a large matrix-vector product, for parallel prefetch streams."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap

from popgraph.dialects.tile.affine import selection, with_dims
from popgraph.passes.structured.schedule.contraction_loops import ContractionLoops
from popgraph.support.shapes import Shape
from popgraph.support.tuning import Tuning


def split_gemv(
    loops: ContractionLoops, streamed: Sequence[bool], tuning: Tuning
) -> ContractionLoops:
    """
    Splits the only wide loop of a matrix-vector product into `gemv_strips` strips.

    y[n] = sum k: x[k] * w[k, n]  ->  y[p, n] = sum k: x[k] * w[k, p, n]

    With p as rows and n vectorized, a register tile reads one panel of each strip. Only when an
    operand that depends on n is `streamed` from memory.
    """
    # Zen 3: four streams are 1.5 times as fast as one, eight hardly faster.
    dim = _only_wide_loop(loops)
    if dim is None or any(loops.laid_out):
        return loops
    extent, strips = loops.sizes[dim], tuning.gemv_strips
    # Short strips would read padding: 28 % of it for 100 results and vectors of AVX2.
    if extent % strips or extent < strips * tuning.least_strip_results:
        return loops
    factors = zip(streamed, loops.maps[:2], strict=True)
    if not any(is_streamed and dim in map_.used_dims() for is_streamed, map_ in factors):
        return loops
    split = [
        _split(shape, map_, dim, extent, strips)
        for shape, map_ in zip(loops.shapes, loops.maps, strict=True)
    ]
    found = [each for each in split if each is not None]
    if len(found) < len(split):
        return loops
    shapes, maps = zip(*found, strict=True)
    sizes = (*loops.sizes[:dim], strips, extent // strips, *loops.sizes[dim + 1 :])
    return replace(loops, sizes=sizes, parallel=loops.parallel + 1, shapes=shapes, maps=maps)


def _only_wide_loop(loops: ContractionLoops) -> int | None:
    """The only loop over results with more than one step, if there is only one."""
    wide = [dim for dim in range(loops.parallel) if loops.sizes[dim] > 1]
    return wide[0] if len(wide) == 1 else None


def _split(
    shape: Shape, map_: AffineMap, dim: int, extent: int, strips: int
) -> tuple[Shape, AffineMap] | None:
    """Shape and map of an operand after loop `dim` is split; None if `dim` is not an index."""
    later = [AffineExpr.dimension(old + (old > dim)) for old in range(map_.num_dims)]
    results = list(with_dims(map_, later, map_.num_dims + 1).results)
    users = [at for at, result in enumerate(map_.results) if dim in result.used_dims()]
    if users:
        at = users[0]
        alone = len(users) == 1 and isinstance(map_.results[at], AffineDimExpr)
        if not alone or shape[at] != extent:
            return None
        shape = (*shape[:at], strips, extent // strips, *shape[at + 1 :])
        results[at : at + 1] = selection([dim, dim + 1]).results
    return shape, AffineMap(map_.num_dims + 1, 0, tuple(results))
