"""Static operation count of a kernel: arithmetic, loads and stores of its loops."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from xdsl.dialects import arith, func, math, memref, scf, vector
from xdsl.dialects.builtin import (
    AnyFloat,
    IndexType,
    IntegerAttr,
    MemRefType,
    ModuleOp,
    VectorType,
)
from xdsl.ir import Attribute, Block, BlockArgument, Operation, SSAValue

from popgraph.dialects.element_types import element_bytes
from popgraph.dialects.program import GraphOp, graphs_of
from popgraph.dialects.program.calls import CallCondOp, CallLoopOp
from popgraph.dialects.program.control_signatures import UNBOUNDED
from popgraph.dialects.tile.lanes import DotOp
from popgraph.dialects.tile.program.ops import CallOp, ProgramOp
from popgraph.dialects.tile.program.program_control import RunsPrograms
from popgraph.dialects.tile.scalars import SCALARS
from popgraph.dialects.tile.structured.reduce import ReduceOp, is_contraction
from popgraph.support.shapes import prod
from popgraph.support.words import WORDS

WORD = 8
"""The bytes of an index."""

Numbers: TypeAlias = dict[SSAValue, int]
"""Known index values at one point of a kernel."""


@dataclass(frozen=True)
class Work:
    """
    Executed work: scalar floating-point operations (an fma counts two) and bytes.

    Products of integers in packed words count like float products.
    """

    flops: int = 0
    loaded: int = 0
    stored: int = 0
    instructions: int = 0
    """Operations on floats and memory; a vector operation counts one."""

    def __add__(self, other: Work) -> Work:
        return Work(
            self.flops + other.flops,
            self.loaded + other.loaded,
            self.stored + other.stored,
            self.instructions + other.instructions,
        )

    def __mul__(self, times: int) -> Work:
        return Work(
            self.flops * times,
            self.loaded * times,
            self.stored * times,
            self.instructions * times,
        )


NOTHING = Work()

_INDICES: dict[type[Operation], Callable[[int, int], int]] = {
    arith.AddiOp: operator.add,
    arith.SubiOp: operator.sub,
    arith.MuliOp: operator.mul,
    arith.DivUIOp: operator.floordiv,
    arith.DivSIOp: operator.floordiv,
    arith.RemUIOp: operator.mod,
    arith.RemSIOp: operator.mod,
    arith.MinSIOp: min,
    arith.MinUIOp: min,
    arith.MaxSIOp: max,
    arith.MaxUIOp: max,
    arith.AndIOp: operator.and_,
    arith.OrIOp: operator.or_,
}
"""Evaluates index arithmetic; operands of divisions are not negative."""

_COMPARISONS: tuple[Callable[[int, int], bool], ...] = (
    operator.eq,
    operator.ne,
    *(operator.lt, operator.le, operator.gt, operator.ge),
    *(operator.lt, operator.le, operator.gt, operator.ge),
)
"""Comparisons in the order of `arith.cmpi`'s predicate numbers."""


def lanes(type_: Attribute) -> int:
    return prod(type_.get_shape()) if isinstance(type_, VectorType) else 1


def size(type_: Attribute) -> int:
    """The bytes of a scalar, a vector or a memory."""
    if isinstance(type_, VectorType | MemRefType):
        return prod(type_.get_shape()) * size(type_.element_type)
    return WORD if isinstance(type_, IndexType) else element_bytes(type_)


def _is_float(type_: Attribute) -> bool:
    return isinstance(type_.element_type if isinstance(type_, VectorType) else type_, AnyFloat)


def flops_of(op: Operation) -> int:
    """The floating-point operations of one operation, over all lanes."""
    if isinstance(op, DotOp):
        return 2 * WORDS[op.words.data].count * lanes(op.result.type)
    if not op.results or not _is_float(op.results[0].type):
        return 0
    kind = math.FmaOp if isinstance(op, vector.FMAOp) else type(op)
    known = SCALARS[kind].flops if kind in SCALARS else 0
    return known * lanes(op.results[0].type)


