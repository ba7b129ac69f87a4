"""What does a name mean here, and what is said when it means nothing?"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

from xdsl.ir import SSAValue

from popgraph.builder.dsl.source import Source
from popgraph.builder.dsl.tree import Assignment, Missing, Name, Span, Statement


class Failed(Exception):
    """What was being made cannot be; `Source` knows why."""


class Scope:
    """
    The values of one graph by name, in the order of the text.

    A name whose statement failed is known, but has no value: to use it fails without another
    message.
    """

    def __init__(self, source: Source) -> None:
        self.source = source
        self._values: dict[str, SSAValue | None] = {}
        self._defined: dict[str, Span] = {}
        self._coming: dict[str, Span] = {}

    def announce(self, statements: Iterable[Statement]) -> None:
        """Notes which names will be defined, and where."""
        for statement in statements:
            for name in defined_by(statement):
                self._coming.setdefault(name.text, name.span)

    def taken(self, name: str) -> bool:
        """Whether the text itself gives this name to anything."""
        return name in self._coming or name in self._values

    def place(self, name: str) -> Span:
        """Where a name is defined."""
        return self._defined[name]

    def define(self, name: Name, value: SSAValue | None) -> None:
        """Gives a name its value; None if there is none because its statement failed."""
        self._values[name.text] = value
        self._defined[name.text] = name.span

    def check_new(self, name: Name) -> None:
        """Fails if the name has been defined before."""
        if name.text in self._defined:
            self.source.parse_error(
                name.span,
                f"`{name.text}` is defined twice",
                f"the first time in line {self._defined[name.text].line}; "
                "every value has a name of its own",
            )
            raise Failed

    def value(self, name: Name) -> SSAValue:
        """The value of a name; fails if it has none."""
        if name.text not in self._values:
            self.source.parse_error(name.span, *self._unknown(name))
            raise Failed
        value = self._values[name.text]
        if value is None:
            raise Failed
        return value

    def closest(self, name: str) -> str:
        """The known name that looks most like this one; empty when none does."""
        return next(iter(get_close_matches(name, [*self._values, *self._coming], 1, 0.5)), "")

    def _unknown(self, name: Name) -> tuple[str, str]:
        place = self._coming.get(name.text)
        if place is not None and (place.line, place.column) > (name.span.line, name.span.column):
            return (
                f"`{name.text}` is used before it is defined",
                f"its definition stands in line {place.line}",
            )
        if place is not None:
            return f"`{name.text}` is used in its own definition", "give the result another name"
        close = self.closest(name.text)
        hint = f"did you mean `{close}`?" if close else "define it in a line before this one"
        return f"there is no value `{name.text}`", hint


def defined_by(statement: Statement) -> list[Name]:
    """The names that a statement defines."""
    if isinstance(statement, Assignment):
        names = [target.name for target in statement.targets]
        return [name for name in names if not isinstance(name, Missing)]
    return [statement.name]
