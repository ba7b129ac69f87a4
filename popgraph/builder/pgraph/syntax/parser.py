"""The parser: text to syntax tree, with as many syntax errors as it can find."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import Any, TypeVar, cast
from zlib import crc32

from lark import Lark, Token, __version__
from lark import Tree as LarkTree
from lark.exceptions import UnexpectedInput, VisitError
from lark.grammar import Rule
from lark.lexer import TerminalDef

from popgraph.builder.pgraph.syntax import advice
from popgraph.builder.pgraph.syntax.source import Source
from popgraph.builder.pgraph.syntax.transform import NoCharacterError, span_of, to_tree
from popgraph.builder.pgraph.syntax.tree import Expression, File, Node, Span, deepest

GRAMMAR = Path(__file__).with_name("pgraph.lark")
TABLES = Path(__file__).with_name("tables.json")
"""
Lark's tables of the grammar: reading them takes a tenth of the 0.2 s to build them.

`make pages` writes the file.
"""
MANY = 20
"""Most syntax errors to report at once."""
DEEPEST = 200
"""Deepest nesting of expressions; a block counts as five levels."""

Tree = TypeVar("Tree", bound=Node)


class _LinesInBrackets:
    """Drops newlines inside ( ) and [ ], except in a block inside them."""

    always_accept = ("_NEWLINE",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        opened: list[str] = []
        for token in stream:
            if token.type in _CLOSERS:
                opened.append(token.type)
            elif token.type in _CLOSERS.values():
                while opened and _CLOSERS[opened[-1]] != token.type:
                    opened.pop()
                opened = opened[:-1]
            if token.type != "_NEWLINE" or not opened or opened[-1] == "LBRACE":
                yield token


_CLOSERS = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}


@cache
def language() -> Lark:
    """The parser of the grammar, from its tables if current."""
    made = from_tables() or built()
    _shorten(made)
    return made


def built() -> Lark:
    """The parser, built from the grammar."""
    return Lark(
        GRAMMAR.read_text("utf-8"),
        parser="lalr",
        lexer="basic",
        start=["file", "expression"],
        propagate_positions=True,
        maybe_placeholders=True,
        postlex=_LinesInBrackets(),
    )


def tables() -> str:
    """The parser's tables in the format of `TABLES`."""
    data, memo = built().memo_serialize([TerminalDef, Rule])
    data["options"]["postlex"] = None
    return json.dumps({"origin": origin(), "data": data, "memo": memo}, separators=(",", ":"))


def from_tables() -> Lark | None:
    """The parser from `TABLES`, if they match this grammar and version of lark."""
    found = json.loads(TABLES.read_text("utf-8"), object_hook=_with_numbers)
    if found["origin"] != origin():
        return None
    return cast(
        Lark, Lark._load_from_dict(found["data"], found["memo"], postlex=_LinesInBrackets())
    )


def origin() -> str:
    """The key of the tables: lark's version and the grammar's checksum."""
    return f"lark {__version__}, grammar {crc32(GRAMMAR.read_bytes()):08x}"


def _with_numbers(found: dict[str, Any]) -> dict[str | int, Any]:
    """Converts numeric JSON keys to integers."""
    return {int(key) if key.isdigit() else key: value for key, value in found.items()}


def _shorten(made: Lark) -> None:
    """
    Makes rules such as `?sum: product` pass their only child on directly.

    A name in an expression passes ten of them, which takes a third of lark's time.
    """
    callbacks = made.parser.parser.parser.callbacks
    for rule in callbacks:
        if rule.options.expand1 and len(rule.expansion) == 1 and not rule.alias:
            callbacks[rule] = itemgetter(0)


def parse_file(source: Source) -> File:
    """The tree of a whole text; raises all syntax errors that can be separated."""
    _check_characters(source)
    text = with_line_end(source.text)
    for _ in range(MANY):
        try:
            parsed = language().parse(text, start="file")
        except UnexpectedInput as error:
            line = advice.explain(error, text, source, language())
            if line is None:
                break
            text = _without_line(text, line)
        else:
            source.raise_mistakes()
            return _tree(source, parsed, File)
    source.raise_mistakes()
    raise AssertionError("a refused text has a mistake")


def parse_expression(source: Source) -> Expression:
    """The tree of one expression, such as `SGD(0.1, momentum=0.9)`."""
    _check_characters(source)
    try:
        parsed = language().parse(source.text, start="expression")
        return cast(Expression, _tree(source, parsed, Node))
    except UnexpectedInput as error:
        advice.explain(error, source.text, source, language())
    source.raise_mistakes()
    raise AssertionError("a refused text has a mistake")


def _check_characters(source: Source) -> None:
    """Rejects lone surrogates, which Python strings may contain but files may not."""
    for number, line in enumerate(source.text.split("\n"), 1):
        if found := _HALVES.search(line):
            column = found.start() + 1
            source.parse_error(
                Span(number, column, number, column + 1), f"{found[0]!r} is not a valid character"
            )
            source.raise_mistakes()


_HALVES = re.compile("[\ud800-\udfff]")


def _tree(source: Source, parsed: LarkTree[Token], kind: type[Tree]) -> Tree:
    """The syntax tree, checked to be shallow enough for recursive functions."""
    try:
        found = cast(Tree, to_tree().transform(parsed))
    except VisitError as error:
        if not isinstance(error.orig_exc, NoCharacterError):
            raise
        assert isinstance(error.obj, LarkTree)
        source.parse_error(span_of(error.obj.meta), f"`{error.orig_exc}` is not a valid character")
        source.raise_mistakes()
    assert isinstance(found, kind)
    node = deepest(found, DEEPEST)
    if node is not None:
        source.parse_error(
            node.span, f"this is nested more than {DEEPEST} levels deep", "give parts of it a name"
        )
        source.raise_mistakes()
    return found


def with_line_end(text: str) -> str:
    return text.removeprefix("\ufeff") + "\n"


def _without_line(text: str, line: int) -> str:
    """The text with one line blanked, so that parsing can continue after it."""
    lines = text.split("\n")
    lines[line - 1] = " " * len(lines[line - 1])
    return "\n".join(lines)
