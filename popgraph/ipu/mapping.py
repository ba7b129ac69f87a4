"""The geometry of tile mappings: the boxes of indices on each tile, and derived mappings."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil

import numpy as np

from popgraph.dialects.tile.mapping import Digit, MappingAttr
from popgraph.support.arrays import Array
from popgraph.support.shapes import Shape, prod

NAME = "mapping"
"""Attribute with the mapping of an operation's loops, or of its result if it has no loops."""


@dataclass(frozen=True)
class Boxes:
    """One box of indices per piece of work: `low` (inclusive) and `high` (exclusive) as rows."""

    low: Array
    high: Array

    @property
    def volumes(self) -> Array:
        """The number of indices in each."""
        extents: Array = np.maximum(self.high - self.low, 0)
        found: Array = extents.prod(axis=1)
        return found

    def meet(self, other: Boxes) -> Boxes:
        """The intersection of each with its counterpart."""
        return Boxes(np.maximum(self.low, other.low), np.minimum(self.high, other.high))

    def window(self, piece: int) -> tuple[slice, ...]:
        """The box of one piece, as an index."""
        return tuple(
            slice(low, max(low, high))
            for low, high in zip(self.low[piece].tolist(), self.high[piece].tolist(), strict=True)
        )


@dataclass(frozen=True)
class Pieces:
    """The elements on the tiles of a mapping: one piece a tile, each a union of disjoint boxes."""

    tiles: Array
    boxes: tuple[Boxes, ...]

    @property
    def volumes(self) -> Array:
        """The number of indices in each piece."""
        found: Array = np.sum([box.volumes for box in self.boxes], axis=0)
        return found


