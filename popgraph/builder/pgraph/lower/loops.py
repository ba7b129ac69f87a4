"""Lowers `loop` to ONNX's Loop, or to Scan if only scanned tensors set the trip count."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, TypeAlias

from xdsl.ir import Attribute, SSAValue

from popgraph.builder.pgraph.check.annotations import value_notes
from popgraph.builder.pgraph.check.declared_types import check_dtype_of, declared_type, may_be
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.branches import check_count
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.expressions import fold, folding
from popgraph.builder.pgraph.lower.inner_graphs import block_graph, written
from popgraph.builder.pgraph.lower.inputs_and_outputs import outputs_of, result_named
from popgraph.builder.pgraph.lower.loop_heads import (
    NUMBER,
    TRUTH,
    Head,
    LoopState,
    integer_value,
    last_condition,
    lower_head,
    next_number,
)
from popgraph.builder.pgraph.lower.nodes import add_node, add_step
from popgraph.builder.pgraph.lower.statements import lower_statements
from popgraph.builder.pgraph.lower.value_names import full_name, next_step
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import (
    Loop,
    Missing,
    Name,
    Number,
    Scanned,
    State,
    Target,
)
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.inference import row_of
from popgraph.dialects.onnx.metadata import declared
from popgraph.dialects.onnx.types import UNKNOWN, describe, joined, refined
from popgraph.dialects.value_types import set_type

LABEL = "turn"
"""Default name of the body graph."""


def lower_loop(context: GraphContext, loop: Loop, names: Sequence[str] | None) -> list[SSAValue]:
    """Lowers a loop; returns final states and stacked rows, called `names` in the graph."""
    if names is None:
        context.source.parse_error(
            loop.span, "a `loop` must follow `=` directly", "give its results names, and use these"
        )
        raise Failed
    head = lower_head(context, loop, names)
    inner = block_graph(context, LABEL, loop.body, loop.gives, lenient=False)
    lower = _lower_scan if head.scans else _lower_counted
    results, values = lower(context, inner, head, names)
    given = dict(zip(filter(None, results), values, strict=True))
    for name, one in zip(results, head.explicit_states, strict=False):
        if name and one.keeps_type:  # ONNX's own inference does not see that sizes stay.
            set_type(given[name], refined(given[name].type, one.type))
    return [given[name] for name in names if name]


class _BodyResult(NamedTuple):
    """A result of the loop body, and the name of the corresponding result of the loop."""

    result: str
    """Empty if the result is unused."""
    value: SSAValue
    info: ValueInfoAttr


Written: TypeAlias = tuple[list[str], list[SSAValue]]
"""The names of a node's results, and the values of used results."""


def _lower_counted(
    context: GraphContext, inner: GraphContext, head: Head, names: Sequence[str]
) -> Written:
    """Lowers to a Loop."""
    head.number = _add_input(inner, head.counter, NUMBER, "number")
    condition_state = head.condition_state
    going = _add_input(inner, condition_state.state if condition_state else None, TRUTH, "going")
    if condition_state is not None:
        condition_state.before = going
    for one in head.explicit_states:
        one.before = _add_input(inner, one.state, one.type)
    for scanned, rows in head.rows:
        _define_row(inner, scanned, rows, head.number)
    _define_head(inner, head)
    states, stacked = _lower_block(context, inner, head, names)
    on = last_condition(inner, head, {name: one.value for name, one in states.items()})
    if condition_state is None:
        states = {"": _body_result(inner, "", going if on is None else on), **states}
    else:
        states = {"": states.pop(condition_state.name), **states}
    _end(inner, [*states.values(), *stacked])
    results = _results(context, head, [*list(states.values())[1:], *stacked])
    operands = _trimmed([head.count, head.condition, *(one.first for one in head.explicit_states)])
    attributes = {"body": written(inner)}
    span = head.loop.span
    return results, add_node(context, "Loop", operands, results, span, attributes)