def work_of(op: Operation) -> Work:
    """The work of one operation without regions."""
    match op:
        case memref.LoadOp() | vector.LoadOp():
            return Work(loaded=size(op.results[0].type), instructions=1)
        case memref.StoreOp():
            return Work(stored=size(op.value.type), instructions=1)
        case vector.StoreOp():
            return Work(stored=size(op.vector.type), instructions=1)
        case memref.CopyOp():
            moved = size(op.source.type)
            return Work(loaded=moved, stored=moved, instructions=2)
    flops = flops_of(op)
    return Work(flops=flops, instructions=1) if flops else NOTHING


class Counter:
    """Counts the work of a module's kernels; the count of a kernel is cached."""

    def __init__(self, module: ModuleOp) -> None:
        self._functions = {
            op.sym_name.data: op
            for op in module.ops
            if isinstance(op, func.FuncOp) and op.body.blocks
        }
        self._programs = {op.sym_name.data: op for op in module.ops if isinstance(op, ProgramOp)}
        self._known: dict[tuple[str, int], Work] = {}

    def call(self, op: CallOp | RunsPrograms) -> Work:
        """The work of all chunks of a call; of the longer branch, and of all iterations."""
        if isinstance(op, RunsPrograms):
            bodies = [self.calls(self._programs[name].body.block.ops) for name in op.programs]
            return max(bodies, key=lambda work: work.instructions) * op.repetitions
        name, chunks = op.callee.string_value(), op.chunks.value.data
        if (name, chunks) not in self._known:
            self._known[name, chunks] = self._kernel(self._functions[name], chunks)
        return self._known[name, chunks]

    def calls(self, ops: Iterable[Operation]) -> Work:
        """The work of the calls in a section of a program."""
        steps = (op for op in ops if isinstance(op, CallOp | RunsPrograms))
        return sum((self.call(op) for op in steps), NOTHING)

    def program(self, name: str) -> ProgramOp:
        return self._programs[name]

    def function(self, name: str) -> func.FuncOp:
        return self._functions[name]

    def _kernel(self, function: func.FuncOp, chunks: int) -> Work:
        body = function.body.block
        chunk = body.args[0]
        counted = _Body(body, self._functions)
        # Chunks are equal unless the chunk number decides trip counts or branches.
        if chunk not in counted.steering:
            return counted.work({}) * chunks
        return sum((counted.work({chunk: number}) for number in range(chunks)), NOTHING)


class _Body:
    """A block of a kernel: work that runs once, and nested blocks that depend on indices."""

    def __init__(self, block: Block, functions: Mapping[str, func.FuncOp]) -> None:
        self._functions = functions
        self._plain = NOTHING
        self._numbers: list[Operation] = []
        self._nested: list[tuple[Operation, list[_Body]]] = []
        for op in block.ops:
            bodies = [_Body(inner, functions) for region in op.regions for inner in region.blocks]
            if bodies or isinstance(op, func.CallOp):
                self._nested.append((op, bodies))
            else:
                self._plain += work_of(op)
        self.steering = self._steering(block)
        """Values that decide the number of iterations or the branch of something inside."""

    def _steering(self, block: Block) -> set[SSAValue]:
        wanted: set[SSAValue] = set()
        for op, bodies in self._nested:
            wanted.update(v for v in op.operands if isinstance(v.type, IndexType) or _is_bit(v))
            for body in bodies:
                wanted |= body.steering
        for op in reversed(list(block.ops)):
            if not op.regions and any(result in wanted for result in op.results):
                self._numbers.insert(0, op)
                wanted.update(op.operands)
        return wanted

    def work(self, known: Numbers) -> Work:
        """The work of one run of the block."""
        numbers = dict(known)
        for op in self._numbers:
            value = evaluated(op, numbers)
            if value is not None:
                numbers[op.results[0]] = value
        total = self._plain
        for op, bodies in self._nested:
            total += self._nested_work(op, bodies, numbers)
        return total

    def _nested_work(self, op: Operation, bodies: list[_Body], numbers: Numbers) -> Work:
        match op:
            case scf.ForOp():
                return _loop(op, bodies[0], numbers)
            case scf.IfOp():
                return _branch(op, bodies, numbers)
            case func.CallOp():
                body = self._functions[op.callee.string_value()].body.block
                given = zip(body.args, op.operands, strict=True)
                inner: Numbers = {argument: numbers[v] for argument, v in given if v in numbers}
                return _Body(body, self._functions).work(inner)
        raise AssertionError(f"{op.name} has no count")


