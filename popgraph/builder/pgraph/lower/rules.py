"""Lowers each kind of expression and statement."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import assert_never

from xdsl.ir import Attribute, SSAValue

from popgraph.builder.budget import ITERATION
from popgraph.builder.pgraph.check.annotations import Notes, value_notes
from popgraph.builder.pgraph.check.declared_types import declared_type, type_of
from popgraph.builder.pgraph.check.operators import SYMBOLS, Operator
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.branches import lower_if
from popgraph.builder.pgraph.lower.calls import lower_call
from popgraph.builder.pgraph.lower.context import GraphContext, Rules
from popgraph.builder.pgraph.lower.expressions import folding, known, lower_results
from popgraph.builder.pgraph.lower.initial_values import Drawn, Narrow, initial_value
from popgraph.builder.pgraph.lower.inputs_and_outputs import checked_type
from popgraph.builder.pgraph.lower.loops import lower_loop
from popgraph.builder.pgraph.lower.nodes import (
    add_constant,
    add_node,
    add_step,
    describe_node,
    locate,
    operator_named,
)
from popgraph.builder.pgraph.lower.numbered_names import has_parts, with_parts
from popgraph.builder.pgraph.lower.operands import operands_of
from popgraph.builder.pgraph.lower.statements import context_of_definition, lower_statements
from popgraph.builder.pgraph.lower.stored_weights import lower_narrow
from popgraph.builder.pgraph.lower.subscripts import lower_subscripts
from popgraph.builder.pgraph.lower.tensor_literals import dtype_of, lower_literal
from popgraph.builder.pgraph.lower.value_names import full_name
from popgraph.builder.pgraph.syntax.literals import typed_literal
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import (
    Assignment,
    Binary,
    Branches,
    Call,
    Choice,
    Computed,
    Constant,
    Expression,
    For,
    Freeze,
    Graph,
    Index,
    Items,
    Loop,
    Missing,
    Name,
    Number,
    Range,
    Region,
    Statement,
    Static,
    Target,
    Unary,
    Weight,
)
from popgraph.dialects.onnx.attributes import SparseTensorAttr, TensorAttr
from popgraph.dialects.onnx.metadata import declared, with_tensor_metadata
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.dialects.onnx.types import UNKNOWN
from popgraph.dialects.program import WeightStore
from popgraph.support import dtypes
from popgraph.support.arrays import Array


def lower_statement(context: GraphContext, statement: Statement, notes: Notes) -> None:
    """Lowers a statement by kind; `notes` are its annotations."""
    match statement:
        case Region():
            lower_statements(context, statement.body.statements)
        case For():
            lower_for(context, statement, notes)
        case Weight():
            lower_weight(context_of_definition(context, statement, notes), statement, notes)
        case Constant():
            lower_constant(context_of_definition(context, statement, notes), statement, notes)
        case Static():
            lower_let(context_of_definition(context, statement, notes), statement)
        case Assignment():
            lower_assignment(context_of_definition(context, statement, notes), statement, notes)
        case Freeze():
            _refuse_freeze(context, statement)
        case _:
            assert_never(statement)


def lower_expression(
    context: GraphContext, expression: Expression, names: Sequence[str] | None
) -> list[SSAValue]:
    """
    Lowers an expression by kind, after constant folding.

    `names` are the result names in the graph; None for a nested expression.
    """
    match expression:
        case Branches():
            return lower_if(context, expression, names)
        case Loop():
            return lower_loop(context, expression, names)
        case Call() if typed_literal(expression) is None:
            return lower_call(context, expression, names)
    name = _only_name(context, expression, names)
    match expression:
        case Name():
            return _lower_name(context, expression, name)
        case Binary():
            return [lower_binary(context, expression, name)]
        case Unary():
            return [lower_unary(context, expression, name)]
        case Choice():
            return [lower_choice(context, expression, name)]
        case Index():
            return [lower_subscripts(context, expression, name)]
        case Computed():
            return [_lower_computed(expression)]
        case Graph():
            return _refuse_graph(context, expression)
        case _:
            return [lower_literal(context, expression, None, name)]


RULES = Rules(lower_expression, lower_statement)


def _only_name(
    context: GraphContext, expression: Expression, names: Sequence[str] | None
) -> str | None:
    """The name of an expression's only result; fails if several are requested."""
    if names is None:
        return None
    if len(names) != 1:
        context.source.parse_error(
            expression.span,
            f"this has one result, not {len(names)}",
            "only a call of an operator has several",
        )
        raise Failed
    return names[0]


