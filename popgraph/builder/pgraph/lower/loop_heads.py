"""Lowers the head of a `loop`: trip count, condition, states and scanned tensors."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from xdsl.dialects.builtin import TensorType, UnrankedTensorType
from xdsl.ir import Attribute, Operation, SSAValue

from popgraph.builder.pgraph.check.declared_types import declared_type, may_be
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.expressions import fold, lower_value
from popgraph.builder.pgraph.lower.nodes import add_constant, add_step
from popgraph.builder.pgraph.lower.tensor_literals import lower_literal
from popgraph.builder.pgraph.lower.value_names import next_step
from popgraph.builder.pgraph.syntax.literals import is_literal
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import (
    Expression,
    Loop,
    Missing,
    Name,
    Number,
    Scanned,
    State,
    Target,
    Turns,
    Type,
    walk,
)
from popgraph.dialects.onnx import Initializer, tensor_type
from popgraph.dialects.onnx.types import UNKNOWN, Dim, UnknownType, describe, dims

NUMBER, TRUTH = tensor_type("i64", []), tensor_type("bool", [])


@dataclass
class LoopState:
    """A loop state: its initial value, its type, and its value at the start of an iteration."""

    state: State
    first: SSAValue | None
    type: Attribute
    before: SSAValue | None = None
    keeps_type: bool = False
    """Whether an iteration keeps the type."""

    @property
    def name(self) -> str:
        return self.state.name.text


@dataclass
class Head:
    """The head of the loop being lowered."""

    loop: Loop
    counter: Scanned | None
    rows: list[tuple[Scanned, SSAValue]] = field(default_factory=list)
    """The scanned names, and the stacked tensor of each."""
    carried: list[LoopState] = field(default_factory=list)
    condition_state: LoopState | None = None
    """The state that serves as condition, whose final value the loop does not return."""
    count: SSAValue | None = None
    condition: SSAValue | None = None
    number: SSAValue | None = None

    @property
    def scans(self) -> bool:
        """Whether the trip count comes from scanned tensors alone."""
        rows = [one for one in self.loop.scanned if not isinstance(one.range, Turns)]
        return bool(rows) and self.loop.condition is None

    @property
    def explicit_states(self) -> list[LoopState]:
        """The states that ONNX carries as such."""
        return [one for one in self.carried if one is not self.condition_state]

    @property
    def start(self) -> Expression:
        """The first iteration number of a counting loop."""
        assert self.counter is not None and isinstance(self.counter.range, Turns)
        return self.counter.range.first


def lower_head(context: GraphContext, loop: Loop, names: Sequence[str]) -> Head:
    """
    Lowers everything that is computed before the loop, in operand order.

    `names` are the result names in the graph.
    """
    _check_names(context, loop)
    head = Head(loop, _counter(context, loop))
    head.count = _count(context, head)
    if loop.condition is None and not head.scans:
        head.condition = add_constant(context, np.array(True), next_step(context), loop.span)
    _lower_states(context, head, _condition_state(context, loop, names))
    for scanned in loop.scanned:
        if not isinstance(scanned.range, Turns):
            head.rows.append((scanned, lower_value(context, scanned.range)))
    _check_rows(context, head)
    if head.rows and not head.scans:
        head.count = _length(context, *head.rows[0])
    if loop.condition is not None and head.condition_state is None:
        head.condition = _first_condition(context, head)
    return head


# --- trip count and states


def _counter(context: GraphContext, loop: Loop) -> Scanned | None:
    """The iteration counter; fails if there are two, or if nothing ends the loop."""
    counters = [one for one in loop.scanned if isinstance(one.range, Turns)]
    for other in counters[1:]:
        context.source.parse_error(
            other.span, "a loop has at most one counter", "`loop i in 0..n, x in xs`"
        )
        raise Failed
    counter = counters[0] if counters else None
    ends = counter is not None and _last(counter) is not None
    if counter is not None and ends and len(loop.scanned) > 1:
        context.source.parse_error(
            counter.span,
            "the number of rows determines the number of iterations",
            "`loop i in 0.., x in xs` counts them; `xs[:n]` has fewer",
        )
        raise Failed
    if not ends and len(loop.scanned) == len(counters) and loop.condition is None:
        context.source.parse_error(
            loop.span,
            "nothing ends this loop",
            "`loop i in 0..n`, `loop x in xs`, `loop while condition`",
        )
        raise Failed
    return counter


def _last(counter: Scanned) -> Expression | None:
    """The end of the counter's range, if there is one."""
    assert isinstance(counter.range, Turns)
    return counter.range.last


