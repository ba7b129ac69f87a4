"""Recognizes contractions that Winograd's transforms compute: convolutions, weight gradients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineDimExpr, AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.tile.affine import linear, offset, with_dims
from popgraph.dialects.tile.structured.ops import element, indexed_dims
from popgraph.dialects.tile.structured.winograd import WINDOWS
from popgraph.passes.structured.analysis.loops import lane_type, tensor
from popgraph.support.shapes import Shape, prod


@dataclass(frozen=True)
class Convolution:
    """A contraction that is a convolution with a square window of 2x2 or 3x3."""

    op: tile.ReduceOp
    image: SSAValue
    weights: SSAValue
    weights_map: AffineMap
    """The map from (row, column, input channel, output channel) to an index of the weights."""
    offset: tuple[int, int]
    window: int
    """Height and width of the window."""
    channels: int
    fixed: bool = False
    """Whether the weights are constant."""

    @property
    def kind(self) -> Attribute:
        return element(self.image)

    @property
    def images(self) -> Shape:
        """Number, height and width of the result images."""
        return self.op.sizes[:3]


@dataclass(frozen=True)
class WeightGradient:
    """
    A contraction that is the gradient of a 3x3 convolution's weights.

    `image` is the input of the convolution, `slope` the gradient of its result.
    """

    op: tile.ReduceOp
    image: SSAValue
    slope: SSAValue
    offset: tuple[int, int]
    images: Shape
    """Number, height and width of the result images."""
    dims: tuple[int, int, int, int]
    """The loops over rows and columns of the window, over input and over output channels."""

    @property
    def window(self) -> int:
        """Height and width of the window."""
        return 3

    @property
    def kind(self) -> Attribute:
        return element(self.image)

    @property
    def channels(self) -> tuple[int, int]:
        """Numbers of input and of output channels."""
        inputs, outputs = (self.op.sizes[dim] for dim in self.dims[2:])
        return inputs, outputs


@dataclass(frozen=True)
class _Window:
    """The window of an operand `image[n, y + row + down, x + column + right, channel]`."""

    offset: tuple[int, int]
    side: int
    row: int
    column: int
    channel: int


def convolution(op: tile.ReduceOp, weights: int) -> Convolution | None:
    """
    Matches a convolution with operand number `weights` as the weights.

    Its domain is (image, row, column, output channel) and, in any order, the row and the column of
    the window and the input channel.
    """
    window = _window(op, 1 - weights, (0, 1, 2), {4, 5, 6}) if _is_sum(op) else None
    if window is None or op.input_maps[weights].used_dims() & {0, 1, 2}:
        return None
    dims = [AffineExpr.constant(0)] * 7
    for at, dim in enumerate((window.row, window.column, window.channel, 3)):
        dims[dim] = AffineExpr.dimension(at)
    weights_map = with_dims(op.input_maps[weights], dims, 4)
    factors = (op.lhs, op.rhs)
    channels = op.sizes[window.channel]
    image = factors[1 - weights]
    return Convolution(
        op, image, factors[weights], weights_map, window.offset, window.side, channels
    )


def weight_gradient(op: tile.ReduceOp, image: int) -> WeightGradient | None:
    """
    Matches the gradient of 3x3 weights with operand number `image` as the convolved image.

    Parallel loops are the channels and the rows and columns of the window. Reductions are over
    images, rows and columns.
    """
    slope = [_only_loop(result) for result in op.input_maps[1 - image].results]
    if not _is_sum(op) or len(slope) != 4 or {*slope[:3]} != {4, 5, 6} or slope[3] not in range(4):
        return None
    n, y, x, output = (dim or 0 for dim in slope)
    window = _window(op, image, (n, y, x), {*range(4)} - {output})
    if window is None or window.side != 3 or not _is_channels_last(op, 1 - image, output):
        return None
    factors, sizes = (op.lhs, op.rhs), op.sizes
    return WeightGradient(
        op,
        factors[image],
        factors[1 - image],
        window.offset,
        (sizes[n], sizes[y], sizes[x]),
        (window.row, window.column, window.channel, output),
    )


def _is_sum(op: tile.ReduceOp) -> bool:
    """Whether a contraction has the loops of a convolution and sums in one float type."""
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
    Matches a square window in the indices of operand number `image`.

    `outer` are the loops over images, rows and columns. `inner` are the loops over rows and columns
    of the window and over channels, in any order.
    """
    sizes = op.sizes
    rows = [linear(result, sizes) for result in op.input_maps[image].results]
    if len(rows) != 4:
        return None
    row, column = (_added_loop(rows[axis].terms, outer[axis]) for axis in (1, 2))
    channels = inner - {row, column}
    if row is None or column is None or len(channels) != 1:
        return None
    (channel,) = channels
    plain = [linear(AffineExpr.dimension(dim), sizes) for dim in (outer[0], channel)]
    if [rows[0], rows[3]] != plain or sizes[row] != sizes[column] or sizes[row] not in WINDOWS:
        return None
    if not _is_channels_last(op, image, channel):
        return None
    return _Window((rows[1].constant, rows[2].constant), sizes[row], row, column, channel)


def _is_channels_last(op: tile.ReduceOp, factor: int, channel: int) -> bool:
    """Whether channels are contiguous and all of them are read, as tiles hold all channels."""
    type_, sizes = tensor((op.lhs, op.rhs)[factor]), op.sizes
    form = offset(type_, op.input_maps[factor], sizes)
    strides = [form.stride(dim) for dim in range(len(sizes))]
    whole = type_.get_shape()[-1] == sizes[channel]
    return whole and None not in strides and (sizes[channel] == 1 or strides[channel] == 1)


def _only_loop(result: AffineExpr) -> int | None:
    """The loop of an index that is just one loop."""
    return result.position if isinstance(result, AffineDimExpr) else None


def _added_loop(terms: Mapping[AffineExpr, int], dim: int) -> int | None:
    """The loop b of an index `dim + b + constant`."""
    dims = [atom.position for atom in terms if isinstance(atom, AffineDimExpr)]
    if len(dims) != len(terms) or len(dims) != 2 or set(terms.values()) != {1} or dim not in dims:
        return None
    return sum(dims) - dim
