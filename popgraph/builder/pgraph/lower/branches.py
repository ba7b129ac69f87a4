"""Lowers `if` with blocks to an If with two subgraphs, or to the chosen block if constant."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import SSAValue

from popgraph.builder.pgraph.check.declared_types import check_dtype_of
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.expressions import fold, lower_value
from popgraph.builder.pgraph.lower.inner_graphs import block_graph, written
from popgraph.builder.pgraph.lower.inputs_and_outputs import (
    lower_outputs,
    output_value,
    result_named,
)
from popgraph.builder.pgraph.lower.nodes import add_node
from popgraph.builder.pgraph.lower.statements import lower_statements
from popgraph.builder.pgraph.lower.value_names import full_name
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import Block, Branches, Gives, Name, Truth
from popgraph.dialects.onnx.op import Graph as GraphOp
from popgraph.dialects.onnx.types import describe

THEN, ELSE = "then", "else"
"""Default names of the branch graphs."""


def lower_if(
    context: GraphContext, branches: Branches, names: Sequence[str] | None
) -> list[SSAValue]:
    """Lowers an `if`; returns the values of the names on the left of `=`."""
    if names is None:
        context.source.parse_error(
            branches.span,
            "an `if` with blocks must follow `=` directly",
            "`a if c else b` chooses within an expression",
        )
        raise Failed
    return _lower_branches(context, branches, context.statement.wanted, names)


def _lower_branches(
    context: GraphContext, branches: Branches, wanted: Sequence[Name], names: Sequence[str]
) -> list[SSAValue]:
    condition = fold(context, branches.condition)
    if isinstance(condition, Truth):
        chosen = (branches.then_gives, branches.then)
        if not condition.value:
            chosen = (branches.else_gives, branches.otherwise)  # type: ignore[assignment]
        return _given(context, *chosen, wanted, names)
    if branches.then_gives is None or branches.else_gives is None:
        graphs = _both(context, branches, wanted, names, whole=False)
        names = [*filter(None, names)]
    else:
        graphs = _both(context, branches, wanted, names, whole=True)
    operands = [lower_value(context, condition)]
    if not context.writer.lenient:
        _check_types(context, branches, names, *graphs.values())
    return add_node(context, "If", operands, names, branches.span, graphs)


def _both(
    context: GraphContext,
    branches: Branches,
    wanted: Sequence[Name],
    names: Sequence[str],
    *,
    whole: bool,
) -> dict[str, GraphOp]:
    """The graphs of both blocks, with all of their results or the wanted ones."""
    blocks = {
        THEN: (branches.then_gives, branches.then),
        ELSE: (branches.else_gives, branches.otherwise),
    }
    return {
        f"{label}_branch": _branch(context, label, *block, wanted, names, whole=whole)
        for label, block in blocks.items()
    }


def _check_types(
    context: GraphContext, branches: Branches, names: Sequence[str], then: GraphOp, other: GraphOp
) -> None:
    """Fails if element types differ between the branches."""
    for name, one, two in zip(names, then.yielded, other.yielded, strict=False):
        if not check_dtype_of(one.type, two.type):
            context.source.mismatch(
                branches.span,
                f"`{name}` is {describe(one.type)} in one branch, "
                f"and {describe(two.type)} in the other",
                "`Cast` gives both the same element type",
            )
            raise Failed


def _branch(
    context: GraphContext,
    label: str,
    gives: Gives | None,
    body: Block | Branches,
    wanted: Sequence[Name],
    names: Sequence[str],
    *,
    whole: bool,
) -> GraphOp:
    """The graph of one block."""
    block = body if isinstance(body, Block) else Block(body.span, "", ())
    inner = block_graph(context, label, block, gives, lenient=True)
    if gives is None:
        inner_names = [full_name(inner, name.text) for name in wanted]
        inner.writer.set_outputs(_given(inner, None, body, wanted, inner_names))
        return written(inner)
    check_count(context, gives, names)
    lower_statements(inner, block.statements)
    kept = [whole or bool(name) for name in names] + [whole] * len(gives.results)
    lower_outputs(
        inner, [one for one, is_kept in zip(gives.results, kept, strict=False) if is_kept]
    )
    if inner.writer.outputs is None:
        raise Failed
    return written(inner)


def _given(
    context: GraphContext,
    gives: Gives | None,
    body: Block | Branches,
    wanted: Sequence[Name],
    names: Sequence[str],
) -> list[SSAValue]:
    """The values that a branch gives to the wanted names."""
    if isinstance(body, Branches):
        return _lower_branches(context, body, wanted, names)
    results = [name.text for name in wanted]
    within = context.within(Scope(context.source, context.scope, results=results))
    lower_statements(within, body.statements)
    if gives is not None:
        check_count(context, gives, names)
        pairs = zip(gives.results, names, strict=False)
        return [output_value(within, target, set()) for target, name in pairs if name]
    for name in wanted:
        if not within.scope.defined_here(name.text):
            context.source.parse_error(
                body.span,
                f"this branch does not define `{name.text}`",
                "every branch must define all names to the left of `=`",
            )
            raise Failed
    return [result_named(within, name) for name in wanted]


def check_count(context: GraphContext, gives: Gives, names: Sequence[str]) -> None:
    """Fails if a block gives fewer results than there are names."""
    if len(gives.results) >= len(names):
        return
    results = "one result" if len(gives.results) == 1 else f"{len(gives.results)} results"
    context.source.parse_error(
        gives.span,
        f"this block has {results}, but {len(names)} names are to the left of `=`",
        "`(a, b) = if c -> (x, y) { ... }`",
    )
    raise Failed
