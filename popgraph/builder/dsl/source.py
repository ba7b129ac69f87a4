"""Where in the user's text is a mistake, and how is that place shown?"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from popgraph.builder.dsl.tree import Span
from popgraph.support.errors import ErrorGroup, ParseError, PopgraphError, TypeMismatchError


@dataclass
class Source:
    """One text, its name, and the mistakes found in it so far."""

    text: str
    filename: str
    mistakes: list[tuple[Span, PopgraphError]] = field(default_factory=list)
    defined: dict[Span, tuple[str, str]] = field(default_factory=dict)
    """Names that something should use, where they are defined, and of which kind they are."""
    used: set[Span] = field(default_factory=set)
    """Where names are defined that something uses."""

    def where(self, span: Span) -> str:
        """`file:line:column`, the line, and a caret under what is meant."""
        lines = self.text.split("\n")
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

    def parse_error(self, span: Span, what: str, hint: str = "") -> None:
        """Notes that the text is not well formed here."""
        self.mistakes.append((span, ParseError(what, self.where(span), hint)))

    def mismatch(self, span: Span, what: str, hint: str = "") -> None:
        """Notes that a shape or an element type does not fit here."""
        self.mistakes.append((span, TypeMismatchError(what, self.where(span), hint)))

    def note(self, span: Span, error: PopgraphError) -> None:
        """Notes what another part of the system says about what stands here."""
        kind = TypeMismatchError if isinstance(error, TypeMismatchError) else ParseError
        self.mistakes.append((span, kind(error.what, self.where(span), error.hint)))

    def warnings(self) -> list[ParseError]:
        """What is not wrong, but hardly meant: names that nothing uses."""
        unused = [one for one in self.defined.items() if one[0] not in self.used]
        unused.sort(key=lambda one: (one[0].line, one[0].column))
        return [
            ParseError(f"nothing uses the {kind} `{name}`", self.where(span), _UNUSED[kind])
            for span, (name, kind) in unused
        ]

    def raise_mistakes(self) -> None:
        """Raises what was noted, in the order of the text."""
        ordered = sorted(self.mistakes, key=lambda noted: (noted[0].line, noted[0].column))
        errors = list(_without_repeats(error for _, error in ordered))
        if len(errors) == 1:
            raise errors[0]
        if errors:
            raise ErrorGroup(errors)


_UNUSED = {
    "value": "remove it, or make it an output",
    "weight": "remove it, or use it",
    "constant": "remove it, or use it",
    "input": "remove it, or use it",
    "parameter": "remove it, or use it",
    "name": "remove it, or use it",
}
"""Kinds of names, and what to do about one that nothing uses."""


def _without_repeats(errors: Iterable[PopgraphError]) -> Iterable[PopgraphError]:
    return {str(error): error for error in errors}.values()
