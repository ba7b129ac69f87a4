"""Syntax highlighting: the Pygments lexer, HTML, the TextMate grammar."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, ClassVar

from pygments import highlight
from pygments.formatters.html import HtmlFormatter
from pygments.lexer import RegexLexer
from pygments.token import (
    Comment,
    Keyword,
    Name,
    Number,
    Operator,
    Punctuation,
    String,
    Whitespace,
    _TokenType,
)

from popgraph.builder.pgraph.print.expression_text import reserved
from popgraph.builder.pgraph.syntax.literals import STRING
from popgraph.support import dtypes

_VALUES = ("true", "false", "inf", "nan", "_")
_DEFINE = ("graph", "def", "function", "train", "weight", "const", "let")


def _words(words: Iterator[str] | list[str]) -> str:
    return rf"(?:{'|'.join(sorted(words, key=lambda word: (-len(word), word)))})(?!\w)"


def _rules() -> Iterator[tuple[str, _TokenType, str]]:
    """Patterns in matching order, with their Pygments and TextMate token types."""
    yield r'"""[\s\S]*?"""', String.Doc, "string.quoted.triple.pgraph"
    yield r"#[^\n]*", Comment.Single, "comment.line.number-sign.pgraph"
    yield r'b?"(?:[^"\\\n]|\\.)*"', String.Double, "string.quoted.double.pgraph"
    yield r"`(?:[^`\\\n]|\\.)+`", Name.Variable, "variable.other.quoted.pgraph"
    yield r"@(?=[A-Za-z_])[\w.]+", Name.Decorator, "entity.name.decorator.pgraph"
    yield _words(list(_VALUES)), Keyword.Constant, "constant.language.pgraph"
    yield _words(list(_DEFINE)), Keyword.Declaration, "storage.type.pgraph"
    rest = [word for word in reserved() if word not in (*_VALUES, *_DEFINE)]
    yield _words(rest), Keyword, "keyword.control.pgraph"
    yield _words([*dtypes.BY_NAME, STRING]), Keyword.Type, "support.type.pgraph"
    yield r"0x[0-9a-fA-F]+", Number.Hex, "constant.numeric.hex.pgraph"
    yield (
        r"(?:\d+\.(?!\.)\d*|\.\d+)(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+",
        Number.Float,
        "constant.numeric.float.pgraph",
    )
    yield r"\d+", Number.Integer, "constant.numeric.integer.pgraph"
    yield r"[^\W\d]\w*(?=\s*\()", Name.Function, "entity.name.function.pgraph"
    yield r"[^\W\d]\w*", Name, "variable.other.pgraph"
    yield r"\|>|->|\.\.\.?|\*\*|[=!<>]=|[-+*/%@<>=?]", Operator, "keyword.operator.pgraph"
    yield r"[(){}\[\],:.]", Punctuation, "punctuation.pgraph"


class PgraphLexer(RegexLexer):
    """The lexer for Pygments, and so for Jupyter, Sphinx and rich."""

    name = "PopGraph"
    aliases: ClassVar[list[str]] = ["pgraph"]
    filenames: ClassVar[list[str]] = ["*.pgraph"]
    url = ""

    @classmethod
    def get_tokendefs(cls) -> dict[str, list[Any]]:
        """The token rules, built on first use from the words of the grammar."""
        return {"root": [(r"\s+", Whitespace), *((pattern, kind) for pattern, kind, _ in _rules())]}


def html(text: str) -> str:
    """The text as HTML with inline colours."""
    return str(highlight(text, PgraphLexer(), HtmlFormatter(noclasses=True)))


def textmate() -> str:
    """The TextMate grammar for editors, as JSON."""
    patterns: list[dict[str, object]] = []
    for pattern, _, scope in _rules():
        if pattern.startswith('"""'):  # a doc string may be longer than a line
            patterns.append({"name": scope, "begin": '"""', "end": '"""'})
        else:
            patterns.append({"name": scope, "match": pattern})
    about = {"name": "PopGraph", "scopeName": "source.pgraph", "fileTypes": ["pgraph"]}
    return json.dumps({**about, "patterns": patterns}, indent=2) + "\n"
