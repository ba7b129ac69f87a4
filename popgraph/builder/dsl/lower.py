"""How does the tree of a graph become onnx IR, statement by statement?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import count

from xdsl.dialects.builtin import IntegerAttr, i64
from xdsl.ir import Attribute, SSAValue

from popgraph.builder.dsl.annotations import Notes, ValueNotes, notes_of, value_notes
from popgraph.builder.dsl.declared_types import check_declared, declared_type, type_of
from popgraph.builder.dsl.first_values import first_value, path_beside
from popgraph.builder.dsl.graph_notes import GraphNotes, ModelNotes, graph_notes, model_notes
from popgraph.builder.dsl.literals import is_known
from popgraph.builder.dsl.lower_expressions import ExpressionLowering
from popgraph.builder.dsl.node_names import NodeNames
from popgraph.builder.dsl.scope import Failed, Scope, defined_by
from popgraph.builder.dsl.setting import Definition, Setting
from popgraph.builder.dsl.templates import bind
from popgraph.builder.dsl.tree import (
    Assignment,
    Block,
    Branches,
    Call,
    Constant,
    Expression,
    Formal,
    Freeze,
    Graph,
    Items,
    Loop,
    Missing,
    Name,
    Number,
    Parameter,
    Range,
    Region,
    Statement,
    Static,
    Target,
    Template,
    Truth,
    Weight,
)
from popgraph.dialects.onnx.about import declared, told_tensor, written_graph
from popgraph.dialects.onnx.attributes import SparseTensorAttr, ValueInfoAttr
from popgraph.dialects.onnx.containers import Graph as GraphOp
from popgraph.dialects.onnx.containers import Initializer
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.dialects.onnx.types import UNKNOWN
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.support.errors import PopgraphError

MOST_TURNS = 100_000
"""A `for` with more turns is a mistake."""

MOST_CALLS = 50
"""So deep a `def` may call others."""


class GraphLowering(ExpressionLowering):
    """
    Writes one graph, statement by statement.

    A mistake is noted in the source and fails the statement; the others go on.
    """

    def __init__(
        self, setting: Setting, writer: GraphWriter, scope: Scope | None = None, calls: int = 0
    ) -> None:
        super().__init__(setting, writer, scope or Scope(setting.source, setting.scope))
        self.infos: list[ValueInfoAttr] = []
        """What the text says about the types of inner values."""
        self.calls = calls
        self.inner_graph = False
        """Whether this is a graph inside a node."""
        self.about = GraphNotes()
        self._labels: dict[str, int] = {}
        self._wanted: Sequence[Name] = ()

    # inputs, statements, outputs

    def inputs(
        self, parameters: Sequence[Parameter | Formal], types: Sequence[Attribute] = ()
    ) -> None:
        """The inputs; `types` are for those without one."""
        for place, parameter in enumerate(parameters):
            value = None
            try:
                self.scope.check_new(parameter.name)
                if parameter.type is None and self.writer.parent is None and self.writer.typed:
                    self.source.parse_error(
                        parameter.name.span,
                        "an input needs a type",
                        "`x: f32[N, 3]`; `x: f32` is a scalar, `x: f32[...]` has any shape",
                    )
                    raise Failed
                value = self.input(parameter, types[place] if place < len(types) else UNKNOWN)
            except Failed:
                pass
            # The operator that runs an inner graph says which inputs that has.
            kind = "input" if self.writer.parent is None else ""
            self.scope.define(parameter.name, value, kind)

    def input(self, parameter: Parameter | Formal, type_: Attribute) -> SSAValue:
        name, notes = self.full_name(parameter.name.text), ValueNotes()
        if isinstance(parameter, Parameter):
            notes = value_notes(self.source, parameter.annotations, self.fold)
        said: Attribute = UNKNOWN
        if parameter.type is not None:
            said = type_ = declared_type(self.source, parameter.type, self.scope)
        info = declared(name, said, notes.about, notes.denotations)
        return self.writer.add_input(name, type_, info=info)

    def statements(self, statements: Sequence[Statement]) -> None:
        self.scope.announce(statements)
        for statement in statements:
            try:
                self.statement(statement)
            except Failed:
                self.fail(statement)
            except PopgraphError as error:
                self.source.note(statement.span, error)
                self.fail(statement)

    def fail(self, statement: Statement) -> None:
        for name in defined_by(statement):
            if not self.scope.defined_here(name.text):
                self.scope.define(name, None)

    def statement(self, statement: Statement) -> None:
        before = self.notes
        notes = notes_of(self.source, statement.annotations, self.fold, before)
        self.notes = notes.shared
        try:
            match statement:
                case Region():
                    self.statements(statement.body.statements)
                case Loop():
                    self.loop(statement, notes.name or "")
                case Freeze():
                    self.source.parse_error(
                        statement.span, "`freeze` stands in a `train` section", ""
                    )
                case _:
                    self.definition(statement, notes)
        finally:
            self.notes = before

    def definition(self, statement: Statement, notes: Notes) -> None:
        """A statement that defines names."""
        names = defined_by(statement)
        for name in names:
            self.scope.check_new(name)
        before = self._stem, self._steps
        self._stem, self._steps = names[0].text if names else "_", 0
        self.overload = notes.overload
        try:
            self.define(statement, notes)
        finally:
            self._stem, self._steps = before
            self.overload = ""

    def define(self, statement: Statement, notes: Notes) -> None:
        match statement:
            case Weight(name=name):
                self.scope.define(name, self.weight(statement, notes), "weight")
            case Constant(name=name):
                full = self.full_name(name.text)
                tensor = first_value(self.setting, statement, self.scope, full)
                assert not isinstance(tensor, SparseTensorAttr), "only weights are sparse"
                value = self.constant(tensor, full, name.span)
                self.scope.define(name, value, "constant")
                self.describe([value], notes)
            case Static(name=name):
                self.scope.define(name, self.known(statement.value), "name")
            case Assignment():
                self.assignment(statement, notes)

    def weight(self, weight: Weight, notes: Notes) -> SSAValue:
        full, info = self.full_name(weight.name.text), None
        found = first_value(self.setting, weight, self.scope, full)
        held: Attribute = found if isinstance(found, SparseTensorAttr) else UNKNOWN
        if not isinstance(found, SparseTensorAttr):
            held = told_tensor(from_value(found, self.setting.store), notes.about)
        if notes.place is not None:
            listed = type_of(notes.declared) if notes.declared else weight.type
            assert listed is not None, "the annotation was checked"
            info = declared(full, declared_type(self.source, listed, self.scope))
        value = self.writer.add_initializer(full, held, input=info, place=notes.place or 0)
        self.locate(full, weight.name.span)
        return value

    def known(self, expression: Expression) -> Expression:
        """What an expression comes to; fails if that is not known now."""
        found = self.fold(expression)
        if not is_known(found):
            self.source.parse_error(
                found.span,
                "this is not known before the graph runs",
                "`let` names numbers, strings, `true`, `false` and lists of them",
            )
            raise Failed
        return found

    def assignment(self, statement: Assignment, notes: Notes) -> None:
        targets = statement.targets
        names = ["" if isinstance(one.name, Missing) else one.name.text for one in targets]
        self.check_target_types(targets)
        self._wanted = [one.name for one in targets if isinstance(one.name, Name)]
        values = self.results(statement.value, [self.full_name(name) for name in names])
        self.describe(values, notes)
        given = iter(values)
        for target in targets:
            if isinstance(target.name, Name):
                value = next(given)
                self.declare(target, value)
                self.scope.define(target.name, value, "value")

    def declare(self, target: Target, value: SSAValue) -> None:
        """Notes what the text says about a result."""
        if target.type is None and not target.annotations:
            return
        assert isinstance(target.name, Name)
        notes = value_notes(self.source, target.annotations, self.fold)
        type_ = self.checked(target, value, notes)
        name = self.writer.name_of(value)
        self.infos.append(declared(name, type_, notes.about, notes.denotations))

    def checked(self, target: Target, value: SSAValue, notes: ValueNotes) -> Attribute:
        """The type that is declared for a value."""
        if target.type is None:
            return UNKNOWN
        assert isinstance(target.name, Name)
        return check_declared(
            self.source,
            target.name.text,
            target.type,
            value,
            self.scope,
            unchecked=notes.unchecked,
        )

    def describe(self, values: Sequence[SSAValue], notes: Notes) -> None:
        """Writes on the node of a statement what is said about it alone."""
        op = values[0].owner if values else self.writer.block.last_op
        if isinstance(op, OnnxOp) and op.parent_block() is self.writer.block:
            notes.put(op, self.setting.store)

    def check_target_types(self, targets: Sequence[Target]) -> None:
        for target in targets:
            if target.type is not None:
                declared_type(self.source, target.type, self.scope)

    def outputs(self, targets: Sequence[Target]) -> None:
        """Ends the graph with what its head says that it gives."""
        values: list[SSAValue] = []
        infos: list[ValueInfoAttr] = []
        seen: set[str] = set()
        for target in targets:
            try:
                value = self.output(target, seen)
            except Failed:
                continue
            values.append(value)
            infos.append(self.given_as(target, value))
        if len(values) == len(targets):
            self.writer.set_outputs(values, infos)

    def output(self, target: Target, seen: set[str]) -> SSAValue:
        name = target.name
        assert isinstance(name, Name), "the grammar wants a name here"
        if name.text in seen and not self.inner_graph:
            self.source.parse_error(name.span, f"`{name.text}` stands twice among the outputs")
            raise Failed
        seen.add(name.text)
        value = self.result(name)
        if not self.prefix and self.writer.name_of(value) != name.text:
            value = self.node("Identity", [value], [self.full_name(name.text)], name.span)[0]
        notes = value_notes(self.source, target.annotations, self.fold)
        self.checked(target, value, notes)
        return value

    def given_as(self, target: Target, value: SSAValue) -> ValueInfoAttr:
        """
        What is declared about an output.

        Of those of a file's graph it is the type that was found, unless the text says another.
        """
        notes = value_notes(self.source, target.annotations, self.fold)
        type_: Attribute = UNKNOWN if self.inner_graph else value.type
        if target.type is not None:
            type_ = declared_type(self.source, target.type, self.scope)
        return declared(self.writer.name_of(value), type_, notes.about, notes.denotations)

    def result(self, name: Name) -> SSAValue:
        """The value that the body gives to one of the results in the head."""
        if not self.scope.taken(name.text):
            close = self.scope.closest(name.text)
            hint = f"did you mean `{close}`?" if close else f"`{name.text} = ...` in the body"
            self.source.parse_error(name.span, f"nothing defines the output `{name.text}`", hint)
            raise Failed
        meaning = self.scope.meaning(name)
        if isinstance(meaning, SSAValue):
            return meaning
        return self.literal(meaning, None, self.full_name(name.text))

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
            for number, meanings in self.turns(loop):
                self.scope = Scope(self.source, scope, carries=True)
                self.prefix = f"{before}{stem}{number}/"
                for target, meaning in zip(loop.targets, meanings, strict=True):
                    if isinstance(target.name, Name):
                        self.scope.define(target.name, meaning)
                self.statements(loop.body.statements)
        finally:
            self.prefix, self.scope = before, scope

    def turns(self, loop: Loop) -> Iterator[tuple[int, Sequence[Expression]]]:
        """The number of every turn, and what the names of the loop mean in it."""
        if isinstance(loop.range, Range):
            first, last = self.whole(loop.range.first), self.whole(loop.range.last)
            if last - first > MOST_TURNS:
                self.source.parse_error(loop.range.span, f"these are more than {MOST_TURNS} turns")
                raise Failed
            for number in range(first, last):
                yield number, self.spread(loop, Number(loop.range.span, number))
            return
        items = self.known(loop.range)
        if not isinstance(items, Items):
            self.source.parse_error(
                loop.range.span, "`for` goes through a range or a list", "`0..12`, `[64, 128]`"
            )
            raise Failed
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
        made = GraphLowering(self.setting, writer, Scope(self.source, self.scope), calls=self.calls)
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
                file = path_beside(self.setting, notes.weights, graph.span)
                self.setting = replace(self.setting, weights=file)

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
        return self.node("If", operands, names, branches.span, dict(graphs))

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
        definition.setting.called.add(template.name.text)
        if self.calls >= MOST_CALLS:
            self.source.parse_error(
                call.path.span, f"`{template.name.text}` calls itself without an end"
            )
            raise Failed
        if names is not None and len(names) > len(template.outputs):
            count = len(template.outputs)
            results = "one result" if count == 1 else f"{count} results"
            self.source.parse_error(
                call.path.span, f"`{template.name.text}` has {results}, not {len(names)}"
            )
            raise Failed
        scope = Scope(definition.setting.source, definition.setting.scope)
        passed = bind(self, definition, call, scope)
        known = {**definition.setting.definitions, **passed}
        own = self.setting
        setting = replace(
            definition.setting, opsets=own.opsets, definitions=known, weights=own.weights
        )
        inner = GraphLowering(setting, self.writer, scope, self.calls + 1)
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


def lower_graph(setting: Setting, graph: Graph) -> GraphLowering:
    """The graph as written."""
    name = graph.name.text if graph.name else ""
    writer = GraphWriter(setting.opsets, setting.store, name=name, functions=setting.functions)
    lowering = GraphLowering(setting, writer)
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
