"""PopART's slices at data-dependent offsets: DynamicSlice, SequenceSlice, PackedDataBlock."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import Operand, dtype_of, shape_of
from popgraph.operators.arithmetic import as_i64
from popgraph.operators.bodies import check_outputs, given_tensor
from popgraph.operators.lookups import i64_scalar, never_negative
from popgraph.operators.movement import I64, reshaped, sliced
from popgraph.operators.node import Node
from popgraph.operators.record import GRAPHCORE, Lowered, lowers, without_gradient
from popgraph.operators.repetition import Iteration, LoopControl, Repetition
from popgraph.support import dtypes, shapes
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape, prod


@lowers("Init", domain=GRAPHCORE)
def init(node: Node) -> Lowered:
    """Zeros, where PopART leaves the memory unset."""
    number = node.integer("data_type")
    known = 0 <= number < len(dtypes.POPART_ORDER)
    element = dtypes.BY_POPART.get(dtypes.POPART_ORDER[number]) if known else None
    if element is None:
        raise TypeMismatchError(f"unknown data type {number}")
    zero = node.literal(np.zeros((), element.numpy))
    return gc.BroadcastOp(zero, shape=node.integers("shape"))


without_gradient("Init", "it has no input", domain=GRAPHCORE)


# Slices and updates at data-dependent offsets


@dataclass(frozen=True)
class Part:
    """A box in a tensor: its axes, and its size and start along each."""

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
                f"{shapes.text(offsets)} differ in length",
                hint="give one size and one offset per axis",
            )
        for axis, size in zip(axes, sizes, strict=True):
            if not 0 <= size <= node.shape[axis]:
                raise TypeMismatchError(
                    f"size {size} is out of range for axis {axis} of {shapes.text(node.shape)}"
                )
        flat = reshaped(as_i64(node, 1), (len(axes),))
        starts = [reshaped(sliced(flat, {0: (at, 1, 1)}), ()) for at in range(len(axes))]
        return cls(axes, sizes, starts)

    def shape(self, whole_shape: Shape) -> Shape:
        sizes = dict(zip(self.axes, self.sizes, strict=True))
        return tuple(sizes.get(axis, size) for axis, size in enumerate(whole_shape))

    def places(self, node: Node) -> list[SSAValue]:
        """The indices along each axis; they wrap around at its end."""
        found = []
        for axis, count, start in zip(self.axes, self.sizes, self.starts, strict=True):
            length = i64_scalar(node, max(1, node.shape[axis]))
            first = gc.RemOp(start, length)
            counted = gc.IotaOp(shape=(count,), axis=0, dtype=I64)
            found.append(never_negative(gc.RemOp(gc.AddOp(first, counted), length)))
        return found


@lowers("DynamicSlice", domain=GRAPHCORE)
def dynamic_slice(node: Node) -> Lowered:
    """A box of the first input; the third input, if any, gives the shape of the result."""
    part = Part.of(node)
    result = node[0]
    for axis, along in zip(part.axes, part.places(node), strict=True):
        result = gc.GatherOp(result, along, axis=axis).result
    wanted = node.optional(2)
    return result if wanted is None else _fitting(result, shape_of(wanted))


def _fitting(value: SSAValue, shape: Shape) -> SSAValue:
    if prod(shape) != prod(shape_of(value)):
        raise TypeMismatchError(
            f"a slice of shape {shapes.text(shape_of(value))} cannot take the shape "
            f"{shapes.text(shape)}"
        )
    return reshaped(value, shape)


@lowers("DynamicUpdate", "DynamicAdd", "DynamicZero", domain=GRAPHCORE)
def dynamic_update(node: Node) -> Lowered:
    """The first input with a box replaced by the third input or by zeros, or added to."""
    part, name = Part.of(node), node.op.op_type
    shape = part.shape(node.shape)
    update: Operand
    if name == "DynamicZero":
        update = gc.BroadcastOp(node.scalar(0), shape=shape)
    else:
        update = _fitting(node[2], shape)
    if not part.axes:
        return gc.AddOp(node[0], update) if name == "DynamicAdd" else update
    reduction = "add" if name == "DynamicAdd" else "none"
    return _put(node[0], update, part.axes, part.places(node), reduction)


def _put(
    data: Operand,
    update: Operand,
    axes: Sequence[int],
    places: Sequence[SSAValue],
    reduction: str,
) -> Operand:
    """Scatters a box into data, recursively: an outer axis scatters the updated inner slab."""
    if len(axes) == 1:
        return gc.ScatterOp(data, update, places[0], axis=axes[0], reduction=reduction)
    slab = gc.GatherOp(data, places[0], axis=axes[0])
    inner = _put(slab, update, axes[1:], places[1:], reduction)
    return gc.ScatterOp(data, inner, places[0], axis=axes[0], reduction="none")


# Sequences of rows


@lowers("SequenceSlice", domain=GRAPHCORE)
def sequence_slice(node: Node) -> Lowered:
    """
    Copies sequences of rows from the source into the destination; the last one wins overlaps.

    Inputs: source, destination, lengths of the sequences, their starts in source and destination.
    """
    whole_shape, count = shape_of(node[1]), prod(shape_of(node[2]))
    alike = whole_shape[1:] == node.shape[1:] and min(len(whole_shape), node.rank) > 0
    if not alike or any(prod(shape_of(node[at])) != count for at in (3, 4)):
        raise TypeMismatchError(
            "source and destination of SequenceSlice differ in the shape of a row, or the "
            "numbers of lengths and starts differ"
        )
    rest_of = node.scalar(0) if node.integer("zeroUnused") else node[1]
    sequences = [as_i64(node, at) for at in (2, 3, 4)]
    return _rows_put(node, node[0], rest_of, whole_shape[0], sequences)


def _rows_put(
    node: Node, source: SSAValue, rest_of: Operand, rows: int, sequences: Sequence[SSAValue]
) -> Operand:
    """
    `rows` rows: the sequences copied from the source, and `rest_of` between them.

    `sequences` are lengths, starts in the source and starts in the result. For each row, the
    last sequence that covers it is found by a maximum: O(sequences * rows).
    """
    count, rest = prod(shape_of(sequences[0])), shape_of(source)[1:]
    lengths, sources, places = (gc.ReshapeOp(one, shape=(count, 1)) for one in sequences)
    own = gc.IotaOp(shape=(count, rows), axis=1, dtype=I64)
    begun = gc.CompareOp(own, places, predicate="ge")
    inside = gc.AndOp(begun, gc.CompareOp(own, gc.AddOp(places, lengths), predicate="lt"))
    numbers = gc.IotaOp(shape=(count, rows), axis=0, dtype=I64)
    chosen = gc.ReduceMaxOp(
        gc.WhereOp(inside, numbers, i64_scalar(node, -1)), axes=(0,), keepdims=False
    )
    used = gc.CompareOp(chosen, i64_scalar(node, 0), predicate="ge")
    offsets = reshaped(gc.SubOp(sources, places), (count,))
    moved = gc.GatherOp(offsets, never_negative(gc.MaxOp(chosen, i64_scalar(node, 0))), axis=0)
    from_row = gc.AddOp(gc.IotaOp(shape=(rows,), axis=0, dtype=I64), moved)
    safe = gc.WhereOp(used, from_row, i64_scalar(node, 0))
    taken = gc.GatherOp(source, never_negative(safe), axis=0)
    return gc.WhereOp(reshaped(used, (rows, *[1] * len(rest))), taken, rest_of)


@lowers("PackedDataBlock", domain=GRAPHCORE)
def packed_data_block(node: Node) -> Lowered:
    """
    Runs the graph on batches of sequences, in a loop; each sequence is padded to the longest.

    Inputs: (packed data, starts, lengths) for each input of the graph, then starts and lengths of
    the results. Rows that no result covers are 0.
    """
    graph, batch = node.graph("callback"), node.integer("callbackBatchSize")
    longest = node.integers("maxSequenceLengths")
    check_outputs(node, graph, len(graph.yielded))
    _check(node, len(graph.block.args), longest, batch)
    trips = prod(shape_of(node[1])) // batch
    padded = (_padded(node, 3 * at, most, trips * batch) for at, most in enumerate(longest))
    rows = [reshaped(one, (trips, batch, *shape_of(one)[1:])) for one in padded]

    def body(number: SSAValue, carried: Sequence[SSAValue], rows: Sequence[SSAValue]) -> Iteration:
        made = node.lowering.place(graph, rows)
        return Iteration(None, [], [given_tensor(node, graph, made, 0)])

    name = node.op.output_names[0]
    _, (made,) = Repetition(node, body, [], rows, [], [name]).results(LoopControl(trips))
    return _packed(node, made, trips * batch)


def _check(node: Node, arguments: int, longest: Sequence[int], batch: int) -> None:
    counts = {prod(shape_of(node[at])) for at in range(len(node)) if at % 3 or at >= len(node) - 2}
    if len(node) != 3 * len(longest) + 2 or arguments != len(longest) or len(counts) != 1:
        raise TypeMismatchError(
            f"PackedDataBlock has {len(node)} inputs and {len(longest)} maximal lengths, for a "
            f"graph of {arguments} inputs",
            hint="give data, offsets and lengths for each input of the graph, then the offsets "
            "and lengths of the results, one for each sequence",
        )
    if batch < 1 or counts.pop() < batch:
        raise TypeMismatchError(
            f"callbackBatchSize is {batch}, which is not from 1 to the number of sequences",
            hint="use a smaller batch, of at least 1",
        )


def _padded(node: Node, at: int, most: int, count: int) -> SSAValue:
    """The first `count` sequences of an input, padded with zeros to `most` rows."""
    data = node[at]
    begins, lengths = (_column(node, index, count) for index in (at + 1, at + 2))
    own = gc.IotaOp(shape=(count, most), axis=1, dtype=I64)
    inside = gc.CompareOp(own, lengths, predicate="lt")
    safe = gc.WhereOp(inside, gc.AddOp(own, begins), i64_scalar(node, 0))
    taken = gc.GatherOp(data, never_negative(safe), axis=0)
    condition = reshaped(inside, (count, most, *[1] * len(shape_of(data)[1:])))
    return gc.WhereOp(condition, taken, node.scalar(0, dtype_of(data))).result


def _column(node: Node, index: int, count: int) -> SSAValue:
    """The first `count` elements of an input, as a column."""
    numbers = reshaped(as_i64(node, index), (prod(shape_of(node[index])),))
    return reshaped(sliced(numbers, {0: (0, count, 1)}), (count, 1))


def _packed(node: Node, made: SSAValue, count: int) -> Operand:
    """The results of all sequences, packed: each without its padding, at its start."""
    most, *rest = shape_of(made)[2:]
    places, lengths = (_column(node, len(node) - at, count) for at in (2, 1))
    lengths = gc.MinOp(lengths, i64_scalar(node, most)).result
    begins = gc.MulOp(gc.IotaOp(shape=(count, 1), axis=0, dtype=I64), i64_scalar(node, most)).result
    source, zero = reshaped(made, (count * most, *rest)), node.scalar(0, dtype_of(made))
    return _rows_put(node, source, zero, node.integer("resultSize"), [lengths, begins, places])
