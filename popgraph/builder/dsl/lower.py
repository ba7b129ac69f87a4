"""How does the tree of a graph become onnx IR, statement by statement?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from xdsl.ir import Attribute, SSAValue

from popgraph.builder.dsl.annotations import Notes, notes_of
from popgraph.builder.dsl.declared_types import check_declared, declared_type
from popgraph.builder.dsl.first_values import first_value
from popgraph.builder.dsl.literals import is_known
from popgraph.builder.dsl.lower_expressions import ExpressionLowering
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
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.containers import Graph as GraphOp
from popgraph.dialects.onnx.op import OnnxOp
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
        self._labels: dict[str, int] = {}
        self._wanted: Sequence[Name] = ()

    # inputs, statements, outputs

    def inputs(self, parameters: Sequence[Parameter]) -> None:
        for parameter in parameters:
            value = None
            try:
                self.scope.check_new(parameter.name)
                type_: Attribute = UNKNOWN
                if parameter.type is None and self.writer.parent is None and self.writer.typed:
                    self.source.parse_error(
                        parameter.name.span,
                        "an input needs a type",
                        "`x: f32[N, 3]`; `x: f32` is a scalar, `x: f32[...]` has any shape",
                    )
                    raise Failed
                if parameter.type is not None:
                    type_ = declared_type(self.source, parameter.type, self.scope)
                value = self.writer.add_input(parameter.name.text, type_)
            except Failed:
                pass
            # The operator that runs an inner graph says which inputs that has.
            kind = "input" if self.writer.parent is None else ""
            self.scope.define(parameter.name, value, kind)

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
                    self.loop(statement, notes.name)
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
        try:
            self.define(statement, notes)
        finally:
            self._stem, self._steps = before

    def define(self, statement: Statement, notes: Notes) -> None:
        match statement:
            case Weight(name=name):
                full = self.full_name(name.text)
                array = first_value(self.source, self.setting.folder, statement, self.scope, full)
                self.scope.define(name, self.writer.add_initializer(full, array), "weight")
                self.locate(full, name.span)
            case Constant(name=name):
                full = self.full_name(name.text)
                array = first_value(self.source, self.setting.folder, statement, self.scope, full)
                value = self.constant(array, full, name.span)
                self.scope.define(name, value, "constant")
                self.describe(value, notes)
            case Static(name=name):
                self.scope.define(name, self.known(statement.value), "name")
            case Assignment():
                self.assignment(statement, notes)

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
        values = iter(self.results(statement.value, [self.full_name(name) for name in names]))
        for place, target in enumerate(targets):
            if isinstance(target.name, Missing):
                continue
            value = next(values)
            if place == 0:
                self.describe(value, notes)
            if target.type is not None:
                check_declared(self.source, target.name.text, target.type, value, self.scope)
                self.infos.append(ValueInfoAttr.of(self.writer.name_of(value), value.type))
            self.scope.define(target.name, value, "value")

    def describe(self, value: SSAValue, notes: Notes) -> None:
        """Writes on the node of a result what is said about it alone."""
        if isinstance(value.owner, OnnxOp) and value.owner.parent_block() is self.writer.block:
            notes.put(value.owner, self.setting.store)

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
            infos.append(ValueInfoAttr.of(self.writer.name_of(value), value.type))
        if len(values) == len(targets):
            self.writer.set_outputs(values, infos)

    def output(self, target: Target, seen: set[str]) -> SSAValue:
        name = target.name
        assert isinstance(name, Name), "the grammar wants a name here"
        if name.text in seen:
            self.source.parse_error(name.span, f"`{name.text}` stands twice among the outputs")
            raise Failed
        seen.add(name.text)
        value = self.result(name)
        if not self.prefix and self.writer.name_of(value) != name.text:
            value = self.node("Identity", [value], [self.full_name(name.text)], name.span)[0]
        if target.type is not None:
            check_declared(self.source, name.text, target.type, value, self.scope)
        return value

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
        made.prefix, made.notes = self.prefix, self.notes
        return made

    def subgraph(self, graph: Graph) -> GraphOp:
        inner = self.inner(graph.name.text if graph.name else "")
        inner.prefix = ""
        return finished(inner, graph)

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
        setting = replace(definition.setting, opsets=self.setting.opsets, definitions=known)
        inner = GraphLowering(setting, self.writer, scope, self.calls + 1)
        label = self.label(template.name.text, names)
        given = [label] if names is None else names
        inner.prefix = label + "/"
        inner.notes = self.notes
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


def finished(lowering: GraphLowering, graph: Graph) -> GraphOp:
    """The whole of a graph."""
    lowering.inputs(graph.inputs)
    lowering.statements(graph.body.statements)
    lowering.outputs(graph.outputs)
    if lowering.writer.outputs is None:
        raise Failed
    return lowering.writer.graph(lowering.infos)


def lower_graph(setting: Setting, graph: Graph) -> GraphLowering:
    """The graph as written."""
    name = graph.name.text if graph.name else ""
    writer = GraphWriter(setting.opsets, setting.store, name=name, functions=setting.functions)
    lowering = GraphLowering(setting, writer)
    lowering.inputs(graph.inputs)
    lowering.statements(graph.body.statements)
    lowering.outputs(graph.outputs)
    return lowering
