"""Lowers If, Loop and Call: inner graphs become bodies of operations, or are inlined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import TensorType, UnrankedTensorType
from xdsl.ir import Block, Region, SSAValue

from popgraph.dialects import graphcore as gc
from popgraph.dialects.graphcore.base import dtype_of, shape_of
from popgraph.dialects.onnx import Graph, OnnxOp
from popgraph.dialects.onnx.inference import unchanged
from popgraph.dialects.onnx.op import Yield
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.types import STRING, OptType, SeqType, describe, static_shape
from popgraph.dialects.program import YieldOp
from popgraph.dialects.program.control_signatures import UNBOUNDED
from popgraph.operators.bodies import check_outputs, close, given_tensor, in_declared_shape
from popgraph.operators.elements import described, flat, packed, sequence, types_of
from popgraph.operators.movement import I64, reshaped
from popgraph.operators.node import Node
from popgraph.operators.record import GRAPHCORE, Lowered, lowers
from popgraph.operators.repetition import Iteration, LoopControl, Repetition
from popgraph.operators.segments import segments
from popgraph.support.errors import NeedsHostError, TypeMismatchError
from popgraph.support.memo import cached_property
from popgraph.support.shapes import prod


@lowers("Call", domain=GRAPHCORE)
def call(node: Node) -> Lowered:
    """Inlines the callee."""
    graph = node.graph("callee")
    check_outputs(node, graph, len(graph.yielded))
    return node.lowering.place(graph, node.inputs)


# If


def _chooses_types(op: OnnxOp) -> Sequence[int]:
    """The condition is structural if the branches give different types, or sequences."""
    (then,), (otherwise,) = (op.graphs()[name] for name in ("then_branch", "else_branch"))
    pairs = zip(then.yielded, otherwise.yielded, strict=False)
    return (0,) if any(one.type != other.type or holds(one) for one, other in pairs) else ()


@lowers("If", structural=_chooses_types)
def if_(node: Node) -> Lowered:
    """Inlines the branch that is taken if the condition is known; the other may be ill-typed."""
    predicate = _truth(node, 0)
    known = node.lowering.array(predicate)
    if known is not None:
        taken = node.graph("then_branch" if known else "else_branch")
        return node.lowering.place(taken, [], named=True)
    branches = [_Branch(node, node.graph(name)) for name in ("then_branch", "else_branch")]
    _check_branches(node, *branches)
    variables = list(dict.fromkeys(one for branch in branches for one in branch.moved))
    for branch in branches:
        branch.end(variables)
    blocks = [branch.block for branch in branches]
    captured = close(blocks)
    like = branches[0].given
    results = gc.CondOp(predicate, captured, *map(Region, blocks)).outputs
    count = len(types_of(like))
    given = iter(packed(results[:count], like))
    made = [next(given) if node.wants(index) else None for index in range(node.output_count)]
    for variable, value in zip(variables, results[count:], strict=True):
        node.lowering.update(variable, value)
    return made


def holds(value: SSAValue) -> bool:
    """Whether a value is a sequence or an optional."""
    return isinstance(value.type, SeqType | OptType)


def _truth(node: Node, index: int) -> SSAValue:
    """A condition input, as a scalar."""
    value = node[index]
    if prod(shape_of(value)) != 1 or dtype_of(value).name != "bool":
        raise TypeMismatchError(
            f"the condition of {node.op.op_type} must be one bool, not {describe(value.type)}"
        )
    return _scalar(value)


def _scalar(value: SSAValue) -> SSAValue:
    """A one-element tensor, reshaped to a scalar."""
    return SSAValue.get(reshaped(value, ()))


class _Branch:
    """A lowered branch of an If: its outputs, and the variables that it updates."""

    def __init__(self, node: Node, graph: Graph) -> None:
        self._lowering, self.block = node.lowering, Block()
        _check_typed(node, graph)
        with self._lowering.writing(self.block) as self.moved:
            made = self._lowering.place(graph, [])
            check_outputs(node, graph, len(made))
            wanted = [index for index in range(len(made)) if node.wants(index)]
            self.given = [given_tensor(node, graph, made, index) for index in wanted]

    def end(self, variables: Sequence[SSAValue]) -> None:
        """Yields the branch's outputs, then the final values of these variables."""
        after = [self.moved.get(one, self._lowering.current(one)) for one in variables]
        with ImplicitBuilder(self.block):
            YieldOp([*flat(self.given), *after])


