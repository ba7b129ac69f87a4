"""
Patterns in RE2's syntax, matched by Python's `re`.

Differences from RE2: `(?i)` folds the case of ASCII letters only; classes of Unicode (`\\p{...}`),
`\\C` and `(?U)` are refused; nested repetitions may take exponential time, which RE2 never does.
Look-around, back references and possessive repetitions are refused, as RE2 refuses them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

POSIX = {
    "alnum": "0-9A-Za-z", "alpha": "A-Za-z", "ascii": r"\x00-\x7f", "blank": r"\t ",
    "cntrl": r"\x00-\x1f\x7f", "digit": "0-9", "graph": "!-~", "lower": "a-z", "print": " -~",
    "punct": r"!-/:-@\[-`{-~", "space": r"\t\n\v\f\r ", "upper": "A-Z", "word": "0-9A-Za-z_",
    "xdigit": "0-9A-Fa-f",
}  # fmt: skip
SPACE = r"\t\n\f\r "
"""The characters of `\\s`, without the vertical tab that Python includes."""

TOKEN = re.compile(
    r"""
      \\Q(?P<quoted>.*?)(?:\\E|\Z)
    | (?P<escape>\\(?:x\{[0-9A-Fa-f]+\}|x[0-9A-Fa-f]{2}|[0-7]{2,3}|.))
    | \[(?P<negated>\^?)(?P<members>\]?(?:\[:\^?\w+:\]|\\x\{\w+\}|\\.|[^\]])*)\]
    | \(\?(?P<flags>[a-zA-Z]*(?:-[a-zA-Z]+)?)(?P<scope>[:)])
    | \(\?P?<(?P<name>\w+)>
    | (?P<other_group>\(\?)
    | (?P<repeat>(?:[*+?]|\{\d+(?:,\d*)?\})\??)
    | (?P<plain>.)
    """,
    re.DOTALL | re.VERBOSE,
)
MEMBER = re.compile(
    r"\[:(?P<negated>\^?)(?P<posix>\w+):\]|(?P<escape>\\(?:x\{\w+\}|[0-7]{2,3}|.))|(?P<plain>.)",
    re.DOTALL,
)
"""A member of a class in brackets, or a part of one."""


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a whole string matches; `re.error` unless the pattern is a regular expression."""
    compiled = re.compile("".join(_translated(pattern)), re.ASCII)
    return lambda text: compiled.fullmatch(text) is not None


def _translated(pattern: str) -> Iterator[str]:
    r"""
    The pattern as Python writes it: `\z` is `\Z`, `[[:alpha:]]` is `[A-Za-z]`, and so on.

    Flags hold up to the end of their group: `a(?i)b|c` is `a(?i:b)|(?i:c)`.
    """
    groups: list[list[str]] = [[]]
    lines = bool(re.search(r"\(\?[a-zA-Z]*m", pattern))
    repeated = False
    for token in TOKEN.finditer(pattern):
        after, repeated = repeated, token["repeat"] is not None
        if token["quoted"] is not None:
            yield re.escape(token["quoted"])
        elif token["escape"]:
            yield _escaped(token["escape"])
        elif token["members"] is not None:
            yield _class(token["negated"], token["members"])
        elif token["scope"]:
            if set(token["flags"]) - set("ims-"):
                raise re.error(f"unknown flags {token['flags']!r}")
            opened = f"(?{token['flags']}:"
            if token["scope"] == ":":
                groups.append([])
            else:
                groups[-1].append(opened)
            yield opened
        elif token["name"]:
            groups.append([])
            yield f"(?P<{token['name']}>"
        elif token["other_group"]:
            raise re.error("look-around and other forms of Python's")
        elif repeated:
            if after:
                raise re.error(f"bad repetition {token['repeat']!r}")
            yield token["repeat"]
        elif token["plain"] == "[":
            raise re.error("missing ]")
        elif token["plain"] == "(":
            groups.append([])
            yield "("
        elif token["plain"] == ")":
            if len(groups) == 1:
                raise re.error("unbalanced parenthesis")
            yield ")" * (len(groups.pop()) + 1)
        elif token["plain"] == "|":
            yield ")" * len(groups[-1]) + "|" + "".join(groups[-1])
        elif token["plain"] in ("^", "$"):  # Python repeats no bare `^` or `$`, RE2 does.
            # Python's `$` also matches before a last newline.
            yield r"(?:\Z)" if token["plain"] == "$" and not lines else f"(?:{token['plain']})"
        else:
            yield re.escape(token["plain"]) if token["plain"] in "{}" else token["plain"]
    yield ")" * len(groups[0])


def _escaped(escape: str, *, inside: bool = False) -> str:
    """An escape; inside brackets if it is a member of a class."""
    code = escape[1:]
    if code.startswith("x") and len(code) > 1:
        return _character(int(code[1:].strip("{}"), 16))
    if code[0] in "01234567" and (len(code) > 1 or code == "0"):
        return _character(int(code, 8))
    if code in "sS" and not inside:
        return f"[{'^' if code == 'S' else ''}{SPACE}]"
    if code in "sS":
        return SPACE if code == "s" else r"\S\v"
    if code in "AbBz" and not inside:
        return r"(?:\Z)" if code == "z" else f"(?:{escape})"
    if code in "123456789pPCZ" or (inside and code in "bB"):
        raise re.error(f"unknown escape {escape}")
    return escape


def _character(code: int) -> str:
    if code > 0x10FFFF:
        raise re.error(f"no character {code:#x}")
    return re.escape(chr(code))


def _class(negated: str, members: str) -> str:
    """A class in brackets; a negated class of POSIX must be its only member."""
    found = list(MEMBER.finditer(members))
    for member in found:
        if member["posix"] and member["posix"] not in POSIX:
            raise re.error(f"unknown class [:{member['posix']}:]")
        if member["negated"] and len(found) > 1:
            raise re.error(f"{member[0]} beside other members")
    if len(found) == 1 and found[0]["negated"]:
        return f"[{'' if negated else '^'}{POSIX[found[0]['posix']]}]"
    made = (
        POSIX[one["posix"]]
        if one["posix"]
        else _escaped(one["escape"], inside=True)
        if one["escape"]
        else one["plain"]
        if one["plain"] in "^-]"
        else re.escape(one["plain"])
        for one in found
    )
    return f"[{negated}{''.join(made)}]"
