"""Prints names, types and expressions of the syntax tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache
from itertools import pairwise

from lark.lexer import Pattern, PatternStr

from popgraph.builder.pgraph.syntax.parser import language
from popgraph.builder.pgraph.syntax.transform import quote, quote_bytes
from popgraph.builder.pgraph.syntax.tree import (
    Annotation,
    AnyType,
    Argument,
    Binary,
    Branches,
    Bytes,
    Call,
    Choice,
    Computed,
    Everything,
    Expression,
    Graph,
    Index,
    Items,
    Loop,
    Missing,
    Name,
    Number,
    OtherType,
    Path,
    Slice,
    Text,
    Truth,
    Type,
    Unary,
    Unknown,
    left_spine,
)

WIDTH = 100
INDENT = "    "

PIPE, CHOICE, OR, AND, NOT, COMPARISON, SUM, PRODUCT, UNARY, POWER, PRIMARY = range(11)
"""Precedence levels, lowest first."""

PRECEDENCE = {
    "|>": PIPE,
    "or": OR,
    "and": AND,
    "not": NOT,
    "+": SUM,
    "-": SUM,
    "*": PRODUCT,
    "/": PRODUCT,
    "%": PRODUCT,
    "@": PRODUCT,
    "**": POWER,
}
"""Precedence of each infix operator; others are comparisons."""

Written = Callable[[Graph | Branches | Loop, int, int], str]
"""Prints a node with a block, given the indentation depth of its line and the start column."""


@cache
def reserved() -> frozenset[str]:
    """The keywords of the grammar; as names they are quoted in backticks."""
    patterns = [terminal.pattern for terminal in language().terminals]
    words = (one.value.split("(?=")[0] for one in patterns if _is_word(one))
    return frozenset(words)


def _is_word(pattern: Pattern) -> bool:
    """Whether a pattern is a keyword, possibly with a lookahead."""
    least = r"\w+" if isinstance(pattern, PatternStr) else r"\w+\(\?=.*"
    return bool(re.fullmatch(least, pattern.value))


def name_text(name: str) -> str:
    """A name, in backticks unless it is a plain identifier."""
    plain = re.fullmatch(r"[^\W\d]\w*", name) and name not in reserved()
    return name if plain else quote(name, "`")


def path_text(path: Path) -> str:
    return ".".join(name_text(part.text) for part in path.parts)


def number_text(number: Number) -> str:
    """The spelling in the text, otherwise the shortest that reads back as the same number."""
    return number.spelling or repr(number.value)


class ExpressionText:
    """Prints expressions; `blocks` prints expressions that contain statements."""

    def __init__(self, blocks: Written) -> None:
        self.blocks = blocks
        self._written: dict[tuple[int, int], tuple[Argument, str]] = {}
        """Cache by argument id and depth; keeps the argument alive, so that its id stays valid."""

    def annotation(self, annotation: Annotation, depth: int = 0) -> str:
        path = path_text(annotation.path)
        if annotation.arguments is None:
            return f"@{path}"
        return f"@{path}{self.arguments(annotation.arguments, len(path) + 1, depth)}"

    def type(self, type_: AnyType) -> str:
        match type_:
            case OtherType(kind=kind, parts=parts):
                texts = (
                    quote(part.value, '"') if isinstance(part, Text) else self.type(part)
                    for part in parts
                )
                return f"{name_text(kind.text)}({', '.join(texts)})"
            case Type(dims=None):
                return f"{name_text(type_.dtype.text)}[...]"
            case Type(dims=()):
                return name_text(type_.dtype.text)
            case Type():
                dims = (self.operand(dim, SUM, 0, 0) for dim in type_.dims or ())
                return f"{name_text(type_.dtype.text)}[{', '.join(dims)}]"

    def expression(self, expression: Expression, column: int = 0, depth: int = 0) -> str:
        """Prints an expression that begins at `column`, in a line indented `depth` times."""
        match expression:
            case Name():
                return name_text(expression.text)
            case Number():
                return number_text(expression)
            case Truth():
                return "true" if expression.value else "false"
            case Text():
                return quote(expression.value, '"')
            case Bytes():
                return quote_bytes(expression.value)
            case Unknown():
                return "?"
            case Items():
                items = [self.expression(item, 0, depth + 1) for item in expression.items]
                return filled("[]", items, column, depth)
            case Call():
                path = path_text(expression.path)
                return path + self.arguments(expression.arguments, column + len(path), depth)
            case Index():
                base = self.operand(expression.operand, PRIMARY, column, depth)
                parts = [self.subscript(part) for part in expression.subscripts]
                return f"{base}[{', '.join(parts)}]"
            case Unary():
                gap = " " if expression.symbol == "not" else ""
                least = NOT if expression.symbol == "not" else UNARY
                start = column + len(expression.symbol + gap)
                operand = self.operand(expression.operand, least, start, depth)
                return f"{expression.symbol}{gap}{operand}"
            case Binary():
                return self.binary(expression, column, depth)
            case Choice():
                then = self.operand(expression.then, OR, column, depth)
                condition = self.operand(expression.condition, OR, 0, depth)
                otherwise = self.operand(expression.otherwise, CHOICE, 0, depth)
                return f"{then} if {condition} else {otherwise}"
            case Loop():
                return self.blocks(expression, depth, column)
            case Graph() | Branches():
                return self.blocks(expression, depth, 0)
            case Computed():
                raise AssertionError("no text says so")

    def subscript(self, part: object) -> str:
        match part:
            case Slice(start=start, stop=stop, step=step):
                texts = ["" if one is None else self.expression(one) for one in (start, stop, step)]
                return ":".join(texts[: 2 if step is None else 3])
            case Everything():
                return "..."
            case Missing():
                return "_"
            case _:
                return self.expression(part)  # type: ignore[arg-type]

    def arguments(self, arguments: Sequence[Argument], column: int, depth: int) -> str:
        together = [self.argument(one, depth) for one in arguments]
        if fits("()", together, column):
            return f"({', '.join(together)})"
        return filled("()", [self.argument(one, depth + 1) for one in arguments], WIDTH, depth)

    def argument(self, argument: Argument, depth: int) -> str:
        """
        Prints an argument, cached per depth.

        An argument that does not fit is printed again one level deeper: without the cache, the work
        would double with each nesting.
        """
        key = id(argument), depth
        if key not in self._written:
            self._written[key] = argument, self._argument(argument, depth)
        return self._written[key][1]

    def _argument(self, argument: Argument, depth: int) -> str:
        keyword = f"{name_text(argument.keyword.text)}=" if argument.keyword else ""
        if isinstance(argument.value, Missing):
            return keyword + "_"
        if isinstance(argument.value, Graph):
            return keyword + self.blocks(argument.value, depth, len(keyword))
        return keyword + self.expression(argument.value, len(keyword), depth)

    def binary(self, expression: Binary, column: int, depth: int) -> str:
        """Prints a left-deep chain iteratively."""
        spine = left_spine(expression)
        inner = [_precedence(lhs) < _sides(outer)[0] for outer, lhs in pairwise(spine)]
        column += sum(inner)
        text = self.operand(spine[-1].lhs, _sides(spine[-1])[0], column, depth)
        for outer, within in zip(reversed(spine), [*reversed(inner), False], strict=True):
            start = column + len(text) + len(outer.symbol) + 2
            rhs = self.operand(outer.rhs, _sides(outer)[1], start, depth)
            text = f"({text} {outer.symbol} {rhs})" if within else f"{text} {outer.symbol} {rhs}"
            column -= within
        return text

    def operand(self, expression: Expression, least: int, column: int, depth: int) -> str:
        """An expression, in parentheses if its precedence is lower than `least`."""
        if _precedence(expression) >= least:
            return self.expression(expression, column, depth)
        return f"({self.expression(expression, column + 1, depth)})"


def _sides(expression: Binary) -> tuple[int, int]:
    """The minimal precedence of each side of an operation without parentheses."""
    symbol = expression.symbol
    strength = PRECEDENCE.get(symbol, COMPARISON)
    left = strength + 1 if symbol == "**" or strength == COMPARISON else strength
    return left, UNARY if symbol == "**" else strength + 1


def _precedence(expression: Expression) -> int:
    match expression:
        case Binary(symbol=symbol):
            return PRECEDENCE.get(symbol, COMPARISON)
        case Unary(symbol="not"):
            return NOT
        case Unary():
            return UNARY
        case Number() if number_text(expression).startswith("-"):
            return UNARY
        case Choice():
            return CHOICE
        case Graph() | Branches() | Loop():
            return PIPE
        case _:
            return PRIMARY


def fits(brackets: str, items: Sequence[str], column: int) -> bool:
    """Whether items fit in one line; blocks may continue below."""
    line = f"{brackets[0]}{', '.join(items)}{brackets[1]}"
    heads = line.split("\n")
    blocks = all("\n" not in item or item.endswith("}") for item in items)
    short = all(len(head) <= WIDTH for head in heads[1:])
    return column + len(heads[0]) <= WIDTH and blocks and short


def filled(brackets: str, items: Sequence[str], column: int, depth: int = 0) -> str:
    """`(a, b)`, or filled lines one level deeper if that does not fit."""
    if fits(brackets, items, column):
        return f"{brackets[0]}{', '.join(items)}{brackets[1]}"
    margin = INDENT * (depth + 1)
    lines = [""]
    for item in items:
        whole = "\n" not in lines[-1] + item
        if not whole or len(margin) + len(lines[-1]) + len(item) + 2 > WIDTH:
            lines.append("")
        lines[-1] += f"{' ' if lines[-1] else ''}{item},"
    inner = "\n".join(margin + one for one in lines if one)
    return f"{brackets[0]}\n{inner}\n{INDENT * depth}{brackets[1]}"
