"""Lowers the syntax tree of a graph to onnx IR: loops, subgraphs, templates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Attribute, SSAValue

from popgraph.builder.budget import ITERATION
from popgraph.builder.pgraph.check.file_context import Definition, FileContext
from popgraph.builder.pgraph.check.graph_notes import (
    GraphNotes,
    ModelNotes,
    graph_notes,
    model_notes,
)
from popgraph.builder.pgraph.check.node_names import NodeNames
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.initial_values import path_beside
from popgraph.builder.pgraph.lower.lower_statements import StatementLowering
from popgraph.builder.pgraph.lower.templates import bind
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import (
    Block,
    Branches,
    Call,
    Expression,
    Graph,
    Items,
    Loop,
    Name,
    Number,
    Range,
    Template,
    Truth,
)
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.metadata import written_graph
from popgraph.dialects.onnx.op import Graph as GraphOp
from popgraph.dialects.onnx.writer import GraphWriter

MOST_CALLS = 80
"""So deep a `def` may call others."""


class GraphLowering(StatementLowering):
    """Writes one graph."""

    # loops

    def loop(self, loop: Loop, label: str) -> None:
        """The statements of a `for`, once a turn; names of values begin with the turn."""
        for target in loop.targets:
            if isinstance(target.name, Name):
                self.scope.check_new(target.name)
        first = loop.targets[0].name
        stem = label or (first.text if isinstance(first, Name) else "for")
        before, scope = self.prefix, self.scope
        try:
            for number, meanings in self.iterations(loop):
                self.scope = Scope(self.source, scope, carries=True)
                self.prefix = f"{before}{stem}{number}/"
                for target, meaning in zip(loop.targets, meanings, strict=True):
                    if isinstance(target.name, Name):
                        self.scope.define(target.name, meaning)
                self.statements(loop.body.statements)
        finally:
            self.prefix, self.scope = before, scope

    def iterations(self, loop: Loop) -> Iterator[tuple[int, Sequence[Expression]]]:
        """The number of every iteration, and what the names of the loop mean in it."""
        if isinstance(loop.range, Range):
            first, last = self.whole(loop.range.first), self.whole(loop.range.last)
            self.source.spend(loop.range.span, ITERATION * max(0, last - first))
            for number in range(first, last):
                yield number, self.spread(loop, Number(loop.range.span, number))
            return
        items = self.known(loop.range)
        if not isinstance(items, Items):
            self.source.parse_error(
                loop.range.span, "`for` goes through a range or a list", "`0..12`, `[64, 128]`"
            )
            raise Failed
        self.source.spend(loop.range.span, ITERATION * len(items.items))
        for number, item in enumerate(items.items):
            yield number, self.spread(loop, item)

    def spread(self, loop: Loop, item: Expression) -> Sequence[Expression]:
        """An item for each of the names of a loop."""
        if len(loop.targets) == 1:
            return [item]
        if isinstance(item, Items) and len(item.items) == len(loop.targets):
            return item.items
        self.source.parse_error(
            item.span,
            f"this cannot be given to {len(loop.targets)} names",
            "`for (c, stride) in [[64, 1], [128, 2]]`",
        )
        raise Failed

    def whole(self, expression: Expression) -> int:
        found = self.known(expression)
        if isinstance(found, Number) and isinstance(found.value, int):
            return found.value
        self.source.parse_error(found.span, "a range goes from a whole number to another")
        raise Failed

    # graphs inside graphs

    def inner(self, name: str, *, lenient: bool = False) -> GraphLowering:
        """Writes a graph inside this one, which sees what is defined here."""
        writer = self.writer.subgraph(name, lenient=lenient)
        made = GraphLowering(self.context, writer, Scope(self.source, self.scope), calls=self.calls)
        made.prefix, made.notes, made.references = self.prefix, self.notes, self.references
        made.inner_graph = True
        return made

    def subgraph(self, graph: Graph, types: Sequence[Attribute], *, lenient: bool) -> GraphOp:
        inner = self.inner(graph.name.text if graph.name else "", lenient=lenient)
        if self.prefix:  # names of a template must not hide those of its callers
            inner.prefix = f"{self.prefix}{self._stem}/{inner.writer.name or 'body'}/"
        notes = graph_notes(self.source, graph.annotations, self.fold, graph.body.doc)
        inner.take(notes)
        inner.body(graph, types)
        if inner.writer.outputs is None:
            raise Failed
        return inner.graph()

    def take(self, notes: GraphNotes) -> None:
        """Follows what is said about the graph as a whole."""
        self.about = notes
        if notes.rule is not None:
            self.node_names = NodeNames(notes.rule)

    def begin(self, graph: Graph) -> None:
        """Follows what is said about a graph of a file."""
        source = self.source
        notes = model_notes(source, graph.annotations, self.fold, graph.body.doc)
        self.take(notes)
        if notes.weights:
            with suppress(Failed):
                file = path_beside(self.context, notes.weights, graph.span)
                self.context = replace(self.context, weights=file)

    def body(self, graph: Graph, types: Sequence[Attribute] = ()) -> None:
        """Everything from the inputs to the outputs."""
        self.inputs(graph.inputs, types)
        self.statements(graph.body.statements)
        self.outputs(graph.outputs)

    def graph(self) -> GraphOp:
        """What was written."""
        return self.writer.graph(self.infos, written_graph(self.about.about))

    def branches(self, branches: Branches, names: Sequence[str]) -> list[SSAValue]:
        wanted = self._wanted
        condition = self.fold(branches.condition)
        if isinstance(condition, Truth):
            chosen = branches.then if condition.value else branches.otherwise
            return self.given(chosen, wanted, names)
        graphs = {
            "then_branch": self.branch("then", branches.then, wanted),
            "else_branch": self.branch("else", branches.otherwise, wanted),
        }
        operands: list[SSAValue | None] = [self.value(condition)]
        return self.node("If", operands, [*filter(None, names)], branches.span, dict(graphs))

    def branch(self, label: str, body: Block | Branches, wanted: Sequence[Name]) -> GraphOp:
        inner = self.inner(label, lenient=True)
        inner.node_names = NodeNames(self.node_names.rule)
        inner.prefix = f"{self.prefix}{self._stem}/{label}/"
        names = [inner.full_name(name.text) for name in wanted]
        inner._stem = self._stem
        inner.writer.set_outputs(inner.given(body, wanted, names))
        return inner.writer.graph(inner.infos)

    def given(
        self, body: Block | Branches, wanted: Sequence[Name], names: Sequence[str]
    ) -> list[SSAValue]:
        """What a branch gives to the names that are wanted of it."""
        if isinstance(body, Branches):
            self._wanted = wanted
            return self.branches(body, names)
        outer = self.scope
        self.scope = Scope(self.source, outer)
        try:
            self.statements(body.statements)
            for name in wanted:
                if not self.scope.defined_here(name.text):
                    self.source.parse_error(
                        body.span,
                        f"this branch does not define `{name.text}`",
                        "every branch defines what stands to the left of `=`",
                    )
                    raise Failed
            return [self.result(name) for name in wanted]
        finally:
            self.scope = outer

    # templates

    def expand(
        self, definition: Definition, call: Call, names: Sequence[str] | None
    ) -> list[SSAValue]:
        template = definition.template
        definition.context.called.add(template.name.text)
        self.source.spend(call.path.span, ITERATION)
        if len(self.calls) >= MOST_CALLS:
            self.source.parse_error(call.path.span, *_too_many_calls(self.calls, definition))
            raise Failed
        if names is not None and len(names) > len(template.outputs):
            count = len(template.outputs)
            results = "one result" if count == 1 else f"{count} results"
            self.source.parse_error(
                call.path.span, f"`{template.name.text}` has {results}, not {len(names)}"
            )
            raise Failed
        scope = Scope(definition.context.source, definition.context.scope)
        passed = bind(self, definition, call, scope)
        known = {**definition.context.definitions, **passed}
        own = self.context
        context = replace(
            definition.context, opsets=own.opsets, definitions=known, weights=own.weights
        )
        inner = GraphLowering(context, self.writer, scope, (*self.calls, definition.full_name))
        label = self.label(template.name.text, names)
        given = [label] if names is None else names
        inner.prefix = label + "/"
        inner.notes, inner.node_names = self.notes, self.node_names
        inner.inner_graph = self.inner_graph
        for target, name in zip(template.outputs, given, strict=False):
            if isinstance(target.name, Name) and name:
                inner.renamed[target.name.text] = name
        with self.source.calling(call.path.span):
            return self.written_out(inner, template, given)

    def written_out(
        self, inner: GraphLowering, template: Template, given: Sequence[str]
    ) -> list[SSAValue]:
        """The results of a template that are wanted, of which `given` are the names."""
        inner.statements(template.body.statements)
        inner.scope.use(target.name for target in template.outputs)
        self.infos += inner.infos
        return [
            inner.output(target, set())
            for target, name in zip(template.outputs, given, strict=False)
            if name
        ]

    def label(self, template: str, names: Sequence[str] | None) -> str:
        """What the names of the values inside a call begin with."""
        stem = f"{self.prefix}{template}"
        if self._stem not in self.renamed:
            stem = f"{self.prefix}{self._stem}" + ("" if names is not None else f"/{template}")
        while True:
            count = self._labels.get(stem, 0) + 1
            self._labels[stem] = count
            label = stem if count == 1 else f"{stem}{count}"
            if names is not None or not self.writer.has_value(label):
                return label


def _too_many_calls(calls: Sequence[str], called: Definition) -> tuple[str, str]:
    """What is wrong with one call more inside of all these, and what to do about it."""
    name = called.template.name.text
    if called.full_name in calls:
        return f"`{name}` calls itself without an end", ""
    what = f"this is the call of a `def` within {MOST_CALLS} others"
    return what, "write some of them out, or let the graph call one after the other"


def lower_graph(context: FileContext, graph: Graph) -> GraphLowering:
    """The graph as written."""
    name = graph.name.text if graph.name else ""
    writer = GraphWriter(context.opsets, context.store, name=name, functions=context.functions)
    lowering = GraphLowering(context, writer)
    lowering.begin(graph)
    lowering.body(graph)
    notes = lowering.about
    assert isinstance(notes, ModelNotes), "graphs of a file become models"
    if notes.unnamed:
        writer.name = ""
    if notes.weights_are_inputs:
        _list_weights(writer)
    return lowering


def _list_weights(writer: GraphWriter) -> None:
    """Lists every weight among the inputs: at its own place, or after those that are given."""
    weights = [op for op in writer.block.ops if isinstance(op, Initializer)]
    taken = {op.place_in_inputs for op in weights if op.input is not None}
    free = (place for place in count() if place not in taken)
    for _ in writer.inputs:
        next(free)
    for op in weights:
        if op.input is None:
            op.properties["input"] = ValueInfoAttr.of(op.value_name.text, op.result.type)
            op.properties["place"] = IntegerAttr(next(free), i64)