def _check_typed(node: Node, graph: Graph) -> None:
    """
    Raises an error if a branch cannot be typed.

    Only branches that data may choose are checked: an ill-typed branch that never runs is legal.
    """
    if all(static_shape(value.type) is not None for value in graph.yielded):
        return
    try:
        node.lowering.check_types(graph)
    except TypeMismatchError as error:
        raise TypeMismatchError(
            f"a branch of If that data may choose cannot be computed: {error.what}",
            error.where,
            error.hint,
        ) from error


def _check_branches(node: Node, *branches: _Branch) -> None:
    """An error unless both branches give the same types."""
    names = [name for index, name in enumerate(node.op.output_names) if node.wants(index)]
    first, second = (branch.given for branch in branches)
    for name, one, other in zip(names, first, second, strict=True):
        if one.type != other.type:
            raise NeedsHostError(
                f"output {name!r} of If is {described(one)} in one branch "
                f"and {described(other)} in the other",
                hint="make both branches give one type (pad, reshape or cast), "
                "or make the condition constant",
            )


# Loop


def _counts_rows(op: OnnxOp) -> Sequence[int]:
    """
    The trip count and the condition are structural if the number of iterations decides a size.

    Each iteration stacks one row of every scan output, and may append to a carried sequence.
    """
    count = len(op.input_values()) - 2
    states, rows = op.output_values()[:count], op.output_values()[count:]
    return (0, 1) if any(rows) or any(holds(one) for one in states if one is not None) else ()


@lowers("Loop", structural=_counts_rows)
def loop(node: Node) -> Lowered:
    """
    Repeats the body input 0 times, while the condition that the body yields first is true.

    Without input 1 the yielded condition is ignored, as the operator's definition says.
    """
    made = _Loop(node, node.graph("body"))
    made.check()
    control = made.control()
    is_counted = control.go is None and control.limit is None and not node.lowering.training
    found = segments(node, made.graph, control.trips) if is_counted else None
    if found is not None:
        return found
    finals, rows = made.repetition().results(control)
    last, grown = iter(finals), iter(rows[len(made.wanted) :])
    stacked = dict(zip(made.wanted, rows, strict=False))
    return [
        *(
            one.first if one.is_kept else next(grown) if one.is_appended else next(last)
            for one in made.states
        ),
        *(stacked.get(index) for index in range(made.row_count)),
    ]


MOST_OUTPUTS = 1024
"""Most elements of a sequence that a program returns as outputs: 1,000 compile in 2 s."""


@dataclass(frozen=True)
class _State:
    """A state of a Loop."""

    name: str
    first: SSAValue
    """Before the first iteration."""
    is_kept: bool
    """Whether no iteration changes it."""
    is_appended: bool
    """Whether it is a sequence that no iteration reads, but each appends tensors to."""

    @property
    def is_carried(self) -> bool:
        return not (self.is_kept or self.is_appended)


def _is_appended(argument: SSAValue, place: int) -> bool:
    """Whether a body only appends to a sequence, itself or by a loop in it."""
    value: SSAValue | None = argument
    appends = False
    while value is not None and len(uses := list(value.uses)) == 1:
        op = uses[0].operation
        if isinstance(op, Yield):
            return appends and uses[0].index == place
        if not isinstance(op, SchemaOp) or op.domain:
            return False
        at = op.input_values().index(value)
        match op.op_type:
            case "Identity":
                value = op.results[0]
            case "SequenceInsert" if len(op.operands) == 2 and _is_of_numbers(op.operands[1]):
                value, appends = op.results[0], True
            case "Loop" if at > 1:
                (body,) = op.graphs()["body"]
                state = next(iter(body.block.args[at:]), None)
                if state is None or not _is_appended(state, at - 1):
                    return False
                value, appends = next(iter(op.output_values()[at - 2 :]), None), True
            case _:
                return False
    return False


def _is_given(value: SSAValue) -> bool:
    """Whether a graph yields a value, directly or through Identity."""
    users = [use.operation for use in value.uses]
    same = [op for op in users if isinstance(op, SchemaOp) and op.op_type == "Identity"]
    return any(isinstance(op, Yield) for op in users) or any(
        map(_is_given, (op.results[0] for op in same))
    )


def _is_of_numbers(value: SSAValue) -> bool:
    type_ = value.type
    return isinstance(type_, TensorType | UnrankedTensorType) and type_.element_type != STRING