def interval_boxes(start: Array, end: Array, within: Boxes) -> Iterator[Boxes]:
    """
    Converts row-major intervals within boxes to boxes, 2 rank - 1 of them per interval.

    From the last dimension outwards, the incomplete rows at either end become separate boxes.
    """
    extents = np.maximum(within.high - within.low, 1)
    rank = extents.shape[1]
    steps = np.ones_like(extents)
    for dim in range(rank - 2, -1, -1):
        steps[:, dim] = steps[:, dim + 1] * extents[:, dim + 1]
    for dim in range(rank - 1, 0, -1):
        row = steps[:, dim - 1]
        rise, fall = -(-start // row) * row, end // row * row
        alone = rise > fall
        yield _interval_box(start, np.where(alone, end, rise), dim, steps, extents, within.low)
        start = np.where(alone, end, rise)
        fall = np.maximum(fall, start)
        yield _interval_box(fall, end, dim, steps, extents, within.low)
        end = fall
    if rank:
        yield _interval_box(start, end, 0, steps, extents, within.low)
    else:
        yield Boxes(within.low, within.high)


def _interval_box(
    start: Array, end: Array, dim: int, steps: Array, extents: Array, origin: Array
) -> Boxes:
    """The box of an interval within one row of `dim`, of full extent in later dimensions."""
    low, high = np.zeros_like(extents), extents.copy()
    rest = start.copy()
    for outer in range(dim):
        low[:, outer] = rest // steps[:, outer]
        high[:, outer] = low[:, outer] + 1
        rest = rest % steps[:, outer]
    low[:, dim] = rest // steps[:, dim]
    high[:, dim] = low[:, dim] + (end - start) // steps[:, dim]
    return Boxes(low + origin, high + origin)


def grid_mapping(shape: Shape, parts: Sequence[int], first: int = 0) -> MappingAttr:
    """Blocks of equal size on consecutive tiles, `parts` of them along each dimension."""
    block = [max(1, ceil(size / count)) for size, count in zip(shape, parts, strict=True)]
    counts = [max(1, ceil(size / each)) for size, each in zip(shape, block, strict=True)]
    strides = [prod(counts[dim + 1 :]) if count > 1 else 0 for dim, count in enumerate(counts)]
    return MappingAttr.of(shape, block, strides, first=first)


def linear_mapping(shape: Shape, run: int, first: int = 0) -> MappingAttr:
    """One block in runs of `run` elements, on consecutive tiles."""
    whole = [max(1, size) for size in shape]
    count = max(1, ceil(prod(shape) / run))
    digits = [Digit(count, 1)] if count > 1 else []
    return MappingAttr.of(shape, whole, [0] * len(whole), run if digits else 0, digits, first)


def tile_count(mapping: MappingAttr) -> int:
    """The number of pieces, each on its own tile; those at the ends may be empty."""
    return prod(mapping.parts) * prod(digit.count for digit in mapping.digits)


def is_linear(mapping: MappingAttr) -> bool:
    """Whether the tile follows from the row-major number of an index alone."""
    return prod(mapping.parts) == 1


@lru_cache(maxsize=256)
def pieces_of(mapping: MappingAttr) -> Pieces:
    """The pieces of a mapping; cached, since many values share one mapping."""
    parts, digits = mapping.parts, mapping.digits
    counts = [*parts, *(digit.count for digit in digits)]
    strides = [*mapping.strides.data, *(digit.stride for digit in digits)]
    places = np.indices(counts).reshape(len(counts), -1) if counts else np.zeros((0, 1), np.int64)
    tiles = mapping.first.data + np.array(strides, np.int64) @ places
    block, shape = np.array(mapping.block.data, np.int64), np.array(mapping.sizes, np.int64)
    low = places[: len(parts)].T * block
    high = np.minimum(low + block, shape)
    whole = Boxes(low, np.maximum(high, low))
    if not digits:
        return Pieces(tiles, (whole,))
    numbers = np.zeros(tiles.size, np.int64)
    for place, digit in zip(places[len(parts) :], digits, strict=True):
        numbers = numbers * digit.count + place
    elements = whole.volumes
    start = np.minimum(numbers * mapping.run.data, elements)
    end = np.minimum(start + mapping.run.data, elements)
    return Pieces(tiles, tuple(interval_boxes(start, end, whole)))


def counts_by_tile(mapping: MappingAttr, tiles: int) -> Array:
    """The number of elements on each of the first `tiles` tiles."""
    pieces, found = pieces_of(mapping), np.zeros(tiles, np.int64)
    np.add.at(found, pieces.tiles, pieces.volumes)
    return found


def intervals_by_tile(mapping: MappingAttr, tiles: int) -> list[list[tuple[int, int]]]:
    """The row-major numbers of the elements on each tile, as sorted intervals."""
    found: list[list[tuple[int, int]]] = [[] for _ in range(tiles)]
    pieces = pieces_of(mapping)
    for piece, tile in enumerate(pieces.tiles.tolist()):
        rows = [row for box in pieces.boxes for row in _rows(mapping, box.window(piece))]
        found[tile] += _joined(sorted(rows))
    return found


def _rows(mapping: MappingAttr, window: tuple[slice, ...]) -> Iterator[tuple[int, int]]:
    """The intervals of row-major numbers in a box."""
    shape = mapping.sizes
    if any(side.start >= side.stop for side in window):
        return
    inner = len(shape)
    while inner and window[inner - 1] == slice(0, shape[inner - 1]):
        inner -= 1
    outer, step = window[: max(0, inner - 1)], prod(shape[inner:])
    along = window[inner - 1] if inner else slice(0, 1)
    for place in np.ndindex(*(side.stop - side.start for side in outer)):
        at = 0
        for offset, side, size in zip(place, outer, shape, strict=False):
            at = at * size + side.start + offset
        at = at * shape[inner - 1] if inner else 0
        yield (at + along.start) * step, (at + along.stop) * step


def _joined(rows: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Merges adjacent intervals."""
    found: list[tuple[int, int]] = []
    for start, end in rows:
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return found


def moved(mapping: MappingAttr, first: int) -> MappingAttr:
    """The same mapping with its first run on another tile."""
    return MappingAttr.of(
        mapping.shape, mapping.block, mapping.strides, mapping.run.data, mapping.digits, first
    )


def of_leading(mapping: MappingAttr, dims: int, grain: int) -> MappingAttr:
    """
    The mapping of the first `dims` dimensions, after a sum along the others.

    Each of the tiles with partial sums of a block gets a run of it, of a multiple of `grain`.
    """
    shape, block = mapping.shape.data[:dims], mapping.block.data[:dims]
    digits = [
        Digit(count, stride)
        for count, stride in zip(mapping.parts[dims:], mapping.strides.data[dims:], strict=True)
        if count > 1
    ]
    assert not mapping.digits, "loops that reduce are cut into blocks"
    strides = mapping.strides.data[:dims]
    return _in_runs(shape, block, strides, digits, grain, mapping.first.data)


def of_dims(
    mapping: MappingAttr, dims: Sequence[int | None], shape: Shape, grain: int
) -> MappingAttr:
    """
    The mapping of a tensor whose dimension i is read along loop `dims[i]` (None: read whole).

    A block that several tiles read is partitioned among them in runs.
    """
    block = [
        max(1, size) if dim is None else mapping.block.data[dim]
        for dim, size in zip(dims, shape, strict=True)
    ]
    strides = [0 if dim is None else mapping.strides.data[dim] for dim in dims]
    digits = [
        Digit(count, stride)
        for dim, (count, stride) in enumerate(zip(mapping.parts, mapping.strides.data, strict=True))
        if dim not in dims and count > 1
    ]
    return _in_runs(shape, block, strides, digits, grain, mapping.first.data)


def of_loops(mapping: MappingAttr, dims: Sequence[int | None], sizes: Shape) -> MappingAttr | None:
    """
    The mapping of loops: loop `dims[i]` iterates over dimension i (None: no loop does).

    None if runs would break, or if a loop iterates over two dimensions.
    """
    along = [dim for dim in dims if dim is not None]
    if mapping.digits or len(set(along)) < len(along):
        return None
    block, strides = [max(1, size) for size in sizes], [0] * len(sizes)
    for dim, each, stride in zip(dims, mapping.block.data, mapping.strides.data, strict=True):
        if dim is not None:
            block[dim], strides[dim] = each, stride
    return MappingAttr.of(sizes, block, strides, first=mapping.first.data)


def _in_runs(
    shape: Sequence[int],
    block: Sequence[int],
    strides: Sequence[int],
    digits: Sequence[Digit],
    grain: int,
    first: int,
) -> MappingAttr:
    """Blocks in runs of equal length; a block that fits one run stays on one tile."""
    elements = prod(block)
    each = ceil(elements / prod(digit.count for digit in digits))
    run = max(1, ceil(each / grain) * grain)
    if run >= elements:
        return MappingAttr.of(shape, block, strides, first=first)
    return MappingAttr.of(shape, block, strides, run, digits, first)


def reshaped(mapping: MappingAttr, shape: Shape) -> MappingAttr | None:
    """The mapping under another shape, both row-major; None if no mapping expresses it."""
    if shape == mapping.sizes:
        return mapping
    if is_linear(mapping):
        whole = [max(1, size) for size in shape]
        return MappingAttr.of(
            shape, whole, [0] * len(whole), mapping.run.data, mapping.digits, mapping.first.data
        )
    found = _regrouped(mapping, shape)
    if found is None:
        return None
    block, strides = found
    return MappingAttr.of(
        shape, block, strides, mapping.run.data, mapping.digits, mapping.first.data
    )


def _regrouped(mapping: MappingAttr, shape: Shape) -> tuple[list[int], list[int]] | None:
    """Blocks and strides under another shape; None if a block is not a block there."""
    block: list[int] = []
    strides: list[int] = []
    old, new = 0, 0
    sizes = mapping.sizes
    if 0 in shape:
        return None
    while old < len(sizes) or new < len(shape):
        old_end, new_end, left, right = old, new, 1, 1
        while old_end == old or left != right:
            if old_end < len(sizes) and (left <= right or new_end == len(shape)):
                left *= sizes[old_end]
                old_end += 1
            elif new_end < len(shape):
                right *= shape[new_end]
                new_end += 1
            else:
                break
            if old_end > old and new_end > new and left == right:
                break
        found = _group(mapping, range(old, old_end), shape[new:new_end])
        if left != right or found is None:
            return None
        block += found[0]
        strides += found[1]
        old, new = old_end, new_end
    return block, strides


def _group(
    mapping: MappingAttr, dims: range, shape: Sequence[int]
) -> tuple[list[int], list[int]] | None:
    """Regroups some dimensions; at most one of them may be partitioned."""
    parts = mapping.parts
    cut = [dim for dim in dims if parts[dim] > 1]
    whole = list(map(int, shape))
    if not cut:
        return whole, [0] * len(whole)
    sizes = [mapping.sizes[dim] for dim in dims]
    (outer, *others) = cut
    if others or prod(sizes[: outer - dims.start]) != 1:
        return None
    # The block in units of the group's elements, to be expressed in the new dimensions.
    elements = mapping.block.data[outer] * prod(sizes[outer - dims.start + 1 :])
    for at in range(len(whole)):
        inner = prod(whole[at + 1 :])
        if prod(whole[:at]) == 1 and elements % inner == 0 and elements <= inner * whole[at]:
            block = [*whole[:at], elements // inner, *whole[at + 1 :]]
            return block, [mapping.strides.data[outer] if i == at else 0 for i in range(len(whole))]
    return None
