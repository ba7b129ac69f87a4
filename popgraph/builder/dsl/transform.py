"""How does lark's parse become our tree? One method per rule of the grammar."""

from __future__ import annotations

import re
from inspect import cleandoc
from typing import Any, cast

from lark import Token, v_args
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from popgraph.builder.dsl import tree
from popgraph.builder.dsl.tree import Span

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")


def unquote(literal: str) -> str:
    """The text between the quotes, its escapes undone."""
    return _ESCAPE.sub(_unescape, literal[1:-1])


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) > 1:
        value = int(code[1:], 16)
        return chr(value) if value <= 0x10FFFF else "\ufffd"
    return _ESCAPES.get(code, code)


def quote(text: str, mark: str) -> str:
    """`text` between two of `mark`, so that `unquote` gives it back."""
    escaped = text.replace("\\", "\\\\").replace(mark, "\\" + mark)
    for code, character in _ESCAPES.items():
        escaped = escaped.replace(character, "\\" + code)
    return mark + "".join(_escape_unprintable(character) for character in escaped) + mark


def _escape_unprintable(character: str) -> str:
    if character.isprintable():
        return character
    code = ord(character)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"


def token_span(token: Token) -> Span:
    return Span(token.line or 1, token.column or 1, token.end_line or 1, token.end_column or 2)


def _span(meta: Meta) -> Span:
    if meta.empty:
        return Span(1, 1, 1, 2)
    return Span(meta.line, meta.column, meta.end_line, meta.end_column)


def _docstring(token: Token | None) -> str:
    """The text of a `DOC`, without the indentation that it shares with the code around it."""
    return "" if token is None else cleandoc(token[3:-3])


@v_args(meta=True)
class ToTree(Transformer_NonRecursive[Token, tree.File]):
    """Called by lark from the leaves to the root; `children` are what the inner calls returned."""

    def file(self, meta: Meta, children: list[Any]) -> tree.File:
        doc = next((child for child in children if isinstance(child, Token)), None)

        def all_of(kind: type[tree.Node]) -> tuple[Any, ...]:
            return tuple(child for child in children if isinstance(child, kind))

        return tree.File(
            _span(meta),
            _docstring(doc),
            all_of(tree.Opset),
            all_of(tree.Graph),
            all_of(tree.Train),
        )

    def opset(self, meta: Meta, children: list[Any]) -> tree.Opset:
        path, version = children if len(children) == 2 else (None, children[0])
        return tree.Opset(_span(meta), path.text if path else "", int(version, 0))

    def graph(self, meta: Meta, children: list[Any]) -> tree.Graph:
        name, inputs, outputs, body = children
        return tree.Graph(name.span, name, inputs, outputs, body)

    def train(self, meta: Meta, children: list[Any]) -> tree.Train:
        name, inputs, body = children
        return tree.Train(_span(meta), name, inputs or (), body)

    def parameters(self, meta: Meta, children: list[Any]) -> tuple[tree.Parameter, ...]:
        return _present(children)

    def parameter(self, meta: Meta, children: list[Any]) -> tree.Parameter:
        return tree.Parameter(_span(meta), *children)

    def results(self, meta: Meta, children: list[Any]) -> tuple[tree.Target, ...]:
        return _present(children)

    def result(self, meta: Meta, children: list[Any]) -> tree.Target:
        return tree.Target(_span(meta), *children)

    def block(self, meta: Meta, children: list[Any]) -> tree.Block:
        doc = next((child for child in children if isinstance(child, Token)), None)
        statements = tuple(child for child in children if isinstance(child, tree.Node))
        return tree.Block(_span(meta), _docstring(doc), cast(Any, statements))

    def type(self, meta: Meta, children: list[Any]) -> tree.Type:
        dtype, dims = children
        return tree.Type(_span(meta), dtype, () if dims is None else dims.value)

    def shape(self, meta: Meta, children: list[Any]) -> _Shape:
        if children and isinstance(children[0], Token) and children[0].type == "ELLIPSIS":
            return _Shape(None)
        return _Shape(tuple(_dim(child) for child in children if child is not None))

    def weight(self, meta: Meta, children: list[Any]) -> tree.Weight:
        return tree.Weight(_span(meta), *children)

    def constant(self, meta: Meta, children: list[Any]) -> tree.Constant:
        return tree.Constant(_span(meta), *children)

    def assignment(self, meta: Meta, children: list[Any]) -> tree.Assignment:
        return tree.Assignment(_span(meta), *children)

    def targets(self, meta: Meta, children: list[Any]) -> tuple[tree.Target, ...]:
        return _present(children)

    def target(self, meta: Meta, children: list[Any]) -> tree.Target:
        name, type_ = children
        return tree.Target(_span(meta), _or_missing(name), type_)

    def binary(self, meta: Meta, children: list[Any]) -> tree.Binary:
        lhs, symbol, rhs = children
        return tree.Binary(token_span(symbol), str(symbol), lhs, rhs)

    def negative(self, meta: Meta, children: list[Any]) -> tree.Expression:
        sign, operand = children
        if isinstance(operand, tree.Number):
            return tree.Number(_span(meta), -operand.value)
        return tree.Negative(token_span(sign), operand)

    def call(self, meta: Meta, children: list[Any]) -> tree.Call:
        path, *arguments = children
        return tree.Call(_span(meta), path, _present(arguments))

    def argument(self, meta: Meta, children: list[Any]) -> tree.Argument:
        keyword, value = children
        return tree.Argument(_span(meta), keyword, _or_missing(value))

    def path(self, meta: Meta, children: list[Any]) -> tree.Path:
        return tree.Path(_span(meta), tuple(children))

    def items(self, meta: Meta, children: list[Any]) -> tree.Items:
        return tree.Items(_span(meta), _present(children))

    def literal(self, meta: Meta, children: list[Any]) -> tree.Number | tree.Text | tree.Truth:
        token: Token = children[0]
        span = _span(meta)
        match token.type:
            case "INT":
                return tree.Number(span, int(token, 0) if "x" in token else int(token))
            case "STRING":
                return tree.Text(span, unquote(token))
            case "TRUE" | "FALSE":
                return tree.Truth(span, token.type == "TRUE")
            case _:
                return tree.Number(span, float(token))

    def name(self, meta: Meta, children: list[Any]) -> tree.Name:
        token: Token = children[0]
        return tree.Name(_span(meta), unquote(token) if token.type == "QUOTED" else str(token))


class _Shape:
    """A shape on its way into a type: tells `f32` (no shape) from `f32[...]` (None)."""

    def __init__(self, value: tuple[Any, ...] | None) -> None:
        self.value = value


def _present(children: list[Any]) -> tuple[Any, ...]:
    return tuple(child for child in children if child is not None)


def _or_missing(child: Any) -> Any:
    return tree.Missing(token_span(child)) if isinstance(child, Token) else child


def _dim(child: Any) -> tree.Number | tree.Name | tree.UnknownDim:
    if not isinstance(child, Token):
        return cast(tree.Name, child)
    if child.type == "INT":
        return tree.Number(token_span(child), int(child, 0) if "x" in child else int(child))
    return tree.UnknownDim(token_span(child))
