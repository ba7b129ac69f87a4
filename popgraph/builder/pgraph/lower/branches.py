"""Lowers `if` with blocks: to an If with two regions, or to the one block that is chosen now."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.expressions import fold, lower_value
from popgraph.builder.pgraph.lower.inner_graphs import region
from popgraph.builder.pgraph.lower.inputs_and_outputs import result_named
from popgraph.builder.pgraph.lower.nodes import add_node
from popgraph.builder.pgraph.lower.statements import lower_statements
from popgraph.builder.pgraph.lower.value_names import full_name
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import Block, Branches, Name, Truth
from popgraph.dialects.onnx.op import Graph as GraphOp


def lower_if(
    context: GraphContext, branches: Branches, names: Sequence[str] | None
) -> list[SSAValue]:
    """What either block gives to the names on the left of `=`, which are `names` in the graph."""
    if names is None:
        context.source.parse_error(
            branches.span,
            "an `if` with blocks stands directly after `=`",
            "`a if c else b` chooses within an expression",
        )
        raise Failed
    return _lower_branches(context, branches, context.statement.wanted, names)


def _lower_branches(
    context: GraphContext, branches: Branches, wanted: Sequence[Name], names: Sequence[str]
) -> list[SSAValue]:
    condition = fold(context, branches.condition)
    if isinstance(condition, Truth):
        chosen = branches.then if condition.value else branches.otherwise
        return _given(context, chosen, wanted, names)
    graphs: dict[str, object] = {
        "then_branch": _branch(context, "then", branches.then, wanted),
        "else_branch": _branch(context, "else", branches.otherwise, wanted),
    }
    operands = [lower_value(context, condition)]
    return add_node(context, "If", operands, [*filter(None, names)], branches.span, graphs)


def _branch(
    context: GraphContext, label: str, body: Block | Branches, wanted: Sequence[Name]
) -> GraphOp:
    """A graph of one block."""
    inner = region(context, label)
    names = [full_name(inner, name.text) for name in wanted]
    inner.writer.set_outputs(_given(inner, body, wanted, names))
    return inner.writer.graph(inner.infos)


def _given(
    context: GraphContext, body: Block | Branches, wanted: Sequence[Name], names: Sequence[str]
) -> list[SSAValue]:
    """What a branch gives to the names that are wanted of it."""
    if isinstance(body, Branches):
        return _lower_branches(context, body, wanted, names)
    within = context.within(Scope(context.source, context.scope))
    lower_statements(within, body.statements)
    for name in wanted:
        if not within.scope.defined_here(name.text):
            context.source.parse_error(
                body.span,
                f"this branch does not define `{name.text}`",
                "every branch defines what stands to the left of `=`",
            )
            raise Failed
    return [result_named(within, name) for name in wanted]
