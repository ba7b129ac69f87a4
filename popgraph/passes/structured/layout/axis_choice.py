"""The choice of an order for axes: what contractions are best at, and what goes with it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.program import ConstantOp, VariableOp
from popgraph.dialects.tile.affine import offset
from popgraph.dialects.tile.structured.fused import readings
from popgraph.passes.structured.analysis.axis_orders import AxisOrder, seen_through
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.operand_maps import is_movement
from popgraph.support.shapes import prod
from popgraph.support.tuning import Tuning

Computed = tile.MapOp | tile.ReduceOp
"""What writes its results in any order of their axes."""


def chosen(
    block: Block, tuning: Tuning, apart: Collection[Operation] = ()
) -> dict[SSAValue, AxisOrder]:
    """
    The order of the axes of every value that does not keep its own.

    Those `apart` take what they read in its own.
    """
    orders: dict[SSAValue, AxisOrder] = {}
    for op in block.ops:
        if tile.is_contraction(op):
            for value, order in wishes(op, tuning):
                if _is_free(value):
                    _spread(value, order, orders, apart)
    return {value: order for value, order in orders.items() if order != tuple(range(len(order)))}


def wishes(op: tile.ReduceOp, tuning: Tuning) -> Iterator[tuple[SSAValue, AxisOrder]]:
    """
    What a contraction of an activation with weights is best at.

    The loops that weights take part in innermost, in the result as in the activation; none where
    pixels fill vectors and channels do not.
    """
    number = activation_of(op)
    if number is None or runs_along_pixels(op, tuning):
        return
    used = op.input_maps[1 - number].used_dims()
    activation, map_ = op.operands[number], op.input_maps[number]
    results = [{dim} for dim in range(op.parallel_rank)]
    for value, dims in (
        (activation, [result.used_dims() for result in map_.results]),
        (op.outputs[0], results),
    ):
        channels = [axis for axis, own in enumerate(dims) if own and own <= used]
        shape = tensor(value).get_shape()
        if prod(shape[axis] for axis in channels) >= tuning.least_channels:
            others = [axis for axis in range(len(shape)) if axis not in channels]
            yield value, (*others, *channels)


def activation_of(op: tile.ReduceOp) -> int | None:
    """Which factor meets weights; None where both do, or none."""
    weights = [is_weight(value) for value in (op.lhs, op.rhs)]
    return None if sum(weights) != 1 else weights.index(False)


def runs_along_pixels(op: tile.ReduceOp, tuning: Tuning) -> bool:
    """Whether results have few channels, and many pixels that stand side by side as they come."""
    number, last = activation_of(op), op.parallel_rank - 1
    if number is None or op.words is not None or not tuning.fills_vectors(op.sizes[last]):
        return False
    used = op.input_maps[1 - number].used_dims()
    channels = prod(op.sizes[dim] for dim in used if dim <= last)
    if last in used or channels >= tuning.least_channels:
        return False
    return offset(tensor(op.operands[number]), op.input_maps[number], op.sizes).stride(last) == 1


def along_pixels(block: Block, tuning: Tuning) -> frozenset[Operation]:
    """
    Contractions that run along pixels, whichever order their activations come in.

    They have enough products to make up for a copy with the pixels side by side.
    """
    readers = dict[SSAValue, list[tile.ReduceOp]]()
    for op in block.ops:
        if tile.is_contraction(op) and runs_along_pixels(op, tuning):
            readers.setdefault(op.operands[activation_of(op) or 0], []).append(op)
    return frozenset(
        op
        for value, ops in readers.items()
        if sum(prod(op.sizes) for op in ops)
        >= tuning.least_pixel_products * prod(tensor(value).get_shape())
        for op in ops
    )


def is_weight(value: SSAValue) -> bool:
    """
    Whether a value is a literal or a variable, perhaps under another shape or reordered.

    Or it is computed of literals alone, as words are of small integers.
    """
    owner = value.owner
    if isinstance(owner, ConstantOp | VariableOp):
        return True
    if isinstance(owner, tile.MapOp):
        moved = is_movement(owner) and is_weight(owner.inputs[0])
        return moved or _is_known(value)
    return isinstance(owner, tile.ViewOp) and is_weight(owner.source)


def _is_known(value: SSAValue) -> bool:
    """Whether a value is a literal, or computed of nothing else, element by element."""
    owner = value.owner
    if isinstance(owner, tile.ViewOp):
        return _is_known(owner.source)
    if isinstance(owner, tile.MapOp):
        return bool(owner.operands) and all(map(_is_known, owner.operands))
    return isinstance(owner, ConstantOp)


def _is_free(value: SSAValue) -> bool:
    """Whether the axes of a value can have any order."""
    return isinstance(value.owner, Computed | tile.AssembleOp | tile.ViewOp)


def _spread(
    value: SSAValue,
    order: AxisOrder,
    orders: dict[SSAValue, AxisOrder],
    apart: Collection[Operation],
) -> None:
    """Gives an order to a value, and to everything that is read or written beside it."""
    waiting = [(value, order)]
    while waiting:
        value, order = waiting.pop()
        if value in orders or not _is_free(value):
            continue
        orders[value] = order
        waiting += _beside(value, order, apart)


def _beside(
    value: SSAValue, order: AxisOrder, apart: Collection[Operation]
) -> Iterator[tuple[SSAValue, AxisOrder]]:
    """Values that go with one, each with its order."""
    assert isinstance(value.owner, Operation)
    for op in [value.owner, *(use.operation for use in value.uses)]:
        if isinstance(op, tile.ViewOp):
            here, there = (op.source, op.output)
            if value is op.output:
                here, there = there, here
            shape, other = tensor(here).get_shape(), tensor(there).get_shape()
            seen = seen_through(shape, order, other)
            if seen is not None:
                yield there, seen
        elif isinstance(op, Computed | tile.AssembleOp) and _keeps_step(op, value, order, apart):
            for other_value in _parallel(op):
                if other_value is not value and rank(other_value) == len(order):
                    yield other_value, order


def _keeps_step(
    op: Computed | tile.AssembleOp,
    value: SSAValue,
    order: AxisOrder,
    apart: Collection[Operation],
) -> bool:
    """
    Whether an operation walks through the axes of a value as through those of its results.

    Of a factor of a contraction, the innermost axis must be one of the results, too. Beside
    weights, where it is summed, the results have other channels in its place; beside another
    activation, as where scores of attention are made, they have nothing of the kind.
    """
    if value in _parallel(op):
        return True
    if not tile.is_contraction(op) or op in apart:
        return False
    factors = op.lhs, op.rhs
    return any(
        value is factors[at]
        and _walks_along(map_, op.parallel_rank)
        and (is_weight(factors[1 - at]) or order[-1] in map_.results[order[-1]].used_dims())
        for at, map_ in enumerate(op.input_maps)
    )


def rank(value: SSAValue) -> int:
    return tensor(value).get_num_dims()


def _parallel(op: Computed | tile.AssembleOp) -> list[SSAValue]:
    """The values whose axes an operation walks through side by side; no factor of a contraction."""
    if isinstance(op, tile.AssembleOp):
        return [*op.pieces, op.output]
    found = list(readings(op))
    if tile.is_contraction(op):
        found = found[2:]
    loops = op.parallel_rank
    beside = [value for value, map_ in found if map_ is not None and _walks_along(map_, loops)]
    tables = [op.tables[number] for number in walked(op)] if isinstance(op, tile.MapOp) else []
    return [*beside, *tables, *op.results]


def walked(op: tile.MapOp) -> list[int]:
    """
    The tables whose elements are looked up along the axes of the result.

    Along each axis either at the very index of the result, or at a place that is computed; not
    at an index of another axis.
    """
    found = []
    for number, argument in enumerate(table_arguments(op)):
        lookups = [use.operation for use in argument.uses]
        if rank(argument) == op.parallel_rank and all(
            isinstance(lookup, tile.ElementOp) and _follows_axes(lookup) for lookup in lookups
        ):
            found.append(number)
    return found


def table_arguments(op: tile.MapOp) -> Sequence[SSAValue]:
    arguments = op.body.block.args
    return arguments[len(arguments) - len(op.tables) :]


def _follows_axes(lookup: tile.ElementOp) -> bool:
    counted = [
        (axis, index.owner.dim.value.data)
        for axis, index in enumerate(lookup.indices)
        if isinstance(index.owner, tile.IndexOp)
    ]
    return bool(counted) and all(axis == dim for axis, dim in counted)


def _walks_along(map_: AffineMap, rank: int) -> bool:
    """Whether each axis of an operand belongs to the parallel dimension of the same number."""
    return len(map_.results) == rank and all(
        {dim for dim in result.used_dims() if dim < rank} <= {axis}
        for axis, result in enumerate(map_.results)
    )
