"""Source texts: positions, carets, and the errors collected for them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from popgraph.builder.budget import TEXTS, Budget, BudgetExceeded
from popgraph.builder.pgraph.syntax.tree import (
    Span,
)
from popgraph.support.errors import ErrorGroup, ParseError, PopgraphError, TypeMismatchError
from popgraph.support.memo import cached_property

_MORE = f"{TEXTS}=10 in the environment allows ten times as much"

TOO_DEEP = "this is nested too deeply", "give parts of it a name"
"""Message and hint for a RecursionError."""

_MAX_CALLS = 4
"""Most template calls listed for an error."""


@dataclass(frozen=True)
class Mistake:
    """An error with its position; `place` is the position in readable form."""

    number: int
    """Index of the file, in reading order."""
    filename: str
    span: Span
    place: str
    error: PopgraphError

    @property
    def order(self) -> tuple[int, int, int]:
        return self.number, self.span.line, self.span.column


@dataclass
class Report:
    """State shared by a text and its imports."""

    mistakes: list[Mistake] = field(default_factory=list)
    files: list[str] = field(default_factory=list)
    calls: list[str] = field(default_factory=list)
    """The positions of the calls being inlined, innermost last."""
    budget: Budget = field(default_factory=Budget)


@dataclass
class Source:
    """A text, its name, and the errors found until now in it and in related texts."""

    text: str
    filename: str
    report: Report = field(default_factory=Report)
    defined: dict[Span, tuple[str, str]] = field(default_factory=dict)
    """Names that should be used, by the position of their definition: (name, kind)."""
    used: set[Span] = field(default_factory=set)
    """Positions of definitions that are used."""
    meanings: dict[Span, tuple[Span, object]] = field(default_factory=dict)
    """For every position of a name: the position of its definition, and its value or constant."""

    def __post_init__(self) -> None:
        self._number = len(self.report.files)
        self.report.files.append(self.filename)
        self.report.budget.characters += len(self.text)

    @property
    def mistakes(self) -> list[Mistake]:
        return self.report.mistakes

    def imported(self, text: str, filename: str) -> Source:
        """An imported text, whose errors are reported together with this text's."""
        return Source(text, filename, self.report)

    @cached_property
    def _lines(self) -> list[str]:
        shown = self.text.encode("utf-8", "backslashreplace").decode()
        return shown.split("\n")

    def written(self, span: Span) -> str:
        """The text of a span within one line."""
        return self._lines[span.line - 1][span.column - 1 : span.end_column - 1]

    def spend(self, span: Span, steps: int) -> None:
        """Spends steps; reports an error and stops if the budget is exceeded."""
        budget = self.report.budget
        if not budget.take_steps((self.filename, span.line), steps):
            (file, line), most = budget.by_line.most_common(1)[0]
            self.parse_error(
                span,
                f"this text expands to too much: line {line} of {file} took {most:,} of the "
                f"{budget.most_steps:,} allowed steps",
                _MORE,
            )
            raise BudgetExceeded

    def fill(self, span: Span, elements: int) -> None:
        """Spends elements of an initial value."""
        budget = self.report.budget
        if not budget.take_elements(elements):
            self.parse_error(
                span,
                f"this fills {elements:,} elements (random ones count more than once), so the "
                f"text exceeds {budget.most_elements:,}",
                _MORE,
            )
            raise BudgetExceeded

    def where(self, span: Span) -> str:
        """`file:line:column`, the line, and a caret under the span."""
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
        """Errors inside the block occur in the template called at `span`."""
        self.report.calls.append(self.where(span))
        try:
            yield
        finally:
            self.report.calls.pop()

    def parse_error(self, span: Span, what: str, hint: str = "") -> None:
        """Reports a syntax or name error."""
        self._add(span, ParseError, what, hint)

    def mismatch(self, span: Span, what: str, hint: str = "") -> None:
        """Reports a mismatch of shapes or element types."""
        self._add(span, TypeMismatchError, what, hint)

    def note(self, span: Span, error: PopgraphError) -> None:
        """Reports an error of another component at this position."""
        kind = TypeMismatchError if isinstance(error, TypeMismatchError) else ParseError
        self._add(span, kind, error.what, error.hint)

    def _add(self, span: Span, kind: type[PopgraphError], what: str, hint: str) -> None:
        place = self.where(span)
        error = kind(what, place + self._called(), hint)
        self.mistakes.append(Mistake(self._number, self.filename, span, place, error))

    def _called(self) -> str:
        """The call stack of templates, innermost first."""
        calls = list(dict.fromkeys(self.report.calls[::-1]))
        if len(calls) > _MAX_CALLS:
            half = _MAX_CALLS // 2
            calls = [*calls[:half], "...", *calls[-half:]]
        return "".join(f"\n  called in {place}" for place in calls)

    def warnings(self) -> list[tuple[Span, ParseError]]:
        """Warnings: names that nothing uses."""
        unused = [one for one in self.defined.items() if one[0] not in self.used]
        unused.sort(key=lambda one: (one[0].line, one[0].column))
        return [
            (span, ParseError(f"nothing uses the {kind} `{name}`", self.where(span), _UNUSED[kind]))
            for span, (name, kind) in unused
        ]

    def raise_mistakes(self) -> None:
        """Raises the errors in text order; an error in a template only once for all calls."""
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
"""Advice about unused names, by kind."""


class Failed(Exception):
    """Lowering cannot continue; `Source` has the error."""
