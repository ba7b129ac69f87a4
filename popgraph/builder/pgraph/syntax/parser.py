"""The parser: text to syntax tree, with every syntax error it can find."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from operator import itemgetter
from pathlib import Path
from typing import TypeVar, cast

from lark import Lark, Token
from lark import Tree as LarkTree
from lark.exceptions import UnexpectedInput, VisitError

from popgraph.builder.pgraph.syntax import advice
from popgraph.builder.pgraph.syntax.source import Source
from popgraph.builder.pgraph.syntax.transform import NoCharacterError, span_of, to_tree
from popgraph.builder.pgraph.syntax.tree import Expression, File, Node, Span, deepest

GRAMMAR = Path(__file__).with_name("pgraph.lark")
MANY = 20
"""How many lines that are not well formed are reported at once."""
DEEPEST = 200
"""So many levels deep expressions may be nested; a block counts as five."""

Tree = TypeVar("Tree", bound=Node)


class _LinesInBrackets:
    """Drops the line ends inside ( ) and [ ], but not those of a block that stands in there."""

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
    """The parser that lark makes of the grammar."""
    made = Lark(
        GRAMMAR.read_text("utf-8"),
        parser="lalr",
        lexer="basic",
        start=["file", "expression"],
        propagate_positions=True,
        maybe_placeholders=True,
        postlex=_LinesInBrackets(),
    )
    _shorten(made)
    return made


def _shorten(made: Lark) -> None:
    """
    Lets rules such as `?sum: product` hand on what they got, without looking at it.

    A name in an expression goes through ten of them: that is a third of lark's time.
    """
    callbacks = made.parser.parser.parser.callbacks
    for rule in callbacks:
        if rule.options.expand1 and len(rule.expansion) == 1 and not rule.alias:
            callbacks[rule] = itemgetter(0)


def parse_file(source: Source) -> File:
    """The tree of a whole text; raises every mistake of form that can be told apart."""
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
    """Halves of characters can stand in a string of Python, but in no file."""
    for number, line in enumerate(source.text.split("\n"), 1):
        if found := _HALVES.search(line):
            column = found.start() + 1
            source.parse_error(
                Span(number, column, number, column + 1), f"{found[0]!r} is no character"
            )
            source.raise_mistakes()


_HALVES = re.compile("[\ud800-\udfff]")


def _tree(source: Source, parsed: LarkTree[Token], kind: type[Tree]) -> Tree:
    """What was parsed, so shallow that functions which call themselves can go through it."""
    try:
        found = cast(Tree, to_tree().transform(parsed))
    except VisitError as error:
        if not isinstance(error.orig_exc, NoCharacterError):
            raise
        assert isinstance(error.obj, LarkTree)
        source.parse_error(span_of(error.obj.meta), f"`{error.orig_exc}` is no character")
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
    """The text with one line made blank, so that the lines after it can be looked at, too."""
    lines = text.split("\n")
    lines[line - 1] = " " * len(lines[line - 1])
    return "\n".join(lines)
