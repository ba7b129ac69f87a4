"""Lowers the attributes of a call: graphs, references to attributes of the function, values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue

from popgraph.builder.pgraph.check.operators import Operator
from popgraph.builder.pgraph.lower.attribute_values import attribute_value, of_kind
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.expressions import fold
from popgraph.builder.pgraph.lower.inner_graphs import lower_inner_graph
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import Expression, Graph, Items, Name
from popgraph.dialects.onnx.attributes import RefAttr
from popgraph.dialects.onnx.reader import argument_types
from popgraph.dialects.onnx.writer import Graphs
from popgraph.dialects.program import BytesAttr


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
