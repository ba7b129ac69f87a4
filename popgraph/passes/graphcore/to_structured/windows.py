"""Lowers pooling and its gradients to reductions over windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import i8, i32
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import InsertPoint

from popgraph.dialects import element_types, tile
from popgraph.dialects.graphcore import (
    AveragePoolGradOp,
    AveragePoolOp,
    MaxPoolGradOp,
    MaxPoolOp,
)
from popgraph.dialects.graphcore.base import flag, shape_of, tensor_of
from popgraph.dialects.graphcore.geometry import Geometry
from popgraph.dialects.program import ConstantOp, DataAttr
from popgraph.dialects.tile.affine import selection
from popgraph.dialects.tile.structured.ops import element
from popgraph.passes.analysis.replace import made_for
from popgraph.passes.graphcore.to_structured.elements import (
    Operand,
    attribute,
    body,
    computing_type,
    kind_of,
    lowest,
    number,
    to_computing,
    to_element,
)
from popgraph.passes.graphcore.to_structured.elementwise import mapped
from popgraph.passes.graphcore.to_structured.lower_reductions import is_better, reduce
from popgraph.passes.graphcore.to_structured.scalars import TABLES
from popgraph.passes.graphcore.to_structured.sliding import (
    Cover,
    around,
    collect_at,
    covering,
    dimensions,
    padded,
    read_at,
    spread,
)
from popgraph.support.shapes import Shape, prod

MOST_PLACES = 128
"""
Maximum number of window positions that an i8 can index.

A byte per window made steps of ResNet-18 and LeNet take 0.95 and 0.90 of the time.
"""


def lower_max_pool(op: MaxPoolOp) -> SSAValue:
    """max_pool(x)  ->  tile.reduce max, padded x[n, c, s*o + d*k] over k"""
    sizes, kernel = op.sizes.data, op.kernel.data
    x = padded(op.x, op.geometry, sizes, lowest(element(op.x)))
    nc, o, k = dimensions(2, len(sizes), len(kernel))
    domain = (*shape_of(op.result), *kernel)
    map_ = AffineMap(len(domain), 0, (*nc, *read_at(o, k, op.geometry)))
    return reduce(x, map_, domain, 2 + len(sizes), "max")


class WindowWeights:
    """
    The weight of each window: 1 / number of elements that it counts.

    The number is a product over the axes, so one vector per axis is enough. Axes along which it is
    constant are merged into the factor `common`.
    """

    def __init__(self, op: AveragePoolOp | AveragePoolGradOp, space: Shape) -> None:
        self.inner = computing_type(tensor_of(op.result).element_type)
        self.common = 1.0
        self.vectors: list[SSAValue] = []
        self.axes: list[int] = []
        for axis, counts in enumerate(self._counts(op, space)):
            if np.all(counts == counts[0]):
                self.common /= int(counts[0])
            else:
                dtype = element_types.from_ir(self.inner).numpy
                shares = (1 / counts.astype(np.float64)).astype(dtype)
                self.vectors.append(ConstantOp(DataAttr.of(shares)).result)
                self.axes.append(axis)

    @staticmethod
    def _counts(
        op: AveragePoolOp | AveragePoolGradOp, space: Shape
    ) -> list[np.ndarray[tuple[int, ...], np.dtype[np.int64]]]:
        """The number of elements that each window counts, for each axis."""
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
        """The index map of each vector, in a domain [batch, channel, spatial axes, ...]."""
        return [selection([2 + axis], rank) for axis in self.axes]

    def product(self, value: Operand, *factors: Operand) -> Operand:
        """`value` times the factors read from the vectors."""
        for factor in factors:
            value = arith.MulfOp(value, factor)
        return value

    def scaled(self, value: Operand) -> Operand:
        """`value` times the factor that all windows share."""
        return value if self.common == 1 else arith.MulfOp(value, number(self.common, self.inner))


def lower_average_pool(op: AveragePoolOp) -> SSAValue:
    """average_pool(x)  ->  tile.reduce sum, padded x[n, c, s*o + d*k] over k, times the shares"""
    sizes, kernel = op.sizes.data, op.kernel.data
    shares = WindowWeights(op, shape_of(op.x)[2:])
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
    average_pool_grad(dy)  ->  tile.reduce sum, spread (dy * shares)[n, c, i + d*k] over k.

    Each element gathers from the windows that cover it, so no scatter is needed.
    """
    shape, source = op.shape.data, tensor_of(op.dy).element_type
    shares, dy = WindowWeights(op, shape[2:]), op.dy
    if shares.vectors:
        windows = shape_of(dy)
        maps = [AffineMap.identity(len(windows)), *shares.maps(len(windows))]
        dy = mapped(
            [dy, *shares.vectors],
            maps,
            windows,
            shares.inner,
            lambda value, *factors: shares.product(to_computing(value, source), *factors),
        )
    dilated, shifts = spread(dy, op.geometry, shape[2:])
    nc, i, k = dimensions(2, len(shape) - 2, len(op.kernel))
    domain = (*shape, *op.kernel)
    map_ = AffineMap(len(domain), 0, (*nc, *collect_at(i, k, op.geometry, shifts)))
    return reduce(dilated, map_, domain, len(shape), "add", shares.scaled, result=source)


