"""How do pools and their gradients become reductions over windows?"""

from __future__ import annotations

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import IndexType, TensorType, i64
from xdsl.ir import Attribute, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap

from popgraph.dialects import tile
from popgraph.dialects.graphcore import (
    AveragePoolGradOp,
    AveragePoolOp,
    MaxPoolGradOp,
    MaxPoolOp,
)
from popgraph.dialects.graphcore.base import flag, shape_of, tensor_of
from popgraph.dialects.graphcore.geometry import Geometry
from popgraph.dialects.program import ConstantOp, DataAttr
from popgraph.dialects.tile.structured import element
from popgraph.passes.graphcore_to_tile.elements import (
    Operand,
    attribute,
    body,
    computing,
    entered,
    kind_of,
    left,
    lowest,
    number,
)
from popgraph.passes.graphcore_to_tile.elementwise import each, mapped
from popgraph.passes.graphcore_to_tile.movement import viewed
from popgraph.passes.graphcore_to_tile.reductions import is_better, reduce
from popgraph.passes.graphcore_to_tile.sliding import (
    collect_at,
    dimensions,
    padded,
    read_at,
    spread,
)
from popgraph.support import dtypes
from popgraph.support.shapes import Shape, prod


def lower_max_pool(op: MaxPoolOp) -> SSAValue:
    """max_pool(x)  ->  tile.reduce max, padded x[n, c, s*o + d*k] over k"""
    sizes, kernel = op.sizes.data, op.kernel.data
    x = padded(op.x, op.geometry, sizes, lowest(element(op.x)))
    nc, o, k = dimensions(2, len(sizes), len(kernel))
    domain = (*shape_of(op.result), *kernel)
    map_ = AffineMap(len(domain), 0, (*nc, *read_at(o, k, op.geometry)))
    return reduce(x, map_, domain, 2 + len(sizes), "max")


class Shares:
    """
    What windows multiply by: one over the number of elements that they count.

    The number is a product of one factor per axis, so a vector per axis is enough, and nothing at
    all for axes along which it is the same everywhere: these are in `common`.
    """

    def __init__(self, op: AveragePoolOp | AveragePoolGradOp, space: Shape) -> None:
        self.inner = computing(tensor_of(op.result).element_type)
        self.common = 1.0
        self.vectors: list[SSAValue] = []
        self.axes: list[int] = []
        for axis, counts in enumerate(self._counts(op, space)):
            if np.all(counts == counts[0]):
                self.common /= int(counts[0])
            else:
                dtype = dtypes.from_ir(self.inner).numpy
                shares = (1 / counts.astype(np.float64)).astype(dtype)
                self.vectors.append(ConstantOp(DataAttr.of(shares)).result)
                self.axes.append(axis)

    @staticmethod
    def _counts(
        op: AveragePoolOp | AveragePoolGradOp, space: Shape
    ) -> list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
        """How many elements windows count along each axis."""
        geometry, include = op.geometry, flag(op.include_pad)
        rows = zip(
            geometry.kernel,
            geometry.strides,
            geometry.dilations,
            geometry.low,
            geometry.high,
            space,
            op.sizes,
            strict=True,
        )
        return [
            Geometry((kernel,), (stride,), (dilation,), (low,), (high,))
            .counts((size,), (count,), include)
            .astype(np.int64)
            for kernel, stride, dilation, low, high, size, count in rows
        ]

    def maps(self, rank: int) -> list[AffineMap]:
        """Where each vector is read, in a domain of `rank` that begins with batch and channel."""
        return [AffineMap(rank, 0, (AffineExpr.dimension(2 + axis),)) for axis in self.axes]

    def product(self, value: Operand, *factors: Operand) -> Operand:
        """`value` times the factors read from the vectors."""
        for factor in factors:
            value = arith.MulfOp(value, factor)
        return value

    def scaled(self, value: Operand) -> Operand:
        """`value` times what all windows have in common."""
        return value if self.common == 1 else arith.MulfOp(value, number(self.common, self.inner))


def lower_average_pool(op: AveragePoolOp) -> SSAValue:
    """average_pool(x)  ->  tile.reduce sum, padded x[n, c, s*o + d*k] over k, times the shares"""
    sizes, kernel = op.sizes.data, op.kernel.data
    shares = Shares(op, shape_of(op.x)[2:])
    x = padded(op.x, op.geometry, sizes)
    nc, o, k = dimensions(2, len(sizes), len(kernel))
    domain, rank = (*shape_of(op.result), *kernel), 2 + len(sizes)
    map_ = AffineMap(len(domain), 0, (*nc, *read_at(o, k, op.geometry)))
    return reduce(
        x,
        map_,
        domain,
        rank,
        "add",
        lambda total, *factors: shares.scaled(shares.product(total, *factors)),
        shares.vectors,
        shares.maps(rank),
    )


