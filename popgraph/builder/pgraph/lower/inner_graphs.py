"""Lowers subgraphs: attributes such as `body=graph ...`, and blocks of statements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from xdsl.ir import Attribute

from popgraph.builder.pgraph.check.graph_notes import graph_notes
from popgraph.builder.pgraph.check.node_names import NodeNames
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.context import GraphContext, StatementContext
from popgraph.builder.pgraph.lower.expressions import folding
from popgraph.builder.pgraph.lower.inputs_and_outputs import lower_inputs, lower_outputs
from popgraph.builder.pgraph.lower.statements import lower_statements
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import Block, Gives, Graph
from popgraph.dialects.onnx.metadata import written_graph
from popgraph.dialects.onnx.op import Graph as GraphOp


def inside(context: GraphContext, name: str, *, lenient: bool = False) -> GraphContext:
    """The context of a subgraph, which sees the definitions of this one."""
    return GraphContext(
        context.file,
        context.writer.subgraph(name, lenient=lenient),
        Scope(context.source, context.scope),
        context.rules,
        is_inner=True,
        calls=context.calls,
        prefix=context.prefix,
        notes=context.notes,
        references=context.references,
    )


def block_graph(
    context: GraphContext, label: str, block: Block, gives: Gives | None, *, lenient: bool
) -> GraphContext:
    """
    The context of a block of the current statement.

    A block with `->` behaves like a `graph` attribute: its names are as written in the text.
    """
    name = gives.graph.text if gives and gives.graph else label
    inner = replace(
        inside(context, name, lenient=lenient),
        node_names=NodeNames(context.node_names.rule),
        statement=StatementContext(context.statement.stem),
    )
    if gives is None or context.prefix:
        inner = replace(inner, prefix=_region_prefix(context, label))
    return inner.described(graph_notes(context.source, (), folding(context), block.doc))


def _region_prefix(context: GraphContext, label: str) -> str:
    return f"{context.prefix}{context.statement.stem}/{label}/"


def lower_inner_graph(
    context: GraphContext, graph: Graph, types: Sequence[Attribute], *, lenient: bool
) -> GraphOp:
    """Lowers a graph attribute; `types` are its input types, if known."""
    inner = inside(context, graph.name.text if graph.name else "", lenient=lenient)
    if context.prefix:  # names of a template must not hide those of its callers
        inner = replace(inner, prefix=_region_prefix(context, inner.writer.name or "body"))
    notes = graph_notes(context.source, graph.annotations, folding(context), graph.body.doc)
    inner = inner.described(notes)
    lower_body(inner, graph, types)
    if inner.writer.outputs is None:
        raise Failed
    return written(inner)


def lower_body(context: GraphContext, graph: Graph, types: Sequence[Attribute] = ()) -> None:
    """Lowers inputs, statements and outputs."""
    lower_inputs(context, graph.inputs, types)
    lower_statements(context, graph.body.statements)
    lower_outputs(context, graph.outputs)


def written(context: GraphContext) -> GraphOp:
    """The finished graph."""
    return context.writer.graph(context.infos, written_graph(context.about.about))
