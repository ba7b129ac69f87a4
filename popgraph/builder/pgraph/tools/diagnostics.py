"""Diagnostics of a text: errors and warnings with line and column numbers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from popgraph.builder.pgraph.lower.document import Document, check
from popgraph.builder.pgraph.syntax.source import Source
from popgraph.builder.pgraph.syntax.tree import Span


@dataclass(frozen=True)
class Diagnostic:
    """An error or a warning about a text."""

    filename: str
    span: Span
    severity: Literal["error", "warning"]
    message: str
    hint: str
    shown: str
    """The readable message, with the line, a caret and a hint."""

    def as_json(self) -> dict[str, object]:
        span = self.span
        return {
            "file": self.filename,
            "line": span.line,
            "column": span.column,
            "end_line": span.end_line,
            "end_column": span.end_column,
            "severity": self.severity,
            "message": self.message,
            "hint": self.hint,
        }


@dataclass(frozen=True)
class Checked:
    """A text, its document if it has no errors, and its diagnostics."""

    source: Source
    document: Document | None
    diagnostics: tuple[Diagnostic, ...]


def checked(text: str, filename: str = "<text>", search: Iterable[str | Path] = ()) -> Checked:
    """Checks a text without raising."""
    source = Source(text, filename)
    document = check(source, search)
    found = {one.shown: one for one in _diagnostics(source, quiet=document is None)}
    return Checked(source, document, tuple(found.values()))


def _diagnostics(source: Source, *, quiet: bool) -> Iterator[Diagnostic]:
    """Errors; warnings only without errors, which would make names appear unused."""
    for one in sorted(source.mistakes, key=lambda one: one.order):
        error = one.error
        yield Diagnostic(one.filename, one.span, "error", error.what, error.hint, str(error))
    if not quiet:
        for span, warning in source.warnings():
            yield Diagnostic(
                source.filename, span, "warning", warning.what, warning.hint, str(warning)
            )
