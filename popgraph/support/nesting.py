"""The nesting depth of a text, computed without recursion."""

from __future__ import annotations

import re

_TOKENS = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|->|[<>=]='  # tokens that do not nest
    r"|(?P<open>[(\[{<])|(?P<close>[)\]}>])|(?P<apart>[,:=])"
    r"|(?P<operator>[-+*]|\b(?:floordiv|ceildiv|mod)\b)"
)


def deepest(text: str) -> tuple[int, int]:
    """
    The maximum nesting depth of an IR text, and its line.

    Each bracket adds a level, and so does each operator of a sum or product, as the parser nests
    them to the left.
    """
    level = most = place = 0
    opened = [0]
    for token in _TOKENS.finditer(text):
        match token.lastgroup:
            case "open":
                level += 1
                opened.append(level)
            case "close" if len(opened) > 1:
                level = opened.pop() - 1
            case "apart":
                level = opened[-1]
            case "operator":
                level += 1
        if level > most:
            most, place = level, token.start()
    return most, text.count("\n", 0, place) + 1
