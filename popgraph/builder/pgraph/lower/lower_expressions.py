"""Lowers expressions to nodes of onnx IR."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from xdsl.dialects.builtin import StringAttr
from xdsl.ir import Attribute, SSAValue

from popgraph.builder.pgraph.check import graphcore_calls
from popgraph.builder.pgraph.check.const_eval import folded
from popgraph.builder.pgraph.check.file_context import Definition
from popgraph.builder.pgraph.check.operators import (
    GRAPHCORE,
    SYMBOLS,
    Arguments,
    Operator,
    is_operator,
    operator_of,
    sort_arguments,
)
from popgraph.builder.pgraph.lower.attribute_values import attribute_value, of_kind
from popgraph.builder.pgraph.lower.lower_nodes import OperandLowering
from popgraph.builder.pgraph.lower.subscripts import take
from popgraph.builder.pgraph.syntax.literals import (
    array_of,
    default_dtype,
    is_literal,
    typed_literal,
)
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import (
    Argument,
    Binary,
    Branches,
    Call,
    Choice,
    Computed,
    Expression,
    Graph,
    Index,
    Items,
    Missing,
    Name,
    Path,
    Unary,
    left_spine,
)
from popgraph.dialects.onnx.attributes import RefAttr
from popgraph.dialects.onnx.op import Graph as GraphOp
from popgraph.dialects.onnx.reader import argument_types
from popgraph.dialects.onnx.types import describe
from popgraph.dialects.onnx.writer import Graphs
from popgraph.dialects.program import BytesAttr
from popgraph.support import dtypes
from popgraph.support.names import closest


class ExpressionLowering(OperandLowering, ABC):
    """Writes the nodes of expressions."""

    @abstractmethod
    def subgraph(self, graph: Graph, types: Sequence[Attribute], *, lenient: bool) -> GraphOp:
        """A graph that is the value of an attribute; `types` are those of its inputs if known."""

    @abstractmethod
    def branches(self, branches: Branches, names: Sequence[str]) -> list[SSAValue]:
        """The results of `if`; `names` are those on the left of `=`."""

    @abstractmethod
    def expand(
        self, template: Definition, call: Call, names: Sequence[str] | None
    ) -> list[SSAValue]:
        """The results of the statements of a `def`."""

    def fold(self, expression: Expression) -> Expression:
        """The expression with everything computed that is known now."""
        expression = folded(self.source, expression, self.scope.known)
        match expression:
            case Call(path=path, arguments=[Argument(keyword=None, value=value) as only]) if len(
                path.parts
            ) == 1 and not isinstance(value, Missing):
                inner = replace(only, value=folded(self.source, value, self.scope.known))
                typed = replace(expression, arguments=(inner,))
                return typed if typed_literal(typed) else expression
            case _:
                return expression

    # expressions

    def results(self, expression: Expression, names: Sequence[str]) -> list[SSAValue]:
        """
        The values of an expression that has as many results as `names`.

        These are names in the graph, "" where nobody wants the result.
        """
        expression = self.piped(self.from_left(self.fold(expression)))
        if isinstance(expression, Branches):
            return self.branches(expression, names)
        if isinstance(expression, Call) and typed_literal(expression) is None:
            return self.call(expression, names)
        if len(names) != 1:
            self.source.parse_error(
                expression.span,
                f"this has one result, not {len(names)}",
                "only a call of an operator has several",
            )
            raise Failed
        if isinstance(expression, Name):
            return self.node("Identity", [self.scope.value(expression)], names, expression.span)
        return [self.computed(expression, names[0])]

    def value(self, expression: Expression) -> SSAValue:
        """The value of an expression within another."""
        return self.folded_value(self.from_left(self.fold(expression)))

    def folded_value(self, expression: Expression) -> SSAValue:
        expression = self.piped(expression)
        if isinstance(expression, Name):
            return self.scope.value(expression)
        if isinstance(expression, Call) and typed_literal(expression) is None:
            return self.call(expression, None)[0]
        return self.computed(expression, None)

    def from_left(self, expression: Expression) -> Expression:
        """`a + b + c` with `a + b` computed, so that long sums and pipes are not deep ones."""
        if not isinstance(expression, Binary):
            return expression
        found, *others = reversed(left_spine(expression))
        for outer in others:
            value = None
            with suppress(Failed):
                value = self.folded_value(found)
            found = replace(outer, lhs=Computed(found.span, value))
        return found

    def computed(self, expression: Expression, name: str | None) -> SSAValue:
        """The value of what is neither a name nor a call; it is a step without a `name`."""
        match expression:
            case Binary():
                return self.infix(expression, name)
            case Unary():
                op_type = "Neg" if expression.symbol == "-" else "Not"
                operands = self.operands(
                    self.operator(op_type, expression.span), [expression.operand]
                )
                return self.node(op_type, operands, [name or self.step()], expression.span)[0]
            case Choice(then=then, condition=condition, otherwise=otherwise):
                where = self.operator("Where", expression.span)
                operands = self.operands(where, [condition, then, otherwise])
                return self.node("Where", operands, [name or self.step()], expression.span)[0]
            case Index():
                return take(self, expression, name)
            case Branches():
                self.source.parse_error(
                    expression.span,
                    "an `if` with blocks stands directly after `=`",
                    "`a if c else b` chooses within an expression",
                )
                raise Failed
            case Graph():
                self.source.parse_error(
                    expression.span,
                    "a graph is no value",
                    "it is given to an attribute: `Loop(n, true, x, body=graph ...)`, "
                    "`If(c, then_branch=graph ..., else_branch=graph ...)`",
                )
                raise Failed
            case Computed(value=value):
                if not isinstance(value, SSAValue):
                    raise Failed
                return value
            case _:
                return self.literal(expression, None, name)

    def piped(self, expression: Expression) -> Expression:
        """`x |> f(1)` as `f(x, 1)`."""
        if not isinstance(expression, Binary) or expression.symbol != "|>":
            return expression
        first = Argument(expression.lhs.span, None, expression.lhs)
        match expression.rhs:
            case Name() as name:
                return Call(name.span, Path(name.span, (name,)), (first,))
            case Call() as call:
                return replace(call, arguments=(first, *call.arguments))
            case other:
                self.source.parse_error(
                    other.span, "after `|>` stands what the value goes to", "`x |> Relu |> f(1)`"
                )
                raise Failed

    def infix(self, expression: Binary, name: str | None) -> SSAValue:
        span = expression.span
        symbol = "==" if expression.symbol == "!=" else expression.symbol
        operator = self.operator(SYMBOLS[symbol], span)
        operands = self.operands(operator, [expression.lhs, expression.rhs])
        if expression.symbol != "!=":
            attributes = _how(operator, operands)
            return self.node(operator.op_type, operands, [name or self.step()], span, attributes)[0]
        equal = self.node("Equal", operands, [self.step()], span)
        return self.node("Not", equal, [name or self.step()], span)[0]

    def call(self, call: Call, names: Sequence[str] | None) -> list[SSAValue]:
        """A node; `names` are those of its results, None for one result on the way."""
        call = self.resolved(call)
        template = self.context.template(call.path)
        if template is not None:
            return self.expand(template, call, names)
        operator, arguments = self.called(call)
        operands = None
        with suppress(Failed):
            operands = self.operands(operator, arguments.inputs)
        attributes = self.attributes(operator, arguments.attributes, operands or [])
        if operands is None:
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
            "" if names is None else self.overload,
        )

    def called(self, call: Call) -> tuple[Operator, Arguments]:
        """
        The operator that a call names, and its arguments, sorted.

        Where that fails the arguments are looked at all the same, for mistakes of their own.
        """
        try:
            self.check_spelling(call.path)
            operator = operator_of(self.source, call.path, self.writer.opsets, self.context.calls)
            return operator, sort_arguments(self.source, operator, call)
        except Failed:
            for argument in call.arguments:
                if argument.keyword is None and not isinstance(argument.value, Missing):
                    with suppress(Failed):
                        self.value(argument.value)
            raise

    def check_spelling(self, path: Path) -> None:
        """Fails at what is no operator, but almost the name of a `def`."""
        if len(path.parts) > 1 or is_operator(path.text):
            return
        close = closest(path.text, self.context.definitions, 0.7)
        if close:
            self.source.parse_error(
                path.span, f"there is no `{path.text}`", f"did you mean `{close}`?"
            )
            raise Failed

    def resolved(self, call: Call) -> Call:
        """The call with the operator that a parameter such as `activation` stands for."""
        if len(call.path.parts) != 1:
            return call
        meant = self.scope.known(call.path.parts[0])
        if not isinstance(meant, Name):
            return call
        return replace(call, path=Path(call.path.span, (replace(meant, span=call.path.span),)))

    def attributes(
        self,
        operator: Operator,
        given: Mapping[Name, Expression],
        operands: Sequence[SSAValue | None],
    ) -> dict[str, object]:
        """The values of all attributes; every mistake in them is noted before this fails."""
        failed = False
        attributes: dict[str, object] = {}
        types = argument_types(operator.op_type, operands) if not operator.domain else []
        for keyword, expression in given.items():
            try:
                attributes[keyword.text] = self.attribute(operator, keyword, expression, types)
            except Failed:
                failed = True
        if failed:
            raise Failed
        return attributes

    def attribute(
        self,
        operator: Operator,
        keyword: Name,
        expression: Expression,
        types: Sequence[Attribute],
    ) -> object:
        """The value of an attribute."""
        kind, value = of_kind(expression) or (operator.kinds.get(keyword.text, ""), expression)
        lenient = operator.op_type == "If"
        match value:
            case Graph():
                return self.subgraph(value, types, lenient=lenient)
            case Items(items=items) if kind == "GRAPHS" and all(
                isinstance(item, Graph) for item in items
            ):
                graphs = [item for item in items if isinstance(item, Graph)]
                return Graphs(self.subgraph(one, types, lenient=lenient) for one in graphs)
            case Name(text=text) if text in self.references:
                return self.reference(value, kind or self.references[text])
        return attribute_value(self.context, operator, keyword, self.fold(expression), self.scope)

    def reference(self, name: Name, kind: str) -> RefAttr:
        """The value that the caller gives to an attribute of the function around."""
        if not kind:
            self.source.parse_error(
                name.span,
                f"of which kind the attribute `{name.text}` is, is not known",
                f"`INTS({name.text})`, or give it a default in the head of the function",
            )
            raise Failed
        return RefAttr(BytesAttr.of(name.text), StringAttr(kind))

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

    def operands(
        self, operator: Operator, inputs: Sequence[Expression | Missing]
    ) -> list[SSAValue | None]:
        """
        The values of a node's inputs.

        Literals come last: without a dtype of their own they take one that fits the others.
        """
        values: list[SSAValue | None] = [None] * len(inputs)
        failed = False
        given = [one if isinstance(one, Missing) else self.fold(one) for one in inputs]
        for literals in (False, True):
            for place, expression in enumerate(given):
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


def _how(operator: Operator, operands: Sequence[SSAValue | None]) -> dict[str, object]:
    """Attributes without which an infix operator would not compute what its symbol says."""
    floats = any(value is not None and _is_float(dtype_of(value)) for value in operands)
    return {"fmod": 1} if operator.op_type == "Mod" and floats else {}


def _is_float(dtype: str) -> bool:
    return dtype in dtypes.BY_NAME and dtypes.BY_NAME[dtype].is_float