@dataclass(frozen=True)
class _Loop:
    """A Loop and its body, with states that are kept, carried or appended to, and scan outputs."""

    node: Node
    graph: Graph

    @property
    def first(self) -> list[SSAValue]:
        """The initial states."""
        return [self.node[index] for index in range(2, len(self.node))]

    @property
    def row_count(self) -> int:
        return len(self.graph.yielded) - 1 - len(self.first)

    @property
    def wanted(self) -> list[int]:
        """The scan outputs that the node has, by index."""
        start = len(self.first)
        return [index for index in range(self.row_count) if self.node.wants(start + index)]

    def check(self) -> None:
        """Raises an error unless the body's inputs and outputs match the node's."""
        count, arguments = len(self.first), len(self.graph.block.args)
        if arguments != 2 + count or self.row_count < 0:
            raise TypeMismatchError(
                f"the body of a Loop with {count} states must have {2 + count} inputs and "
                f"at least {1 + count} outputs, not {arguments} and {len(self.graph.yielded)}"
            )
        check_outputs(self.node, self.graph, len(self.graph.yielded) - 1)

    @cached_property
    def states(self) -> list[_State]:
        names, arguments = self.graph.input_names[2:], self.graph.block.args[2:]
        yielded = self.graph.yielded[1:]
        return [
            _State(
                name,
                first,
                unchanged(new) is argument,
                _is_appended(argument, place) and not self._gives_many(place - 1),
            )
            for place, (name, first, argument, new) in enumerate(
                zip(names, self.first, arguments, yielded, strict=False), 1
            )
        ]

    def _gives_many(self, place: int) -> bool:
        """Whether a state is returned as a sequence of more than MOST_OUTPUTS tensors."""
        result = next(iter(self.node.op.output_values()[place:]), None)
        count = self.node.optional(0)
        known = None if count is None else self.node.lowering.array(count)
        if result is None or known is None or np.max(known) <= MOST_OUTPUTS:
            return False
        return _is_given(result)

    @property
    def carried(self) -> list[_State]:
        return [one for one in self.states if one.is_carried]

    @property
    def appended(self) -> list[_State]:
        return [one for one in self.states if one.is_appended]

    @property
    def has_rows(self) -> bool:
        """Whether each iteration stacks a row, so that the trip count is part of a shape."""
        return bool(self.wanted or self.appended)

    def control(self) -> LoopControl:
        """The trip count and the first condition, from the node's inputs."""
        trips, limit = self._trips()
        if self.node.optional(1) is None:
            return LoopControl(trips, limit)
        go = _truth(self.node, 1)
        if self.has_rows and trips:
            self.node.array(1, "the condition")
        known = self.node.lowering.array(go)
        if known is None:
            return LoopControl(trips, limit, go)
        return LoopControl(trips if known else 0, limit)

    def _trips(self) -> tuple[int, SSAValue | None]:
        """The trip count, and the limit if the trip count is only known at run time."""
        if self.node.optional(0) is None:
            return UNBOUNDED, None
        if self.has_rows:
            self.node.array(0, "the trip count")
        known = self.node.lowering.array(self.node[0])
        if known is not None:
            return max(0, int(known.reshape(-1)[0])), None
        return UNBOUNDED, _scalar(gc.CastOp(self.node[0], to=I64).result)

    def repetition(self) -> Repetition:
        start = len(self.first)
        firsts, names = [one.first for one in self.carried], [one.name for one in self.carried]
        rows = [self.node.op.output_names[start + index] for index in self.wanted]
        appended = {one.name: one.first for one in self.appended}
        return Repetition(self.node, self.body, firsts, [], names, rows, appended)

    def body(
        self, number: SSAValue, carried: Sequence[SSAValue], rows: Sequence[SSAValue]
    ) -> Iteration:
        """One iteration. It only runs if its condition holds, so the body gets True."""
        assert not rows, "a Loop scans no inputs"
        numbers = (number, self.node.literal(np.array(True)))
        steers = [
            in_declared_shape(value, argument)
            for value, argument in zip(numbers, self.graph.block.args, strict=False)
        ]
        given = iter(carried)
        empty = sequence([])
        states = [
            empty if one.is_appended else one.first if one.is_kept else next(given)
            for one in self.states
        ]
        made = self.node.lowering.place(self.graph, [*steers, *states])
        tensor = partial(given_tensor, self.node, self.graph, made)
        moved = [tensor(index) for index, one in enumerate(self.states, 1) if one.is_carried]
        grown = [tensor(index) for index, one in enumerate(self.states, 1) if one.is_appended]
        stacked = [tensor(1 + len(states) + index) for index in self.wanted]
        return Iteration(self._go(made), moved, [*stacked, *grown])

    def _go(self, made: Sequence[SSAValue | None]) -> SSAValue | None:
        if self.node.optional(1) is not None:
            return _scalar(given_tensor(self.node, self.graph, made, 0))
        value = made[0]
        known = None if value is None else self.node.lowering.array(value)
        if self.graph.block.args[1].uses and (known is None or not known):
            raise NeedsHostError(
                "the body of a Loop reads a condition, but the Loop has none",
                hint="give the Loop a condition: a constant that is true",
            )
        return None
