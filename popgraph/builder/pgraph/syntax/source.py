"""Source texts: locations, carets, and the errors collected for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property

from popgraph.builder.budget import TEXTS, Budget, BudgetExceeded
from popgraph.builder.pgraph.syntax.tree import (
    Span,
)
from popgraph.support.errors import ErrorGroup, ParseError, PopgraphError, TypeMismatchError

_MORE = f"{TEXTS}=10 in the environment allows ten times as much"

TOO_DEEP = "this is nested too deeply", "give parts of it a name"
"""What is said, and what to do, where Python itself has no room for more."""

_MOST_CALLS = 4
"""Of so many calls around a mistake the place is shown."""


@dataclass(frozen=True)
class Mistake:
    """An error, and where it stands; `place` is that as a person reads it."""

    number: int
    """Of the file, in the order in which they were read."""
    filename: str
    span: Span
    place: str
    error: PopgraphError

    @property
    def order(self) -> tuple[int, int, int]:
        return self.number, self.span.line, self.span.column


@dataclass
class Report:
    """What texts that belong together share: one imports the other."""

    mistakes: list[Mistake] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """The places of the calls whose templates are being written out, the innermost last."""
    budget: Budget = field(default_factory=Budget)


@dataclass
class Source:
    """One text, its name, and the mistakes found so far in it and in what belongs to it."""

    text: str
    filename: str
    report: Report = field(default_factory=Report)
    defined: dict[Span, tuple[str, str]] = field(default_factory=dict)
    """Names that something should use, where they are defined, and of which kind they are."""
    used: set[Span] = field(default_factory=set)
    """Where names are defined that something uses."""
    meanings: dict[Span, tuple[Span, object]] = field(default_factory=dict)
    """For every place of a name: where it is defined, and the value or what is known of it."""

    def __post_init__(self) -> None:
        self._number = len(self.report.files)
        self.report.files.append(self.filename)
        self.report.budget.characters += len(self.text)

    @property
    def mistakes(self) -> list[Mistake]:
        return self.report.mistakes

    def imported(self, text: str, filename: str) -> Source:
        """Another text, whose mistakes are told together with those of this one."""
        return Source(text, filename, self.report)

    @cached_property
    def _lines(self) -> list[str]:
        shown = self.text.encode("utf-8", "backslashreplace").decode()
        return shown.split("\n")

    def written(self, span: Span) -> str:
        """What stands at a place of one line."""
        return self._lines[span.line - 1][span.column - 1 : span.end_column - 1]

    def spend(self, span: Span, steps: int) -> None:
        """Takes steps for what stands here; there is nothing more to be made if none are left."""
        budget = self.report.budget
        if not budget.take_steps((self.filename, span.line), steps):
            (file, line), most = budget.by_line.most_common(1)[0]
            self.parse_error(
                span,
                f"this text unfolds into too much: line {line} of {file} took {most:,} of the "
                f"{budget.most_steps:,} steps that it has",
                _MORE,
            )
            raise BudgetExceeded

    def fill(self, span: Span, elements: int) -> None:
        """Takes elements for a first value."""
        budget = self.report.budget
        if not budget.take_elements(elements):
            self.parse_error(
                span,
                f"this fills {elements:,} elements (those drawn at random count more than once), "
                f"with which the text has more than {budget.most_elements:,}",
                _MORE,
            )
            raise BudgetExceeded

    def where(self, span: Span) -> str:
        """`file:line:column`, the line, and a caret under what is meant."""
        lines = self._lines
        line = lines[span.line - 1].rstrip("\r") if span.line <= len(lines) else ""
        shown = line.expandtabs(4)
        start = len(line[: span.column - 1].expandtabs(4))
        end = len(line[: span.end_column - 1].expandtabs(4))
        if span.end_line > span.line:
            end = len(shown)
        marks = "^" * max(1, end - start)
        number = f"{span.line:>6}"
        return (
            f"{self.filename}:{span.line}:{span.column}\n"
            f"{number} | {shown}\n"
            f"{'':>6} | {' ' * start}{marks}"
        )

    @contextmanager
    def calling(self, span: Span) -> Iterator[None]:
        """What is noted inside is a mistake in the template that is called at `span`."""
        self.report.calls.append(self.where(span))
        try:
            yield
        finally:
            self.report.calls.pop()

    def parse_error(self, span: Span, what: str, hint: str = "") -> None:
        """Notes that the text is not well formed here."""
        self._add(span, ParseError, what, hint)

    def mismatch(self, span: Span, what: str, hint: str = "") -> None:
        """Notes that a shape or an element type does not fit here."""
        self._add(span, TypeMismatchError, what, hint)

    def note(self, span: Span, error: PopgraphError) -> None:
        """Notes what another part of the system says about what stands here."""
        kind = TypeMismatchError if isinstance(error, TypeMismatchError) else ParseError
        self._add(span, kind, error.what, error.hint)

    def _add(self, span: Span, kind: type[PopgraphError], what: str, hint: str) -> None:
        place = self.where(span)
        error = kind(what, place + self._called(), hint)
        self.mistakes.append(Mistake(self._number, self.filename, span, place, error))

    def _called(self) -> str:
        """From where the template that has the mistake was called, from the inside out."""
        calls = list(dict.fromkeys(self.report.calls[::-1]))
        if len(calls) > _MOST_CALLS:
            half = _MOST_CALLS // 2
            calls = [*calls[:half], "...", *calls[-half:]]
        return "".join(f"\n  called in {place}" for place in calls)

    def warnings(self) -> list[tuple[Span, ParseError]]:
        """What is not wrong, but hardly meant: names that nothing uses."""
        unused = [one for one in self.defined.items() if one[0] not in self.used]
        unused.sort(key=lambda one: (one[0].line, one[0].column))
        return [
            (span, ParseError(f"nothing uses the {kind} `{name}`", self.where(span), _UNUSED[kind]))
            for span, (name, kind) in unused
        ]

    def raise_mistakes(self) -> None:
        """Raises what was noted, in the order of the text; of every call of a template once."""
        noted = sorted(self.mistakes, key=lambda one: one.order)
        kept: dict[tuple[str, str, str], PopgraphError] = {}
        for one in noted:
            kept.setdefault((one.place, one.error.what, one.error.hint), one.error)
        errors = list(kept.values())
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ErrorGroup(errors)


_UNUSED = {
    "value": "remove it, or make it an output",
    "result": "write `_` in its place, or make it an output",
    "weight": "remove it, or use it",
    "constant": "remove it, or use it",
    "input": "remove it, or use it",
    "parameter": "remove it, or use it",
    "name": "remove it, or use it",
}
"""Kinds of names, and what to do about one that nothing uses."""


class Failed(Exception):
    """What was being made cannot be; `Source` knows why."""
