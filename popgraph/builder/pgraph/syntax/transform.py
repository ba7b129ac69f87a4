"""Transforms lark's parse tree to the syntax tree: one method per rule of the grammar."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from inspect import cleandoc
from typing import Any, cast

from lark import Token, v_args
from lark.tree import Meta
from lark.visitors import Transformer_NonRecursive

from popgraph.builder.pgraph.syntax import tree
from popgraph.builder.pgraph.syntax.tree import Span

_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
_ESCAPE = re.compile(r"\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)")


class NoCharacterError(Exception):
    """An escape sequence without a character."""


def unquote(literal: str) -> str:
    """The text between the quotes, with escapes replaced."""
    return _ESCAPE.sub(_unescape, literal[1:-1])


def _unescape(match: re.Match[str]) -> str:
    code = match[1]
    if len(code) > 1:
        value = int(code[1:], 16)
        if value > 0x10FFFF or 0xD800 <= value <= 0xDFFF:
            raise NoCharacterError(match[0])
        return chr(value)
    return _ESCAPES.get(code, code)


def unquote_bytes(literal: str) -> bytes:
    r"""The bytes of `b"\xff"`."""
    return unquote(literal[1:]).encode("latin-1", "replace")


def quote_bytes(data: bytes) -> str:
    """A literal that `unquote_bytes` reads back as `data`."""
    plain = (chr(byte) if 32 <= byte < 127 else f"\\x{byte:02x}" for byte in data)
    return 'b"' + "".join("\\" + one if one in '"\\' else one for one in plain) + '"'


def quote(text: str, mark: str) -> str:
    """`text` quoted by `mark`, so that `unquote` reads it back."""
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


def span_of(meta: Meta) -> Span:
    if meta.empty:
        return Span(1, 1, 1, 2)
    return Span(meta.line, meta.column, meta.end_line, meta.end_column)


def _docstring(token: Token | None) -> str:
    """The text of a `DOC`, without common indentation."""
    return "" if token is None else docstring_text(token)


def docstring_text(written: str) -> str:
    """The text between the quotes of a doc string, without trailing spaces."""
    return "\n".join(line.rstrip() for line in cleandoc(written[3:-3]).split("\n"))


@v_args(meta=True)
class ToTree(Transformer_NonRecursive[Token, tree.File]):
    """Called by lark from the leaves to the root; `children` are the results of inner calls."""

    def file(self, meta: Meta, children: list[Any]) -> tree.File:
        items = tuple(child for child in children if isinstance(child, tree.Node))
        return tree.File(span_of(meta), _docstring(_doc_of(children)), cast(Any, items))

    # items

    def opset(self, meta: Meta, children: list[Any]) -> tree.Opset:
        path, version = children if len(children) == 2 else (None, children[0])
        return tree.Opset(span_of(meta), path.text if path else "", int(version, 0))

    def import_(self, meta: Meta, children: list[Any]) -> tree.Import:
        file, *names = children
        where = tree.Text(token_span(file), unquote(file))
        return tree.Import(span_of(meta), where, None if names == [None] else _present(names))

    def graph(self, meta: Meta, children: list[Any]) -> tree.Graph:
        annotations, name, inputs, outputs, body = children
        span = name.span if name else span_of(meta)
        return tree.Graph(span, name, inputs, outputs, body, annotations)

    subgraph = graph

    def template(self, meta: Meta, children: list[Any]) -> tree.Template:
        name, formals, outputs, body = children
        return tree.Template(name.span, name, formals, outputs, body)

    def formals(self, meta: Meta, children: list[Any]) -> tuple[tree.Formal, ...]:
        return _present(children)

    def formal(self, meta: Meta, children: list[Any]) -> tree.Formal:
        return tree.Formal(span_of(meta), *children)

    def function(self, meta: Meta, children: list[Any]) -> tree.Function:
        annotations, path, inputs, attributes, outputs, (opsets, body) = children
        return tree.Function(
            path.span, path, inputs, attributes or (), outputs, opsets, body, annotations
        )

    def function_block(self, meta: Meta, children: list[Any]) -> tuple[Any, tree.Block]:
        opsets = tuple(child for child in children if isinstance(child, tree.Opset))
        rest = [child for child in children if not isinstance(child, tree.Opset)]
        return opsets, self.block(meta, rest)

    def train(self, meta: Meta, children: list[Any]) -> tree.Train:
        name, inputs, body = children
        return tree.Train(span_of(meta), name, inputs or (), body)

    def parameters(self, meta: Meta, children: list[Any]) -> tuple[tree.Parameter, ...]:
        return _present(children)

    def parameter(self, meta: Meta, children: list[Any]) -> tree.Parameter:
        annotations, name, type_ = children
        return tree.Parameter(span_of(meta), name, type_, annotations)

    def results(self, meta: Meta, children: list[Any]) -> tuple[tree.Target, ...]:
        return _present(children)

    def target(self, meta: Meta, children: list[Any]) -> tree.Target:
        annotations, name, type_ = children
        return tree.Target(span_of(meta), _or_missing(name), type_, annotations)

    result = target

    def block(self, meta: Meta, children: list[Any]) -> tree.Block:
        statements = tuple(child for child in children if isinstance(child, tree.Node))
        return tree.Block(span_of(meta), _docstring(_doc_of(children)), cast(Any, statements))

    def annotations(self, meta: Meta, children: list[Any]) -> tuple[tree.Annotation, ...]:
        return _present(children)

    def annotation(self, meta: Meta, children: list[Any]) -> tree.Annotation:
        path, arguments = children
        return tree.Annotation(span_of(meta), path, arguments)

    # types

    def tensor_type(self, meta: Meta, children: list[Any]) -> tree.Type:
        dtype, dims = children
        return tree.Type(span_of(meta), dtype, () if dims is None else dims.value)

    def other_type(self, meta: Meta, children: list[Any]) -> tree.OtherType:
        kind, *parts = children
        texts = [
            tree.Text(token_span(part), unquote(part)) if isinstance(part, Token) else part
            for part in parts
        ]
        return tree.OtherType(span_of(meta), kind, _present(texts))

    def shape(self, meta: Meta, children: list[Any]) -> _Shape:
        if children and isinstance(children[0], Token) and children[0].type == "ELLIPSIS":
            return _Shape(None)
        return _Shape(_present(children))

    # statements

    def statement(self, meta: Meta, children: list[Any]) -> tree.Statement:
        annotations, made = children
        return cast(tree.Statement, replace(made, annotations=annotations))

    def weight(self, meta: Meta, children: list[Any]) -> tree.Weight:
        return tree.Weight(span_of(meta), *children)

    def constant(self, meta: Meta, children: list[Any]) -> tree.Constant:
        return tree.Constant(span_of(meta), *children)

    def static(self, meta: Meta, children: list[Any]) -> tree.Static:
        return tree.Static(span_of(meta), *children)

    def assignment(self, meta: Meta, children: list[Any]) -> tree.Assignment:
        return tree.Assignment(span_of(meta), *children)

    def for_(self, meta: Meta, children: list[Any]) -> tree.For:
        return tree.For(span_of(meta), *children)

    def span(self, meta: Meta, children: list[Any]) -> tree.Range:
        return tree.Range(span_of(meta), *children)

    def region(self, meta: Meta, children: list[Any]) -> tree.Region:
        return tree.Region(span_of(meta), *children)

    def freeze(self, meta: Meta, children: list[Any]) -> tree.Freeze:
        return tree.Freeze(span_of(meta), tuple(children))

    def train_only(self, meta: Meta, children: list[Any]) -> tree.Freeze:
        return tree.Freeze(span_of(meta), tuple(children), others=True)

    def targets(self, meta: Meta, children: list[Any]) -> tuple[tree.Target, ...]:
        return _present(children)

    # expressions

    def binary(self, meta: Meta, children: list[Any]) -> tree.Binary:
        lhs, symbol, rhs = children
        return tree.Binary(token_span(symbol), str(symbol), lhs, rhs)

    def unary(self, meta: Meta, children: list[Any]) -> tree.Expression:
        sign, operand = children
        if isinstance(operand, tree.Number) and sign == "-" and operand.spelling[:1] != "-":
            return tree.Number(span_of(meta), -operand.value, f"-{operand.spelling}")
        return tree.Unary(token_span(sign), str(sign), operand)

    def choice(self, meta: Meta, children: list[Any]) -> tree.Choice:
        return tree.Choice(span_of(meta), *children)

    def call(self, meta: Meta, children: list[Any]) -> tree.Call:
        return tree.Call(span_of(meta), *children)

    def arguments(self, meta: Meta, children: list[Any]) -> tuple[tree.Argument, ...]:
        return _present(children)

    def argument(self, meta: Meta, children: list[Any]) -> tree.Argument:
        keyword, value = children
        return tree.Argument(span_of(meta), keyword, _or_missing(value))

    def path(self, meta: Meta, children: list[Any]) -> tree.Path:
        return tree.Path(span_of(meta), tuple(children))

    def index(self, meta: Meta, children: list[Any]) -> tree.Index:
        operand, *subscripts = children
        return tree.Index(span_of(meta), operand, _present(subscripts))

    def slice(self, meta: Meta, children: list[Any]) -> tree.Slice:
        return tree.Slice(span_of(meta), *children)

    def all(self, meta: Meta, children: list[Any]) -> tree.Everything:
        return tree.Everything(span_of(meta))

    def new_axis(self, meta: Meta, children: list[Any]) -> tree.Missing:
        return tree.Missing(span_of(meta))

    def unknown(self, meta: Meta, children: list[Any]) -> tree.Unknown:
        return tree.Unknown(span_of(meta))

    def branches(self, meta: Meta, children: list[Any]) -> tree.Branches:
        if isinstance(children[-1], tree.Branches):
            children = [*children[:3], None, children[-1]]
        return tree.Branches(span_of(meta), *children)

    def loop(self, meta: Meta, children: list[Any]) -> tree.Loop:
        word, scanned, _, condition, _, states, gives, body = children
        return tree.Loop(token_span(word), scanned, condition, states or (), gives, body)

    def sources(self, meta: Meta, children: list[Any]) -> tuple[tree.Scanned, ...]:
        return _present(children)

    def source(self, meta: Meta, children: list[Any]) -> tree.Scanned:
        name, type_, range_ = children
        return tree.Scanned(span_of(meta), _or_missing(name), type_, range_)

    def turns(self, meta: Meta, children: list[Any]) -> tree.Turns:
        return tree.Turns(span_of(meta), *children)

    def states(self, meta: Meta, children: list[Any]) -> tuple[tree.State, ...]:
        return tuple(children)

    def state(self, meta: Meta, children: list[Any]) -> tree.State:
        annotations, name, type_, value = children
        return tree.State(span_of(meta), name, type_, _or_missing(value), annotations)

    def gives_one(self, meta: Meta, children: list[Any]) -> tree.Gives:
        span = span_of(meta)
        return tree.Gives(span, None, (tree.Target(span, *children),))

    def gives(self, meta: Meta, children: list[Any]) -> tree.Gives:
        name = next((child for child in children if isinstance(child, tree.Name)), None)
        results = [child for child in children if isinstance(child, tree.Target)]
        return tree.Gives(span_of(meta), name, tuple(results))

    def items(self, meta: Meta, children: list[Any]) -> tree.Items:
        return tree.Items(span_of(meta), _present(children))

    def literal(self, meta: Meta, children: list[Any]) -> tree.Expression:
        token: Token = children[0]
        span = span_of(meta)
        match token.type:
            case "INT":
                value = int(token, 0) if "x" in token else int(token)
                return tree.Number(span, value, str(token))
            case "STRING":
                return tree.Text(span, unquote(token))
            case "BYTES":
                return tree.Bytes(span, unquote_bytes(token))
            case "TRUE" | "FALSE":
                return tree.Truth(span, token.type == "TRUE")
            case _:
                return tree.Number(span, float(token), str(token))

    def name(self, meta: Meta, children: list[Any]) -> tree.Name:
        token: Token = children[0]
        return tree.Name(span_of(meta), unquote(token) if token.type == "QUOTED" else str(token))


class _Shape:
    """An intermediate shape: distinguishes `f32` (no shape) from `f32[...]` (None)."""

    def __init__(self, value: tuple[Any, ...] | None) -> None:
        self.value = value


def _present(children: list[Any]) -> tuple[Any, ...]:
    return tuple(child for child in children if child is not None)


def _or_missing(child: Any) -> Any:
    return tree.Missing(token_span(child)) if isinstance(child, Token) else child


def _doc_of(children: list[Any]) -> Token | None:
    return next((child for child in children if isinstance(child, Token)), None)


@cache
def to_tree() -> ToTree:
    """
    The transformer, with its methods bound once instead of for every node.

    Measured for a text of 10 KB (3,383 nodes): 58 ms of CPU time for parsing and tree instead of
    64; lark's parser takes 44 of them. `lark.ast_utils` binds as early, but only 12 of the 46
    methods merely construct a node from their children.
    """
    made = ToTree()
    for name in vars(ToTree):
        if not name.startswith("_"):
            setattr(made, name, getattr(made, name))
    return made
