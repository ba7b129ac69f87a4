"""How is a tree written down, so that parsing gives the same tree?"""

from __future__ import annotations

import re
from collections.abc import Sequence

from popgraph.builder.dsl.transform import quote
from popgraph.builder.dsl.tree import (
    Argument,
    Assignment,
    Binary,
    Block,
    Call,
    Constant,
    Expression,
    File,
    Graph,
    Items,
    Missing,
    Name,
    Negative,
    Number,
    Parameter,
    Path,
    Statement,
    Target,
    Text,
    Train,
    Truth,
    Type,
    Weight,
)

WIDTH = 100
INDENT = "    "

RESERVED = frozenset(
    {"graph", "train", "opset", "weight", "const", "true", "false", "inf", "nan", "_"}
)
"""The grammar's words: as names they stand in backticks."""

_SUM, _PRODUCT, _UNARY, _POWER, _PRIMARY = range(1, 6)
_STRENGTH = {"+": _SUM, "-": _SUM, "*": _PRODUCT, "/": _PRODUCT, "@": _PRODUCT, "**": _POWER}
"""How tightly each infix operator binds; comparisons bind least, with 0."""


def format_file(file: File) -> str:
    """The whole text, with one empty line between its parts."""
    head = [] if not file.doc else [docstring(file.doc, "")]
    opsets = "\n".join(
        f"opset {format_domain(opset.domain)}{opset.version}" for opset in file.opsets
    )
    parts = [*head, *([opsets] if opsets else [])]
    parts += [format_graph(graph) for graph in file.graphs]
    parts += [format_train(train) for train in file.trains]
    return "\n\n".join(parts) + "\n"


def format_domain(domain: str) -> str:
    return ".".join(map(quote_name, domain.split("."))) + " " if domain else ""


def docstring(text: str, margin: str) -> str:
    """`text` between triple quotes; what would end it early is changed."""
    safe = text.replace('"""', "'''").removesuffix('"')
    lines = [f"{margin}{line}".rstrip() for line in safe.split("\n")]
    return f'{margin}"""' + "\n".join(lines).lstrip() + '"""'


def format_graph(graph: Graph) -> str:
    name = f"graph {quote_name(graph.name.text)}"
    parameters = [format_parameter(parameter) for parameter in graph.inputs]
    head = f"{name}{_in('()', parameters, len(name))} -> "
    outputs = [format_target(target) for target in graph.outputs]
    if len(graph.outputs) == 1 and graph.outputs[0].type is None:
        shown = outputs[0]
    else:
        shown = _in("()", outputs, len(head.rpartition("\n")[2]) + len(" {"))
    return f"{head}{shown} {format_block(graph.body)}"


def format_train(train: Train) -> str:
    name = f" {quote_name(train.graph.text)}" if train.graph else ""
    inputs = [format_parameter(parameter) for parameter in train.inputs]
    return f"train{name}{' ' + _in('()', inputs, 0) if inputs else ''} {format_block(train.body)}"


def format_block(block: Block) -> str:
    doc = [docstring(block.doc, INDENT)] if block.doc else []
    lines = [*doc, *(INDENT + format_statement(one) for one in block.statements)]
    return "\n".join(["{", *lines, "}"])


def format_parameter(parameter: Parameter) -> str:
    return f"{quote_name(parameter.name.text)}: {format_type(parameter.type)}"


def format_target(target: Target) -> str:
    name = "_" if isinstance(target.name, Missing) else quote_name(target.name.text)
    return name if target.type is None else f"{name}: {format_type(target.type)}"


def format_type(type_: Type) -> str:
    if type_.dims is None:
        return f"{type_.dtype.text}[...]"
    if not type_.dims:
        return type_.dtype.text
    return f"{type_.dtype.text}[{', '.join(map(_dim, type_.dims))}]"


def _dim(dim: object) -> str:
    match dim:
        case Number():
            return str(dim.value)
        case Name():
            return quote_name(dim.text)
        case _:
            return "?"


