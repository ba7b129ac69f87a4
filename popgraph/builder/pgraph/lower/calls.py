"""Lowers calls of a `def`, of an operator, or of a function of the model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue

from popgraph.builder.pgraph.check import graphcore_calls
from popgraph.builder.pgraph.check.operators import (
    GRAPHCORE,
    Arguments,
    Operator,
    is_operator,
    operator_of,
    sort_arguments,
)
from popgraph.builder.pgraph.lower.attribute_values import attribute_value, of_kind
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.expressions import fold, lower_value
from popgraph.builder.pgraph.lower.inner_graphs import lower_inner_graph
from popgraph.builder.pgraph.lower.nodes import add_node
from popgraph.builder.pgraph.lower.operands import operands_of
from popgraph.builder.pgraph.lower.template_calls import lower_template_call
from popgraph.builder.pgraph.lower.value_names import next_step
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import Call, Expression, Graph, Items, Missing, Name, Path
from popgraph.dialects.onnx.attributes import RefAttr
from popgraph.dialects.onnx.reader import argument_types
from popgraph.dialects.onnx.writer import Graphs
from popgraph.dialects.program import BytesAttr
from popgraph.support.names import closest


def lower_call(context: GraphContext, call: Call, names: Sequence[str] | None) -> list[SSAValue]:
    """Lowers a call; `names` are its result names, None for an unnamed intermediate result."""
    call = _resolved(context, call)
    template = context.file.template(call.path)
    if template is not None:
        return lower_template_call(context, template, call, names)
    operator, arguments = _called(context, call)
    operands = None
    with suppress(Failed):
        operands = operands_of(context, operator, arguments.inputs)
    attributes = attributes_of(context, operator, arguments.attributes, operands or [])
    if operands is None:
        raise Failed
    types = None
    if operator.domain == GRAPHCORE:
        described = graphcore_calls.describe(context.source, call, operands, attributes)
        if described is not None:
            operator = replace(operator, op_type=described.op_type)
            attributes, types = dict(described.attributes), described.result_types
    _check_results(context, operator, call, names, types)
    return add_node(
        context,
        operator.op_type,
        operands,
        [next_step(context)] if names is None else names,
        call.path.span,
        attributes,
        operator.domain,
        types,
        "" if names is None else context.statement.overload,
    )


def _resolved(context: GraphContext, call: Call) -> Call:
    """Replaces a parameter such as `activation` by the operator that it denotes."""
    if len(call.path.parts) != 1:
        return call
    meant = context.scope.known(call.path.parts[0])
    if not isinstance(meant, Name):
        return call
    return replace(call, path=Path(call.path.span, (replace(meant, span=call.path.span),)))


def _called(context: GraphContext, call: Call) -> tuple[Operator, Arguments]:
    """
    The operator and the sorted arguments of a call.

    If that fails, the arguments are lowered anyway, to report their own errors.
    """
    source = context.source
    try:
        _check_spelling(context, call.path)
        operator = operator_of(source, call.path, context.writer.opsets, context.file.calls)
        return operator, sort_arguments(source, operator, call)
    except Failed:
        for argument in call.arguments:
            if argument.keyword is None and not isinstance(argument.value, Missing):
                with suppress(Failed):
                    lower_value(context, argument.value)
        raise


def _check_spelling(context: GraphContext, path: Path) -> None:
    """Fails on a name that is not an operator but similar to a `def`."""
    if len(path.parts) > 1 or is_operator(path.text):
        return
    close = closest(path.text, context.file.definitions, 0.7)
    if close:
        context.source.parse_error(
            path.span, f"there is no `{path.text}`", f"did you mean `{close}`?"
        )
        raise Failed


def _check_results(
    context: GraphContext,
    operator: Operator,
    call: Call,
    names: Sequence[str] | None,
    types: Sequence[Attribute] | None,
) -> None:
    """Fails if a call requests more results than there are."""
    most = 1 << 31 if operator.schema is None else operator.schema.max_output
    if types is not None:
        most = len(types)
    if names is not None and len(names) > most:
        results = "one result" if most == 1 else f"{most} results"
        context.source.parse_error(
            call.path.span, f"{operator.shown} has {results}, not {len(names)}"
        )
        raise Failed


def attributes_of(
    context: GraphContext,
    operator: Operator,
    given: Mapping[Name, Expression],
    operands: Sequence[SSAValue | None],
) -> dict[str, object]:
    """The values of all attributes; reports every error before it fails."""
    failed = False
    attributes: dict[str, object] = {}
    types = argument_types(operator.op_type, operands) if not operator.domain else []
    for keyword, expression in given.items():
        try:
            attributes[keyword.text] = _attribute(context, operator, keyword, expression, types)
        except Failed:
            failed = True
    if failed:
        raise Failed
    return attributes


def _attribute(
    context: GraphContext,
    operator: Operator,
    keyword: Name,
    expression: Expression,
    types: Sequence[Attribute],
) -> object:
    """The value of an attribute; `types` are a graph's input types, if known."""
    kind, value = of_kind(expression) or (operator.kinds.get(keyword.text, ""), expression)
    lenient = operator.op_type == "If"
    match value:
        case Graph():
            return lower_inner_graph(context, value, types, lenient=lenient)
        case Items(items=items) if kind == "GRAPHS" and all(
            isinstance(item, Graph) for item in items
        ):
            graphs = [item for item in items if isinstance(item, Graph)]
            return Graphs(lower_inner_graph(context, one, types, lenient=lenient) for one in graphs)
        case Name(text=text) if text in context.references:
            return _reference(context, value, kind or context.references[text])
    folded = fold(context, expression)
    return attribute_value(context.file, operator, keyword, folded, context.scope)


def _reference(context: GraphContext, name: Name, kind: str) -> RefAttr:
    """A reference to an attribute of the enclosing function."""
    if not kind:
        context.source.parse_error(
            name.span,
            f"the kind of the attribute `{name.text}` is unknown",
            f"`INTS({name.text})`, or give it a default in the head of the function",
        )
        raise Failed
    return RefAttr(BytesAttr.of(name.text), StringAttr(kind))
