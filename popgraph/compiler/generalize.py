"""Proves that one program is valid for all sizes, by comparing the model at several sizes."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import compress, product
from typing import Any, TypeAlias

import numpy as np
from xdsl.dialects import arith
from xdsl.dialects.builtin import (
    FloatAttr,
    IntegerAttr,
    IntegerType,
    ModuleOp,
    TensorType,
    f64,
    i64,
)
from xdsl.ir import Attribute, Block, Operation, Region, SSAValue
from xdsl.ir.affine import AffineMap

from popgraph.dialects import tile
from popgraph.dialects.element_types import from_ir
from popgraph.dialects.graphcore.base import GraphcoreOp
from popgraph.dialects.locations import source
from popgraph.dialects.program import (
    CallCondOp,
    CallLoopOp,
    ConstantOp,
    GraphOp,
    WeightStore,
    graphs_of,
)
from popgraph.dialects.program.attributes import IntsAttr
from popgraph.dialects.program.control_signatures import Looping
from popgraph.dialects.program.sizes import sizes_of
from popgraph.dialects.tile.running import Extent
from popgraph.passes.analysis.replace import replace_op
from popgraph.passes.structured.analysis.loops import tensor
from popgraph.passes.structured.analysis.operand_maps import movement
from popgraph.passes.structured.analysis.size_flow import (
    Ends,
    SizeFlow,
    callers,
    loops_over,
    read_by,
)
from popgraph.passes.structured.bind_sizes import add_size_inputs
from popgraph.support.arrays import Array
from popgraph.support.errors import UnsizedError
from popgraph.support.shapes import Shape

Scalar: TypeAlias = "np.generic[Any]"

GRAPHCORE = "onnx-to-graphcore"
"""The pass after which branches and constants that depend on a size are resolved for it."""
STRUCTURED = "graphcore-to-structured"
"""The pass after which operations are loops over index maps, before scheduling."""
SMALL = (2, 1)
"""
Sizes whose graphs are compared with those of the bounds.

They reveal changes at a size in between, such as a branch for long inputs. A program that differs
only at size 1 serves sizes from 2.
"""
COUNTED = (np.int32, np.int64, np.uint32, np.uint64)
"""Integer types of shapes and of offsets into flat data."""
PRIMES = (3, 5, 7, 11, 17, 29, 47, 79, 131, 211, 347, 557, 907, 1471, 2381, 3851, 6229)
"""Probe sizes: primes, which do not divide products of a model's other dimensions."""


def probes_of(bounds: Mapping[str, int]) -> dict[str, int]:
    """
    Probe sizes, by the names of the bounds.

    They differ from all others, so that each changed dimension can be attributed to one size.
    """
    found = dict[str, int]()
    for name, bound in bounds.items():
        free = [prime for prime in PRIMES if prime not in (*found.values(), *bounds.values())]
        found[name] = max((prime for prime in free if prime < bound), default=free[0])
    return found


def between(bound: int) -> tuple[int, ...]:
    """
    Further sizes for a model that compares sizes: powers of two below the bound.

    They reveal a special case for sizes in [a, b] whenever b >= 2 a.
    """
    return tuple(1 << by for by in range(2, (bound - 1).bit_length()))


def check_agreement(
    module: ModuleOp, weights: WeightStore, other: ModuleOp, other_weights: WeightStore, number: int
) -> None:
    """
    UnsizedError unless two graphcore modules agree except for sizes; `number` is the other size.
    """
    bounds = [size.bound for size in sizes_of(module)]
    numbers = [number] * len(bounds)
    compared = Comparison(bounds, numbers, weights, other_weights, joins=True)
    compared.of_modules(module, other)


def prove_generality(
    module: ModuleOp, weights: WeightStore, other: ModuleOp, other_weights: WeightStore
) -> None:
    """
    UnsizedError unless the program of a structured module is valid for all sizes up to its bounds.

    `other` is the same model at the sizes of `probes_of`. Constants that count the elements of a
    mean are replaced by values computed from the sizes of the call.
    """
    bounds = {size.name: size.bound for size in sizes_of(module)}
    probes = [*probes_of(bounds).values()]
    comparison = Comparison([*bounds.values()], probes, weights, other_weights)
    comparison.of_modules(module, other)
    check_size_flow(module, comparison.ends, comparison.trips)
    for graph in callers(module):
        add_size_inputs(graph, sizes_of(module))
        insert_counts(graph, comparison.counts, [*bounds])


