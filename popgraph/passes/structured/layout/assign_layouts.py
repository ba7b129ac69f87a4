"""Layout of activations: channels become the innermost axis, which is vectorized."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Block, Operation, SSAValue
from xdsl.ir.affine import AffineExpr, AffineMap
from xdsl.rewriter import InsertPoint

from popgraph.dialects import tile
from popgraph.dialects.program import IntsAttr, UpdateOp, graphs_of
from popgraph.dialects.program.interned import tensor_type, whole
from popgraph.dialects.tile.affine import permutation, selection, with_dims
from popgraph.dialects.tile.structured.ops import maps_attribute
from popgraph.dialects.value_types import set_type
from popgraph.passes.analysis.replace import insert_made_for
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.properties import DENSE, UNCUT, UNSCHEDULED
from popgraph.passes.structured.analysis.axis_orders import AxisOrder, order_of_view
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.operand_maps import (
    movement,
)
from popgraph.passes.structured.analysis.split_epilogue import split_epilogue
from popgraph.passes.structured.layout.axis_choice import (
    activation_of,
    chosen_orders,
    corresponding_tables,
    is_free,
    is_weight,
    pixel_contractions,
    rank,
    slides_along_rows,
    table_arguments,
)
from popgraph.support.shapes import prod
from popgraph.support.tuning import Tuning


@dataclass(frozen=True)
class AssignLayouts(Pass):
    """
    Moves the channels of activations last, where they fill vectors whatever the size of an image.

    tensor<1x64x56x56xf32>  ->  tensor<1x56x56x64xf32>, and every index map that reads or writes it

    Contractions with few channels in their results and long rows of pixels run along pixels
    instead; if that pays, the activation is copied for them. Blocks of 16 channels (NCHW16c) are
    equal within 3 %, but up to a fifth faster in 1x1 convolutions beyond L2 (decision 0004).
    """

    name = "assign-layouts"
    TOLERANCE = 1e-5
    NEEDS = (UNSCHEDULED, DENSE, UNCUT)
    AFTER = ("fuse-epilogue",)
    tuning: Tuning = Tuning()
    portable: bool = False

    @classmethod
    def of(cls, options: Options) -> AssignLayouts:
        return cls(options.tuning, options.target.portable)

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        for graph in graphs_of(module):
            along_pixels = pixel_contractions(graph.block, self.tuning)
            orders = chosen_orders(graph.block, self.tuning, along_pixels, self.portable)
            _copy_padded(graph.block, orders, self.tuning, self.portable)
            if orders:
                _split_updates(graph.block, orders)
                _keep_updates(graph.block, orders)
                _Rewriting(orders, along_pixels, self.tuning.least_channels).rewrite(graph.block)


def _copy_padded(
    block: Block, orders: Collection[SSAValue], tuning: Tuning, portable: bool
) -> None:
    """
    y = contract(assemble(x))  ->  y = contract(assemble(copy of x)), whose padding becomes a halo

    Only for a depthwise convolution along pixels that alone reads the caller's tensor x with
    padding. The copy of a channel then exists only while it is summed (`fuse-channels`).
    """
    for op in list(block.ops) if not portable else ():
        if not tile.is_contraction(op) or not slides_along_rows(op, tuning):
            continue
        image = op.operands[activation_of(op) or 0]
        pad = image.owner
        if image in orders or not isinstance(pad, tile.AssembleOp) or not image.has_one_use():
            continue
        if len(pad.pieces) == 1 and not is_free(pad.pieces[0]):
            piece = pad.pieces[0]
            shape = tensor(piece).get_shape()
            made = movement(piece, AffineMap.identity(len(shape)), shape)
            insert_made_for(pad, made)
            pad.operands[0] = made.outputs[0]


def _split_updates(block: Block, orders: dict[SSAValue, AxisOrder]) -> None:
    """
    Moves updates of weights out of epilogues.

    y = contract(...) epilogue g(..., w)  ->  t = contract(...); y = map g(t, w)

    Only for updated weights of the shape of the result: the gradient changes its axis order, the
    weight keeps it, and one map reads and writes the weight. A bias stays in the epilogue.
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


def _keep_updates(block: Block, orders: dict[SSAValue, AxisOrder]) -> None:
    """
    Keeps the axis order of maps that only updates of variables read.

    They write the order of the variable, so they can work in its memory. In the order of the
    gradient, each update would be a copy of the variable's size, and a transposing move.
    """
    stored = set[SSAValue]()
    for op in reversed(block.ops):
        if isinstance(op, UpdateOp):
            stored.add(op.value)
        elif isinstance(op, tile.MapOp) and all(_is_stored(one, stored) for one in op.results):
            stored.update(op.results)
            for result in op.results:
                orders.pop(result, None)


