"""How does the tree of a graph become onnx IR, and what is wrong with it on the way?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from xdsl.dialects.builtin import FileLineColLoc, IntAttr, NameLoc, StringAttr
from xdsl.ir import Attribute, SSAValue

from popgraph.builder.dsl import graphcore_calls
from popgraph.builder.dsl.attribute_values import attribute_value
from popgraph.builder.dsl.declared_types import check_declared, declared_type
from popgraph.builder.dsl.first_values import first_value
from popgraph.builder.dsl.literals import array_of, default_dtype, is_literal, typed_literal
from popgraph.builder.dsl.operators import (
    GRAPHCORE,
    SYMBOLS,
    Operator,
    newest,
    operator_of,
    sort_arguments,
)
from popgraph.builder.dsl.scope import Failed, Scope, defined_by
from popgraph.builder.dsl.source import Source
from popgraph.builder.dsl.tree import (
    Assignment,
    Binary,
    Call,
    Constant,
    Expression,
    Graph,
    Missing,
    Name,
    Negative,
    Parameter,
    Span,
    Statement,
    Target,
    Weight,
)
from popgraph.builder.dsl.tree import (
    Path as OperatorPath,
)
from popgraph.dialects.onnx.types import describe
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.dialects.program import WeightStore
from popgraph.dialects.program.attributes import Array
from popgraph.support.errors import PopgraphError

_DEEPEST = 200
"""How deep expressions may be nested."""


@dataclass(frozen=True)
class Setting:
    """What all graphs of one file share."""

    source: Source
    folder: Path
    opsets: dict[str, int]
    store: WeightStore


class GraphLowering:
    """
    Writes one graph, statement by statement.

    A mistake is noted in the source and fails the statement; the others go on. What a statement
    computes on the way to its result `y` is named `y/1`, `y/2`, ... in the order of computation.
    """

    def __init__(self, setting: Setting, name: str) -> None:
        self.setting = setting
        self.source = setting.source
        self.writer = GraphWriter(setting.opsets, setting.store, name=name)
        self.scope = Scope(setting.source)
        self._stem = ""
        self._steps = 0
        self._depth = 0

    # inputs, statements, outputs

    def inputs(self, parameters: Sequence[Parameter]) -> None:
        for parameter in parameters:
            value = None
            try:
                self.scope.check_new(parameter.name)
                type_ = declared_type(self.source, parameter.type)
                value = self.writer.add_input(parameter.name.text, type_)
            except Failed:
                pass
            self.scope.define(parameter.name, value)

    def statements(self, statements: Sequence[Statement]) -> None:
        self.scope.announce(statements)
        for statement in statements:
            try:
                self.statement(statement)
            except Failed:
                for name in defined_by(statement):
                    self.scope.define(name, None)
            except PopgraphError as error:
                self.source.note(statement.span, error)
                for name in defined_by(statement):
                    self.scope.define(name, None)

    def statement(self, statement: Statement) -> None:
        names = defined_by(statement)
        for name in names:
            self.scope.check_new(name)
        self._stem, self._steps = names[0].text if names else "_", 0
        match statement:
            case Weight(name=name):
                array = first_value(self.source, self.setting.folder, statement)
                self.scope.define(name, self.writer.add_initializer(name.text, array))
                self.locate(name.text, name.span)
            case Constant(name=name):
                array = first_value(self.source, self.setting.folder, statement)
                self.scope.define(name, self.constant(array, name.text, name.span))
            case Assignment():
                self.assignment(statement)

    def assignment(self, statement: Assignment) -> None:
        targets = statement.targets
        names = ["" if isinstance(one.name, Missing) else one.name.text for one in targets]
        self.check_target_types(targets)
        values = iter(self.results(statement.value, names))
        for target in targets:
            if isinstance(target.name, Missing):
                continue
            value = next(values)
            if target.type is not None:
                check_declared(self.source, target.name.text, target.type, value)
            self.scope.define(target.name, value)

    def check_target_types(self, targets: Sequence[Target]) -> None:
        for target in targets:
            if target.type is not None:
                declared_type(self.source, target.type)

    def outputs(self, targets: Sequence[Target]) -> None:
        """Ends the graph with what its head says that it gives."""
        values: list[SSAValue] = []
        seen: set[str] = set()
        for target in targets:
            try:
                values.append(self.output(target, seen))
            except Failed:
                continue
        if len(values) == len(targets):
            self.writer.set_outputs(values)

    def output(self, target: Target, seen: set[str]) -> SSAValue:
        name = target.name
        assert isinstance(name, Name), "the grammar wants a name here"
        if name.text in seen:
            self.source.parse_error(name.span, f"`{name.text}` stands twice among the outputs")
            raise Failed
        seen.add(name.text)
        if not self.scope.taken(name.text):
            close = self.scope.closest(name.text)
            hint = f"did you mean `{close}`?" if close else f"`{name.text} = ...` in the body"
            self.source.parse_error(name.span, f"nothing defines the output `{name.text}`", hint)
            raise Failed
        value = self.scope.value(name)
        if target.type is not None:
            check_declared(self.source, name.text, target.type, value)
        return value

    # expressions

    def results(self, expression: Expression, names: Sequence[str]) -> list[SSAValue]:
        """The values of an expression that has as many results as `names` ("" if not wanted)."""
        if isinstance(expression, Call) and typed_literal(expression) is None:
            return self.call(expression, names)
        if len(names) != 1:
            self.source.parse_error(
                expression.span,
                f"this has one result, not {len(names)}",
                "only a call of an operator has several",
            )
            raise Failed
        match expression:
            case Name():
                return self.node("Identity", [self.scope.value(expression)], names, expression.span)
            case Binary() | Negative():
                return [self.infix(expression, names[0])]
            case _:
                return [self.literal(expression, None, names[0])]

    def value(self, expression: Expression) -> SSAValue:
        """The value of an expression within another."""
        if isinstance(expression, Name):
            return self.scope.value(expression)
        self._depth += 1
        try:
            if self._depth > _DEEPEST:
                self.source.parse_error(
                    expression.span,
                    "this expression is nested too deeply",
                    "give parts of it a name",
                )
                raise Failed
            if isinstance(expression, Call) and typed_literal(expression) is None:
                return self.call(expression, None)[0]
            if isinstance(expression, Binary | Negative):
                return self.infix(expression, None)
            return self.literal(expression, None, None)
        finally:
            self._depth -= 1

    def infix(self, expression: Binary | Negative, name: str | None) -> SSAValue:
        span = expression.span
        if isinstance(expression, Negative):
            operand = self.value(expression.operand)
            return self.node("Neg", [operand], [name or self.step()], span)[0]
        symbol = "==" if expression.symbol == "!=" else expression.symbol
        operator = self.operator(SYMBOLS[symbol], span)
        operands = self.operands(operator, [expression.lhs, expression.rhs])
        if expression.symbol != "!=":
            return self.node(operator.op_type, operands, [name or self.step()], span)[0]
        equal = self.node("Equal", operands, [self.step()], span)
        return self.node("Not", equal, [name or self.step()], span)[0]

    def call(self, call: Call, names: Sequence[str] | None) -> list[SSAValue]:
        """A node; `names` are those of its results, None for one result on the way."""
        operator = operator_of(self.source, call.path, self.writer.opsets)
        arguments = sort_arguments(self.source, operator, call)
        failed = False
        attributes: dict[str, object] = {}
        for keyword, expression in arguments.attributes.items():
            try:
                attributes[keyword.text] = attribute_value(
                    self.source, operator, keyword, expression
                )
            except Failed:
                failed = True
        operands = self.operands(operator, arguments.inputs)
        if failed:
            raise Failed
        types = None
        if operator.domain == GRAPHCORE:
            described = graphcore_calls.describe(self.source, call, operands, attributes)
            if described is not None:
                operator = replace(operator, op_type=described.op_type)
                attributes, types = dict(described.attributes), described.result_types
        self.check_results(operator, call, names, types)
        return self.node(
            operator.op_type,
            operands,
            [self.step()] if names is None else names,
            call.path.span,
            attributes,
            operator.domain,
            types,
        )

    def check_results(
        self,
        operator: Operator,
        call: Call,
        names: Sequence[str] | None,
        types: Sequence[Attribute] | None,
    ) -> None:
        most = 1 << 31 if operator.schema is None else operator.schema.max_output
        if types is not None:
            most = len(types)
        if names is not None and len(names) > most:
            results = "one result" if most == 1 else f"{most} results"
            self.source.parse_error(
                call.path.span, f"{operator.shown} has {results}, not {len(names)}"
            )
            raise Failed

    def operator(self, op_type: str, span: Span) -> Operator:
        path = OperatorPath(span, (Name(span, op_type),))
        return operator_of(self.source, path, self.writer.opsets)

    def operands(
        self, operator: Operator, inputs: Sequence[Expression | Missing]
    ) -> list[SSAValue | None]:
        """
        The values of a node's inputs.

        Literals come last: without a dtype of their own they take one that fits the others.
        """
        values: list[SSAValue | None] = [None] * len(inputs)
        failed = False
        for literals in (False, True):
            for place, expression in enumerate(inputs):
                if isinstance(expression, Missing) or is_literal(expression) != literals:
                    continue
                try:
                    if literals:
                        dtype = literal_dtype(operator, place, values, expression)
                        values[place] = self.literal(expression, dtype, None)
                    else:
                        values[place] = self.value(expression)
                except Failed:
                    failed = True
        if failed:
            raise Failed
        return values

    def literal(self, expression: Expression, dtype: str | None, name: str | None) -> SSAValue:
        typed = typed_literal(expression)
        if typed is None and not is_literal(expression):
            self.source.parse_error(
                expression.span,
                "a list holds numbers, strings and lists only",
                "`Concat(a, b, axis=0)` joins values",
            )
            raise Failed
        if typed is not None:
            dtype, expression = typed[0].text, typed[1]
        array = array_of(self.source, expression, dtype or default_dtype(expression))
        return self.constant(array, name if name is not None else self.step(), expression.span)

    # nodes

    def constant(self, array: Array, name: str, span: Span) -> SSAValue:
        return self.node("Constant", [], [name], span, {"value": array})[0]

    def node(
        self,
        op_type: str,
        operands: Sequence[SSAValue | None],
        names: Sequence[str],
        span: Span,
        attributes: dict[str, object] | None = None,
        domain: str = "",
        types: Sequence[Attribute] | None = None,
    ) -> list[SSAValue]:
        """Writes a node; what it says against it is a mistake at `span`."""
        if types is not None:
            types = [type_ for name, type_ in zip(names, types, strict=False) if name]
        self.writer.opsets.setdefault(domain, newest().get(domain, 1))
        try:
            values = self.writer.add_node(
                op_type,
                operands,
                attributes,
                domain=domain,
                outputs=list(names),
                result_types=types,
            )
        except PopgraphError as error:
            self.source.note(span, error)
            raise Failed from error
        self.locate(next(filter(None, names), ""), span)
        return values

    def locate(self, label: str, span: Span) -> None:
        """Gives what was written last its place in the text."""
        written = self.writer.block.last_op
        assert written is not None
        place = FileLineColLoc(
            StringAttr(self.source.filename), IntAttr(span.line), IntAttr(span.column)
        )
        written.location = NameLoc(StringAttr(label), place)

    def step(self) -> str:
        """The name of the next value on the way to the result of this statement."""
        while True:
            self._steps += 1
            name = f"{self._stem}/{self._steps}"
            if not self.scope.taken(name):
                return name


def literal_dtype(
    operator: Operator,
    place: int,
    values: Sequence[SSAValue | None],
    expression: Expression,
) -> str:
    """The dtype of a literal input: that of the inputs it must agree with, or one allowed."""
    for other in operator.like(place):
        value = values[other] if other < len(values) else None
        if value is not None and (dtype := dtype_of(value)):
            return dtype
    usual = default_dtype(expression)
    allowed = operator.allowed(place)
    choices = [one for one in (usual, "f32", "i64") if one in allowed] or allowed or [usual]
    return choices[0]


def dtype_of(value: SSAValue) -> str:
    """The dtype of a tensor; empty when nothing is known about it."""
    shown = describe(value.type)
    return shown.split("[")[0] if "[" in shown else ""


def lower_graph(setting: Setting, graph: Graph) -> GraphLowering:
    """The graph as written."""
    lowering = GraphLowering(setting, graph.name.text)
    lowering.inputs(graph.inputs)
    lowering.statements(graph.body.statements)
    lowering.outputs(graph.outputs)
    return lowering
