r"""
Regular expressions in RE2's syntax, matched in time linear in the text, like RE2.

A pattern is compiled to an NFA: a program of character sets, jumps and assertions (Thompson,
1968). All threads advance together, and transitions are cached as in a lazy DFA.
Differences from RE2: scripts (`\p{Greek}`) and bytes (`\C`) are refused, and categories (`\p{Lu}`)
are those of Python's version of Unicode.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import TypeAlias

Accepts: TypeAlias = Callable[[str], bool]
"""A predicate: whether a character is in a set."""

SET, JUMP, SPLIT, ASSERT = range(4)

Instruction: TypeAlias = tuple[int, Accepts | None, int, int]
"""
The kind, the characters that a set accepts, and relative targets: one of a jump, two of a split.

The first target of an assertion is its index in `ASSERTIONS`.
"""

Program: TypeAlias = tuple[Instruction, ...]

MOST_INSTRUCTIONS = 100_000
"""RE2's memory budget of 8 MiB holds about this many instructions, too."""
MOST_REPETITIONS = 1000
"""RE2's bound of the product of nested repetition counts."""
MOST_GROUPS = 1000
"""RE2's bound of nested groups."""
MOST_REMEMBERED = 20_000
"""Bound of the cached transitions of a matcher, which limits its memory."""

DIGITS = "0123456789"
WORD = frozenset("0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_")
SPACE = frozenset("\t\n\f\r ")

