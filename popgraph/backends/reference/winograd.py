"""Interprets Winograd operations, all tiles at once."""

from __future__ import annotations

from typing import Any

import numpy as np
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.backends.reference.memory import to_logical
from popgraph.backends.reference.structured import Access, finished, stored
from popgraph.dialects import tile
from popgraph.dialects.tile.structured.winograd import Matrix
from popgraph.support.arrays import Array

Tiled = tile.TransformTilesOp | tile.WinogradOp

TILES = "nyxijc"
"""A tile by image, row and column, and an element of it by row, column and channel."""


def run_transform_tiles(op: tile.TransformTilesOp, x: Array) -> tuple[Array, ...]:
    tiles = _transformed(op, op.matrix.data, x).transpose(3, 4, 0, 1, 2, 5)
    return stored(op, [tiles.reshape(op.output.type.get_shape())])


def run_winograd(
    op: tile.WinogradOp, x: Array, u: Array, *epilogue_inputs: Array
) -> tuple[Array, ...]:
    side, out = op.transforms.side, _matrix(op.transforms.output, x.dtype)
    if op.is_transformed:
        tiles = to_logical(x, op.x.type)  # type: ignore[arg-type]
        data = tiles.reshape(side, side, op.sizes[0], *op.grid, -1).transpose(2, 3, 4, 0, 1, 5)
    else:
        data = _transformed(op, op.transforms.input, x)
    weights = to_logical(u, op.u.type)  # type: ignore[arg-type]
    if op.is_in_panels:
        weights = weights.transpose(1, 2, 0, 3).reshape(*weights.shape[1:3], -1)
        weights = weights[..., : op.sizes[3]]
    weights = weights.reshape(side, side, data.shape[-1], op.sizes[3])
    sums = _einsum("nyxabc,abck->nyxabk", data, weights)
    results = _einsum("ia,jb,nyxabk->nyxijk", out, out, sums)
    return finished(op, [_together(op, results)], epilogue_inputs)


def _matrix(matrix: Matrix, dtype: np.dtype[Any]) -> Array:
    return np.array(matrix).astype(dtype)


def _einsum(formula: str, *arrays: Any) -> Array:
    return np.asarray(np.einsum(formula, *arrays))


def _transformed(op: Tiled, matrix: Matrix, x: Array) -> Array:
    into, tiles = _matrix(matrix, x.dtype), _tiles(op, x, len(matrix[0]))
    if isinstance(op, tile.TransformTilesOp) and not op.shares_elements:
        tiles = _each_once(op, tiles)
    return _einsum(f"ai,bj,{TILES}->nyxabc", into, into, tiles)


def _each_once(op: Tiled, tiles: Array) -> Array:
    """Nothing where an element stands in an earlier tile, too."""
    size = op.size.value.data
    rows, columns = (
        np.add.outer(start, np.arange(size)) >= np.arange(len(start))[:, None] * size
        for start in _starts(op)
    )
    own = rows[:, None, :, None, None] & columns[None, :, None, :, None]
    return np.where(own, tiles, tiles.dtype.type(0))


def _starts(op: Tiled) -> tuple[Array, Array]:
    """The first row and column of the results of every tile."""
    size = op.size.value.data
    rows, columns = (
        np.minimum(np.arange(count) * size, extent - size)
        for count, extent in zip(op.grid, op.sizes[1:3], strict=True)
    )
    return rows, columns


def _tiles(op: Tiled, x: Array, side: int) -> Array:
    """The elements that every tile is made of, so high and wide."""
    n, y, s, i, j, c = (AffineExpr.dimension(dim) for dim in range(len(TILES)))
    down, right = op.offset.data
    window = AffineMap(len(TILES), 0, (n, y + i + down, s + j + right, c))
    rows, columns = _starts(op)
    channels = op.x.type.get_shape()[-1]  # type: ignore[attr-defined]
    indices = np.ix_(
        np.arange(op.sizes[0]), rows, columns, np.arange(side), np.arange(side), np.arange(channels)
    )
    (found,) = Access(op, [op.x], [window], [x])(indices)
    return np.asarray(found)


def _together(op: tile.WinogradOp, results: Array) -> Array:
    """The results of all tiles as one image; where tiles overlap, the first one counts."""
    size = op.size.value.data
    rows, columns = _starts(op)
    image = np.zeros(op.sizes, results.dtype)
    for row, y in reversed(list(enumerate(rows))):
        for column, x in reversed(list(enumerate(columns))):
            image[:, y : y + size, x : x + size] = results[:, row, column]
    return image