def _lower_name(context: GraphContext, name: Name, result: str | None) -> list[SSAValue]:
    """The value of a name; under another name it becomes an Identity."""
    value = context.scope.value(name)
    return (
        [value] if result is None else add_node(context, "Identity", [value], [result], name.span)
    )


def _lower_computed(expression: Computed) -> SSAValue:
    if not isinstance(expression.value, SSAValue):
        raise Failed
    return expression.value


def _refuse_graph(context: GraphContext, graph: Graph) -> list[SSAValue]:
    context.source.parse_error(
        graph.span,
        "a graph is not a value",
        "pass it as an attribute: `Loop(n, true, x, body=graph ...)`, `If(c, then_branch=graph "
        "..., else_branch=graph ...)`",
    )
    raise Failed


def _refuse_freeze(context: GraphContext, statement: Freeze) -> None:
    context.source.parse_error(
        statement.span, f"`{statement.keyword}` belongs in a `train` section", ""
    )


def lower_assignment(context: GraphContext, statement: Assignment, notes: Notes) -> None:
    """Evaluates the right side and defines the names on the left."""
    targets = statement.targets
    names = ["" if isinstance(one.name, Missing) else one.name.text for one in targets]
    _check_types(context, targets)
    values = lower_results(context, statement.value, [full_name(context, name) for name in names])
    describe_node(context, values, notes)
    given, kind = iter(values), "result" if len(targets) > 1 else "value"
    for target in targets:
        if isinstance(target.name, Name):
            value = next(given)
            _declare(context, target, value)
            context.scope.define(target.name, value, kind)


def _check_types(context: GraphContext, targets: Sequence[Target]) -> None:
    """Fails on invalid types before anything is lowered."""
    for target in targets:
        if target.type is not None:
            declared_type(context.source, target.type, context.scope)


def _declare(context: GraphContext, target: Target, value: SSAValue) -> None:
    """Records the declared type and annotations of a result."""
    if target.type is None and not target.annotations:
        return
    notes = value_notes(context.source, target.annotations, folding(context))
    type_ = checked_type(context, target, value, notes)
    name = context.writer.name_of(value)
    context.infos.append(declared(name, type_, notes.about, notes.denotations))


def lower_weight(context: GraphContext, weight: Weight, notes: Notes) -> None:
    """`weight w: f32[3, 4] = zeros`: an initializer."""
    context.scope.define(weight.name, _initializer(context, weight, notes), "weight")


def _initializer(context: GraphContext, weight: Weight, notes: Notes) -> SSAValue:
    full, info = full_name(context, weight.name.text), None
    found = initial_value(context.file, weight, context.scope, full)
    if isinstance(found, Narrow):
        return lower_narrow(context, found.stored, full, weight.name.span)
    held: Attribute = found if isinstance(found, SparseTensorAttr) else UNKNOWN
    if not isinstance(found, SparseTensorAttr):
        held = with_tensor_metadata(_tensor_of(found, context.file.store), notes.about)
    if notes.place is not None:
        listed = type_of(notes.declared) if notes.declared else weight.type
        assert listed is not None, "the annotation was checked"
        info = declared(full, declared_type(context.source, listed, context.scope))
    value = context.writer.add_initializer(full, held, input=info, place=notes.place or 0)
    locate(context, full, weight.name.span)
    return value


def _tensor_of(value: Array | Drawn, store: WeightStore) -> TensorAttr:
    if isinstance(value, Drawn):
        return TensorAttr.of(store.later(value.origin, value.shape, value.dtype, value.draw))
    return from_value(value, store)


def lower_constant(context: GraphContext, constant: Constant, notes: Notes) -> None:
    """`const axes = i64([-1])`: a Constant."""
    name = constant.name
    full = full_name(context, name.text)
    tensor = initial_value(context.file, constant, context.scope, full)
    assert not isinstance(tensor, SparseTensorAttr | Narrow | Drawn), (
        "only weights are sparse, narrow or drawn"
    )
    value = add_constant(context, tensor, full, name.span)
    context.scope.define(name, value, "constant")
    describe_node(context, [value], notes)


def lower_let(context: GraphContext, statement: Static) -> None:
    """`let heads = width / 64`: defines a constant without a node."""
    context.scope.define(statement.name, known(context, statement.value), "name")


