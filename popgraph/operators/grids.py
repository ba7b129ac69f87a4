"""
GridSample, and AffineGrid, which creates its grids.

GridSample gathers rows of channels, and weights them by the grid's fractions. AffineGrid is
lowered by its function body, repaired for axes of size 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np
from onnx import FunctionProto, helper
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.arithmetic import cast
from popgraph.operators.complaints import at_least, differ, of_shape, shown
from popgraph.operators.lookups import Tap, looked_up
from popgraph.operators.movement import I64, reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, chooses, lowers, mends, requires
from popgraph.support import dtypes
from popgraph.support.shapes import prod

# GridSample

CUBIC_A = -0.75
OLD_WORDS = {"bilinear": "linear", "bicubic": "cubic"}
"""New names of the modes of version 16."""

chooses("GridSample", padding_mode=("zeros", "border", "reflection"))


@requires("GridSample")
def require_grid_sample(node: NodeView) -> Conflicts:
    words = (
        {"bilinear", "nearest", "bicubic"} if node.version < 20 else {"linear", "nearest", "cubic"}
    )
    if (mode := node.text("mode", "nearest")) not in words:
        yield TypeConflict(f"`mode` is {mode!r}", f"use one of {', '.join(sorted(words))}")
    yield from at_least(node, 0, 3)
    x, grid = node.shape_of(0), node.shape_of(1)
    if x is None or grid is None:
        return
    if len(x) != len(grid) or differ(x[0], grid[0]) or differ(grid[-1], len(x) - 2):
        yield TypeConflict(
            f"a grid of {shown(grid)} for a tensor of {shown(x)}",
            "the grid must be [N, sizes..., number of spatial axes], of the tensor's rank",
        )
    elif 0 in x[2:] and 0 not in grid:
        yield TypeConflict(
            f"there is nothing to sample in {shown(x)}", "spatial axes must not be empty"
        )


@lowers("GridSample")
def grid_sample(node: Node) -> Lowered:
    """Interpolates the image at each point of the grid."""
    mode = node.text("mode", "linear")
    mode = OLD_WORDS.get(mode, mode)
    if mode != "nearest" and not node.dtype.is_float:
        raise node.unsupported(f"interpolation between {node.dtype.name} elements")
    wide = {"f64"} & {node.dtype.name, dtype_of(node[1]).name}
    kind = dtypes.BY_NAME["f64" if wide else "f32"]
    batch, channels, *space = node.shape
    outside = shape_of(node[1])[1:-1]
    count = prod(outside)
    columns = _Axes(node, mode, cast(node[1], kind), count).columns(space)
    table = gc.TransposeOp(reshaped(node[0], (batch, channels, prod(space))), perm=[0, 2, 1])
    rows = reshaped(table, (batch * prod(space), channels))
    first = gc.IotaOp(shape=(batch, count), axis=0, dtype=I64)
    start = gc.MulOp(first, node.literal(np.array(prod(space), np.int64)))
    terms = [
        looked_up(node, cast(rows, kind) if mode != "nearest" else rows, start, space, taps)
        for taps in product(*columns)
    ]
    total = cast(reduce(gc.AddOp, terms), node.dtype)
    return reshaped(gc.TransposeOp(total, perm=[0, 2, 1]), (batch, channels, *outside))


@dataclass(frozen=True)
class _Axes:
    """The grid, `count` points per batch entry, converted to positions along the axes."""

    node: Node
    mode: str
    grid: SSAValue
    count: int

    def number(self, value: float) -> SSAValue:
        return self.node.scalar(value, dtype_of(self.grid))

    def columns(self, space: Sequence[int]) -> list[list[Tap]]:
        """The taps along each axis; the grid's coordinates start with the innermost axis."""
        last = len(shape_of(self.grid)) - 1
        found = []
        for axis, size in enumerate(space):
            part = sliced(self.grid, {last: (len(space) - 1 - axis, 1, 1)})
            column = gc.ReshapeOp(part, shape=(self.node.shape[0], self.count))
            found.append(self.taps(self.at(column, size), size))
        return found

    @property
    def aligned(self) -> bool:
        return bool(self.node.integer("align_corners"))

    @property
    def padding(self) -> str:
        return self.node.text("padding_mode", "zeros")

    def at(self, grid: Operand, size: int) -> Operand:
        """Positions along an axis for coordinates in [-1, 1], padded as `padding_mode` says."""
        one, two = self.number(1), self.number(2)
        shifted = gc.AddOp(grid, one)
        if self.aligned:
            place: Operand = gc.MulOp(gc.DivOp(shifted, two), self.number(size - 1))
        else:
            place = gc.DivOp(gc.SubOp(gc.MulOp(shifted, self.number(size)), one), two)
        if self.mode == "nearest":
            place = gc.RoundOp(place)
        if self.padding == "zeros":
            return place
        low, high = self.ends(size)
        outside = gc.OrOp(
            gc.CompareOp(place, self.number(low), predicate="lt"),
            gc.CompareOp(place, self.number(high), predicate="gt"),
        )
        inside = self.limited if self.padding == "border" else self.reflected
        return gc.WhereOp(outside, inside(place, size), place)

    def ends(self, size: int) -> tuple[float, float]:
        """The positions of -1 and 1: centers (`align_corners`) or edges of the outer elements."""
        return (0.0, size - 1.0) if self.aligned else (-0.5, size - 0.5)

    def limited(self, place: Operand, size: int) -> Operand:
        return gc.MinOp(gc.MaxOp(place, self.number(0)), self.number(size - 1))

    def reflected(self, place: Operand, size: int) -> Operand:
        """A triangle wave between the ends: reflects as often as needed."""
        low, high = self.ends(size)
        span = high - low
        if span == 0:
            return gc.MulOp(place, self.number(0))
        far = gc.SubOp(place, self.number(low))
        turns = gc.FloorOp(gc.DivOp(far, self.number(2 * span)))
        rest = gc.SubOp(far, gc.MulOp(turns, self.number(2 * span)))
        back = gc.AbsOp(gc.SubOp(rest, self.number(span)))
        return gc.SubOp(self.number(high), back)

    def taps(self, at: Operand, size: int) -> list[Tap]:
        if self.mode == "nearest":
            return [self.tap(at, size, None)]
        first = gc.FloorOp(at)
        part = gc.SubOp(at, first)
        rest = gc.SubOp(self.number(1), part)
        if self.mode == "linear":
            weights: list[Operand] = [rest, part]
        else:
            weights = [self.far(part), self.near(part), self.near(rest), self.far(rest)]
        begin = 1 - len(weights) // 2
        return [
            self.tap(gc.AddOp(first, self.number(begin + step)), size, weight)
            for step, weight in enumerate(weights)
        ]

    def tap(self, place: Operand, size: int, weight: Operand | None) -> Tap:
        inside: Operand | None = None
        if self.padding == "zeros":
            inside = gc.AndOp(
                gc.CompareOp(place, self.number(0), predicate="ge"),
                gc.CompareOp(place, self.number(size - 1), predicate="le"),
            )
        elif self.padding == "reflection":
            place = self.reflected(place, size)
        return Tap(cast(self.limited(place, size), dtypes.BY_NAME["i64"]), weight, inside)

    def near(self, x: Operand) -> Operand:
        """((a + 2) x - (a + 3)) x^2 + 1"""
        inner = gc.SubOp(gc.MulOp(x, self.number(CUBIC_A + 2)), self.number(CUBIC_A + 3))
        return gc.AddOp(gc.MulOp(gc.MulOp(inner, x), x), self.number(1))

    def far(self, x: Operand) -> Operand:
        """a z^3 - 5 a z^2 + 8 a z - 4 a, of z = x + 1: a x (x - 1)^2"""
        less = gc.SubOp(x, self.number(1))
        return gc.MulOp(gc.MulOp(x, self.number(CUBIC_A)), gc.MulOp(less, less))


