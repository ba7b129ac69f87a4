"""Layout of activations: channels are the innermost axis, along which vectors run."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.rewriter import InsertPoint

from popgraph.dialects import tile
from popgraph.dialects.program import IntsAttr, graphs_of
from popgraph.dialects.program.interned import tensor_type, whole
from popgraph.dialects.tile.affine import permutation, selection, with_dims
from popgraph.dialects.tile.structured.ops import maps_attribute
from popgraph.dialects.value_types import set_type
from popgraph.passes.analysis.replace import insert_made_for
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.structured.analysis.axis_orders import AxisOrder, seen_through
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.operand_maps import (
    movement,
)
from popgraph.passes.structured.analysis.split_epilogue import split_epilogue
from popgraph.passes.structured.layout.axis_choice import (
    along_pixels,
    chosen,
    is_weight,
    rank,
    table_arguments,
    walked,
)
from popgraph.support.shapes import prod
from popgraph.support.tuning import Tuning


@dataclass(frozen=True)
class AssignLayouts(Pass):
    """
    Put the channels of activations last: there they fill vectors, whatever the size of an image.

    tensor<1x64x56x56xf32>  ->  tensor<1x56x56x64xf32>, and every index map that reads or writes it

    Not for contractions with few channels in their results and long rows of pixels: these have
    their pixels side by side, for which an activation is copied where that pays.
    """

    name = "assign-layouts"
    TOLERANCE = 1e-5
    tuning: Tuning = Tuning()

    @classmethod
    def of(cls, options: Options) -> AssignLayouts:
        return cls(options.tuning)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            apart = along_pixels(graph.block, self.tuning)
            orders = chosen(graph.block, self.tuning, apart)
            if orders:
                _part_updates(graph.block, orders)
                _Rewriting(orders, apart, self.tuning.least_channels).rewrite(graph.block)


def _part_updates(block: Block, orders: dict[SSAValue, AxisOrder]) -> None:
    """
    y = contract(...) epilogue g(..., w)  ->  t = contract(...); y = map g(t, w)

    Only for weights as large as the result (a bias is not) that are updated while their axes keep
    an order that the result leaves: read and written by the map, they are gone through once.
    """
    for op in list(block.ops):
        if tile.is_contraction(op) and op.outputs[0] in orders:
            (result,) = op.outputs
            shape = tensor(result).get_shape()
            if any(
                is_weight(one) and tensor(one).get_shape() == shape for one in op.epilogue_inputs
            ):
                order = orders.pop(result)
                orders[split_epilogue(op).outputs[0]] = order


class _Rewriting:
    """Changes index maps, domains and types, in place."""

    def __init__(
        self,
        orders: Mapping[SSAValue, AxisOrder],
        apart: Collection[Operation],
        least_channels: int,
    ) -> None:
        self.orders, self.least_channels = orders, least_channels
        self._apart = apart
        self.types = {value: tensor(value) for value in orders}
        self._natural: dict[SSAValue, SSAValue] = {}

    def rewrite(self, block: Block) -> None:
        for op in list(block.ops):
            match op:
                case tile.MapOp() | tile.ReduceOp() | tile.ScatterOp():
                    if op in self._apart:
                        self._restore(op, range(2))
                    self._structured(op)
                    if tile.is_contraction(op) and not self.orders.keys().isdisjoint(
                        [op.lhs, op.rhs, *op.outputs]
                    ):
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
            set_type(value, tensor_type(type_.element_type, shape))

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
        walking = walked(op)
        for number, argument in enumerate(table_arguments(op)):
            value = op.tables[number]
            if order is None or self.orders.get(value) != order or number not in walking:
                continue
            left.remove(operands[number])
            set_type(argument, tensor(value))
            for lookup in {use.operation for use in argument.uses}:
                assert isinstance(lookup, tile.ElementOp)
                indices = list(lookup.indices)
                lookup.operands = [argument, *(indices[axis] for axis in order)]
        return left

    def _move_vector_axis_last(self, op: tile.ReduceOp) -> None:
        """
        The axis of weights comes last that results or activations have last, if both have it.

        Else, where channels do not mix, weights would be read one by one. So they would where
        results have hardly any channels: there the axis comes last that sums have innermost.
        """
        outer = {dim for dim in range(op.parallel_rank) if op.sizes[dim] > 1}
        for number, value in enumerate((op.lhs, op.rhs)):
            if not is_weight(value):
                continue
            own, other = op.input_maps[number], op.input_maps[1 - number]
            channels = outer & own.used_dims()
            unmixed = channels & other.used_dims()
            innermost = {max(outer, default=-1)} & unmixed or self._innermost(op, other) & unmixed
            if innermost:
                self._move_last(op, number, min(innermost))
            elif prod(op.sizes[dim] for dim in channels) < self.least_channels:
                self._move_last(op, number, len(op.sizes) - 1)

    @staticmethod
    def _innermost(op: tile.ReduceOp, map_: AffineMap) -> set[int]:
        """The loop that alone goes over the last axis of an operand, if there is one."""
        loops = ({d for d in index.used_dims() if op.sizes[d] > 1} for index in map_.results[::-1])
        found = next(filter(None, loops), set[int]())
        return found if len(found) == 1 else set()

    def _move_last(self, op: tile.ReduceOp, number: int, dim: int) -> None:
        """The axis of a factor that a loop alone goes over becomes its last one."""
        value, map_ = op.operands[number], op.input_maps[number]
        expression = AffineExpr.dimension(dim)
        if expression not in map_.results:
            return
        axis = map_.results.index(expression)
        if prod(tensor(value).get_shape()[axis + 1 :]) == 1:
            return
        order = (*(at for at in range(rank(value)) if at != axis), axis)
        op.operands[number] = self._in_order(op, value, order)
        maps = list(op.input_maps)
        maps[number] = AffineMap(map_.num_dims, 0, tuple(map_.results[at] for at in order))
        op.properties["maps"] = maps_attribute(maps)

    def _reductions(self, op: tile.Structured) -> list[int]:
        """The reduction loops, those innermost that step over neighbours in memory."""
        dims = list(range(op.parallel_rank, len(op.sizes)))
        if not tile.is_contraction(op):
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
