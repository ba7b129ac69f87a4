"""How do contractions that share a loop become one kernel, some channels at a time?"""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute, Block, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import Rewriter

from popgraph.dialects import tile
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.tile.affine import offset
from popgraph.dialects.tile.attributes import LayoutAttr, layout_of, physical_shape
from popgraph.passes.tile_loops.access import (
    Group,
    Place,
    clear_box,
    clear_gaps,
    halo_boxes,
    spans,
    tensor,
)
from popgraph.passes.tile_loops.chunking import LANE_WORK, split
from popgraph.passes.tile_loops.contract import ContractLoops
from popgraph.passes.tile_loops.index import Index
from popgraph.passes.tile_loops.panels import split_map, split_sizes
from popgraph.passes.tile_loops.vectors import Run, run
from popgraph.passes.tile_loops.writer import Writer
from popgraph.support.shapes import Shape, prod


class ChainLoops:
    """Writes the loops of one chain."""

    def __init__(self, op: tile.ChainOp) -> None:
        self.op = op
        self.step = op.step.value.data
        self.count = op.chained[0].sizes[op.along.data[0]] // self.step
        work = sum(prod(contraction.sizes) for contraction in op.chained) // LANE_WORK
        self.cut = split([self.count], work)

    def kernel(self) -> tile.KernelOp:
        op = self.op
        kernel = tile.KernelOp(
            list(op.inputs), [tensor(op.output)], self.cut.count if self.cut else 1, []
        )
        self.writer = Writer(kernel.body.block)
        chunk, *memories = kernel.body.block.args
        clear_gaps(self.writer, op.yielded, memories[-1:])
        self.memories = dict(zip([*op.body.block.args, *op.yielded], memories, strict=True))
        self.types: dict[SSAValue, TensorType[Attribute]] = {
            value: narrowed(tensor(value), along, self.step)
            for contraction, along in zip(op.chained, op.along.data, strict=True)
            for value in contraction.outputs
            if value not in self.memories
        }
        self.homes = {value: self._home(type_) for value, type_ in self.types.items()}
        group = Group((0,), self.count)
        self.place = Place(self.writer, (self.count,))
        (part,) = spans(self.writer, [group], self.cut, chunk)
        run(self.place, [Run(group, part)], self._iteration)
        return kernel

    def _home(self, type_: TensorType[Attribute]) -> SSAValue:
        """Local memory for what is computed in between: its halo is cleared once, and stays so."""
        memory = self.writer.local(type_.element_type, prod(physical_shape(type_)))
        for start, sizes in halo_boxes(type_):
            clear_box(self.writer, type_, memory, start, sizes)
        return memory

    def _iteration(self, _: int, carried: list[SSAValue]) -> list[SSAValue]:
        for memory in self.homes.values():
            self.writer.written_here(memory)
        for contraction, along in zip(self.op.chained, self.op.along.data, strict=True):
            self._write(contraction, along)
        return carried

    def _write(self, op: tile.ContractOp, along: int) -> None:
        """The loops of one contraction for the channels of this iteration."""
        assert op.schedule is not None, "contractions in a chain have schedules"
        places = [self._begin(op, along, value, map_) for value, map_ in operands_and_results(op)]
        part = op.clone()
        part.operands = Block(arg_types=self._types(op.operands)).args
        window = (*op.sizes[:along], self.step, *op.sizes[along + 1 :])
        part.properties["domain"] = IntsAttr.of(window)
        (type_,) = self._types(op.outputs)
        Rewriter.replace_value_with_new_type(part.outputs[0], type_)
        ContractLoops(part, op.schedule).write(self.writer, places)
        part.erase()

    def _types(self, values: Sequence[SSAValue]) -> list[Attribute]:
        """The types of values as one iteration sees them."""
        return [self.types.get(value, tensor(value)) for value in values]

    def _begin(
        self, op: tile.ContractOp, along: int, value: SSAValue, map_: AffineMap
    ) -> tuple[SSAValue, Index]:
        """Which memory a value is in, and how far on the part of this iteration begins."""
        if value in self.homes:
            return self.homes[value], Index()
        stride = apart(value, map_, op.sizes, along, self.step)
        assert stride is not None, "iterations are not evenly apart"
        return self.memories[value], self.place.where[0].scaled(stride)


def apart(value: SSAValue, map_: AffineMap, sizes: Shape, along: int, step: int) -> int | None:
    """How far apart in memory are the parts of a value for so many indices of a loop?"""
    divided = split_sizes(sizes, along, step)
    return offset(tensor(value), split_map(map_, along, step), divided).stride(along)


def operands_and_results(op: tile.ContractOp) -> list[tuple[SSAValue, AffineMap]]:
    """Every operand and result of a contraction with its map, in order."""
    identity = AffineMap.identity(op.parallel_rank)
    maps = [*op.input_maps, *(map_.data for map_ in op.extra_maps), identity]
    return list(zip([op.lhs, op.rhs, *op.extras, *op.outputs], maps, strict=True))


def narrowed(type_: TensorType[Attribute], along: int, size: int) -> TensorType[Attribute]:
    """A dense tensor or one with a halo, with so many indices `along` one of its dimensions."""
    shape, layout = list(type_.get_shape()), layout_of(type_)
    cut = shape[along] - size
    shape[along] = size
    if layout is None:
        return TensorType(type_.element_type, shape)
    physical = list(layout.physical.data)
    physical[along] -= cut
    new = LayoutAttr.of(layout.map.data, physical)
    return TensorType(type_.element_type, shape, new)