def _lower_scan(
    context: GraphContext, inner: GraphContext, head: Head, names: Sequence[str]
) -> Written:
    """Lowers to a Scan; the iteration number becomes another state."""
    loop = head.loop
    if context.writer.opsets[""] < 9:
        context.source.parse_error(
            loop.span,
            "before opset 9, Scan supports only batched sequences",
            "`opset 9`, or a later one",
        )
        raise Failed
    firsts = [one.first for one in head.explicit_states]
    for one in head.explicit_states:
        one.before = _add_input(inner, one.state, one.type)
    if head.counter is not None and isinstance(head.counter.name, Name):
        firsts.append(integer_value(context, fold(context, head.start)))
        head.number = _add_input(inner, head.counter, NUMBER, "number")
    for scanned, rows in head.rows:
        row = _add_input(inner, scanned, row_of(rows.type, 0), "row")
        _define(inner, scanned, row)
    _define_head(inner, head)
    states, stacked = _lower_block(context, inner, head, names)
    given = list(states.values())
    if head.number is not None:
        given.append(_body_result(inner, next_step(context), next_number(inner, head)))
    _end(inner, [*given, *stacked])
    results = _results(context, head, [*given, *stacked])
    operands = [*firsts, *(rows for _, rows in head.rows)]
    attributes = {"body": written(inner), "num_scan_inputs": len(head.rows)}
    return results, add_node(context, "Scan", operands, results, loop.span, attributes)


def _results(context: GraphContext, head: Head, given: Sequence[_BodyResult]) -> list[str]:
    """
    The names of all results of a node.

    Some runtimes reject a Loop with unnamed results, so results are unnamed only if the text says
    `_`.
    """
    if head.loop.gives is not None:
        return [one.result for one in given]
    return [one.result or next_step(context) for one in given]


def _trimmed(operands: list[SSAValue | None]) -> list[SSAValue | None]:
    while operands and operands[-1] is None:
        operands.pop()
    return operands


# --- inputs of the body


def _add_input(
    inner: GraphContext, one: Scanned | State | None, type_: Attribute, otherwise: str = ""
) -> SSAValue:
    """Adds an input to the body graph; the text may not name it."""
    if one is None or isinstance(one.name, Missing):
        return inner.writer.add_input(full_name(inner, otherwise), type_)
    text = one.name.text
    if inner.prefix and isinstance(one, State):
        text += "/before"  # The name itself is for its value after the iteration.
    said = type_
    if one.type is not None:
        said = declared_type(inner.source, one.type, inner.scope)
        type_ = type_ if said == UNKNOWN else said
    annotations = one.annotations if isinstance(one, State) else ()
    notes = value_notes(inner.source, annotations, folding(inner))
    name = full_name(inner, text)
    info = declared(name, said, notes.about, notes.denotations)
    return inner.writer.add_input(name, type_, info=info)


def _define_head(inner: GraphContext, head: Head) -> None:
    """Defines the names of states and of the iteration number in the body."""
    for one in head.carried:
        inner.scope.define(one.state.name, one.before)
    if head.counter is None or head.number is None or isinstance(head.counter.name, Missing):
        return
    if not head.scans and not _is_zero(head):
        first = integer_value(inner, fold(inner, head.start))
        head.number = add_step(inner, "Add", [head.number, first], None, head.counter.span)
    _define(inner, head.counter, head.number)


def _is_zero(head: Head) -> bool:
    return isinstance(head.start, Number) and head.start.value == 0


def _define(inner: GraphContext, scanned: Scanned, value: SSAValue) -> None:
    if isinstance(scanned.name, Name):
        inner.scope.define(scanned.name, value)


def _define_row(inner: GraphContext, scanned: Scanned, rows: SSAValue, number: SSAValue) -> None:
    """Gathers the row of this iteration; needed if a condition may end the loop early."""
    if isinstance(scanned.name, Missing):
        return
    name = full_name(inner, scanned.name.text)
    (row,) = add_node(inner, "Gather", [rows, number], [name], scanned.span, {"axis": 0})
    inner.scope.define(scanned.name, row)


# --- outputs of the body


