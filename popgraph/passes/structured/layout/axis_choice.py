"""Choice of axis orders: contractions have preferences, neighbouring operations follow."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from types import UnionType

from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.program import ConstantOp, VariableOp
from popgraph.dialects.tile.affine import offset
from popgraph.dialects.tile.structured.fused import readings
from popgraph.passes.structured.analysis.axis_orders import AxisOrder, order_of_view
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.operand_maps import is_movement
from popgraph.support.shapes import Shape, prod
from popgraph.support.tuning import Tuning

Computed = tile.MapOp | tile.ReduceOp
"""Operations that can write their results in any axis order."""


def chosen_orders(
    block: Block,
    tuning: Tuning,
    along_pixels: Collection[Operation] = (),
    portable: bool = False,
) -> dict[SSAValue, AxisOrder]:
    """
    The new axis order of each value that gets one.

    Contractions in `along_pixels` read their factors in the original order. Depthwise convolutions
    that are as fast along pixels keep the order of their neighbours, except in `portable` programs.
    """
    orders: dict[SSAValue, AxisOrder] = {}
    flexible = list[tile.ReduceOp]()
    for op in block.ops:
        if tile.is_contraction(op):
            if not portable and slides_along_rows(op, tuning):
                flexible.append(op)
            else:
                _prefer(op, orders, along_pixels, tuning)
    changes = True
    while changes:
        before, flexible = flexible, []
        for op in before:
            wanted = dict(orders)
            _prefer(op, wanted, along_pixels, tuning)
            is_alone = orders.keys().isdisjoint([*op.inputs, *op.outputs])
            if is_alone and not _is_transposed(wanted.keys() - orders.keys()):
                flexible.append(op)
            else:
                orders = wanted
        changes = len(flexible) < len(before)
    return {value: order for value, order in orders.items() if order != tuple(range(len(order)))}


def _prefer(
    op: tile.ReduceOp,
    orders: dict[SSAValue, AxisOrder],
    along_pixels: Collection[Operation],
    tuning: Tuning,
) -> None:
    """Adds the orders that a contraction prefers, and the orders that follow for its neighbours."""
    for value, order in preferred_orders(op, tuning):
        # The caller's arrays, literals and variables keep their order.
        if is_free(value):
            _propagate(value, order, orders, along_pixels, tuning)


def _is_transposed(values: Iterable[SSAValue]) -> bool:
    """Whether an operation that computes or reads one of these values transposes an operand."""
    # ConvNeXt without its stem: depthwise convolutions are read with their channels last.
    return any(
        not is_weight(operand) and _transposes(map_, tensor(operand).get_shape())
        for value in values
        for op in (value.owner, *(use.operation for use in value.uses))
        if isinstance(op, Computed)
        for operand, map_ in readings(op)
        if map_ is not None
    )


def _transposes(map_: AffineMap, shape: Shape) -> bool:
    """Whether the axes of an operand are indexed by loops in another order."""
    pairs = zip(map_.results, shape, strict=True)
    loops = [min(result.used_dims(), default=-1) for result, size in pairs if size > 1]
    return loops != sorted(loops)


def preferred_orders(op: tile.ReduceOp, tuning: Tuning) -> Iterator[tuple[SSAValue, AxisOrder]]:
    """
    The axis orders that a contraction of an activation with weights prefers.

    Channels (axes indexed by loops over weights) come last in the result and in the activation,
    where they fill vectors. A contraction whose rows of pixels do that better has no preference.
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
        # Three channels of an image would fill 3 of 16 lanes; from 8 on, half of them.
        if prod(shape[axis] for axis in channels) >= tuning.least_channels:
            others = [axis for axis in range(len(shape)) if axis not in channels]
            yield value, (*others, *channels)


