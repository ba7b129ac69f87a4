"""Layout of activations: channels are the innermost axis, along which vectors run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.rewriter import InsertPoint

from popgraph.dialects import tile
from popgraph.dialects.program import ConstantOp, IntsAttr, VariableOp, graphs_of
from popgraph.dialects.program.interned import tensor_type, whole
from popgraph.dialects.tile.affine import permutation, selection, with_dims
from popgraph.dialects.tile.structured.nest import readings
from popgraph.dialects.tile.structured.ops import maps_attribute
from popgraph.passes.analysis.replace import insert_made_for
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.structured.analysis.axis_orders import AxisOrder, seen_through
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.operand_maps import (
    is_movement,
    movement,
    set_type_in_place,
)
from popgraph.passes.structured.analysis.split_epilogue import split_epilogue
from popgraph.passes.tuning import Tuning
from popgraph.support.shapes import prod

Computed = tile.MapOp | tile.ReduceOp | tile.ContractOp
"""What writes its results in any order of their axes."""


@dataclass(frozen=True)
class AssignLayouts(Pass):
    """
    Put the channels of activations last: there they fill vectors, whatever the size of an image.

    tensor<1x64x56x56xf32>  ->  tensor<1x56x56x64xf32>, and every index map that reads or writes it
    """

    name = "assign-layouts"
    TOLERANCE = 1e-5
    tuning: Tuning = Tuning()

    @classmethod
    def of(cls, options: Options) -> AssignLayouts:
        return cls(options.tuning)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            orders = chosen(graph.block, self.tuning)
            if orders:
                _part_updates(graph.block, orders)
                _Rewriting(orders).rewrite(graph.block)


# What is best


def chosen(block: Block, tuning: Tuning) -> dict[SSAValue, AxisOrder]:
    """
    The order of the axes of every value that does not keep its own.

    Where wishes meet, that of the contraction with the most products counts.
    """
    orders: dict[SSAValue, AxisOrder] = {}
    contractions = [op for op in block.ops if isinstance(op, tile.ContractOp)]
    for op in sorted(contractions, key=lambda op: -prod(op.sizes)):
        for value, order in wishes(op, tuning):
            if _is_free(value):
                _spread(value, order, orders)
    return {value: order for value, order in orders.items() if order != tuple(range(len(order)))}


def wishes(op: tile.ContractOp, tuning: Tuning) -> Iterator[tuple[SSAValue, AxisOrder]]:
    """
    What a contraction of an activation with weights is best at.

    The loops that weights take part in innermost, in the result as in the activation.
    """
    values = (op.lhs, op.rhs)
    weights = [number for number, value in enumerate(values) if _is_weight(value)]
    if len(weights) != 1:
        return
    used = op.input_maps[weights[0]].used_dims()
    activation, map_ = values[1 - weights[0]], op.input_maps[1 - weights[0]]
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


def _is_weight(value: SSAValue) -> bool:
    """
    Whether a value is a literal or a variable, perhaps under another shape or reordered.

    Or it is computed of literals alone, as words are of small integers.
    """
    owner = value.owner
    if isinstance(owner, ConstantOp | VariableOp):
        return True
    if isinstance(owner, tile.MapOp):
        moved = is_movement(owner) and _is_weight(owner.inputs[0])
        return moved or _is_known(value)
    return isinstance(owner, tile.ViewOp) and _is_weight(owner.source)


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


def _spread(value: SSAValue, order: AxisOrder, orders: dict[SSAValue, AxisOrder]) -> None:
    """Gives an order to a value, and to everything that is read or written beside it."""
    waiting = [(value, order)]
    while waiting:
        value, order = waiting.pop()
        if value in orders or not _is_free(value):
            continue
        orders[value] = order
        waiting += _beside(value, order)


def _beside(value: SSAValue, order: AxisOrder) -> Iterator[tuple[SSAValue, AxisOrder]]:
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
        elif isinstance(op, Computed | tile.AssembleOp):
            for other_value in _parallel(op):
                if other_value is not value and _rank(other_value) == len(order):
                    yield other_value, order


def _rank(value: SSAValue) -> int:
    return tensor(value).get_num_dims()


def _parallel(op: Computed | tile.AssembleOp) -> list[SSAValue]:
    """The values whose axes an operation walks through side by side; no factor of a contraction."""
    if isinstance(op, tile.AssembleOp):
        return [*op.pieces, op.output]
    found = list(readings(op))
    if isinstance(op, tile.ContractOp):
        found = found[2:]
    rank = op.parallel_rank
    beside = [value for value, map_ in found if map_ is not None and _walks_along(map_, rank)]
    tables = [op.tables[number] for number in _walked(op)] if isinstance(op, tile.MapOp) else []
    return [*beside, *tables, *op.results]


def _walked(op: tile.MapOp) -> list[int]:
    """
    The tables whose elements are looked up along the axes of the result.

    Along each axis either at the very index of the result, or at a place that is computed; not
    at an index of another axis.
    """
    found = []
    for number, argument in enumerate(_table_arguments(op)):
        lookups = [use.operation for use in argument.uses]
        if _rank(argument) == op.parallel_rank and all(
            isinstance(lookup, tile.ElementOp) and _follows_axes(lookup) for lookup in lookups
        ):
            found.append(number)
    return found


def _table_arguments(op: tile.MapOp) -> Sequence[SSAValue]:
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


def _part_updates(block: Block, orders: dict[SSAValue, AxisOrder]) -> None:
    """
    y = contract(...) epilogue g(..., w)  ->  t = contract(...); y = map g(t, w)

    Only for weights as large as the result (a bias is not) that are updated while their axes keep
    an order that the result leaves: read and written by the map, they are gone through once.
    """
    for op in list(block.ops):
        if isinstance(op, tile.ContractOp) and op.outputs[0] in orders:
            (result,) = op.outputs
            shape = tensor(result).get_shape()
            if any(
                _is_weight(one) and tensor(one).get_shape() == shape for one in op.epilogue_inputs
            ):
                order = orders.pop(result)
                orders[split_epilogue(op).outputs[0]] = order


# Putting it into effect


class _Rewriting:
    """Changes index maps, domains and types, in place."""

    def __init__(self, orders: Mapping[SSAValue, AxisOrder]) -> None:
        self.orders = orders
        self.types = {value: tensor(value) for value in orders}
        self._natural: dict[SSAValue, SSAValue] = {}

    def rewrite(self, block: Block) -> None:
        for op in list(block.ops):
            match op:
                case tile.MapOp() | tile.ReduceOp() | tile.ContractOp() | tile.ScatterOp():
                    self._structured(op)
                    if isinstance(op, tile.ContractOp) and op.outputs[0] in self.orders:
                        self._move_vector_axis_last(op)
                case tile.AssembleOp():
                    self._assemble(op)
                case tile.ViewOp():
                    self._view(op)
                case _:
                    self._restore(op, range(len(op.operands)))
            for result in op.results:
                self._reorder(result)

    def _reorder(self, value: SSAValue) -> None:
        """Gives a value the type that belongs to its order."""
        if value in self.orders:
            type_ = tensor(value)
            shape = [type_.get_shape()[axis] for axis in self.orders[value]]
            set_type_in_place(value, tensor_type(type_.element_type, shape))

    def _structured(self, op: tile.Structured) -> None:
        order = self.orders.get(op.results[0], tuple(range(op.parallel_rank)))
        sequence = (*order, *self._reductions(op))
        places = permutation(sequence).results
        op.properties["domain"] = IntsAttr.of([op.sizes[dim] for dim in sequence])
        inputs, epilogue_inputs, tables = _operands(op)
        maps = self._maps(op, inputs, op.input_maps, places)
        op.properties["maps"] = maps_attribute(maps)
        if "epilogue_maps" in op.properties:
            op.properties["epilogue_maps"] = maps_attribute(
                self._maps(op, epilogue_inputs, op.epilogue_input_maps, places[: op.parallel_rank])
            )
        self._restore(op, tables if not isinstance(op, tile.MapOp) else self._tables(op, tables))
        for inner in op.walk():
            if isinstance(inner, tile.IndexOp):
                dim = sequence.index(inner.dim.value.data)
                inner.properties["dim"] = whole(dim)

    def _tables(self, op: tile.MapOp, operands: range) -> list[int]:
        """Those to be restored; the others are looked up in the order of the result."""
        order, left = self.orders.get(op.outputs[0]), list(operands)
        walked = _walked(op)
        for number, argument in enumerate(_table_arguments(op)):
            value = op.tables[number]
            if order is None or self.orders.get(value) != order or number not in walked:
                continue
            left.remove(operands[number])
            set_type_in_place(argument, tensor(value))
            for lookup in {use.operation for use in argument.uses}:
                assert isinstance(lookup, tile.ElementOp)
                indices = list(lookup.indices)
                lookup.operands = [argument, *(indices[axis] for axis in order)]
        return left

    def _move_vector_axis_last(self, op: tile.ContractOp) -> None:
        """
        The axis of weights that results have innermost comes last when activations have it, too.

        Else, where channels do not mix, weights would be read one by one.
        """
        dims = [dim for dim in range(op.parallel_rank) if op.sizes[dim] > 1]
        maps = list(op.input_maps)
        for number, value in enumerate((op.lhs, op.rhs)):
            last = AffineExpr.dimension(dims[-1]) if dims else None
            if last not in maps[number].results or not _is_weight(value):
                continue
            if dims[-1] in maps[1 - number].used_dims():
                axis = maps[number].results.index(last)
                if axis == _rank(value) - 1:
                    continue
                order = (*(at for at in range(_rank(value)) if at != axis), axis)
                op.operands[number] = self._in_order(op, value, order)
                results = tuple(maps[number].results[at] for at in order)
                maps[number] = AffineMap(maps[number].num_dims, 0, results)
        op.properties["maps"] = maps_attribute(maps)

    def _reductions(self, op: tile.Structured) -> list[int]:
        """The reduction loops, those innermost that step over neighbours in memory."""
        dims = list(range(op.parallel_rank, len(op.sizes)))
        if not isinstance(op, tile.ContractOp):
            return dims
        last = set[int]()
        for value, map_ in zip((op.lhs, op.rhs), op.input_maps, strict=True):
            if value in self.orders:
                last |= map_.results[self.orders[value][-1]].used_dims()
        return sorted(dims, key=lambda dim: dim in last)

    def _maps(
        self,
        op: Operation,
        operands: Sequence[int],
        maps: Sequence[AffineMap],
        places: Sequence[AffineExpr],
    ) -> list[AffineMap]:
        reordered = []
        for number, map_ in zip(operands, maps, strict=True):
            results = with_dims(map_, places, len(places)).results
            order = self.orders.get(op.operands[number], range(len(results)))
            reordered.append(AffineMap(len(places), 0, tuple(results[axis] for axis in order)))
        return reordered

    def _assemble(self, op: tile.AssembleOp) -> None:
        order = self.orders.get(op.output)
        if order is None:
            self._restore(op, range(len(op.operands)))
            return
        placements = op.placements()
        for name, numbers in (
            ("offsets", [offsets for _, offsets, _ in placements]),
            ("steps", [steps for _, _, steps in placements]),
        ):
            op.properties[name] = IntsAttr.of([row[axis] for row in numbers for axis in order])
        for number, piece in enumerate(op.pieces):
            if self.orders.get(piece) != order:
                op.operands[number] = self._in_order(op, self._restored(piece), order)

    def _in_order(self, op: Operation, value: SSAValue, order: AxisOrder) -> SSAValue:
        """A copy of a value with its axes in another order."""
        shape = [tensor(value).get_shape()[axis] for axis in order]
        made = movement(value, permutation(order), shape)
        insert_made_for(op, made)
        return made.outputs[0]

    def _view(self, op: tile.ViewOp) -> None:
        """Stays a view when the orders on both sides agree."""
        shape, viewed = self._shape(op.source), tensor(op.output).get_shape()
        order = self.orders.get(op.source, tuple(range(len(shape))))
        seen = seen_through(shape, order, viewed)
        wanted = self.orders.get(op.output, tuple(range(len(viewed))))
        if seen is not None and _same(seen, wanted, viewed):
            return
        self._restore(op, [0])
        if op.output in self.orders:
            natural = tile.ViewOp(op.source, viewed)
            insert_made_for(op, natural)
            op.operands[0] = self._in_order(op, natural.output, wanted)

    def _shape(self, value: SSAValue) -> tuple[int, ...]:
        """The shape that a value had."""
        return (self.types.get(value) or tensor(value)).get_shape()

    def _restore(self, op: Operation, operands: Sequence[int]) -> None:
        """These operands in their own order of axes."""
        for number in operands:
            op.operands[number] = self._restored(op.operands[number])

    def _restored(self, value: SSAValue) -> SSAValue:
        order = self.orders.get(value)
        if order is None:
            return value
        if value not in self._natural:
            assert isinstance(value.owner, Operation)
            made = movement(value, selection(order), self._shape(value))
            insert_made_for(value.owner, made, at=InsertPoint.after(value.owner))
            self._natural[value] = made.outputs[0]
        return self._natural[value]


def _same(order: AxisOrder, other: AxisOrder, shape: Sequence[int]) -> bool:
    """Whether two orders put the same elements into the same places."""
    return [axis for axis in order if shape[axis] != 1] == [
        axis for axis in other if shape[axis] != 1
    ]


def _operands(op: tile.Structured) -> tuple[range, range, range]:
    """
    The numbers of the operands that are inputs, epilogue_inputs and tables.

    What a scatter starts with is read in the order of its result, which is the natural one.
    """
    count = len(op.input_maps)
    tables = len(op.tables) if isinstance(op, tile.MapOp) else 0
    tables = len(op.operands) - count if isinstance(op, tile.ScatterOp) else tables
    end = len(op.operands) - tables
    return range(count), range(count, end), range(end, len(op.operands))