def _is_bit(value: SSAValue) -> bool:
    return getattr(value.type, "bitwidth", 0) == 1


def _loop(op: scf.ForOp, body: _Body, numbers: Numbers) -> Work:
    """The work of a loop; one iteration if its bounds are unknown before the run."""
    first, end, step = (numbers.get(value) for value in (op.lb, op.ub, op.step))
    if first is None or end is None or not step:
        return body.work(numbers)
    iterations = range(first, end, step)
    index = op.body.block.args[0]
    # Iterations are equal unless the index decides trip counts or branches: O(1) instead of O(n).
    if index not in body.steering:
        return body.work(numbers) * len(iterations) if iterations else NOTHING
    return sum((body.work(numbers | {index: step}) for step in iterations), NOTHING)


def _branch(op: scf.IfOp, bodies: list[_Body], numbers: Numbers) -> Work:
    """The work of a branch; that of the longer one if its condition is unknown."""
    works = [body.work(numbers) for body in bodies]
    condition = numbers.get(op.cond)
    if condition is None:
        return max(works, key=lambda work: work.instructions)
    place = 0 if condition else 1
    return works[place] if place < len(works) else NOTHING


def evaluated(op: Operation, numbers: Numbers) -> int | None:
    """The value of index arithmetic, if its operands are known."""
    if isinstance(op, arith.ConstantOp):
        return op.value.value.data if isinstance(op.value, IntegerAttr) else None
    values = [numbers.get(operand) for operand in op.operands]
    if None in values:
        return None
    known = [value for value in values if value is not None]
    match op:
        case arith.CmpiOp():
            return int(_COMPARISONS[op.predicate.value.data](*known))
        case arith.SelectOp():
            return known[1] if known[0] else known[2]
        case arith.IndexCastOp():
            return known[0]
    function = _INDICES.get(type(op))
    if function is None or (function in (operator.floordiv, operator.mod) and not known[1]):
        return None
    return function(*known)


def multiply_adds(module: ModuleOp) -> int:
    """
    The multiply-adds of a model as written, which every command reports.

    Taken from the module after `graphcore-to-structured`, so implementations that save
    multiplications are compared by the same number. Counts the longer of two branches and every
    iteration of a loop (one if it is unbounded).
    """
    graphs = {graph.sym_name.data: graph for graph in graphs_of(module)}
    called = {name for graph in graphs.values() for op in _calls(graph) for name in op.graphs}
    return sum(_terms(graph, graphs) for name, graph in graphs.items() if name not in called)


def _calls(graph: GraphOp) -> Iterator[CallCondOp | CallLoopOp]:
    return (op for op in graph.walk() if isinstance(op, CallCondOp | CallLoopOp))


def _terms(graph: GraphOp, graphs: Mapping[str, GraphOp]) -> int:
    """The multiply-adds of one run of a graph."""
    total = sum(_products(op) for op in graph.walk() if is_contraction(op))
    for op in _calls(graph):
        turns = 1
        if isinstance(op, CallLoopOp) and op.trips.value.data != UNBOUNDED:
            turns = op.trips.value.data
        total += turns * max(_terms(graphs[name], graphs) for name in op.graphs)
    return total


def _products(op: ReduceOp) -> int:
    """The multiplications of a contraction: for packed words, of all numbers in them."""
    words = op.words
    return prod(op.sizes) * (1 if words is None else WORDS[words.data].count)


def written(function: func.FuncOp) -> frozenset[int]:
    """The memories that a kernel writes, numbered without the chunk number."""
    found = set()
    for op in function.walk():
        match op:
            case memref.StoreOp():
                target = op.memref
            case vector.StoreOp():
                target = op.base
            case memref.CopyOp():
                target = op.destination
            case func.CallOp():  # the callee may write its arguments
                found.update(_places(function, op.operands))
                continue
            case _:
                continue
        found.update(_places(function, [target]))
    return frozenset(found)


def _places(function: func.FuncOp, values: Iterable[SSAValue]) -> list[int]:
    block = function.body.block
    return [
        value.index - 1
        for value in values
        if isinstance(value, BlockArgument)
        and value.block is block
        and isinstance(value.type, MemRefType)
    ]
