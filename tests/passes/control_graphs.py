"""Random graphs with loops and branches, as plain data, and the modules built from them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from hypothesis import strategies as st
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, Block, Region, SSAValue

from popgraph.dialects import element_types
from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import shape_of
from popgraph.dialects.graphcore.control import CondOp, LoopOp
from popgraph.dialects.program import ConstantOp, DataAttr, GraphOp, ReturnOp, YieldOp
from popgraph.dialects.program.control_signatures import NUMBER, TRUTH, row_type
from popgraph.dialects.program.interned import tensor_type
from popgraph.support import dtypes
from popgraph.support.arrays import Array

F64 = element_types.to_ir(dtypes.BY_NAME["f64"])
TYPES: dict[str, Attribute] = {
    "vector": tensor_type(F64, (3,)),
    "matrix": tensor_type(F64, (3, 3)),
    "number": NUMBER,
    "truth": TRUTH,
}
LITERALS: dict[str, tuple[Array, ...]] = {
    "vector": (np.array([1.0, -2.0, 0.5]),),
    "matrix": (np.array([[1.0, 0.0, 2.0], [0.5, 1.0, 0.0], [0.0, -1.0, 1.0]]),),
    "number": (np.array(1), np.array(0)),
    "truth": (np.array(True), np.array(False)),
}
"""Constants at the head of every block, by kind."""


def _project(vector: SSAValue, matrix: SSAValue) -> SSAValue:
    row = gc.ReshapeOp(vector, shape=(1, 3))
    return gc.ReshapeOp(gc.MatMulOp(row, matrix), shape=(3,)).result


def _spread(vector: SSAValue) -> SSAValue:
    return gc.ReduceMaxOp(gc.BroadcastOp(vector, shape=(4, 3)), axes=(0,), keepdims=False).result


OPERATIONS: dict[str, tuple[str, tuple[str, ...], Callable[..., SSAValue]]] = {
    "max": ("vector", ("vector", "vector"), lambda x, y: gc.MaxOp(x, y).result),
    "subtract": ("vector", ("vector", "vector"), lambda x, y: gc.SubOp(x, y).result),
    "negate": ("vector", ("vector",), lambda x: gc.NegOp(x).result),
    "spread": ("vector", ("vector",), _spread),
    "project": ("vector", ("vector", "matrix"), _project),
    "choose": ("vector", ("truth", "vector", "vector"), lambda *x: gc.WhereOp(*x).result),
    "scale": (
        "vector",
        ("vector", "number"),
        lambda x, n: gc.AddOp(x, gc.CastOp(n, to=F64)).result,
    ),
    "turn": ("matrix", ("matrix",), lambda x: gc.TransposeOp(x, perm=(1, 0)).result),
    "count": ("number", ("number", "number"), lambda x, y: gc.AddOp(x, y).result),
    "compare": (
        "truth",
        ("number", "number"),
        lambda x, y: gc.CompareOp(x, y, predicate="lt").result,
    ),
    "not": ("truth", ("truth",), lambda x: gc.NotOp(x).result),
}
"""Result kind, operand kinds and builder of each operation."""


@dataclass(frozen=True)
class Step:
    """An operation; its operands are values of the required kinds, by position."""

    name: str
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Value:
    """A value of a kind, by position among the values in scope."""

    kind: str
    place: int


@dataclass(frozen=True)
class Loop:
    """A loop; `go` and `limit` are its condition and limit, if any."""

    trips: int
    reverse: bool
    go: Value | None
    limit: Value | None
    carried: tuple[Value, ...]
    scanned: tuple[int, ...]
    captured: tuple[Value, ...]
    steps: tuple[Piece, ...]
    following: tuple[int, ...]
    """Position, among the values of its kind, of the next value of each carried value."""
    stacked: tuple[Value, ...]
    next_go: int
    counts: bool
    """Whether carried numbers are incremented by one in each iteration."""


@dataclass(frozen=True)
class Branch:
    """A branch on a boolean value."""

    predicate: int
    captured: tuple[Value, ...]
    then: tuple[Piece, ...]
    otherwise: tuple[Piece, ...]
    outputs: tuple[Value, ...]


Piece: TypeAlias = Step | Loop | Branch


@dataclass(frozen=True)
class ControlGraph:
    """A graph; `outputs` are some of its values."""

    steps: tuple[Piece, ...]
    outputs: tuple[Value, ...]


class _Scope:
    """The values in scope of a block, by kind."""

    def __init__(self, arguments: Sequence[SSAValue], stacks: Sequence[SSAValue]) -> None:
        self.values: dict[str, list[SSAValue]] = {kind: [] for kind in TYPES}
        self.stacks = list(stacks)
        for literals in LITERALS.values():
            for array in literals:
                self.add(ConstantOp(DataAttr.of(array)).result)
        for value in arguments:
            self.add(value)

    def add(self, value: SSAValue) -> None:
        for kind, type_ in TYPES.items():
            if value.type == type_:
                self.values[kind].append(value)

    def at(self, value: Value) -> SSAValue:
        """Counts from the newest value, so that values of the block itself are likely."""
        found = self.values[value.kind]
        return found[-1 - value.place % len(found)]

    def run(self, steps: Sequence[Piece]) -> None:
        for step in steps:
            match step:
                case Step():
                    _, kinds, make = OPERATIONS[step.name]
                    pairs = zip(kinds, step.operands, strict=False)
                    self.add(make(*(self.at(Value(*pair)) for pair in pairs)))
                case Loop():
                    self._loop(step)
                case Branch():
                    self._branch(step)

    def _loop(self, loop: Loop) -> None:
        carried = [self.at(value) for value in loop.carried]
        tall = [value for value in self.stacks if shape_of(value)[0] == loop.trips]
        scanned = [tall[place % len(tall)] for place in loop.scanned if tall]
        captured = [self.at(value) for value in loop.captured]
        go = None if loop.go is None else self.at(loop.go)
        limit = None if loop.limit is None else self.at(loop.limit)
        types = [value.type for value in carried], [value.type for value in captured]
        block = Block(arg_types=[NUMBER, *types[0], *map(row_type, scanned), *types[1]])
        with ImplicitBuilder(block):
            inner = _Scope(block.args, [])
            inner.run(loop.steps)
            yielded = [inner.at(Value("truth", loop.next_go))] if go else []
            arguments = block.args[1:]
            for value, argument, place in zip(
                loop.carried, arguments, loop.following, strict=False
            ):
                following = inner.at(Value(value.kind, place))
                if value.kind == "number" and loop.counts:
                    one = ConstantOp(DataAttr.of(np.array(1)))
                    following = gc.AddOp(argument, one).result
                yielded.append(following)
            yielded += [inner.at(value) for value in loop.stacked]
            YieldOp(yielded)
        made = LoopOp(
            loop.trips,
            Region(block),
            carried=carried,
            scanned=scanned,
            captured=captured,
            go=go,
            limit=limit,
            reverse=loop.reverse and go is None and limit is None,
        )
        for result in made.finals:
            self.add(result)
        self.stacks += made.stacked

    def _branch(self, branch: Branch) -> None:
        captured = [self.at(value) for value in branch.captured]
        regions = []
        for steps in (branch.then, branch.otherwise):
            block = Block(arg_types=[value.type for value in captured])
            with ImplicitBuilder(block):
                inner = _Scope(block.args, [])
                inner.run(steps)
                YieldOp([inner.at(value) for value in branch.outputs])
            regions.append(Region(block))
        made = CondOp(self.at(Value("truth", branch.predicate)), captured, *regions)
        for result in made.outputs:
            self.add(result)


def build(graph: ControlGraph) -> ModuleOp:
    """The module; inputs are a value of each kind, and rows for each trip count."""
    rows = [tensor_type(F64, (trips, 3)) for trips in range(TRIPS + 1)]
    types = [*TYPES.values(), *rows]
    made = GraphOp("main", [f"x{place}" for place in range(len(types))], types)
    with ImplicitBuilder(made.block):
        count = len(TYPES)
        scope = _Scope(made.block.args[:count], made.block.args[count:])
        scope.run(graph.steps)
        outputs = [scope.at(value) for value in graph.outputs]
        outputs += scope.stacks[len(rows) :][: len(graph.outputs)]
        ReturnOp(outputs, [f"y{place}" for place in range(len(outputs))])
    return ModuleOp([made])


TRIPS = 3
"""Largest trip count of a loop."""

PLACES = st.integers(0, 9)
FEW = st.integers(0, 4)
KINDS = st.sampled_from(["vector", "vector", "matrix", *sorted(TYPES)])
VALUES = st.builds(Value, KINDS, PLACES)
NAMES = st.sampled_from([*["project"] * 3, *sorted(OPERATIONS)])
STEPS = st.builds(Step, NAMES, st.tuples(FEW, FEW, FEW))


def _some(
    strategy: st.SearchStrategy[Value], most: int = 3
) -> st.SearchStrategy[tuple[Value, ...]]:
    return st.lists(strategy, max_size=most).map(tuple)


def _rarely(strategy: st.SearchStrategy[Value]) -> st.SearchStrategy[Value | None]:
    return st.sampled_from([False, False, False, True]).flatmap(
        lambda there: strategy if there else st.none()
    )


def _pieces(depth: int) -> st.SearchStrategy[tuple[Piece, ...]]:
    piece: st.SearchStrategy[Piece] = STEPS
    if depth:
        piece = STEPS | _loops(depth - 1) | _branches(depth - 1)
    return st.lists(piece, max_size=5).map(tuple)


def _loops(depth: int) -> st.SearchStrategy[Piece]:
    return st.builds(
        Loop,
        st.sampled_from([0, 1, *[TRIPS] * 4]),
        st.booleans(),
        _rarely(st.builds(Value, st.just("truth"), PLACES)),
        _rarely(st.builds(Value, st.just("number"), PLACES)),
        _some(VALUES),
        st.lists(PLACES, max_size=2).map(tuple),
        _some(VALUES),
        _pieces(depth),
        st.tuples(FEW, FEW, FEW),
        _some(VALUES, 2),
        PLACES,
        st.booleans(),
    )


def _branches(depth: int) -> st.SearchStrategy[Piece]:
    pieces = _pieces(depth)
    return st.builds(Branch, PLACES, _some(VALUES), pieces, pieces, _some(VALUES, 2))


def control_graphs() -> st.SearchStrategy[ControlGraph]:
    """Graphs with nested loops and branches."""
    steps = st.lists(_loops(1) | _branches(1) | STEPS, min_size=1, max_size=4).map(tuple)
    outputs = st.lists(st.builds(Value, KINDS, FEW), min_size=2, max_size=6).map(tuple)
    return st.builds(ControlGraph, steps, outputs)


def single_loops() -> st.SearchStrategy[ControlGraph]:
    """Graphs of one loop without early exit, with many carried, scanned and captured values."""
    kinds = st.sampled_from(sorted(TYPES))
    carried = st.tuples(*[st.builds(Value, kinds, FEW)] * 3)
    loop = st.builds(
        Loop,
        st.just(TRIPS),
        st.booleans(),
        st.none(),
        st.none(),
        carried,
        st.just((0,)),
        st.lists(st.builds(Value, kinds, FEW), min_size=1, max_size=2).map(tuple),
        st.lists(STEPS, min_size=1, max_size=3).map(tuple),
        st.tuples(FEW, FEW, FEW),
        st.tuples(st.builds(Value, st.just("vector"), FEW)),
        FEW,
        st.booleans(),
    )
    outputs = st.tuples(*[st.builds(Value, kinds, st.just(0))] * 2)
    return st.builds(ControlGraph, st.tuples(loop), outputs)