def _lower_block(
    context: GraphContext, inner: GraphContext, head: Head, names: Sequence[str]
) -> tuple[dict[str, _BodyResult], list[_BodyResult]]:
    """Lowers the block; returns the updated states by name, and the values to stack."""
    states = [one.name for one in head.carried]
    results = [name.text for name in context.statement.wanted]
    body = inner.within(Scope(inner.source, inner.scope, states=states, results=results))
    lower_statements(body, head.loop.body.statements)
    if head.loop.gives is None:
        wanted = (name.text for name in context.statement.wanted)
        by_name = dict(zip(wanted, filter(None, names), strict=True))
        return _results_by_name(inner, body, head, by_name)
    return _explicit_results(inner, body, head, names)


def _results_by_name(
    inner: GraphContext, body: GraphContext, head: Head, wanted: Mapping[str, str]
) -> tuple[dict[str, _BodyResult], list[_BodyResult]]:
    states = {
        one.name: _body_result(inner, wanted.get(one.name, ""), _next(body, one))
        for one in head.carried
    }
    stacked = [
        _body_result(inner, result, _row(body, head, name))
        for name, result in wanted.items()
        if name not in states
    ]
    return states, stacked


def _body_result(inner: GraphContext, result: str, value: SSAValue) -> _BodyResult:
    return _BodyResult(result, value, ValueInfoAttr.of(inner.writer.name_of(value), value.type))


def _next(body: GraphContext, one: LoopState) -> SSAValue:
    """The updated value of a state."""
    name = one.state.name
    value = result_named(body, name)
    if value is one.before:
        body.source.parse_error(
            name.span,
            f"the loop never updates `{name.text}`",
            f"`{name.text} = ...` in its block; constants can be read without `with`",
        )
        raise Failed
    if not may_be(value.type, one.type):
        changed = not check_dtype_of(value.type, one.type)
        body.source.mismatch(
            name.span,
            f"the state `{name.text}` is {describe(one.type)} initially, but "
            f"{describe(value.type)} after an iteration",
            "`Cast` restores its element type"
            if changed
            else f"`with {name.text}: {describe(joined(value.type, one.type))} = ...` if its size "
            "changes between iterations",
        )
        raise Failed
    one.keeps_type = value.type == one.type
    return value


def _row(body: GraphContext, head: Head, name: str) -> SSAValue:
    """The value that an iteration appends to a stack."""
    if not body.scope.defined_here(name):
        body.source.parse_error(
            head.loop.span,
            f"this loop does not define `{name}`",
            "names to the left of `=` are states, or defined in every iteration",
        )
        raise Failed
    return result_named(body, Name(head.loop.span, name))


def _explicit_results(
    inner: GraphContext, body: GraphContext, head: Head, names: Sequence[str]
) -> tuple[dict[str, _BodyResult], list[_BodyResult]]:
    gives = head.loop.gives
    assert gives is not None
    check_count(body, gives, names)
    if len(gives.results) < len(head.carried):
        states = ", ".join(f"`{one.name}`" for one in head.carried)
        inner.source.parse_error(
            gives.span,
            "this block has fewer results than states",
            f"the first results are the new values of {states}",
        )
        raise Failed
    values, infos = outputs_of(body, gives.results)
    results = [*names, *[""] * (len(values) - len(names))]
    given = [_BodyResult(*one) for one in zip(results, values, infos, strict=True)]
    count = len(head.carried)
    for one, target, new in zip(head.carried, gives.results, values, strict=False):
        _check_dtype(inner, one, target, new)
    return dict(zip([one.name for one in head.carried], given, strict=False)), given[count:]


def _check_dtype(inner: GraphContext, one: LoopState, target: Target, new: SSAValue) -> None:
    """States may change their sizes between iterations, but not their element types."""
    one.keeps_type = new.type == one.type
    if check_dtype_of(new.type, one.type):
        return
    inner.source.mismatch(
        target.span,
        f"the state `{one.name}` is {describe(one.type)} initially, but {describe(new.type)} "
        "after an iteration",
        "`Cast` restores its element type",
    )
    raise Failed


def _end(inner: GraphContext, given: Sequence[_BodyResult]) -> None:
    inner.writer.set_outputs([one.value for one in given], [one.info for one in given])