def slides_along_rows(op: tile.ReduceOp, tuning: Tuning) -> bool:
    """
    Whether a depthwise convolution has long rows of pixels, and windows of several rows.

    It is as fast along pixels as along channels, so it keeps the order of its neighbours.
    """
    # Vectors of pixels serve all rows of a window. Zen 5: 7x7 on 768x32x32 without neighbours takes
    # 0.61 of the time, as no image is transposed.
    number, last = activation_of(op), op.parallel_rank - 1
    if number is None or op.words is not None or not tuning.fills_vectors(op.sizes[last]):
        return False
    image, used = op.input_maps[number], op.input_maps[1 - number].used_dims()
    channels = {dim for dim in used if dim <= last and op.sizes[dim] > 1}
    terms = {dim for dim in range(last + 1, len(op.sizes)) if op.sizes[dim] > 1}
    slides = all(len(one.used_dims()) > 1 for one in image.results if one.used_dims() & terms)
    if last in used or not slides or not channels <= image.used_dims():
        return False
    form = offset(tensor(op.operands[number]), image, op.sizes)
    rows = [dim for dim in range(last) if dim not in used and op.sizes[dim] > 1]
    taps = [form.stride(dim) for dim in terms]
    return form.stride(last) == 1 and any(form.stride(dim) in taps for dim in rows)


def activation_of(op: tile.ReduceOp) -> int | None:
    """The position of the activation, 0 or 1; None if both factors are weights, or neither is."""
    weights = [is_weight(value) or _holds_words(op, value) for value in (op.lhs, op.rhs)]
    return None if sum(weights) != 1 else weights.index(False)


def runs_along_pixels(op: tile.ReduceOp, tuning: Tuning) -> bool:
    """Whether results have few channels and long, contiguous rows of pixels."""
    # 64 channels to 3 by windows of 9 x 9 are 3.8x faster along rows; 3 x 3 to 2, 1.1x to 2.4x.
    # Packed words hold adjacent channels of a pixel (decision 0010), so they stay channels last.
    number, last = activation_of(op), op.parallel_rank - 1
    if number is None or op.words is not None or not tuning.fills_vectors(op.sizes[last]):
        return False
    used = op.input_maps[1 - number].used_dims()
    channels = prod(op.sizes[dim] for dim in used if dim <= last)
    if last in used or channels >= tuning.least_channels:
        return False
    return offset(tensor(op.operands[number]), op.input_maps[number], op.sizes).stride(last) == 1


def pixel_contractions(block: Block, tuning: Tuning) -> frozenset[Operation]:
    """
    Contractions that run along pixels even if that takes a copy of the activation.

    Together they have at least 16 products per copied element (`least_pixel_products`).
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
    Whether a value is a literal or a variable, perhaps reshaped or transposed.

    Elementwise functions of literals count, too: packed words of quantized weights.
    """
    owner = value.owner
    if isinstance(owner, ConstantOp | VariableOp):
        return True
    if isinstance(owner, tile.MapOp):
        # The pass transposes weights itself: a second run has to find the same layouts.
        moved = is_movement(owner) and is_weight(owner.inputs[0])
        return moved or _is_known(value)
    return isinstance(owner, tile.ViewOp) and is_weight(owner.source)


def _holds_words(op: tile.ReduceOp, value: SSAValue) -> bool:
    """Whether a value is the packed words of weights, which training rounds in each step."""
    return _is_known(value, ConstantOp | VariableOp) and op.words is not None


def _is_known(value: SSAValue, kind: type | UnionType = ConstantOp) -> bool:
    """Whether a value is an elementwise function of literals only, perhaps reshaped."""
    owner = value.owner
    if isinstance(owner, tile.ViewOp):
        return _is_known(owner.source, kind)
    if isinstance(owner, tile.MapOp):
        return bool(owner.operands) and all(_is_known(one, kind) for one in owner.operands)
    return isinstance(owner, kind)


def is_free(value: SSAValue) -> bool:
    """Whether the axis order of a value can be changed."""
    return isinstance(value.owner, Computed | tile.AssembleOp | tile.ViewOp)


def _propagate(
    value: SSAValue,
    order: AxisOrder,
    orders: dict[SSAValue, AxisOrder],
    along_pixels: Collection[Operation],
    tuning: Tuning,
) -> None:
    """Propagates an axis order through the operations that share it; earlier orders stay."""
    waiting = [(value, order)]
    while waiting:
        value, order = waiting.pop()
        if value in orders or not is_free(value):
            continue
        orders[value] = order
        waiting += _neighbours(value, order, along_pixels, tuning)


