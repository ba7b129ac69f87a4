"""Recognizes contractions that are 3x3 convolutions or gradients of 3x3 weights."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import linear, offset, with_dims
from popgraph.dialects.tile.structured.ops import element, indexed_dims
from popgraph.dialects.tile.structured.winograd import TAPS
from popgraph.passes.structured.analysis.loops import lane_type, tensor
from popgraph.support.shapes import Shape, prod


@dataclass(frozen=True)
class Convolution:
    """A contraction that is a 3x3 convolution: its image, its weights, and where the window is."""

    op: tile.ReduceOp
    image: SSAValue
    weights: SSAValue
    weights_map: AffineMap
    """From (row, column, input channel, output channel)."""
    offset: tuple[int, int]
    channels: int
    fixed: bool = False
    """Whether the weights are known when the program is loaded."""

    @property
    def kind(self) -> Attribute:
        return element(self.image)

    @property
    def images(self) -> Shape:
        """The number of results, their height and their width."""
        return self.op.sizes[:3]


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
    images: Shape
    """The number of results, their height and their width."""
    dims: tuple[int, int, int, int]
    """The loops over the window's rows and columns, over input and output channels."""

    @property
    def kind(self) -> Attribute:
        return element(self.image)

    @property
    def channels(self) -> tuple[int, int]:
        """Of the input and of the output."""
        before, behind = (self.op.sizes[dim] for dim in self.dims[2:])
        return before, behind


@dataclass(frozen=True)
class _Window:
    """The indices of a factor: `image[n, y + row + down, x + column + right, channel]`."""

    offset: tuple[int, int]
    row: int
    column: int
    channel: int


def convolution(op: tile.ReduceOp, weights: int) -> Convolution | None:
    """
    The contraction as a 3x3 convolution whose factor number `weights` are the weights.

    Its domain is (image, row, column, channel) and, in any order, the row and the column in the
    window and the input channel.
    """
    window = _window(op, 1 - weights, (0, 1, 2), {4, 5, 6}) if _is_sum(op) else None
    if window is None or op.input_maps[weights].used_dims() & {0, 1, 2}:
        return None
    places = [AffineExpr.constant(0)] * 7
    for at, dim in enumerate((window.row, window.column, window.channel, 3)):
        places[dim] = AffineExpr.dimension(at)
    weights_map = with_dims(op.input_maps[weights], places, 4)
    factors = (op.lhs, op.rhs)
    channels = op.sizes[window.channel]
    return Convolution(
        op, factors[1 - weights], factors[weights], weights_map, window.offset, channels
    )


def weight_gradient(op: tile.ReduceOp, image: int) -> WeightGradient | None:
    """
    The contraction as the gradient of weights, its factor number `image` being what was convolved.

    Results are by the channels and the window's row and column, sums over image, row and column.
    """
    slope = [_plain(result) for result in op.input_maps[1 - image].results]
    if not _is_sum(op) or len(slope) != 4 or {*slope[:3]} != {4, 5, 6} or slope[3] not in range(4):
        return None
    n, y, x, behind = (dim or 0 for dim in slope)
    window = _window(op, image, (n, y, x), {*range(4)} - {behind})
    if window is None or not _is_channels_last(op, 1 - image, behind):
        return None
    factors, sizes = (op.lhs, op.rhs), op.sizes
    return WeightGradient(
        op,
        factors[image],
        factors[1 - image],
        window.offset,
        (sizes[n], sizes[y], sizes[x]),
        (window.row, window.column, window.channel, behind),
    )


def _is_sum(op: tile.ReduceOp) -> bool:
    """Whether the contraction has the loops of a convolution, and sums of one float type."""
    return (
        op.schedule is None
        and (op.parallel_rank, len(op.sizes)) == (4, 7)
        and prod(op.sizes) > 0
        and lane_type([element(op.lhs), element(op.rhs)]) is not None
        and not indexed_dims(op.epilogue.block)
    )


def _window(
    op: tile.ReduceOp, image: int, outer: tuple[int, int, int], inner: set[int]
) -> _Window | None:
    """
    The 3x3 window in which factor number `image` is read, if it is.

    `outer` are the loops over images, rows and columns; `inner` those over the rows and columns of
    the window, and over the channels.
    """
    sizes = op.sizes
    rows = [linear(result, sizes) for result in op.input_maps[image].results]
    if len(rows) != 4:
        return None
    row, column = (_beside(rows[axis].terms, outer[axis]) for axis in (1, 2))
    channels = inner - {row, column}
    if row is None or column is None or len(channels) != 1:
        return None
    (channel,) = channels
    plain = [linear(AffineExpr.dimension(dim), sizes) for dim in (outer[0], channel)]
    if [rows[0], rows[3]] != plain or (sizes[row], sizes[column]) != (TAPS, TAPS):
        return None
    if not _is_channels_last(op, image, channel):
        return None
    return _Window((rows[1].constant, rows[2].constant), row, column, channel)


def _is_channels_last(op: tile.ReduceOp, factor: int, channel: int) -> bool:
    """Whether channels are neighbours in memory, and all of them are read: tiles have them all."""
    type_, sizes = tensor((op.lhs, op.rhs)[factor]), op.sizes
    form = offset(type_, op.input_maps[factor], sizes)
    strides = [form.stride(dim) for dim in range(len(sizes))]
    whole = type_.get_shape()[-1] == sizes[channel]
    return whole and None not in strides and (sizes[channel] == 1 or strides[channel] == 1)


def _plain(result: AffineExpr) -> int | None:
    """The loop that an index is."""
    return result.position if isinstance(result, AffineDimExpr) else None


def _beside(terms: Mapping[AffineExpr, int], dim: int) -> int | None:
    """The loop that is added to loop `dim`, if that is all there is."""
    dims = [atom.position for atom in terms if isinstance(atom, AffineDimExpr)]
    if len(dims) != len(terms) or len(dims) != 2 or set(terms.values()) != {1} or dim not in dims:
        return None
    return sum(dims) - dim