@dataclass
class Comparison:
    """
    Compares a structured module at the bounds of its sizes with the same model at other sizes.

    Everything must be equal, except dimensions that are a multiple of one size in both. So no
    decision of the compiler, no branch and no constant depends on the bound.
    """

    bounds: Sequence[int]
    others: Sequence[int]
    weights: WeightStore
    other_weights: WeightStore
    joins: bool = False
    """Whether axes may be products of sizes; canonicalize splits such axes later."""
    ends: dict[SSAValue, dict[int, Extent]] = field(default_factory=dict)
    """The axes of each value that are a multiple of a size."""
    counts: dict[Operation, set[Power | LastIndex | None]] = field(default_factory=dict)
    """The forms of each constant by reader: computed from sizes, or None for a plain number."""
    trips: dict[Operation, Extent] = field(default_factory=dict)
    """The loops whose trip count is a size."""
    _values: dict[SSAValue, SSAValue] = field(default_factory=dict)
    _compared: set[tuple[ConstantOp, ConstantOp]] = field(default_factory=set)

    def of_modules(self, module: ModuleOp, other: ModuleOp) -> None:
        """Raises UnsizedError if anything but sizes differs."""
        graphs, others = list(graphs_of(module)), list(graphs_of(other))
        self._same(len(graphs) == len(others), module)
        for mine, its in zip(graphs, others, strict=True):
            self._blocks(mine.block, its.block, mine)

    def _blocks(self, block: Block, other: Block, op: Operation) -> None:
        self._same(len(block.args) == len(other.args), op)
        for value, its in zip(block.args, other.args, strict=True):
            self._value(value, its, op)
        mine, theirs = (
            [one for one in each.ops if not isinstance(one, ConstantOp)] for each in (block, other)
        )
        for one, its_op in zip(mine, theirs, strict=False):
            self._operations(one, its_op)
        self._same(len(mine) == len(theirs), op)

    def _operations(self, op: Operation, other: Operation) -> None:
        self._same(op.name == other.name and len(op.operands) == len(other.operands), op)
        for operand, its in zip(op.operands, other.operands, strict=True):
            if isinstance(operand.owner, ConstantOp) and isinstance(its.owner, ConstantOp):
                self._constants(operand.owner, its.owner)
            else:
                self._same(self._values.get(operand) is its, op)
        self._same(op.properties.keys() == other.properties.keys(), op)
        for name, attribute in op.properties.items():
            its_attribute = other.properties[name]
            if attribute == its_attribute:
                continue
            if isinstance(op, arith.ConstantOp):
                self._count(op, attribute, its_attribute)
            elif isinstance(op, Looping) and name == "trips":
                assert isinstance(other, Looping)
                ends = self._shapes((op.turns,), (other.turns,), op)
                if ends:  # None where the number is a product of sizes.
                    self.trips[op] = ends[0]
            elif isinstance(attribute, IntsAttr) and _may_differ(op, name):
                assert isinstance(its_attribute, IntsAttr)
                self._shapes(attribute.data, its_attribute.data, op)
            else:
                self._same(False, op)
        self._same(len(op.results) == len(other.results), op)
        for value, its in zip(op.results, other.results, strict=True):
            self._value(value, its, op)
        blocks, others = _blocks_of(op), _blocks_of(other)
        self._same(len(blocks) == len(others), op)
        for block, its_block in zip(blocks, others, strict=True):
            self._blocks(block, its_block, op)

    def _value(self, value: SSAValue, other: SSAValue, op: Operation) -> None:
        self._values[value] = other
        self._ends_of(value, other, op)

    def _ends_of(self, value: SSAValue, other: SSAValue, op: Operation) -> None:
        """Records which axes of a tensor end at sizes."""
        mine, its = value.type, other.type
        if mine == its:
            return
        self._same(isinstance(mine, TensorType) and isinstance(its, TensorType), op)
        assert isinstance(mine, TensorType) and isinstance(its, TensorType)
        self._same((mine.element_type, mine.encoding) == (its.element_type, its.encoding), op)
        self.ends[value] = self._shapes(mine.get_shape(), its.get_shape(), op)

    def _shapes(self, shape: Shape, other: Shape, op: Operation) -> dict[int, Extent]:
        """The axes that are a multiple of a size; all other axes must be equal."""
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
            if ends:
                found[axis] = ends[0]
            else:
                self._same(self.joins and self._is_product(mine, its), op)
        return found

    def _is_product(self, mine: int, its: int) -> bool:
        """
        Whether a number is a multiple of a product of sizes, as after a reshape that merges axes.
        """
        for chosen in product((False, True), repeat=len(self.bounds)):
            whole, other = (math.prod(compress(of, chosen)) for of in (self.bounds, self.others))
            if mine % whole == 0 and mine // whole * other == its:
                return True
        return False

    def _constants(self, op: ConstantOp, other: ConstantOp) -> None:
        """
        Compares constants; one may be a prefix of the other, such as positions up to a size.

        Constants are compared at each use, because two that are equal at some sizes are merged
        there.
        """
        if (op, other) in self._compared:
            return
        self._compared.add((op, other))
        self._ends_of(op.result, other.result, op)
        mine = self.weights.array(op.literal)
        its = self.other_weights.array(other.literal)
        self._same(mine.dtype == its.dtype and mine.ndim == its.ndim, op)
        if _is_one_number(mine) and _is_one_number(its):
            self._number(op, mine.flat[0], its.flat[0])
            return
        front = tuple(slice(0, min(pair)) for pair in zip(mine.shape, its.shape, strict=True))
        self._same(np.array_equal(mine[front], its[front]), op)

    def _count(self, op: Operation, mine: Attribute, its: Attribute) -> None:
        """Compares constants in the body of a map or scatter; they may be computed from sizes."""
        self._same(isinstance(op.parent_op(), tile.MapOp | tile.ScatterOp), op)
        self._same(type(mine) is type(its) and isinstance(mine, FloatAttr | IntegerAttr), op)
        assert isinstance(mine, FloatAttr | IntegerAttr) and isinstance(its, type(mine))
        self._same(mine.type == its.type, op)
        kind = from_ir(mine.type).numpy.type
        self._number(op, kind(mine.value.data), kind(its.value.data))

    def _number(self, op: Operation, mine: Scalar, its: Scalar) -> None:
        """Records how a constant follows from sizes, if it differs."""
        found: Power | LastIndex | None = None
        if mine.tobytes() != its.tobytes():
            found = self._last_index(mine, its) or self._power(mine, its)
            self._same(found is not None, op)
        self.counts.setdefault(op, set()).add(found)

    def _last_index(self, mine: Scalar, its: Scalar) -> LastIndex | None:
        """The last index before a multiple of a size: the upper bound of a clamp."""
        if mine.dtype != np.int64:
            return None
        count = int(mine) + 1
        for number, (bound, other) in enumerate(zip(self.bounds, self.others, strict=True)):
            if count % bound == 0 < count and count // bound * other == int(its) + 1:
                return LastIndex(Extent(number, count // bound))
        return None

    def _power(self, mine: Scalar, its: Scalar) -> Power | None:
        """A constant times or divided by sizes; for integers, a product."""
        found = _powers(float(mine), float(its), self.bounds, self.others)
        if isinstance(mine, COUNTED):
            return next((one for one, rest in found if rest == 0 and one.is_product), None)
        if not isinstance(mine, np.float32 | np.float64):
            return None
        near = float(4 * np.finfo(mine.dtype).eps)
        return next((one for one, rest in found if rest <= near), None)

    def _same(self, holds: bool, op: Operation) -> None:
        if not holds:
            raise _depends(op)


@dataclass(frozen=True)
class Power:
    """factor * product of size_i ** exponent_i."""

    factor: float
    exponents: tuple[int, ...]
    """1, -1 or 0 for each size."""

    @property
    def is_product(self) -> bool:
        """Whether it is an integer for all sizes."""
        return self.factor.is_integer() and min(self.exponents) >= 0


@dataclass(frozen=True)
class LastIndex:
    """The last index of an axis that ends at a size."""

    end: Extent


def _is_one_number(array: Array) -> bool:
    """Whether all elements are equal, and there is at least one."""
    return array.size > 0 and bool((array == array.flat[0]).all())


def _powers(
    mine: float, its: float, bounds: Sequence[int], others: Sequence[int]
) -> Iterator[tuple[Power, float]]:
    """
    Expressions of `mine` in the bounds, simplest first.

    Each comes with its relative error at the other sizes.
    """
    choices = sorted(product((0, -1, 1), repeat=len(bounds)), key=lambda one: sum(map(abs, one)))
    for exponents in choices[1:]:
        whole, other = (
            math.prod(float(size) ** exponent for size, exponent in zip(of, exponents, strict=True))
            for of in (bounds, others)
        )
        factor = mine / whole
        if factor and its:
            yield Power(factor, exponents), abs(factor * other / its - 1)


def insert_counts(
    graph: GraphOp,
    counts: Mapping[Operation, Collection[Power | LastIndex | None]],
    names: Sequence[str],
) -> None:
    """Replaces constants that hold for the bounds by values computed from the sizes of the call."""
    sizes = [graph.inputs[name] for name in names]
    for op, found in counts.items():
        if set(found) == {None}:
            continue
        if not graph.is_ancestor(op) or len(found) > 1:
            raise _depends(op)
        (count,) = found
        user = op if isinstance(op, ConstantOp) else op.parent_op()
        assert user is not None
        kind = op.results[0].type
        kind = kind.element_type if isinstance(kind, TensorType) else kind
        if isinstance(count, LastIndex):
            number = _last_index(count.end, sizes)
        else:
            assert count is not None
            number = _computed(count, sizes, kind)
        block = user.parent_block()
        assert block is not None
        block.insert_op_before(number, user)
        if isinstance(op, ConstantOp):
            shape = tensor(op.results[0]).get_shape()
            made = movement(number.results[0], AffineMap(len(shape), 0, ()), shape)
            replace_op(op, made)
        else:
            assert isinstance(user, tile.MapOp | tile.ScatterOp)
            _replace_constant(op, user, number.results[0])


def _replace_constant(op: Operation, user: tile.MapOp | tile.ScatterOp, number: SSAValue) -> None:
    """Turns a constant in the body of an operation into an operand."""
    argument = user.body.block.insert_arg(op.results[0].type, len(user.inputs))
    op.results[0].replace_all_uses_with(argument)
    op.detach()
    inputs = [*user.inputs, number]
    maps = [*user.input_maps, AffineMap(len(user.sizes), 0, ())]
    body = user.detach_region(user.body)
    made: Operation
    if isinstance(user, tile.MapOp):
        kinds = [tensor(value).element_type for value in user.outputs]
        made = tile.MapOp(inputs, maps, user.sizes, body, kinds, user.tables)
    else:
        made = tile.ScatterOp(
            inputs,
            maps,
            user.sizes,
            user.parallel_rank,
            body,
            tensor(user.output),
            user.initial,
            None if user.combine is None else user.detach_region(user.combine),
        )
    made.location = user.location
    replace_op(user, made)


def _last_index(end: Extent, sizes: Sequence[SSAValue]) -> tile.MapOp:
    """end.factor * size - 1, as a scalar."""
    block = Block(arg_types=[i64])
    factor = arith.ConstantOp.from_int_and_width(end.factor, 64)
    whole = arith.MuliOp(block.args[0], factor)
    one = arith.ConstantOp.from_int_and_width(1, 64)
    last = arith.SubiOp(whole, one)
    block.add_ops([factor, whole, one, last, tile.YieldOp(last.result)])
    return tile.MapOp([sizes[end.size]], [AffineMap(0, 0, ())], [], Region(block), [i64])


def _computed(power: Power, sizes: Sequence[SSAValue], kind: Attribute) -> tile.MapOp:
    """The value of a power of sizes, as a scalar."""
    used = [(size, by) for size, by in zip(sizes, power.exponents, strict=True) if by]
    block = Block(arg_types=[i64] * len(used))
    if isinstance(kind, IntegerType):
        ops = _counted(power, block, kind)
    else:
        ops = _powered(power, block, [by for _, by in used], kind)
    block.add_ops([*ops, tile.YieldOp(ops[-1])])
    maps = [AffineMap(0, 0, ())] * len(used)
    return tile.MapOp([size for size, _ in used], maps, [], Region(block), [kind])


def _counted(power: Power, block: Block, kind: IntegerType) -> list[Operation]:
    """A product of sizes in i64, truncated: it wraps as narrower arithmetic does."""
    ops: list[Operation] = [arith.ConstantOp(IntegerAttr(int(power.factor), i64))]
    for argument in block.args:
        ops.append(arith.MuliOp(ops[-1].results[0], argument))
    signless = IntegerType(kind.width.data)
    if signless != i64:
        ops.append(arith.TruncIOp(ops[-1].results[0], signless))
    if signless != kind:
        ops.append(arith.BitcastOp(ops[-1].results[0], kind))
    return ops


def _powered(
    power: Power, block: Block, exponents: Sequence[int], kind: Attribute
) -> list[Operation]:
    """Sizes multiplied and divided in f64."""
    constant = arith.ConstantOp(FloatAttr(power.factor, f64))
    total: SSAValue = constant.result
    ops: list[Operation] = [constant]
    for by, argument in zip(exponents, block.args, strict=True):
        number = arith.SIToFPOp(argument, f64)
        joined = (arith.MulfOp if by > 0 else arith.DivfOp)(total, number.result)
        ops += [number, joined]
        total = joined.results[0]
    if kind != f64:
        ops.append(arith.TruncFOp(total, kind))
    return ops


def check_size_flow(
    module: ModuleOp, ends: Mapping[SSAValue, Ends], trips: Mapping[Operation, Extent]
) -> None:
    """
    UnsizedError unless sizes flow from the inputs to every axis that must end at one.

    Other tensors, such as zeros with a size-dependent number of rows, are computed up to the bound.
    The excess is harmless unless it is reduced or returned.
    """
    flow = SizeFlow.of_module(module)
    for op, end in trips.items():
        if not isinstance(op, CallLoopOp) or flow.trips.get(op) != end:
            raise _depends(op)
    for value, found in flow.ends.items():
        if not found.items() <= ends.get(value, {}).items():
            raise UnsizedError("a size reaches what does not depend on it", source_of(value))
    for graph in graphs_of(module):
        for op in graph.block.ops:
            if any(flow.of(value) != ends.get(value, {}) for value in op.operands):
                _check_reader(op, flow, ends)


def _check_reader(op: Operation, flow: SizeFlow, ends: Mapping[SSAValue, Ends]) -> None:
    """UnsizedError if an operation reduces elements beyond the end of a size."""
    match op:
        case tile.MapOp() | tile.ViewOp() | tile.PackOp() | tile.AssembleOp():
            return
        case CallLoopOp() | CallCondOp():
            return  # Their bodies are graphs, whose operations are looked at.
        case tile.ReduceOp() | tile.ScatterOp():
            running = flow.loops.get(op, {})
            started = op.initial if isinstance(op, tile.ScatterOp) else None
            if started is not None and flow.of(started) != ends.get(started, {}):
                raise _depends(op)
            for value, map_ in read_by(op):
                for axis, end in ends.get(value, {}).items():
                    assert map_ is not None, "operands of sums are read along loops"
                    for loop, found in loops_over(map_, axis, end, op).items():
                        if loop >= op.parallel_rank and running.get(loop) != found:
                            raise _depends(op)
        case _:
            raise _depends(op)


def _may_differ(op: Operation, name: str) -> bool:
    """Whether an attribute holds extents: a loop domain, or any list in graphcore."""
    return name == "domain" or isinstance(op, GraphcoreOp)


def source_of(value: SSAValue) -> str:
    """Source location of a value."""
    return "" if isinstance(value.owner, Block) else source(value.owner.location)


def _blocks_of(op: Operation) -> list[Block]:
    return [block for region in op.regions for block in region.blocks]


def _depends(op: Operation) -> UnsizedError:
    return UnsizedError(f"{op.name} depends on what a size is", source(op.location))