POSIX: dict[str, Accepts] = {
    "alnum": lambda one: one in WORD and one != "_",
    "alpha": lambda one: one in WORD and one not in DIGITS and one != "_",
    "ascii": lambda one: one <= "\x7f",
    "blank": lambda one: one in "\t ",
    "cntrl": lambda one: one <= "\x1f" or one == "\x7f",
    "digit": lambda one: one in DIGITS,
    "graph": lambda one: "!" <= one <= "~",
    "lower": lambda one: "a" <= one <= "z",
    "print": lambda one: " " <= one <= "~",
    "punct": lambda one: "!" <= one <= "~" and (one not in WORD or one == "_"),
    "space": lambda one: one in SPACE or one == "\v",
    "upper": lambda one: "A" <= one <= "Z",
    "word": lambda one: one in WORD,
    "xdigit": lambda one: one in "0123456789ABCDEFabcdef",
}
PERL: dict[str, Accepts] = {
    "d": POSIX["digit"],
    "s": lambda one: one in SPACE,
    "w": POSIX["word"],
}
CONTROLS = {"a": "\a", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
CATEGORIES = re.compile("C[cfos]?|L[lmotu]?|M[cen]?|N[dlo]?|P[cdefios]?|S[ckmo]?|Z[lps]?|Any")

ASSERTIONS: tuple[Callable[[str, str], bool], ...] = (
    lambda before, after: not before,
    lambda before, after: not after,
    lambda before, after: before in ("", "\n"),
    lambda before, after: after in ("", "\n"),
    lambda before, after: (before in WORD) != (after in WORD),
    lambda before, after: (before in WORD) == (after in WORD),
)
"""Conditions on the characters before and after; "" at the ends of the text."""
BEGIN, END, BEGIN_LINE, END_LINE, BOUNDARY, NO_BOUNDARY = range(6)

REPETITION = re.compile(r"\{(0|[1-9][0-9]{0,8})(?:(,)(0|[1-9][0-9]{0,8})?)?\}")
FLAGS = re.compile(r"\(\?([imsU]*)(?:-([imsU]+))?([:)])")
NAMED = re.compile(r"\(\?P?<([A-Za-z0-9_]+)>")
HEXADECIMAL = re.compile(r"\\x(?:\{([0-9A-Fa-f]+)\}|([0-9A-Fa-f]{2}))")
OCTAL = re.compile(r"\\(0[0-7]{0,2}|[1-7][0-7]{1,2})")
CATEGORY = re.compile(r"\\([pP])(?:\{(\^?)([^{}]*)\}|([^{^]))")
CLASS_NAME = re.compile(r"\[:(\^?)(\w*):\]", re.ASCII)


def matcher(pattern: str) -> Callable[[str], bool]:
    """A predicate for full matches of a pattern; raises `re.error` if the pattern is invalid."""
    return _Matcher(_Parser(pattern).program()).matches


# Sets of characters


def _fold(one: str) -> str:
    """A representative of all characters that differ only in case."""
    for folded in (one.casefold(), one.lower()):
        if len(folded) == 1:
            return folded
    return one


@cache
def _orbits() -> dict[str, str]:
    """The characters that differ only in case, by the result of `_fold`."""
    found: dict[str, str] = {}
    for code in range(0x1E944):  # No character from here on has a case.
        if (folded := _fold(chr(code))) != chr(code):
            found[folded] = found.get(folded, folded) + chr(code)
    return found


def _orbit(one: str) -> str:
    """The character in all its cases."""
    folded = _fold(one)
    return _orbits().get(folded, folded)


def _in_any_case(accepts: Accepts) -> Accepts:
    return lambda one: any(map(accepts, _orbit(one)))


def _not(accepts: Accepts) -> Accepts:
    return lambda one: not accepts(one)


def _between(first: str, last: str) -> Accepts:
    return lambda one: first <= one <= last


def _category(name: str) -> Accepts:
    if name == "Any":
        return lambda one: True
    # RE2's category C excludes unassigned characters (Cn).
    return lambda one: (
        unicodedata.category(one).startswith(name) and (unicodedata.category(one) != "Cn")
    )


# Programs


def _step(accepts: Accepts) -> Program:
    return ((SET, accepts, 1, 0),)


def _jump(distance: int) -> Instruction:
    return JUMP, None, distance, 0


def _split(other: int) -> Instruction:
    return SPLIT, None, 1, other


@dataclass(frozen=True)
class _Piece:
    """The program of a subpattern, and the product of nested repetition counts in it."""

    program: Program
    repetitions: int = 1

    def repeated(self, least: int, most: int | None) -> _Piece:
        count = most if most is not None else least
        if (most is not None and most < least) or max(least, count) > MOST_REPETITIONS:
            raise re.error("bad repetition size")
        repetitions = self.repetitions * max(1, count)
        if count > 1 and repetitions > MOST_REPETITIONS:
            raise re.error("bad repetition size")
        if count * (len(self.program) + 1) > MOST_INSTRUCTIONS:
            raise re.error("pattern too large")
        inner = self.program
        if most is None:
            loop = (_split(len(inner) + 2), *inner, _jump(-len(inner) - 1))
            return _Piece(inner * least + loop, repetitions)
        rest: list[Instruction] = []
        optional, length = most - least, len(inner) + 1
        for number in range(optional):
            rest += (_split((optional - number) * length), *inner)
        return _Piece(inner * least + tuple(rest), repetitions)


def _either(branches: Sequence[Program]) -> Program:
    """The alternation of branches."""
    found: list[Instruction] = []
    left = sum(len(branch) + 2 for branch in branches)
    for branch in branches[:-1]:
        left -= len(branch) + 2
        found += (_split(len(branch) + 2), *branch, _jump(left - 1))
    return (*found, *branches[-1])


@dataclass
class _Group:
    """A group that is being parsed."""

    flags: frozenset[str]
    """The flags to restore after the group."""
    branches: list[Program] = field(default_factory=list)
    repetitions: int = 1
    pieces: list[_Piece] = field(default_factory=list)
    """The pieces of the current branch."""

    def end_branch(self) -> None:
        self.branches.append(tuple(step for piece in self.pieces for step in piece.program))
        self.repetitions = max([self.repetitions, *(one.repetitions for one in self.pieces)])
        self.pieces.clear()

    def whole(self) -> _Piece:
        self.end_branch()
        return _Piece(_either(self.branches), self.repetitions)


class _Parser:
    """A parser of patterns, from left to right."""

    def __init__(self, pattern: str) -> None:
        self.pattern, self.at = pattern, 0
        self.flags: frozenset[str] = frozenset()
        self.groups = [_Group(self.flags)]
        self.names: set[str] = set()
        self.size = 0

    def program(self) -> Program:
        repeats = False
        while self.at < len(self.pattern):
            repeats = self._item(repeats)
        if len(self.groups) > 1:
            raise re.error("missing )")
        return self.groups[0].whole().program

    def _add(self, program: Program) -> None:
        self._count(len(program))
        self.groups[-1].pieces.append(_Piece(program))

    def _count(self, more: int) -> None:
        self.size += more
        if self.size > MOST_INSTRUCTIONS:
            raise re.error("pattern too large")

    def _assert(self, assertion: int) -> None:
        self._add(((ASSERT, None, assertion, 0),))

    def _set(self, accepts: Accepts) -> Accepts:
        return _in_any_case(accepts) if "i" in self.flags else accepts

    def _literal(self, one: str) -> None:
        cases = _orbit(one) if "i" in self.flags else one
        self._add(_step(lambda other: other in cases))

    def _item(self, repeats: bool) -> bool:
        """
        Parses one item; returns whether it was a repetition.

        A repetition must not follow another one: `repeats`.
        """
        one = self.pattern[self.at]
        match one:
            case "*" | "+" | "?":
                self.at += 1
                least, most = {"*": (0, None), "+": (1, None), "?": (0, 1)}[one]
                self._repeat(least, most, repeats)
                return True
            case "{" if found := REPETITION.match(self.pattern, self.at):
                self.at = found.end()
                least = int(found[1])
                unbounded = None if found[2] else least
                self._repeat(least, int(found[3]) if found[3] else unbounded, repeats)
                return True
            case "(":
                self._open()
            case ")":
                self._close()
            case "[":
                self._add(_step(self._class()))
            case "\\":
                self._escape()
            case _:
                self.at += 1
                self._plain(one)
        return False

    def _plain(self, one: str) -> None:
        lines = "m" in self.flags
        match one:
            case "|":
                self.groups[-1].end_branch()
            case "^":
                self._assert(BEGIN_LINE if lines else BEGIN)
            case "$":
                self._assert(END_LINE if lines else END)
            case ".":
                everything = "s" in self.flags
                self._add(_step(lambda other: everything or other != "\n"))
            case _:
                self._literal(one)

    def _repeat(self, least: int, most: int | None, repeats: bool) -> None:
        if self.pattern.startswith("?", self.at):  # Laziness does not change full matches.
            self.at += 1
        if repeats:
            raise re.error("bad repetition operator")
        pieces = self.groups[-1].pieces
        if not pieces:
            raise re.error("no argument for repetition operator")
        made = pieces[-1].repeated(least, most)
        self._count(len(made.program) - len(pieces[-1].program))
        pieces[-1] = made

    def _open(self) -> None:
        if not self.pattern.startswith("(?", self.at):
            self.at += 1
        elif found := NAMED.match(self.pattern, self.at):
            if found[1] in self.names:
                raise re.error(f"duplicate group name {found[1]!r}")
            self.names.add(found[1])
            self.at = found.end()
        elif found := FLAGS.match(self.pattern, self.at):
            self.at = found.end()
            flags = (self.flags | {*found[1]}) - {*(found[2] or "")}
            if found[3] == ":":
                self._begin_group()
            self.flags = flags
            return
        else:
            raise re.error("look-around and other Perl extensions are not supported")
        self._begin_group()

    def _begin_group(self) -> None:
        self.groups.append(_Group(self.flags))
        if len(self.groups) > MOST_GROUPS:
            raise re.error("groups are nested too deeply")

    def _close(self) -> None:
        self.at += 1
        if len(self.groups) == 1:
            raise re.error("unexpected )")
        group = self.groups.pop()
        self.flags = group.flags
        piece = group.whole()
        self._count(2 * len(group.branches))
        self.groups[-1].pieces.append(piece)

    # Escapes

    def _escape(self) -> None:
        code = self.pattern[self.at + 1 : self.at + 2]
        asserted = {"A": BEGIN, "z": END, "b": BOUNDARY, "B": NO_BOUNDARY}
        if code == "Q":
            end = self.pattern.find("\\E", self.at + 2)
            quoted = self.pattern[self.at + 2 : None if end < 0 else end]
            self.at = len(self.pattern) if end < 0 else end + 2
            for one in quoted:
                self._literal(one)
        elif code in asserted and code:
            self.at += 2
            self._assert(asserted[code])
        elif (accepts := self._named_class()) is not None:
            self._add(_step(accepts))
        else:
            self._literal(self._escaped())

    def _named_class(self) -> Accepts | None:
        """The set of an escape such as `\\d` or `\\p{Lu}` at this position, if any."""
        code = self.pattern[self.at + 1 : self.at + 2]
        if code and code in "dswDSW":
            self.at += 2
            accepts = self._set(PERL[code.lower()])
            return _not(accepts) if code.isupper() else accepts
        if code not in ("p", "P"):
            return None
        found = CATEGORY.match(self.pattern, self.at)
        name = "" if found is None else found[4] or found[3]
        if found is None or not CATEGORIES.fullmatch(name):
            raise re.error(f"unknown character class \\{code}{{{name}}}")
        self.at = found.end()
        accepts = self._set(_category(name))
        return _not(accepts) if (code == "P") != bool(found[2]) else accepts

    def _escaped(self) -> str:
        """The literal character of an escape."""
        if found := HEXADECIMAL.match(self.pattern, self.at):
            number = int(found[1] or found[2], 16)
        elif found := OCTAL.match(self.pattern, self.at):
            number = int(found[1], 8)
        else:
            code = self.pattern[self.at + 1 : self.at + 2]
            self.at += 2
            if code in CONTROLS:
                return CONTROLS[code]
            if not code or code > "\x7f" or code.isalnum():
                raise re.error(f"invalid escape \\{code}")
            return code
        self.at = found.end()
        if number > 0x10FFFF:
            raise re.error(f"no character {number:#x}")
        return chr(number)

    # Classes in brackets

    def _class(self) -> Accepts:
        self.at += 1
        negated = self.pattern.startswith("^", self.at)
        self.at += negated
        members, first = list[Accepts](), True
        while first or not self.pattern.startswith("]", self.at):
            if self.at >= len(self.pattern):
                raise re.error("missing ]")
            members.append(self._member())
            first = False
        self.at += 1
        found = _any_of(members)
        return _not(found) if negated else found

    def _member(self) -> Accepts:
        if found := CLASS_NAME.match(self.pattern, self.at):
            if found[2] not in POSIX:
                raise re.error(f"unknown class [:{found[2]}:]")
            self.at = found.end()
            accepts = self._set(POSIX[found[2]])
            return _not(accepts) if found[1] else accepts
        if self.pattern.startswith("\\", self.at) and (named := self._named_class()) is not None:
            return named
        low = high = self._end_of_range()
        rest = self.pattern[self.at : self.at + 2]
        if len(rest) == 2 and rest[0] == "-" and rest[1] != "]":
            self.at += 1
            high = self._end_of_range()
        if high < low:
            raise re.error(f"bad range {low}-{high}")
        return self._set(_between(low, high))

    def _end_of_range(self) -> str:
        if self.at >= len(self.pattern):
            raise re.error("missing ]")
        if self.pattern[self.at] == "\\":
            return self._escaped()
        self.at += 1
        return self.pattern[self.at - 1]


def _any_of(members: Iterable[Accepts]) -> Accepts:
    known = tuple(members)
    return lambda one: any(accepts(one) for accepts in known)


# Matching

Threads: TypeAlias = tuple[frozenset[int], str]
"""
Positions in a program, and a representative of the previous character for assertions.

"\\n", "a" and " " represent newlines, word characters and others, so that few states are cached.
"""


class _Matcher:
    """A program with cached transitions."""

    def __init__(self, program: Program) -> None:
        self._program = program
        self._known: dict[tuple[Threads, str], Threads] = {}

    def matches(self, text: str) -> bool:
        threads: Threads = frozenset([0]), ""
        for one in text:
            after = self._known.get((threads, one))
            if after is None:
                if len(self._known) >= MOST_REMEMBERED:
                    self._known.clear()
                after = self._advanced(threads, one)
                self._known[threads, one] = after
            if not after[0]:
                return False
            threads = after
        return len(self._program) in self._reached(threads, "")

    def _advanced(self, threads: Threads, one: str) -> Threads:
        found = set[int]()
        for place in self._reached(threads, one):
            if place < len(self._program):
                _, accepts, _, _ = self._program[place]
                if accepts is not None and accepts(one):
                    found.add(place + 1)
        kind = "\n" if one == "\n" else "a" if one in WORD else " "
        return frozenset(found), kind

    def _reached(self, threads: Threads, after: str) -> set[int]:
        """The epsilon closure: positions reached by jumps and assertions, before `after`."""
        places, before = threads
        pending, found = list(places), set[int]()
        while pending:
            place = pending.pop()
            if place in found:
                continue
            found.add(place)
            if place == len(self._program):
                continue
            kind, _, first, second = self._program[place]
            if kind == JUMP:
                pending.append(place + first)
            elif kind == SPLIT:
                pending += (place + first, place + second)
            elif kind == ASSERT and ASSERTIONS[first](before, after):
                pending.append(place + 1)
        return found