def format_statement(statement: Statement) -> str:
    match statement:
        case Weight():
            head = f"weight {quote_name(statement.name.text)}: {format_type(statement.type)} = "
        case Constant():
            type_ = f": {format_type(statement.type)}" if statement.type else ""
            head = f"const {quote_name(statement.name.text)}{type_} = "
        case Assignment():
            targets = [format_target(target) for target in statement.targets]
            head = (targets[0] if len(targets) == 1 else f"({', '.join(targets)})") + " = "
    return head + format_expression(statement.value, len(INDENT) + len(head))


def format_expression(expression: Expression, column: int = 0, depth: int = 1) -> str:
    """The text of an expression that begins at `column`, in a line indented `depth` times."""
    match expression:
        case Name():
            return quote_name(expression.text)
        case Number():
            return format_number(expression.value)
        case Truth():
            return "true" if expression.value else "false"
        case Text():
            return quote(expression.value, '"')
        case Items():
            items = [format_expression(item, 0, depth + 1) for item in expression.items]
            return _in("[]", items, column, depth)
        case Call():
            name = format_path(expression.path)
            arguments = [_argument(argument) for argument in expression.arguments]
            return name + _in("()", arguments, column + len(name), depth)
        case Negative():
            return "-" + _operand(expression.operand, _UNARY, column + 1)
        case Binary():
            return _binary(expression, column)


def _binary(expression: Binary, column: int) -> str:
    strength = _STRENGTH.get(expression.symbol, 0)
    left = strength + 1 if expression.symbol == "**" or strength == 0 else strength
    right = _UNARY if expression.symbol == "**" else strength + 1
    lhs = _operand(expression.lhs, left, column)
    start = column + len(lhs) + len(expression.symbol) + 2
    return f"{lhs} {expression.symbol} {_operand(expression.rhs, right, start)}"


def _operand(expression: Expression, least: int, column: int) -> str:
    """An expression in parentheses, unless it binds at least as tightly as `least`."""
    if _strength(expression) >= least:
        return format_expression(expression, column)
    return f"({format_expression(expression, column + 1)})"


def _strength(expression: Expression) -> int:
    match expression:
        case Binary():
            return _STRENGTH.get(expression.symbol, 0)
        case Negative():
            return _UNARY
        case Number() if format_number(expression.value).startswith("-"):
            return _UNARY
        case _:
            return _PRIMARY


def _argument(argument: Argument) -> str:
    keyword = f"{quote_name(argument.keyword.text)}=" if argument.keyword else ""
    value = argument.value
    return keyword + ("_" if isinstance(value, Missing) else format_expression(value))


def format_path(path: Path) -> str:
    return ".".join(quote_name(part.text) for part in path.parts)


def format_number(value: int | float) -> str:
    """The shortest text that reads back as the same number of the same kind."""
    return repr(value)


def quote_name(name: str) -> str:
    """A name as it may stand in a text: in backticks, unless it is an identifier."""
    plain = re.fullmatch(r"[^\W\d]\w*", name) and name not in RESERVED
    return name if plain else quote(name, "`")


def _in(brackets: str, items: Sequence[str], column: int, depth: int = 0) -> str:
    """`(a, b)`; filled lines, one level deeper, when that does not fit."""
    line = f"{brackets[0]}{', '.join(items)}{brackets[1]}"
    if column + len(line) <= WIDTH and "\n" not in line:
        return line
    margin = INDENT * (depth + 1)
    lines = [""]
    for item in items:
        if len(margin) + len(lines[-1]) + len(item) + 2 > WIDTH:
            lines.append("")
        lines[-1] += f"{' ' if lines[-1] else ''}{item},"
    inner = "\n".join(margin + one for one in lines if one)
    return f"{brackets[0]}\n{inner}\n{INDENT * depth}{brackets[1]}"