def lower_average_pool_grad(op: AveragePoolGradOp) -> SSAValue:
    """
    average_pool_grad(dy)  ->  tile.reduce sum, spread (dy * shares)[n, c, i + d*k] over k

    Every element collects from the windows that cover it.
    """
    shape, source = op.shape.data, tensor_of(op.dy).element_type
    shares, dy = Shares(op, shape[2:]), op.dy
    if shares.vectors:
        windows = shape_of(dy)
        maps = [AffineMap.identity(len(windows)), *shares.maps(len(windows))]
        dy = mapped(
            [dy, *shares.vectors],
            maps,
            windows,
            shares.inner,
            lambda value, *factors: shares.product(entered(value, source), *factors),
        )
    apart, shifts = spread(dy, op.geometry, shape[2:])
    nc, i, k = dimensions(2, len(shape) - 2, len(op.kernel))
    domain = (*shape, *op.kernel)
    map_ = AffineMap(len(domain), 0, (*nc, *collect_at(i, k, op.geometry, shifts)))
    return reduce(apart, map_, domain, len(shape), "add", shares.scaled, result=source)


def lower_max_pool_grad(op: MaxPoolGradOp) -> SSAValue:
    """
    max_pool_grad(x, dy)  ->  tile.scatter dy to (tile.reduce: where each window's maximum stands)

    A place is an index into the flattened spatial axes of x; padding is never chosen.
    """
    shape, windows = shape_of(op.x), shape_of(op.dy)
    source = tensor_of(op.dy).element_type
    inner = computing(source)
    identity = AffineMap.identity(len(windows))

    def write(place: SSAValue, value: SSAValue) -> list[Operand]:
        index = arith.IndexCastOp(place, IndexType())
        return [tile.IndexOp(0), tile.IndexOp(1), index, entered(value, source)]

    total = tile.ScatterOp(
        [first_maximum(op), op.dy],
        [identity, identity],
        windows,
        2,
        body([i64, source], write),
        TensorType(inner, (*shape[:2], prod(shape[2:]))),
    ).output
    return viewed(returned(total, source), shape)


def returned(value: SSAValue, result: Attribute) -> SSAValue:
    """A tensor of computing elements as one of elements of `result`."""
    return value if element(value) == result else each(value, result, lambda x: left(x, result))


def first_maximum(op: MaxPoolGradOp) -> SSAValue:
    """Where the first largest element of every window stands in the flattened axes of x."""
    source, geometry = tensor_of(op.x).element_type, op.geometry
    inner, sizes, kernel = computing(source), op.sizes.data, op.kernel.data
    x = padded(op.x, geometry, sizes, lowest(source))
    nc, o, k = dimensions(2, len(sizes), len(kernel))
    domain = (*shape_of(op.dy), *kernel)

    def write(x: SSAValue, best: SSAValue, place: SSAValue) -> list[Operand]:
        x = entered(x, source)
        here, is_inside = place_in_window(geometry, shape_of(op.x)[2:])
        is_first = arith.CmpiOp(place, number(-1, i64), "eq")
        better = arith.OrIOp(is_first, is_better(kind_of(source), "gt", x, best))
        chosen = arith.AndIOp(is_inside, better) if is_inside else better
        return [arith.SelectOp(chosen, x, best), arith.SelectOp(chosen, here, place)]

    return tile.ReduceOp(
        [x],
        [AffineMap(len(domain), 0, (*nc, *read_at(o, k, geometry)))],
        domain,
        2 + len(sizes),
        [attribute(lowest(source), inner), attribute(-1, i64)],
        body([source, inner, i64], write),
        body([inner, i64], lambda best, place: place),
        [i64],
    ).outputs[0]


def place_in_window(geometry: Geometry, space: Shape) -> tuple[Operand, Operand | None]:
    """
    In a body over [n, c, windows..., kernel...]: the current place in the flattened `space`.

    The second value says whether that is inside (None: always).
    """
    rank = len(space)
    flat: Operand = number(0, i64)
    is_inside: Operand | None = None
    for axis, size in enumerate(space):
        window = arith.IndexCastOp(tile.IndexOp(2 + axis), i64)
        inside = arith.IndexCastOp(tile.IndexOp(2 + rank + axis), i64)
        start = arith.MuliOp(window, number(geometry.strides[axis], i64))
        step = arith.MuliOp(inside, number(geometry.dilations[axis], i64))
        at = arith.SubiOp(arith.AddiOp(start, step), number(geometry.low[axis], i64))
        # A negative number is a large one without its sign, so one comparison is enough.
        holds = arith.CmpiOp(at, number(size, i64), "ult")
        is_inside = holds if is_inside is None else arith.AndIOp(is_inside, holds)
        flat = arith.AddiOp(arith.MuliOp(flat, number(size, i64)), at)
    return flat, is_inside
