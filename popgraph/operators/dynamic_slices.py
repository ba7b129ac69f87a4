"""Lowers PopART's Init, and its slices that begin where the data say."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.operators.arithmetic import whole_numbers
from popgraph.operators.lookups import never_negative, whole
from popgraph.operators.movement import I64, reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import GRAPHCORE, Lowered, lowers, without_gradient
from popgraph.support import dtypes, shapes
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, prod


@lowers("Init", domain=GRAPHCORE)
def init(node: Node) -> Lowered:
    """Zeros, also where PopART leaves memory as it is."""
    number = node.integer("data_type")
    known = 0 <= number < len(dtypes.POPART_ORDER)
    element = dtypes.BY_POPART.get(dtypes.POPART_ORDER[number]) if known else None
    if element is None:
        raise TypeMismatchError(f"there is no data type {number}")
    zero = node.literal(np.zeros((), element.numpy))
    return gc.BroadcastOp(zero, shape=node.integers("shape"))


@dataclass(frozen=True)
class Part:
    """A box in a tensor: its size along some axes, and where it begins along each of them."""

    axes: Shape
    sizes: Shape
    starts: Sequence[SSAValue]

    @classmethod
    def of(cls, node: Node) -> Part:
        axes, sizes = node.axes(node.integers("axes")), node.integers("sizes")
        offsets = shape_of(node[1])
        if len(axes) != len(sizes) or prod(offsets) != len(axes):
            raise TypeMismatchError(
                f"axes {list(axes)}, sizes {list(sizes)} and offsets of shape "
                f"{shapes.text(offsets)} do not belong together",
                hint="each has one number for every axis",
            )
        for axis, size in zip(axes, sizes, strict=True):
            if not 0 <= size <= node.shape[axis]:
                raise TypeMismatchError(f"no {size} elements along axis {axis} of {node.shape}")
        flat = SSAValue.get(reshaped(whole_numbers(node, 1), (len(axes),)))
        starts = [_scalar(flat, place) for place in range(len(axes))]
        return cls(axes, sizes, starts)

    def shape(self, whole_shape: Shape) -> Shape:
        sizes = dict(zip(self.axes, self.sizes, strict=True))
        return tuple(sizes.get(axis, size) for axis, size in enumerate(whole_shape))

    def places(self, node: Node) -> list[SSAValue]:
        """Along each axis; behind the end of it comes its beginning."""
        return [
            self._along(node, start, size, node.shape[axis])
            for axis, size, start in zip(self.axes, self.sizes, self.starts, strict=True)
        ]

    @staticmethod
    def _along(node: Node, start: SSAValue, count: int, size: int) -> SSAValue:
        length = whole(node, max(1, size))
        first = gc.RemOp(start, length)
        counted = gc.IotaOp(shape=(count,), axis=0, dtype=I64)
        return never_negative(gc.RemOp(gc.AddOp(first, counted), length))


def _scalar(values: SSAValue, place: int) -> SSAValue:
    return SSAValue.get(reshaped(SSAValue.get(sliced(values, {0: (place, 1, 1)})), ()))


def _taken(data: Operand, axes: Sequence[int], places: Sequence[SSAValue]) -> Operand:
    for axis, along in zip(axes, places, strict=True):
        data = gc.GatherOp(data, along, axis=axis)
    return data


def _put(
    data: Operand,
    update: Operand,
    axes: Sequence[int],
    places: Sequence[SSAValue],
    reduction: str,
) -> Operand:
    """The data with a box in it replaced, or added to: axis by axis, what is around it stays."""
    if len(axes) == 1:
        return gc.ScatterOp(data, update, places[0], axis=axes[0], reduction=reduction)
    slab = gc.GatherOp(data, places[0], axis=axes[0])
    inner = _put(slab, update, axes[1:], places[1:], reduction)
    return gc.ScatterOp(data, inner, places[0], axis=axes[0], reduction="none")


@lowers("DynamicSlice", domain=GRAPHCORE)
def dynamic_slice(node: Node) -> Lowered:
    """The third input, if any, says the shape: it may leave axes out."""
    part = Part.of(node)
    result = SSAValue.get(_taken(node[0], part.axes, part.places(node)))
    wanted = node.optional(2)
    return result if wanted is None else _fitting(result, shape_of(wanted))


def _fitting(value: SSAValue, shape: Shape) -> Operand:
    if prod(shape) != prod(shape_of(value)):
        raise TypeMismatchError(
            f"a slice of shape {shapes.text(shape)}, where the part has the shape "
            f"{shapes.text(shape_of(value))}"
        )
    return reshaped(value, shape)


def _updating(
    reduction: str, update_of: Callable[[Node, Shape], Operand]
) -> Callable[[Node], Lowered]:
    """A lowering: the first input, of which a part is another."""

    def lower(node: Node) -> Lowered:
        part = Part.of(node)
        update = update_of(node, part.shape(node.shape))
        if not part.axes:
            return gc.AddOp(node[0], update) if reduction == "add" else update
        return _put(node[0], update, part.axes, part.places(node), reduction)

    return lower


def _third(node: Node, shape: Shape) -> Operand:
    return _fitting(node[2], shape)


def _zeros(node: Node, shape: Shape) -> Operand:
    return gc.BroadcastOp(node.scalar(0), shape=shape)


lowers("DynamicUpdate", domain=GRAPHCORE)(_updating("none", _third))
lowers("DynamicAdd", domain=GRAPHCORE)(_updating("add", _third))
lowers("DynamicZero", domain=GRAPHCORE)(_updating("none", _zeros))


@lowers("SequenceSlice", domain=GRAPHCORE)
def sequence_slice(node: Node) -> Lowered:
    """
    Rows of the source in place of some of the destination, of which the last ones count.

    Inputs are source, destination, numbers of rows, and where they begin in each of them.
    """
    whole_shape, count = shape_of(node[1]), prod(shape_of(node[2]))
    alike = whole_shape[1:] == node.shape[1:] and min(len(whole_shape), node.rank) > 0
    if not alike or any(prod(shape_of(node[at])) != count for at in (3, 4)):
        raise TypeMismatchError("SequenceSlice takes rows alike, and numbers for each sequence")
    rest_of = node.scalar(0) if node.integer("zeroUnused") else node[1]
    return rows_put(
        node, node[0], rest_of, whole_shape[0], [whole_numbers(node, at) for at in (2, 3, 4)]
    )


def rows_put(
    node: Node, source: SSAValue, rest_of: Operand, rows: int, sequences: Sequence[SSAValue]
) -> Operand:
    """
    So many rows: those of the source that sequences bring, and between them those of the rest.

    Of sequences it is said how many rows they have, and where they begin in source and result.
    """
    count, rest = prod(shape_of(sequences[0])), shape_of(source)[1:]
    lengths, sources, places = (gc.ReshapeOp(one, shape=(count, 1)) for one in sequences)
    own = gc.IotaOp(shape=(count, rows), axis=1, dtype=I64)
    begun = gc.CompareOp(own, places, predicate="ge")
    inside = gc.AndOp(begun, gc.CompareOp(own, gc.AddOp(places, lengths), predicate="lt"))
    numbers = gc.IotaOp(shape=(count, rows), axis=0, dtype=I64)
    chosen = gc.ReduceMaxOp(gc.WhereOp(inside, numbers, whole(node, -1)), axes=(0,), keepdims=False)
    used = gc.CompareOp(chosen, whole(node, 0), predicate="ge")
    offsets = reshaped(gc.SubOp(sources, places).result, (count,))
    moved = gc.GatherOp(offsets, never_negative(gc.MaxOp(chosen, whole(node, 0))), axis=0)
    from_row = gc.AddOp(gc.IotaOp(shape=(rows,), axis=0, dtype=I64), moved)
    safe = gc.WhereOp(used, from_row, whole(node, 0))
    taken = gc.GatherOp(source, never_negative(safe), axis=0)
    return gc.WhereOp(reshaped(used.result, (rows, *(1 for _ in rest))), taken, rest_of)


without_gradient("Init", "it has no input", domain=GRAPHCORE)