def lower_binary(context: GraphContext, expression: Binary, name: str | None) -> SSAValue:
    """`a + b`  ->  Add; `a != b`  ->  Not(Equal(a, b))."""
    span = expression.span
    symbol = "==" if expression.symbol == "!=" else expression.symbol
    operator = operator_named(context, SYMBOLS[symbol], span)
    operands = operands_of(context, operator, [expression.lhs, expression.rhs])
    if expression.symbol != "!=":
        attributes = _implied_attributes(operator, operands)
        return add_step(context, operator.op_type, operands, name, span, attributes)
    equal = add_step(context, "Equal", operands, None, span)
    return add_step(context, "Not", [equal], name, span)


def _implied_attributes(
    operator: Operator, operands: Sequence[SSAValue | None]
) -> dict[str, object]:
    """Attributes required for the meaning of a symbol: `%` of floats is Mod with fmod."""
    floats = any(value is not None and _is_float(dtype_of(value)) for value in operands)
    return {"fmod": 1} if operator.op_type == "Mod" and floats else {}


def _is_float(dtype: str) -> bool:
    return dtype in dtypes.BY_NAME and dtypes.BY_NAME[dtype].is_float


def lower_unary(context: GraphContext, expression: Unary, name: str | None) -> SSAValue:
    """`-x`, `not x`."""
    op_type = "Neg" if expression.symbol == "-" else "Not"
    operator = operator_named(context, op_type, expression.span)
    operands = operands_of(context, operator, [expression.operand])
    return add_step(context, op_type, operands, name, expression.span)


def lower_choice(context: GraphContext, choice: Choice, name: str | None) -> SSAValue:
    """`a if c else b`  ->  Where, elementwise."""
    where = operator_named(context, "Where", choice.span)
    operands = operands_of(context, where, [choice.condition, choice.then, choice.otherwise])
    return add_step(context, "Where", operands, name, choice.span)


def lower_for(context: GraphContext, loop: For, notes: Notes) -> None:
    """Unrolls a `for`; names of values are prefixed by the iteration."""
    for target in loop.targets:
        if isinstance(target.name, Name):
            context.scope.check_new(target.name)
    first = loop.targets[0].name
    stem = notes.name or (first.text if isinstance(first, Name) else "for")
    numbered = has_parts(loop.body)
    for number, meanings in _iterations(context, loop):
        scope = Scope(context.source, context.scope, carries=True)
        body = context.within(scope, f"{context.prefix}{stem}{number}/")
        for target, meaning in zip(loop.targets, meanings, strict=True):
            if isinstance(target.name, Name):
                scope.define(target.name, meaning)
        block = loop.body
        if numbered:
            pairs = zip(loop.targets, meanings, strict=True)
            block = with_parts(
                block, {one.name.text: value for one, value in pairs if isinstance(one.name, Name)}
            )
        lower_statements(body, block.statements)


def _iterations(context: GraphContext, loop: For) -> Iterator[tuple[int, Sequence[Expression]]]:
    """Yields each iteration's number, and the values of the loop names in it."""
    if isinstance(loop.range, Range):
        first, last = _range_end(context, loop.range.first), _range_end(context, loop.range.last)
        context.source.spend(loop.range.span, ITERATION * max(0, last - first))
        for number in range(first, last):
            yield number, _unpacked(context, loop, Number(loop.range.span, number))
        return
    items = known(context, loop.range)
    if not isinstance(items, Items):
        context.source.parse_error(
            loop.range.span, "`for` iterates over a range or a list", "`0..12`, `[64, 128]`"
        )
        raise Failed
    context.source.spend(loop.range.span, ITERATION * len(items.items))
    for number, item in enumerate(items.items):
        yield number, _unpacked(context, loop, item)


def _unpacked(context: GraphContext, loop: For, item: Expression) -> Sequence[Expression]:
    """Unpacks an item into the names of a loop."""
    if len(loop.targets) == 1:
        return [item]
    if isinstance(item, Items) and len(item.items) == len(loop.targets):
        return item.items
    context.source.parse_error(
        item.span,
        f"this cannot be unpacked into {len(loop.targets)} names",
        "`for (c, stride) in [[64, 1], [128, 2]]`",
    )
    raise Failed


def _range_end(context: GraphContext, expression: Expression) -> int:
    found = known(context, expression)
    if isinstance(found, Number) and isinstance(found.value, int):
        return found.value
    context.source.parse_error(found.span, "the ends of a range must be integers")
    raise Failed
