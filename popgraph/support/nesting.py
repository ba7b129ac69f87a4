"""The depth of nesting of a text, found without recursion."""

from __future__ import annotations

import re

_TOKENS = re.compile(
    r'"(?:[^"\\\n]|\\.)*"|//[^\n]*|->|[<>=]='  # none of which nests anything
    r"|(?P<open>[(\[{<])|(?P<close>[)\]}>])|(?P<apart>[,:=])"
    r"|(?P<operator>[-+*]|\b(?:floordiv|ceildiv|mod)\b)"
)


def deepest(text: str) -> tuple[int, int]:
    """
    The deepest level of an IR text, and the line where it begins.

    A bracket is one level, and so is each operator of a sum or product: what follows it stands
    beside a tree of all before it.
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
