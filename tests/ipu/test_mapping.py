"""Tests tile mappings: one tile per element, boxes of intervals, reshapes, the text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.parser import Parser
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.registry import IRContext
from popgraph.dialects.tile import MappingAttr
from popgraph.dialects.tile.mapping import Digit
from popgraph.ipu.mapping import (
    counts_by_tile,
    grid_mapping,
    intervals_by_tile,
    linear_mapping,
    pieces_of,
    reshaped,
    tile_count,
)
from popgraph.support.arrays import Array
from popgraph.support.shapes import Shape, prod

SHAPES = st.lists(st.integers(1, 7), max_size=4).map(tuple)


@st.composite
def mappings(draw: st.DrawFn) -> MappingAttr:
    """Blocks with tile strides in any order of dimensions, and runs that partition a block."""
    shape: Shape = draw(SHAPES)
    block = [draw(st.integers(1, size)) for size in shape]
    counts = [-(-size // each) for size, each in zip(shape, block, strict=True)]
    split = draw(st.lists(st.integers(2, 3), max_size=2)) if shape else []
    order = draw(st.permutations(range(len(counts) + len(split))))
    strides, reached = {}, 1
    for place in order:
        strides[place] = reached
        reached *= [*counts, *split][place]
    digits = [Digit(count, strides[len(counts) + n]) for n, count in enumerate(split)]
    run = -(-prod(block) // prod(split)) + draw(st.integers(0, 3)) if split else 0
    first = draw(st.integers(0, 5))
    return MappingAttr.of(
        shape, block, [strides[dim] for dim in range(len(counts))], run, digits, first
    )


def tiles_of(mapping: MappingAttr) -> Array:
    """The tile of each element, found through the pieces of tiles."""
    found = np.full(mapping.sizes, -1)
    pieces = pieces_of(mapping)
    assert len(set(pieces.tiles.tolist())) == len(pieces.tiles) == tile_count(mapping)
    for piece, tile in enumerate(pieces.tiles.tolist()):
        for box in pieces.boxes:
            window = box.window(piece)
            assert (found[window] == -1).all(), "two pieces have one element"
            found[window] = tile
    return found


def tile_of(mapping: MappingAttr, index: Sequence[int]) -> int:
    """The tile of one index, by the definition of the attribute."""
    tile = mapping.first.data
    within, number = 0, 0
    for place, size, each, stride in zip(
        index, mapping.sizes, mapping.block.data, mapping.strides.data, strict=True
    ):
        tile += place // each * stride
        start = place // each * each
        within = within * min(each, size - start) + place - start
    if mapping.digits:
        number = within // mapping.run.data
    for digit in reversed(mapping.digits):
        tile += number % digit.count * digit.stride
        number //= digit.count
    return tile


@given(mappings())
def test_pieces_agree_with_the_definition_of_mappings(mapping: MappingAttr) -> None:
    found = tiles_of(mapping)
    for index in np.ndindex(*mapping.sizes):
        assert found[index] == tile_of(mapping, index)


@given(mappings())
def test_intervals_and_counts_are_those_of_the_pieces(mapping: MappingAttr) -> None:
    found, tiles = tiles_of(mapping).reshape(-1), mapping.first.data + tile_count(mapping)
    counts, intervals = counts_by_tile(mapping, tiles), intervals_by_tile(mapping, tiles)
    for tile in range(tiles):
        here = np.flatnonzero(found == tile).tolist()
        assert counts[tile] == len(here)
        assert [n for start, end in intervals[tile] for n in range(start, end)] == here
        ends = [end for _, end in intervals[tile]]
        assert all(start > end for (start, _), end in zip(intervals[tile][1:], ends, strict=False))


@given(mappings(), st.data())
def test_reshapes_change_no_tile(mapping: MappingAttr, data: st.DataObject) -> None:
    flat = prod(mapping.sizes)
    shapes = [(flat,), (1, *mapping.sizes), (*mapping.sizes, 1)]
    if len(mapping.sizes) > 1:
        first, second, *rest = mapping.sizes
        shapes.append((first * second, *rest))
    other = reshaped(mapping, data.draw(st.sampled_from(shapes)))
    if other is not None:
        other.verify()
        np.testing.assert_array_equal(tiles_of(other).reshape(-1), tiles_of(mapping).reshape(-1))


def test_reshapes_keep_blocks_of_rows() -> None:
    rows = grid_mapping((6, 8, 9), (3, 1, 1))
    assert reshaped(rows, (48, 9)) == grid_mapping((48, 9), (3, 1))
    apart = reshaped(grid_mapping((48, 9), (3, 3)), (6, 8, 9))
    assert apart == MappingAttr.of((6, 8, 9), (2, 8, 3), (3, 0, 1))
    assert reshaped(grid_mapping((4, 6), (1, 3)), (24,)) is None


@given(mappings())
def test_the_text_of_a_mapping_is_read_back(mapping: MappingAttr) -> None:
    assert Parser(IRContext(), str(mapping)).parse_attribute() == mapping


@given(st.integers(1, 300), st.integers(1, 40), st.integers(1, 4))
def test_runs_are_balanced_by_grain(elements: int, tiles: int, grain: int) -> None:
    each = -(-elements // tiles)
    run = -(-each // grain) * grain
    counts = counts_by_tile(linear_mapping((elements,), run), tiles)
    used = counts[counts > 0]
    assert counts.sum() == elements
    assert (used[:-1] == run).all() and 0 < used[-1] <= run < each + grain


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[4, 4] in [2, 2] at [1, 1]", "two blocks or runs are on the same tile"),
        ("[4] in [4] at [0], runs of 1 at [2, 1]", "the runs must cover the block"),
        ("[4, 4] in [2] at [1, 2]", "one block size and one stride per dimension"),
        ("[4] in [0] at [1]", "blocks need at least one index"),
    ],
)
def test_illegal_mappings_are_refused(text: str, message: str) -> None:
    with pytest.raises(VerifyException, match=message):
        Parser(IRContext(), f"#tile.mapping<{text}>").parse_attribute()
