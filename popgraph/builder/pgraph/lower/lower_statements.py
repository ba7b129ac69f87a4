"""Lowers statements, inputs, weights and outputs of a graph to onnx IR."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence

from xdsl.ir import Attribute, SSAValue

from popgraph.builder.budget import ITERATION
from popgraph.builder.pgraph.check.annotations import Notes, ValueNotes, notes_of, value_notes
from popgraph.builder.pgraph.check.declared_types import check_declared, declared_type, type_of
from popgraph.builder.pgraph.check.file_context import FileContext
from popgraph.builder.pgraph.check.graph_notes import GraphNotes
from popgraph.builder.pgraph.check.scope import Scope, defined_by
from popgraph.builder.pgraph.lower.initial_values import initial_value
from popgraph.builder.pgraph.lower.lower_expressions import ExpressionLowering
from popgraph.builder.pgraph.syntax.literals import is_known
from popgraph.builder.pgraph.syntax.source import TOO_DEEP, Failed
from popgraph.builder.pgraph.syntax.tree import (
    Assignment,
    Constant,
    Expression,
    Formal,
    Freeze,
    Loop,
    Missing,
    Name,
    Parameter,
    Region,
    Statement,
    Static,
    Target,
    Weight,
)
from popgraph.dialects.onnx.attributes import SparseTensorAttr, ValueInfoAttr
from popgraph.dialects.onnx.metadata import declared, with_tensor_metadata
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.dialects.onnx.types import UNKNOWN
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.support.errors import PopgraphError


class StatementLowering(ExpressionLowering):
    """
    Writes statements, inputs and outputs; what holds graphs of its own is left to others.

    A mistake is noted in the source and fails the statement; the others go on.
    """

    def __init__(
        self,
        context: FileContext,
        writer: GraphWriter,
        scope: Scope | None = None,
        calls: Sequence[str] = (),
    ) -> None:
        super().__init__(context, writer, scope or Scope(context.source, context.scope))
        self.infos: list[ValueInfoAttr] = []
        """What the text says about the types of inner values."""
        self.calls = calls
        """The templates that are being written out around this, from the outermost in."""
        self.inner_graph = False
        """Whether this is a graph inside a node."""
        self.about = GraphNotes()
        self._labels: dict[str, int] = {}
        self._wanted: Sequence[Name] = ()

    @abstractmethod
    def loop(self, loop: Loop, label: str) -> None:
        """The statements of a `for`, once a turn."""

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
                self.source.spend(statement.span, ITERATION)
                self.statement(statement)
            except Failed:
                self.fail(statement)
            except RecursionError:
                self.source.parse_error(statement.span, *TOO_DEEP)
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
        self.notes = notes.of_stretch
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
                tensor = initial_value(self.context, statement, self.scope, full)
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
        found = initial_value(self.context, weight, self.scope, full)
        held: Attribute = found if isinstance(found, SparseTensorAttr) else UNKNOWN
        if not isinstance(found, SparseTensorAttr):
            held = with_tensor_metadata(from_value(found, self.context.store), notes.about)
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
        given, kind = iter(values), "result" if len(targets) > 1 else "value"
        for target in targets:
            if isinstance(target.name, Name):
                value = next(given)
                self.declare(target, value)
                self.scope.define(target.name, value, kind)

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
            notes.put(op, self.context.store)

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