def _is_stored(value: SSAValue, stored: Collection[SSAValue]) -> bool:
    """Whether all readers of a value are updates, or maps whose results are only stored."""
    return all(
        isinstance(use.operation, UpdateOp)
        or (bool(use.operation.results) and all(one in stored for one in use.operation.results))
        for use in value.uses
    )


class _Rewriting:
    """Applies axis orders to index maps, domains and types, in place."""

    def __init__(
        self,
        orders: Mapping[SSAValue, AxisOrder],
        along_pixels: Collection[Operation],
        least_channels: int,
    ) -> None:
        self.orders, self.least_channels = orders, least_channels
        self._along_pixels = along_pixels
        self.types = {value: tensor(value) for value in orders}
        self._restored_values: dict[SSAValue, SSAValue] = {}

    def rewrite(self, block: Block) -> None:
        for op in list(block.ops):
            match op:
                case tile.MapOp() | tile.ReduceOp() | tile.ScatterOp():
                    # In the original order of both factors, pixels are contiguous.
                    if op in self._along_pixels:
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
        """Permutes the shape of a value into its new order."""
        if value in self.orders:
            type_ = tensor(value)
            shape = [type_.get_shape()[axis] for axis in self.orders[value]]
            set_type(value, tensor_type(type_.element_type, shape))

    def _structured(self, op: tile.Structured) -> None:
        order = self.orders.get(op.results[0], tuple(range(op.parallel_rank)))
        sequence = (*order, *self._reductions(op))
        indices = permutation(sequence).results
        op.properties["domain"] = IntsAttr.of([op.sizes[dim] for dim in sequence])
        inputs, epilogue_inputs, tables = _operands(op)
        maps = self._maps(op, inputs, op.input_maps, indices)
        op.properties["maps"] = maps_attribute(maps)
        if isinstance(op, tile.ReduceOp) and op.block is not None:
            # Loops that number blocks stay before those of their terms.
            blocks = range(epilogue_inputs.stop, len(op.operands))
            outer = indices[: op.blocked_rank]
            op.properties["block_maps"] = maps_attribute(
                self._maps(op, blocks, op.block_input_maps, outer)
            )
        if "epilogue_maps" in op.properties:
            op.properties["epilogue_maps"] = maps_attribute(
                self._maps(op, epilogue_inputs, op.epilogue_input_maps, indices[: op.parallel_rank])
            )
        self._restore(op, tables if not isinstance(op, tile.MapOp) else self._tables(op, tables))
        for inner in op.walk():
            if isinstance(inner, tile.IndexOp):
                dim = sequence.index(inner.dim.value.data)
                inner.properties["dim"] = whole(dim)

    def _tables(self, op: tile.MapOp, operands: range) -> list[int]:
        """Permutes the lookups of corresponding tables; the other tables are to be restored."""
        order, left = self.orders.get(op.outputs[0]), list(operands)
        walking = corresponding_tables(op)
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
        Moves the axis of weights last along which vectors will run.

        That is the channels of a depthwise convolution, or the innermost reduction if results have
        fewer than `least_channels` channels. Weights in their own order would be loaded one by one.
        """
        outer = {dim for dim in range(op.parallel_rank) if op.sizes[dim] > 1}
        for number, value in enumerate((op.lhs, op.rhs)):
            if not is_weight(value):
                continue
            own, other = op.input_maps[number], op.input_maps[1 - number]
            channels = outer & own.used_dims()
            unmixed = channels & other.used_dims()
            # A depthwise convolution with several results per channel has channels innermost in
            # the activation only: FastViT-T8 is 1.3x faster along them.
            innermost = {max(outer, default=-1)} & unmixed or self._innermost(op, other) & unmixed
            if innermost:
                self._move_last(op, number, min(innermost))
            # 32 channels to one by 5 x 5 windows: 13x faster along the sum; basic-pitch 1.5x.
            elif prod(op.sizes[dim] for dim in channels) < self.least_channels:
                self._move_last(op, number, len(op.sizes) - 1)

    @staticmethod
    def _innermost(op: tile.ReduceOp, map_: AffineMap) -> set[int]:
        """The loop over the innermost axis of an operand of size > 1; empty if several share it."""
        loops = ({d for d in index.used_dims() if op.sizes[d] > 1} for index in map_.results[::-1])
        found = next(filter(None, loops), set[int]())
        return found if len(found) == 1 else set()

    def _move_last(self, op: tile.ReduceOp, number: int, dim: int) -> None:
        """Copies a factor so that the axis indexed by `dim` alone comes last."""
        value, map_ = op.operands[number], op.input_maps[number]
        expression = AffineExpr.dimension(dim)
        if expression not in map_.results:
            return
        axis = map_.results.index(expression)
        # Axes of size 1 after it do not move it in memory: [3, 3, 64, 1] needs no copy.
        if prod(tensor(value).get_shape()[axis + 1 :]) == 1:
            return
        order = (*(at for at in range(rank(value)) if at != axis), axis)
        op.operands[number] = self._in_order(op, value, order)
        maps = list(op.input_maps)
        maps[number] = AffineMap(map_.num_dims, 0, tuple(map_.results[at] for at in order))
        op.properties["maps"] = maps_attribute(maps)

    def _reductions(self, op: tile.Structured) -> list[int]:
        """The reduction loops; loops over the innermost axes of factors come last."""
        dims = list(range(op.parallel_rank, len(op.sizes)))
        if not tile.is_contraction(op):
            return dims
        last = set[int]()
        for value, map_ in zip((op.lhs, op.rhs), op.input_maps, strict=True):
            if value in self.orders:
                last |= map_.results[self.orders[value][-1]].used_dims()
        if op.block is not None and any(dim < op.blocked_rank for dim in last):
            last |= {*range(op.blocked_rank, len(op.sizes))}
        return sorted(dims, key=lambda dim: dim in last)

    def _maps(
        self,
        op: Operation,
        operands: Sequence[int],
        maps: Sequence[AffineMap],
        indices: Sequence[AffineExpr],
    ) -> list[AffineMap]:
        reordered = []
        for number, map_ in zip(operands, maps, strict=True):
            results = with_dims(map_, indices, len(indices)).results
            order = self.orders.get(op.operands[number], range(len(results)))
            reordered.append(AffineMap(len(indices), 0, tuple(results[axis] for axis in order)))
        return reordered

    def _assemble(self, op: tile.AssembleOp) -> None:
        order = self.orders.get(op.output)
        if order is None:
            self._restore(op, range(len(op.operands)))
            return
        placements = op.placements()
        for name, rows in (
            ("offsets", [offsets for _, offsets, _ in placements]),
            ("steps", [steps for _, _, steps in placements]),
        ):
            op.properties[name] = IntsAttr.of([row[axis] for row in rows for axis in order])
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
        """Keeps a view if the orders on both sides agree; else restores the source and copies."""
        shape, viewed = self._shape(op.source), tensor(op.output).get_shape()
        order = self.orders.get(op.source, tuple(range(len(shape))))
        seen = order_of_view(shape, order, viewed)
        wanted = self.orders.get(op.output, tuple(range(len(viewed))))
        if seen is not None and _same(seen, wanted, viewed):
            return
        self._restore(op, [0])
        if op.output in self.orders:
            natural = tile.ViewOp(op.source, viewed)
            insert_made_for(op, natural)
            op.operands[0] = self._in_order(op, natural.output, wanted)

    def _shape(self, value: SSAValue) -> tuple[int, ...]:
        """The shape of a value before the pass."""
        return (self.types.get(value) or tensor(value)).get_shape()

    def _restore(self, op: Operation, operands: Sequence[int]) -> None:
        """Replaces these operands by copies in their original axis order."""
        for number in operands:
            op.operands[number] = self._restored(op.operands[number])

    def _restored(self, value: SSAValue) -> SSAValue:
        order = self.orders.get(value)
        if order is None:
            return value
        # One copy serves all readers.
        if value not in self._restored_values:
            assert isinstance(value.owner, Operation)
            made = movement(value, selection(order), self._shape(value))
            insert_made_for(value.owner, made, at=InsertPoint.after(value.owner))
            self._restored_values[value] = made.outputs[0]
        return self._restored_values[value]


def _same(order: AxisOrder, other: AxisOrder, shape: Sequence[int]) -> bool:
    """Whether two orders give the same memory layout; axes of size 1 do not count."""
    return [axis for axis in order if shape[axis] != 1] == [
        axis for axis in other if shape[axis] != 1
    ]


def _operands(op: tile.Structured) -> tuple[range, range, range]:
    """
    The positions of the operands: inputs, epilogue inputs, tables.

    The initial value of a scatter counts as a table: like the result, it keeps its axis order.
    """
    count = len(op.input_maps)
    tables = len(op.tables) if isinstance(op, tile.MapOp) else 0
    tables = len(op.operands) - count if isinstance(op, tile.ScatterOp) else tables
    own = len(op.block_inputs) if isinstance(op, tile.ReduceOp) else 0
    end = len(op.operands) - tables
    return range(count), range(count, end - own), range(end, len(op.operands))