def lower_max_pool_grad(op: MaxPoolGradOp) -> SSAValue:
    """
    max_pool_grad(x, dy)  ->  tile.reduce sum, dy[o] if window o chose this element, over o.

    A window's choice is stored as a position in the window, usually one byte. It is computed
    directly after x, so that x need not be kept for the gradient. Each element checks the windows
    that cover it.
    """
    shape, rank = shape_of(op.x), len(op.kernel)
    source = tensor_of(op.dy).element_type
    inner, add = computing_type(source), TABLES[kind_of(source)]["add"]
    covers = covering(op.geometry, shape[2:], shape_of(op.dy)[2:])
    nc, i, t = dimensions(2, rank, rank)
    places = [cover.window(at, number) for cover, at, number in zip(covers, i, t, strict=True)]
    domain = (*shape, *(cover.count for cover in covers))
    map_ = AffineMap(len(domain), 0, (*nc, *places))
    choice = after_input(op, lambda: first_maximum(op, covers))
    stored = element(choice)

    def write(chosen: SSAValue, dy: SSAValue, total: SSAValue) -> Operand:
        places = [meeting(cover, axis, rank) for axis, cover in enumerate(covers)]
        place = chosen if stored == i32 else arith.ExtSIOp(chosen, i32)
        is_here: Operand = arith.CmpiOp(place, combined(covers, places), "eq")
        for cover, distance in zip(covers, places, strict=True):
            if cover.reaches_back:
                has_begun = arith.CmpiOp(distance, number(0, i32), "sge")
                is_here = arith.AndIOp(has_begun, is_here)
        found = arith.SelectOp(is_here, to_computing(dy, source), number(0, inner))
        return add(total, found)

    return tile.ReduceOp(
        [around(choice, covers), around(op.dy, covers)],
        [map_, map_],
        domain,
        len(shape),
        [attribute(0, inner)],
        body([stored, source, inner], write),
        body([inner], lambda total: to_element(total, source)),
        [source],
    ).outputs[0]


def after_input(op: MaxPoolGradOp, write: Callable[[], SSAValue]) -> SSAValue:
    """The result of `write`, built directly after the operation that computes x."""
    maker = op.x.owner
    if not isinstance(maker, Operation):
        return write()
    with made_for(op, InsertPoint.after(maker)):
        return write()


def meeting(cover: Cover, axis: int, rank: int) -> Operand:
    """An element's distance from a window's start, in a body over [n, c, elements, windows]."""
    window = arith.IndexCastOp(tile.IndexOp(2 + rank + axis), i32)
    steps = arith.MuliOp(window, number(cover.stride, i32))
    if cover.stride == 1 and not cover.every:
        return steps
    at = arith.IndexCastOp(tile.IndexOp(2 + axis), i32)
    place = arith.AddiOp(at, number(cover.low, i32))
    if cover.every:
        return arith.SubiOp(place, steps)
    return arith.AddiOp(steps, arith.RemUIOp(place, number(cover.stride, i32)))


def combined(covers: Sequence[Cover], distances: Sequence[Operand]) -> Operand:
    """Distances along all axes as one number, unique for each window position."""
    total, *others = distances
    for cover, distance in zip(covers[1:], others, strict=True):
        total = arith.AddiOp(arith.MuliOp(total, number(cover.span, i32)), distance)
    return total


def first_maximum(op: MaxPoolGradOp, covers: Sequence[Cover]) -> SSAValue:
    """The position of the first maximum in every window; -1 if a window has no element."""
    source, geometry = tensor_of(op.x).element_type, op.geometry
    inner, sizes, kernel = computing_type(source), op.sizes.data, op.kernel.data
    space = shape_of(op.x)[2:]
    stored = i8 if prod(cover.span for cover in covers) <= MOST_PLACES else i32
    nc, o, k = dimensions(2, len(sizes), len(kernel))
    domain = (*shape_of(op.dy), *kernel)

    def write(x: SSAValue, best: SSAValue, place: SSAValue) -> list[Operand]:
        x = to_computing(x, source)
        here = combined(covers, [distance(geometry, axis) for axis in range(len(kernel))])
        is_first = arith.CmpiOp(place, number(-1, i32), "eq")
        chosen: Operand = arith.OrIOp(is_first, is_better(kind_of(source), "gt", x, best))
        for axis, size in enumerate(space):
            if geometry.low[axis] or geometry.reach(sizes)[axis] > size:
                chosen = arith.AndIOp(is_inside(geometry, axis, size), chosen)
        return [arith.SelectOp(chosen, x, best), arith.SelectOp(chosen, here, place)]

    return tile.ReduceOp(
        [padded(op.x, geometry, sizes)],
        [AffineMap(len(domain), 0, (*nc, *read_at(o, k, geometry)))],
        domain,
        2 + len(sizes),
        [attribute(lowest(source), inner), attribute(-1, i32)],
        body([source, inner, i32], write),
        body(
            [inner, i32],
            lambda best, place: place if stored == i32 else arith.TruncIOp(place, stored),
        ),
        [stored],
    ).outputs[0]


def distance(geometry: Geometry, axis: int) -> Operand:
    """The distance from the window's start, in a body over [n, c, windows, kernel]."""
    inside = arith.IndexCastOp(tile.IndexOp(2 + len(geometry.kernel) + axis), i32)
    return arith.MuliOp(inside, number(geometry.dilations[axis], i32))


def is_inside(geometry: Geometry, axis: int, size: int) -> Operand:
    """Whether that position is an element, not padding, in the same body."""
    window = arith.IndexCastOp(tile.IndexOp(2 + axis), i32)
    start = arith.MuliOp(window, number(geometry.strides[axis], i32))
    at = arith.AddiOp(start, distance(geometry, axis))
    # As unsigned, a negative number is larger than any size, so one comparison is enough.
    from_start = arith.SubiOp(at, number(geometry.low[axis], i32))
    return arith.CmpiOp(from_start, number(size, i32), "ult")
