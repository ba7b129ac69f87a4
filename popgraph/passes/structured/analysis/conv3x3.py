"""Recognizes contractions that are 3x3 convolutions or gradients of 3x3 weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import linear, offset, with_dims
from popgraph.dialects.tile.structured.ops import element, indexed_dims
from popgraph.dialects.tile.structured.winograd import TAPS
from popgraph.passes.structured.analysis.loops import lane_type, tensor
from popgraph.support.shapes import prod


@dataclass(frozen=True)
class Convolution:
    """A contraction that is a 3x3 convolution: its image, its weights, and where the window is."""

    op: tile.ReduceOp
    image: SSAValue
    weights: SSAValue
    weights_map: AffineMap
    """From (row, column, channel before, channel behind)."""
    offset: tuple[int, int]
    channels: int
    fixed: bool = False
    """Whether the weights are known when the program is loaded."""

    @property
    def kind(self) -> Attribute:
        return element(self.image)

    def tiles(self, size: int) -> int:
        n, height, width = self.op.sizes[:3]
        return n * -(-height // size) * -(-width // size)


def convolution(op: tile.ReduceOp, weights: int) -> Convolution | None:
    """
    The contraction as a 3x3 convolution whose factor number `weights` are the weights.

    Its domain is (image, row, column, channel) and, in any order, the row and the column in the
    window and the channel before.
    """
    values, maps, sizes = (op.lhs, op.rhs), op.input_maps, op.sizes
    image, map_ = values[1 - weights], maps[1 - weights]
    if op.schedule or op.parallel_rank != 4 or len(sizes) != 7 or len(map_.results) != 4:
        return None
    if lane_type([element(image)]) is None or indexed_dims(op.epilogue.block):
        return None
    rows = [linear(result, sizes) for result in map_.results]
    inside = [_beside(rows[axis].terms, axis) for axis in (1, 2)]
    if any(dim is None or dim < op.parallel_rank for dim in inside):
        return None
    channel = next((dim for dim in (4, 5, 6) if dim not in inside), 0)
    if len({*inside, channel}) != 3 or prod(sizes[:4]) == 0:
        return None
    wanted = [linear(AffineExpr.dimension(dim), sizes) for dim in (0, channel)]
    if [rows[0], rows[3]] != wanted or any(sizes[dim or 0] != TAPS for dim in inside):
        return None
    if maps[weights].used_dims() & {0, 1, 2} or not _is_channels_last(image, map_, sizes, channel):
        return None
    places = [AffineExpr.constant(0)] * 7
    for at, dim in enumerate((*inside, channel, 3)):
        places[dim or 0] = AffineExpr.dimension(at)
    down, right = (rows[axis].constant for axis in (1, 2))
    weights_map = with_dims(maps[weights], places, 4)
    return Convolution(op, image, values[weights], weights_map, (down, right), sizes[channel])


def _is_channels_last(image: SSAValue, map_: AffineMap, sizes: Sequence[int], channel: int) -> bool:
    """Whether channels are neighbours in memory, and all of them are read: tiles have them all."""
    form = offset(tensor(image), map_, sizes)
    strides = [form.stride(dim) for dim in range(len(sizes))]
    whole = tensor(image).get_shape()[-1] == sizes[channel]
    return whole and None not in strides and (sizes[channel] == 1 or strides[channel] == 1)


@dataclass(frozen=True)
class WeightGradient:
    """
    A contraction that is the gradient of a 3x3 convolution's weights.

    `image` is what was convolved, `slope` the gradient of the result.
    """

    op: tile.ReduceOp
    image: SSAValue
    slope: SSAValue
    offset: tuple[int, int]
    images: tuple[int, int, int]
    """How many results, and their height and width."""
    dims: tuple[int, int, int, int]
    """The loops over the window's rows and columns, over channels before and behind."""

    @property
    def kind(self) -> Attribute:
        return element(self.image)

    @property
    def channels(self) -> tuple[int, int]:
        """Before and behind."""
        before, behind = (self.op.sizes[dim] for dim in self.dims[2:])
        return before, behind

    def tiles(self, size: int) -> int:
        n, height, width = self.images
        return n * -(-height // size) * -(-width // size)


def weight_gradient(op: tile.ReduceOp, image: int) -> WeightGradient | None:
    """
    The contraction as the gradient of weights, its factor number `image` being what was convolved.

    Results are by the channels and the window's row and column, sums over image, row and column.
    """
    values, maps, sizes = (op.lhs, op.rhs), op.input_maps, op.sizes
    if op.schedule or op.parallel_rank != 4 or len(sizes) != 7 or prod(sizes) == 0:
        return None
    if lane_type([element(op.lhs)]) is None or indexed_dims(op.epilogue.block):
        return None
    found = [_plain(result) for result in maps[1 - image].results]
    before = [_plain(result) for result in maps[image].results]
    if len(found) != 4 or len(before) != 4 or None in found or None in (before[0], before[3]):
        return None
    n, row, column, behind = (dim or 0 for dim in found)
    rows = [linear(maps[image].results[axis], sizes) for axis in (1, 2)]
    inside = [_beside(one.terms, dim) for one, dim in zip(rows, (row, column), strict=True)]
    if None in inside or any(sizes[dim or 0] != TAPS for dim in inside) or before[0] != n:
        return None
    dims = (inside[0] or 0, inside[1] or 0, before[3] or 0, behind)
    if {*dims} != set(range(4)) or {n, row, column} != {4, 5, 6}:
        return None
    last = zip((image, 1 - image), dims[2:], strict=True)
    if not all(_is_channels_last(values[at], maps[at], sizes, dim) for at, dim in last):
        return None
    where = (rows[0].constant, rows[1].constant)
    images = (sizes[n], sizes[row], sizes[column])
    return WeightGradient(op, values[image], values[1 - image], where, images, dims)


def _plain(result: AffineExpr) -> int | None:
    """The loop that an index is."""
    return result.position if isinstance(result, AffineDimExpr) else None


def _beside(terms: Mapping[AffineExpr, int], dim: int) -> int | None:
    """The loop that is added to loop `dim`, if that is all there is."""
    dims = [atom.position for atom in terms if isinstance(atom, AffineDimExpr)]
    if len(dims) != len(terms) or len(dims) != 2 or set(terms.values()) != {1} or dim not in dims:
        return None
    return sum(dims) - dim
