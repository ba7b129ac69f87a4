"""Splits a contraction's domain into panels of vectors and balanced blocks of rows."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects.tile.affine import with_dims
from popgraph.support.shapes import Shape


@dataclass(frozen=True)
class Column:
    """One vector of a panel: lanes from `offset`; the first `valid` of them are results."""

    offset: int
    lanes: int
    valid: int

    @property
    def whole(self) -> bool:
        return self.lanes == self.valid


def whole_panel(vectors: int, width: int) -> list[Column]:
    return [Column(number * width, width, width) for number in range(vectors)]


def last_panel(rest: int, width: int, padded: bool) -> list[Column]:
    """
    The vectors for the last `rest` lanes.

    If the operand is `padded`, whole vectors with some unused lanes; else narrower and narrower
    vectors, then single lanes.
    """
    # 23 lanes of 16: padded 16 + 16 (7 valid), else 16 + 4 + 1 + 1 + 1. Two lanes of f32 would be
    # 8 bytes, half of the smallest vector. Groups of 28 or 34 channels take 2/3 to 9/10 of the
    # time that single lanes take (8515d90e).
    columns: list[Column] = []
    at, lanes = 0, width
    while at < rest:
        if padded:
            columns.append(Column(at, width, min(width, rest - at)))
        else:
            while lanes > 1 and (lanes > rest - at or 1 < lanes < 4):
                lanes //= 2
            columns.append(Column(at, lanes, lanes))
        at += columns[-1].lanes
    return columns


def narrowed(column: Column) -> list[Column]:
    """The valid lanes of a column as whole columns."""
    if column.whole:
        return [column]
    return [
        Column(column.offset + part.offset, part.lanes, part.valid)
        for part in last_panel(column.valid, column.lanes, padded=False)
    ]


@dataclass(frozen=True)
class Blocks:
    """`count` blocks of `size` rows, the first at `start`."""

    start: int
    count: int
    size: int


def balanced(extent: int, most: int) -> list[Blocks]:
    """Blocks of at most `most` rows, of at most two sizes that differ by one."""
    # 49 rows in blocks of 14: 13 + 12 + 12 + 12, not 14 + 14 + 14 + 7. Each size of block is code
    # of its own. Zen 5: 6 to 14 rows of 2 vectors reach 91 to 95 % of peak, 4 rows 62 %. So 17 rows
    # are 9 + 8, not 14 + 3.
    blocks = -(-extent // most)
    size, more = divmod(extent, blocks)
    first = Blocks(0, more, size + 1)
    second = Blocks(more * (size + 1), blocks - more, size)
    return [part for part in (first, second) if part.count]


def split_sizes(sizes: Shape, dim: int, lanes: int) -> Shape:
    """Splits one dimension of a domain into panels and the lanes of a panel."""
    return (*sizes[:dim], -(-sizes[dim] // lanes), lanes, *sizes[dim + 1 :])


def split_map(map_: AffineMap, dim: int, lanes: int) -> AffineMap:
    """The same map over the domain of `split_sizes`."""
    before = [AffineExpr.dimension(old) for old in range(dim)]
    both = AffineExpr.dimension(dim) * lanes + AffineExpr.dimension(dim + 1)
    after = [AffineExpr.dimension(old + 1) for old in range(dim + 1, map_.num_dims)]
    return with_dims(map_, [*before, both, *after], map_.num_dims + 1)
