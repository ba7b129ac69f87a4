"""Colours of IR texts, diffs and C on a terminal."""

from __future__ import annotations

import os
import re
import sys

COMMENT, STRING, VALUE, TYPE, SYMBOL, NUMBER, OPERATION = "90", "32", "36", "33", "35", "34", "1"
ADDED, REMOVED, PLACE = "32", "31", "36"
"""ANSI SGR codes."""

_TOKENS = re.compile(
    r"""(?P<comment>//[^\n]*)
    |(?P<string>"(?:[^"\\\n]|\\.)*")
    |(?P<value>%[\w.$-]+|\^[\w.$-]+)
    |(?P<type>[!\#][\w.$-]+|\b(?:tensor|memref|vector)\b|\b(?:bf|f|i|u|si|ui)\d+\b|\bindex\b)
    |(?P<symbol>@[\w.$-]+)
    |(?P<operation>(?<![\w.])[a-z_]+\.[A-Za-z_][\w.]*)
    |(?P<number>(?<![\w.%])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?\b)""",
    re.VERBOSE,
)
_CODES = {
    "comment": COMMENT,
    "string": STRING,
    "value": VALUE,
    "type": TYPE,
    "symbol": SYMBOL,
    "operation": OPERATION,
    "number": NUMBER,
}


def wanted() -> bool:
    """Whether standard output is a terminal with colours, and NO_COLOR is not set."""
    plain = os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb"
    return sys.stdout.isatty() and not plain


def ir(text: str) -> str:
    """IR text in colours."""

    def painted(found: re.Match[str]) -> str:
        assert found.lastgroup is not None
        return _painted(found[0], _CODES[found.lastgroup])

    return _TOKENS.sub(painted, text)


def diff(text: str) -> str:
    """A unified diff in colours."""
    return "\n".join(map(_line, text.split("\n")))


def c(text: str) -> str:
    """C in colours."""
    from pygments import highlight
    from pygments.formatters import TerminalFormatter
    from pygments.lexers import CLexer

    return str(highlight(text, CLexer(stripnl=False), TerminalFormatter())).rstrip("\n")


def _line(line: str) -> str:
    if line.startswith(("---", "+++")):
        return _painted(line, OPERATION)
    codes = {"+": ADDED, "-": REMOVED, "@": PLACE}
    return _painted(line, codes[line[0]]) if line[:1] in codes else line


def _painted(text: str, code: str) -> str:
    return f"\033[{code}m{text}\033[0m"