def _lower_states(context: GraphContext, head: Head, condition_state: State | None) -> None:
    """Lowers initial states; that of the condition comes first and may be missing."""
    if condition_state is not None:
        first = (
            None
            if isinstance(condition_state.value, Missing)
            else _first(context, condition_state)[0]
        )
        _check_truth(context, head.loop.condition, first)
        head.condition, head.condition_state = first, LoopState(condition_state, first, TRUTH)
    for state in head.loop.states:
        if state is condition_state:
            assert head.condition_state is not None
            head.carried.append(head.condition_state)
        else:
            head.carried.append(LoopState(state, *_first(context, state)))


def _check_names(context: GraphContext, loop: Loop) -> None:
    """Names in the head must be new, or results of the loop, and unique."""
    seen: set[str] = set()
    results = [name.text for name in context.statement.wanted]
    names = [*(one.name for one in loop.scanned), *(one.name for one in loop.states)]
    for name in names:
        if isinstance(name, Missing):
            continue
        if name.text not in results:
            context.scope.check_new(name)
        if name.text in seen:
            context.source.parse_error(
                name.span,
                f"duplicate name `{name.text}` in the head of this loop",
                "every value needs a unique name",
            )
            raise Failed
        seen.add(name.text)


def _condition_state(context: GraphContext, loop: Loop, names: Sequence[str]) -> State | None:
    """The state that serves as condition, if its final value is not a result."""
    if not isinstance(loop.condition, Name):
        return None
    for index, state in enumerate(loop.states):
        if state.name.text == loop.condition.text:
            if loop.gives is not None:
                wanted = index < len(names) and bool(names[index])
            else:
                wanted = state.name.text in [one.text for one in context.statement.wanted]
            return None if wanted else state
    return None


def _first(context: GraphContext, state: State) -> tuple[SSAValue, Attribute]:
    """The initial value of a state, and its type inside the loop."""
    type_ = None
    if state.type is not None:
        type_ = declared_type(context.source, state.type, context.scope)
    if isinstance(state.value, Missing):
        context.source.parse_error(
            state.span, f"the state `{state.name.text}` has no initial value", "`with h = start`"
        )
        raise Failed
    dtype = state.type.dtype.text if isinstance(state.type, Type) else None
    value = operand(context, state.value, dtype)
    if type_ is not None and not may_be(value.type, type_):
        context.source.mismatch(
            state.span,
            f"the state `{state.name.text}` is declared as {describe(type_)}, but its initial "
            f"value is {describe(value.type)}",
        )
        raise Failed
    return value, value.type if type_ in (None, UNKNOWN) else type_


def operand(context: GraphContext, expression: Expression, dtype: str | None) -> SSAValue:
    """A value before the loop; a literal gets this element type, if given."""
    given = fold(context, expression)
    if is_literal(given):
        return lower_literal(context, given, dtype, None)
    return lower_value(context, given)


def _count(context: GraphContext, head: Head) -> SSAValue | None:
    """The trip count of the loop, if a range determines it."""
    if head.counter is None:
        return None
    assert isinstance(head.counter.range, Turns)
    first = fold(context, head.counter.range.first)
    last = head.counter.range.last
    if last is None:
        return None
    last = fold(context, last)
    match first, last:
        case Number(value=int() as a), Number(value=int() as b):
            return add_constant(
                context, np.array(max(0, b - a), np.int64), next_step(context), last.span
            )
        case Number(value=0), _:
            return integer_value(context, last)
        case _:
            ends = [integer_value(context, last), integer_value(context, first)]
            return add_step(context, "Sub", ends, None, last.span)


def integer_value(context: GraphContext, expression: Expression) -> SSAValue:
    """An end of a range, as an integer."""
    if isinstance(expression, Number) and not isinstance(expression.value, int):
        context.source.parse_error(
            expression.span, "the ends of a range must be integers", "`0..12`"
        )
        raise Failed
    value = operand(context, expression, "i64")
    if may_be(value.type, NUMBER) or may_be(value.type, tensor_type("i64", [1])):
        return value
    context.source.mismatch(
        expression.span,
        f"an end of a range must be an i64 scalar, not {describe(value.type)}",
        "`Cast(n, to=i64)`",
    )
    raise Failed