# AffineGrid


@requires("AffineGrid")
def require_affine_grid(node: NodeView) -> Conflicts:
    size = node.integers_of(1)
    if size is None:
        return
    if len(size) not in (4, 5) or min(size) < 1:
        yield TypeConflict(f"`size` is {size}", "it must be [N, C, H, W] or [N, C, D, H, W]")
    spatial = len(size) - 2
    yield from of_shape(node, 0, size[0], spatial, spatial + 1)


@mends("AffineGrid")
def allow_size_one(proto: FunctionProto, op: SchemaOp) -> None:
    """
    Repairs the body of AffineGrid for spatial sizes of 1.

    Squeeze(r)  ->  Squeeze(r, [1]): drops the axis that was split, not every axis of size 1.
    2 / (size - 1)  ->  2 / max(size - 1, 1), so the only coordinate is -1 (the start). The body
    guards the depth this way; onnx.reference has -1 for every axis, onnxruntime has 1.
    """
    for graph in (attribute.g for node in proto.node for attribute in node.attribute):
        for at, inner in reversed(list(enumerate(graph.node))):
            if inner.op_type == "Squeeze" and len(inner.input) == 1:
                inner.input.append("one_1d")
            elif inner.op_type == "Sub":
                intervals, size = inner.output[0], inner.input[0]
                inner.output[0] = f"popgraph_{size}_less_one"
                bounded = helper.make_node("Max", [inner.output[0], "one_f"], [intervals])
                graph.node.insert(at + 1, bounded)
