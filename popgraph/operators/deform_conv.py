"""Lowers DeformConv to lookups of rows of channels around moved places, and a matrix product."""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from itertools import product

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.operators.arithmetic import cast
from popgraph.operators.lookups import linear_taps, looked_up
from popgraph.operators.movement import reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, lowers
from popgraph.operators.windows import Windows
from popgraph.support import dtypes
from popgraph.support.dtypes import DType
from popgraph.support.shapes import Shape, prod


@lowers("DeformConv")
def deform_conv(node: Node) -> Lowered:
    """Each element of each window stands where its offset moves it, times its mask."""
    weight, groups = shape_of(node[1]), node.integer("group", 1)
    kind = dtypes.BY_NAME["f64" if node.dtype.name == "f64" else "f32"]
    moved = _MovedWindows(node, Windows.of(node, weight[2:]), node.integer("offset_group", 1), kind)
    batch, maps, count = node.shape[0], weight[0], prod(moved.sizes)
    columns = reshaped(moved.columns(), (batch, groups, prod(weight[1:]), count))
    flat = reshaped(cast(node[1], kind), (1, groups, maps // groups, prod(weight[1:])))
    result: Operand = gc.MatMulOp(flat, columns)
    result = reshaped(SSAValue.get(result), (batch, maps, *moved.sizes))
    bias = node.optional(3)
    if bias is not None:
        alone = (1, maps, *(1 for _ in moved.sizes))
        result = gc.AddOp(result, reshaped(cast(bias, kind), alone))
    return cast(result, node.dtype)


@dataclass(frozen=True)
class _MovedWindows:
    """Windows whose elements offsets move, other ones in each group of channels."""

    node: Node
    windows: Windows
    groups: int
    kind: DType

    @property
    def sizes(self) -> Shape:
        return self.windows.sizes(ceil=False)

    def columns(self) -> SSAValue:
        """What all windows see, [batch, channels, elements of a window, windows]."""
        batch, channels, *space = self.node.shape
        apart = (batch, self.groups, channels // self.groups, prod(space))
        table = gc.TransposeOp(reshaped(self.node[0], apart), perm=[0, 1, 3, 2])
        rows = cast(
            reshaped(table.result, (batch * self.groups * prod(space), apart[2])), self.kind
        )
        images = np.arange(batch * self.groups).reshape(batch, self.groups, 1, 1) * prod(space)
        start = self.node.literal(images)
        taps = [linear_taps(self.node, self.at(axis), size) for axis, size in enumerate(space)]
        terms = [looked_up(self.node, rows, start, space, some) for some in product(*taps)]
        seen = reduce(gc.AddOp, terms)
        if self.node.optional(4) is not None:
            seen = gc.MulOp(seen, self.mask())
        return gc.TransposeOp(seen, perm=[0, 1, 4, 2, 3]).result

    @property
    def grouped(self) -> Shape:
        """[batch, groups, elements of a window, windows]"""
        return (self.node.shape[0], self.groups, prod(self.windows.kernel), prod(self.sizes))

    def mask(self) -> Operand:
        return reshaped(cast(self.node[4], self.kind), (*self.grouped, 1))

    def at(self, axis: int) -> SSAValue:
        """Where all elements of all windows are along an axis."""
        batch, groups, elements, count = self.grouped
        rank = len(self.sizes)
        offsets = reshaped(self.node[2], (batch, groups, elements, rank, count))
        own = reshaped(SSAValue.get(sliced(SSAValue.get(offsets), {3: (axis, 1, 1)})), self.grouped)
        places = self.windows.along(axis, self.sizes[axis]).T
        shape = [1] * (2 * rank)
        shape[axis], shape[rank + axis] = places.shape
        whole = (*self.windows.kernel, *self.sizes)
        fixed = np.broadcast_to(places.reshape(shape), whole).reshape(elements, count)
        literal = self.node.literal(fixed.astype(self.kind.numpy))
        return gc.AddOp(cast(own, self.kind), literal).result
