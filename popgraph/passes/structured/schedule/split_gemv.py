"""Splitting of the N loop of a large matrix-vector product, for parallel prefetch streams."""

from __future__ import annotations

from xdsl.ir import SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.tile.affine import selection, with_dims
from popgraph.dialects.tile.attributes import layout_of
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.schedule.collapse_contractions import Reshaped, collapse, reshape
from popgraph.passes.tuning import Target
from popgraph.support.shapes import Shape, prod


def collapse_and_split(op: tile.ContractOp, fixed: tuple[bool, bool], target: Target) -> None:
    """Gives a contraction the loops that its schedule is about; `fixed` factors are constants."""
    collapse(op)
    _split_into_strips(op, fixed, target)


def _split_into_strips(op: tile.ContractOp, fixed: tuple[bool, bool], target: Target) -> None:
    """
    Results of which each has its own part of a large constant, in four parts side by side.

    y[n] = sum k: x[k] * w[k, n]  ->  y[p, n] = sum k: x[k] * w[k, p, n]

    When p are rows, and n goes along vectors, a tile reads four panels that are far apart.
    """
    sizes, parallel = op.sizes, op.parallel_rank
    wide = [dim for dim in range(parallel) if sizes[dim] > 1]
    if len(wide) != 1 or any(layout_of(tensor(value)) for value, _ in op.mapped):
        return
    (dim,) = wide
    strips = target.tuning.gemv_strips
    if sizes[dim] % strips or sizes[dim] < strips * target.tuning.least_strip_results:
        return
    factors = zip(op.mapped[:2], fixed, strict=True)
    if not any(
        constant and _is_streamed(value, map_, dim, target) for (value, map_), constant in factors
    ):
        return
    split = [
        _split(tensor(value).get_shape(), map_, dim, sizes[dim], strips)
        for value, map_ in op.mapped
    ]
    found = [each for each in split if each is not None]
    if len(found) == len(split):
        shapes, new = zip(*found, strict=True)
        parts = (*sizes[:dim], strips, sizes[dim] // strips, *sizes[dim + 1 :])
        reshape(op, Reshaped(parts, parallel + 1, shapes, new))


def _is_streamed(value: SSAValue, map_: AffineMap, dim: int, target: Target) -> bool:
    """Whether a factor comes from memory, for results along `dim`."""
    size = prod(tensor(value).get_shape()) * element_bytes(value.type)
    large = size >= target.l2(target.tuning.streamed_l2)
    return large and dim in {at for result in map_.results for at in result.used_dims()}


def _split(
    shape: Shape, map_: AffineMap, dim: int, extent: int, strips: int
) -> tuple[Shape, AffineMap] | None:
    """An operand's shape and map when `dim` is two loops; None if its index is something else."""
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