def _neighbours(
    value: SSAValue, order: AxisOrder, along_pixels: Collection[Operation], tuning: Tuning
) -> Iterator[tuple[SSAValue, AxisOrder]]:
    """Operands and results of the producer and the readers that share the order of `value`."""
    assert isinstance(value.owner, Operation)
    for op in [value.owner, *(use.operation for use in value.uses)]:
        if isinstance(op, tile.ViewOp):
            here, there = (op.source, op.output)
            if value is op.output:
                here, there = there, here
            shape, other = tensor(here).get_shape(), tensor(there).get_shape()
            # None if the view merges axes that the order separates: [h, w * c] and (h, c, w).
            seen = order_of_view(shape, order, other)
            if seen is not None:
                yield there, seen
        elif isinstance(op, Computed | tile.AssembleOp):
            corresponding = _corresponding(op)
            if value not in corresponding and not _shares_order(
                op, value, order, along_pixels, tuning
            ):
                continue
            for other_value in corresponding:
                if (
                    other_value is not value
                    and rank(other_value) == len(order)
                    and not _is_broadcast_in_epilogue(op, other_value, order)
                ):
                    yield other_value, order


def _is_broadcast_in_epilogue(
    op: Computed | tile.AssembleOp, value: SSAValue, order: AxisOrder
) -> bool:
    """
    Whether an epilogue reads a number for each vector, in whatever order such numbers are stored.

    The sums of a softmax keep the order of its rows, so that all of it stays one kernel.
    """
    last = order[-1]
    return (
        tile.is_contraction(op)
        and value not in op.results
        and tensor(value).get_shape()[last] < tensor(op.outputs[0]).get_shape()[last]
    )


def _shares_order(
    op: Computed | tile.AssembleOp,
    value: SSAValue,
    order: AxisOrder,
    along_pixels: Collection[Operation],
    tuning: Tuning,
) -> bool:
    """
    Whether the axes of a factor correspond to the axes of the results, so that both share an order.

    With a weight as the other factor, output channels correspond to the summed channels. With
    another activation, the innermost axis must not be summed: scores of attention have no channels.
    """
    if not tile.is_contraction(op) or op in along_pixels:
        return False
    # Tokens come last between the blocks of ResMLP-12, but its hidden layer follows channels: 1.09x
    # faster with AVX-512, 1.05x with AVX2, as 196 tokens leave 4 lanes and the next matmul a copy.
    if dict(preferred_orders(op, tuning)).get(op.outputs[0], order) != order:
        return False
    factors = op.lhs, op.rhs
    return any(
        value is factors[at]
        and _corresponds(map_, op.parallel_rank)
        and (is_weight(factors[1 - at]) or order[-1] in map_.results[order[-1]].used_dims())
        for at, map_ in enumerate(op.input_maps)
    )


def rank(value: SSAValue) -> int:
    return tensor(value).get_num_dims()


def _corresponding(op: Computed | tile.AssembleOp) -> list[SSAValue]:
    """Operands and results whose axes correspond one to one, except factors of contractions."""
    if isinstance(op, tile.AssembleOp):
        return [*op.pieces, op.output]
    found = list(readings(op))
    if tile.is_contraction(op):
        found = found[2:]
    loops = op.parallel_rank
    operands = [value for value, map_ in found if map_ is not None and _corresponds(map_, loops)]
    tables = (
        [op.mapped_tables[number] for number in corresponding_tables(op)]
        if isinstance(op, tile.MapOp)
        else []
    )
    return [*operands, *tables, *op.results]


def corresponding_tables(op: tile.MapOp) -> list[int]:
    """
    The tables whose axes correspond to the axes of the result.

    Each axis is indexed by the same axis of the result or by a computed value, never by another
    axis. Resizing between convolutions then keeps its channels last: 1.4x faster.
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
    return arguments[len(arguments) - len(op.mapped_tables) :]


def _follows_axes(lookup: tile.ElementOp) -> bool:
    counted = [
        (axis, index.owner.dim.value.data)
        for axis, index in enumerate(lookup.indices)
        if isinstance(index.owner, tile.IndexOp)
    ]
    return bool(counted) and all(axis == dim for axis, dim in counted)


def _corresponds(map_: AffineMap, rank: int) -> bool:
    """Whether each axis of an operand is indexed by the parallel loop of its number, if by any."""
    return len(map_.results) == rank and all(
        {dim for dim in result.used_dims() if dim < rank} <= {axis}
        for axis, result in enumerate(map_.results)
    )
