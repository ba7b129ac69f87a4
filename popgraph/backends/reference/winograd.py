"""Interprets Winograd operations, vectorized over tiles."""

from __future__ import annotations

from typing import Any

import numpy as np

from popgraph.backends.reference.memory import grid, to_logical
from popgraph.backends.reference.structured import Access, finished, stored
from popgraph.dialects import tile
from popgraph.dialects.tile.structured.winograd import Matrix, Tiling
from popgraph.support.arrays import Array

Tiled = tile.TransformTilesOp | tile.WinogradOp


def run_transform_tiles(op: tile.TransformTilesOp, x: Array) -> tuple[Array, ...]:
    tiles = _transformed(op, op.matrix.data, x, once=not op.shares_elements)
    return stored(op, [tiles.reshape(op.output.type.get_shape())])


def run_winograd(
    op: tile.WinogradOp, x: Array, u: Array, *epilogue_inputs: Array
) -> tuple[Array, ...]:
    matrices = op.tiling.transforms
    side, out = matrices.side, np.array(matrices.output).astype(x.dtype)
    if op.is_transformed:
        data = to_logical(x, op.x.type)  # type: ignore[arg-type]
        data = data.reshape(side, side, *data.shape[1:])
    else:
        data = _transformed(op, matrices.input, x)
    weights = u.reshape(op.panels, side, side, -1, op.schedule.nr).transpose(1, 2, 3, 0, 4)
    weights = weights.reshape(*weights.shape[:3], -1)[..., : op.sizes[3]]
    sums = _einsum("abtc,abck->abtk", data, weights)
    results = _einsum("ia,jb,abtk->tijk", out, out, sums)
    return finished(op, [_together(op, results)], epilogue_inputs)


def _einsum(formula: str, *arrays: Any) -> Array:
    return np.asarray(np.einsum(formula, *arrays))


def _transformed(op: Tiled, matrix: Matrix, x: Array, once: bool = False) -> Array:
    """`M tile M^T`, [row, column, tile, channel]; overlapping elements count `once` or in each."""
    side, tiling = len(matrix[0]), op.tiling
    channels = op.x.type.get_shape()[-1]  # type: ignore[attr-defined]
    number, *inside = grid((tiling.count, side, side, channels))
    indices: list[Any] = [*_corner(tiling, number), *inside]
    (tiles,) = Access(op, [op.x], [op.window], [x])(indices)
    if once:
        tiles = np.where(_own(tiling)[..., None], tiles, tiles.dtype.type(0))
    into = np.array(matrix).astype(x.dtype)
    return _einsum("ai,bj,tijc->abtc", into, into, tiles)


def _own(tiling: Tiling) -> Array:
    """Whether a tile is the first that covers an element, by tile, row and column."""
    number: Any
    number, row, column = grid((tiling.count, tiling.size, tiling.size))
    _, *corner = _corner(tiling, number)
    _, *steps = tiling.steps.eval([number], ())
    down, right = (step * tiling.size - at for step, at in zip(steps, corner, strict=True))
    return np.asarray((row >= down) & (column >= right))


def _together(op: tile.WinogradOp, results: Array) -> Array:
    """Assembles the tiles' results into images; where tiles overlap, the first one wins."""
    tiling = op.tiling
    number, row, column = grid((tiling.count, tiling.size, tiling.size))
    n, y, x = _corner(tiling, number)
    places = np.broadcast_arrays(n, y + row, x + column)
    own = _own(tiling)
    image = np.zeros(op.sizes, results.dtype)
    image[tuple(place[own] for place in places)] = results[own]
    return image


def _corner(tiling: Tiling, number: Any) -> tuple[Any, ...]:
    """The image, first row and first column of each tile."""
    image, *steps = tiling.steps.eval([number], ())
    starts = zip(steps, tiling.last, strict=True)
    return image, *(np.minimum(step * tiling.size, last) for step, last in starts)
