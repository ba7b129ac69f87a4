"""The proof that a program is one for every size: the same model at two sizes, compared."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import ModuleOp, TensorType
from xdsl.ir import Block, Operation, SSAValue

from popgraph.dialects import tile
from popgraph.dialects.locations import source
from popgraph.dialects.program import ConstantOp, WeightStore, graphs_of
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.program.sizes import sizes_of
from popgraph.dialects.tile.running import Extent
from popgraph.dialects.tile.structured.nest import readings
from popgraph.passes.structured.bind_sizes import Ends, SizeFlow, loops_over
from popgraph.support.errors import UnsizedError
from popgraph.support.shapes import Shape

STRUCTURED = "graphcore-to-structured"
"""The pass after which operations are loops over maps, before anything is decided about them."""
PRIMES = (3, 5, 7, 11, 17, 29, 47, 79, 131, 211, 347, 557, 907, 1471, 2381, 3851, 6229)
"""Sizes to compare with: they divide nothing that a model's other dimensions are made of."""


def probe_of(bound: int) -> int:
    """Another size to compare a bound with: the largest of `PRIMES` below it, or the first."""
    return max((prime for prime in PRIMES if prime < bound), default=PRIMES[0])


def prove(
    module: ModuleOp, weights: WeightStore, other: ModuleOp, other_weights: WeightStore
) -> None:
    """
    `UnsizedError` unless the program of a structured module runs for every size up to the bounds.

    `other` is the same model for other sizes: those that `probe_of` names.
    """
    bounds = [size.bound for size in sizes_of(module)]
    comparison = Comparison(bounds, [*map(probe_of, bounds)], weights, other_weights)
    comparison.of_modules(module, other)
    check_flow(module, comparison.ends)


@dataclass
class Comparison:
    """
    Compares a structured module at the bounds of its sizes with the same model at other sizes.

    All must be alike but for dimensions that are a multiple of one size in both. So nothing that
    the compiler decided or computed on the way, no branch and no constant, is one of the bound.
    """

    bounds: Sequence[int]
    others: Sequence[int]
    weights: WeightStore
    other_weights: WeightStore
    ends: dict[SSAValue, dict[int, Extent]] = field(default_factory=dict)
    """The axes of each value that are a multiple of a size."""
    _values: dict[SSAValue, SSAValue] = field(default_factory=dict)

    def of_modules(self, module: ModuleOp, other: ModuleOp) -> None:
        """Raises `UnsizedError` where they differ in anything but sizes."""
        for mine, its in zip(graphs_of(module), graphs_of(other), strict=True):
            self._blocks(mine.block, its.block, mine)

    def _blocks(self, block: Block, other: Block, op: Operation) -> None:
        self._same(len(block.args) == len(other.args), op)
        for value, its in zip(block.args, other.args, strict=True):
            self._value(value, its, op)
        mine, theirs = list(block.ops), list(other.ops)
        for one, its_op in zip(mine, theirs, strict=False):
            self._operations(one, its_op)
        self._same(len(mine) == len(theirs), op)

    def _operations(self, op: Operation, other: Operation) -> None:
        self._same(op.name == other.name and len(op.operands) == len(other.operands), op)
        for operand, its in zip(op.operands, other.operands, strict=True):
            self._same(self._values.get(operand) is its, op)
        self._same(op.properties.keys() == other.properties.keys(), op)
        for name, attribute in op.properties.items():
            its_attribute = other.properties[name]
            if attribute == its_attribute:
                continue
            if isinstance(op, ConstantOp):
                self._constants(op, other)
            elif name == "domain" and isinstance(attribute, IntsAttr):
                assert isinstance(its_attribute, IntsAttr)
                self._shapes(attribute.data, its_attribute.data, op)
            else:
                self._same(False, op)
        for value, its in zip(op.results, other.results, strict=True):
            self._value(value, its, op)
        for region, its_region in zip(op.regions, other.regions, strict=True):
            for block, its_block in zip(region.blocks, its_region.blocks, strict=True):
                self._blocks(block, its_block, op)

    def _value(self, value: SSAValue, other: SSAValue, op: Operation) -> None:
        self._values[value] = other
        mine, its = value.type, other.type
        if mine == its:
            return
        self._same(isinstance(mine, TensorType) and isinstance(its, TensorType), op)
        assert isinstance(mine, TensorType) and isinstance(its, TensorType)
        self._same((mine.element_type, mine.encoding) == (its.element_type, its.encoding), op)
        self.ends[value] = self._shapes(mine.get_shape(), its.get_shape(), op)

    def _shapes(self, shape: Shape, other: Shape, op: Operation) -> dict[int, Extent]:
        """Which of these numbers are a multiple of a size; the others are equal."""
        self._same(len(shape) == len(other), op)
        found = dict[int, Extent]()
        for axis, (mine, its) in enumerate(zip(shape, other, strict=True)):
            if mine == its:
                continue
            ends = [
                Extent(number, mine // bound)
                for number, (bound, probe) in enumerate(zip(self.bounds, self.others, strict=True))
                if mine % bound == 0 and mine // bound * probe == its
            ]
            self._same(bool(ends), op)
            found[axis] = ends[0]
        return found

    def _constants(self, op: ConstantOp, other: Operation) -> None:
        """A constant may be the front of a longer one: positions up to a size, for example."""
        assert isinstance(other, ConstantOp)
        mine = self.weights.array(op.literal)
        its = self.other_weights.array(other.literal)
        self._same(mine.dtype == its.dtype and mine.ndim == its.ndim > 0, op)
        self._shapes(mine.shape, its.shape, op)
        front = tuple(slice(0, min(pair)) for pair in zip(mine.shape, its.shape, strict=True))
        self._same(np.array_equal(mine[front], its[front]), op)

    def _same(self, holds: bool, op: Operation) -> None:
        if not holds:
            raise _depends(op)


def check_flow(module: ModuleOp, ends: Mapping[SSAValue, Ends]) -> None:
    """
    `UnsizedError` unless sizes reach, from the inputs, all that must end at one.

    What they do not reach, zeros of so many rows for example, is computed up to the bound. That is
    too much, and wrong only where it is added up, or given to the caller.
    """
    flow = SizeFlow(None)
    for graph in graphs_of(module):
        for number, size in enumerate(sizes_of(module)):
            for place in size.inputs:
                flow.begin(graph.inputs[place.tensor], place.axis, Extent(number, place.factor))
        flow.follow(graph.block)
        for op in graph.block.ops:
            if any(flow.of(value) != ends.get(value, {}) for value in op.operands):
                _check_reader(op, flow, ends)


def _check_reader(op: Operation, flow: SizeFlow, ends: Mapping[SSAValue, Ends]) -> None:
    """`UnsizedError` where an operation adds up what may stand behind the end of a size."""
    match op:
        case tile.MapOp() | tile.ViewOp() | tile.PackOp() | tile.UnpackOp() | tile.AssembleOp():
            return
        case tile.ReduceOp() | tile.ContractOp():
            running = flow.loops.get(op, {})
            for value, map_ in readings(op):
                for axis, end in ends.get(value, {}).items():
                    assert map_ is not None, "what is summed up is read along loops"
                    for loop, found in loops_over(map_, axis, end, op).items():
                        if loop >= op.parallel_rank and running.get(loop) != found:
                            raise _depends(op)
        case _:
            raise _depends(op)


def _depends(op: Operation) -> UnsizedError:
    return UnsizedError(f"{op.name} depends on what a size is", source(op.location))