def _check_rows(context: GraphContext, head: Head) -> None:
    """Fails if a scanned value is a scalar, or if lengths differ."""
    lengths: list[Dim] = []
    for scanned, value in head.rows:
        shape = dims(value.type)
        if shape == () or not isinstance(value.type, TensorType | UnrankedTensorType | UnknownType):
            context.source.mismatch(
                scanned.span, f"this has no rows: it is {describe(value.type)}", "`x in xs`"
            )
            raise Failed
        lengths.append(shape[0] if shape else None)
    for (scanned, _), length in zip(head.rows[1:], lengths[1:], strict=True):
        both = (lengths[0], length)
        unequal = all(isinstance(one, int) for one in both) and both[0] != both[1]
        unsure = not head.scans and (None in both or both[0] != both[1])
        if unequal or unsure:
            told = " and ".join("?" if one is None else str(one) for one in both)
            context.source.mismatch(
                scanned.span,
                f"tensors of one iteration need the same number of rows, not {told}",
                "`x in xs[:n]`" if unequal else "with `while`, both lengths must be known",
            )
            raise Failed


def _length(context: GraphContext, scanned: Scanned, value: SSAValue) -> SSAValue:
    """The number of rows of a tensor."""
    shape = dims(value.type)
    if shape and isinstance(shape[0], int):
        return add_constant(context, np.array(shape[0], np.int64), next_step(context), scanned.span)
    sizes = add_step(context, "Shape", [value], None, scanned.span)
    first = add_constant(context, np.array(0, np.int64), next_step(context), scanned.span)
    return add_step(context, "Gather", [sizes, first], None, scanned.span)


# --- the condition ------------------------------------------------------------------------------


def _first_condition(context: GraphContext, head: Head) -> SSAValue:
    """The condition before the first iteration, from the initial states."""
    loop = head.loop
    scope = Scope(context.source, context.scope)
    for one in head.carried:
        scope.define(one.state.name, one.first)
    if head.counter is not None and isinstance(head.counter.name, Name):
        scope.define(head.counter.name, fold(context, head.start))
    _check_visible(context, loop, scope)
    assert loop.condition is not None
    before = context.writer.block.last_op
    value = operand(context.within(scope), loop.condition, "bool")
    _check_truth(context, loop.condition, value)
    first = context.writer.block.first_op if before is None else before.next_op
    if any(isinstance(op, Initializer) for op in _successors(first)):
        context.source.parse_error(
            loop.condition.span,
            "a condition cannot define weights: it is computed both before and in the loop",
            "compute it in the block, and carry it: `while going with going = true`",
        )
        raise Failed
    return value


def _successors(op: Operation | None) -> Iterator[Operation]:
    """An operation and its successors."""
    while op is not None:
        yield op
        op = op.next_op


def _check_visible(context: GraphContext, loop: Loop, scope: Scope) -> None:
    """Fails if the condition uses a value that is only defined inside the loop."""
    assert loop.condition is not None
    rows = (one.name for one in loop.scanned if not isinstance(one.range, Turns))
    made = (one.name for one in walk(loop.body) if isinstance(one, Target))
    inside = {name.text for name in (*rows, *made) if isinstance(name, Name)}
    for node in walk(loop.condition):
        if isinstance(node, Name) and node.text in inside and not scope.taken(node.text):
            context.source.parse_error(
                node.span,
                f"`{node.text}` is defined in an iteration, but the condition is evaluated before "
                "it",
                f"carry it: `with {node.text} = ...`",
            )
            raise Failed


def last_condition(
    context: GraphContext, head: Head, values: Mapping[str, SSAValue]
) -> SSAValue | None:
    """
    The condition after an iteration, from the updated states, unless a state is the condition.

    `context` is that of the loop body's graph.
    """
    if head.loop.condition is None or head.condition_state is not None:
        return None
    scope = Scope(context.source, context.scope.parent)
    for one in head.carried:
        scope.define(one.state.name, values[one.name])
    if head.counter is not None and isinstance(head.counter.name, Name):
        scope.define(head.counter.name, next_number(context, head))
    return operand(context.within(scope), head.loop.condition, "bool")


def next_number(context: GraphContext, head: Head) -> SSAValue:
    """The number of the next iteration."""
    assert head.counter is not None and head.number is not None
    span = head.counter.span
    one_more = add_constant(context, np.array(1, np.int64), next_step(context), span)
    return add_step(context, "Add", [head.number, one_more], None, span)


def _check_truth(
    context: GraphContext, condition: Expression | None, value: SSAValue | None
) -> None:
    """Fails unless a condition is a single boolean."""
    if condition is None or value is None:
        return
    if may_be(value.type, TRUTH) or may_be(value.type, tensor_type("bool", [1])):
        return
    context.source.mismatch(
        condition.span,
        f"the condition of a loop must be a bool scalar, not {describe(value.type)}",
        "`error > 1e-6`; `ReduceMin` or `ReduceMax` reduces a tensor",
    )
    raise Failed
