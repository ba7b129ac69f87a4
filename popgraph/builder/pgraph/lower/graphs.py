"""Lowers file-level graphs, each to a model."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import count

from xdsl.dialects.builtin import IntegerAttr, i64

from popgraph.builder.pgraph.check.file_context import FileContext
from popgraph.builder.pgraph.check.graph_notes import ModelNotes, model_notes
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.context import GraphContext, Rules
from popgraph.builder.pgraph.lower.expressions import folding
from popgraph.builder.pgraph.lower.initial_values import path_beside
from popgraph.builder.pgraph.lower.inner_graphs import lower_body
from popgraph.builder.pgraph.lower.rules import RULES
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import Graph
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.writer import GraphWriter


def lower_graph(file: FileContext, graph: Graph) -> GraphContext:
    """Lowers a graph; returns its context."""
    context = context_of_graph(file, graph)
    lower_body(context, graph)
    notes = context.about
    assert isinstance(notes, ModelNotes), "graphs of a file become models"
    if notes.unnamed:
        context.writer.name = ""
    if notes.weights_are_inputs:
        _list_weights(context.writer)
    return context


def context_of_graph(file: FileContext, graph: Graph, rules: Rules = RULES) -> GraphContext:
    """The context of an empty file-level graph."""
    name = graph.name.text if graph.name else ""
    writer = GraphWriter(file.opsets, file.store, name=name, functions=file.functions)
    scope = Scope(file.source, file.scope, outputs=graph.numbered)
    renamed = {name: name for name in graph.numbered}
    context = GraphContext(file, writer, scope, rules, renamed=renamed)
    notes = model_notes(file.source, graph.annotations, folding(context), graph.body.doc)
    if notes.weights:
        with suppress(Failed):
            weights = path_beside(file, notes.weights, graph.span)
            context = replace(context, file=replace(file, weights=weights))
    return context.described(notes)


def _list_weights(writer: GraphWriter) -> None:
    """Lists every weight among the inputs, at its own position or at the end."""
    weights = [op for op in writer.block.ops if isinstance(op, Initializer)]
    taken = {op.place_in_inputs for op in weights if op.input is not None}
    free = (place for place in count() if place not in taken)
    for _ in writer.inputs:
        next(free)
    for op in weights:
        if op.input is None:
            op.properties["input"] = ValueInfoAttr.of(op.value_name.text, op.result.type)
            op.properties["place"] = IntegerAttr(next(free), i64)
