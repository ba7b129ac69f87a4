"""Output of the commands: errors, notes, tables, for terminals and pipes."""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from popgraph.support.errors import ErrorGroup, PopgraphError
from popgraph.support.extensions import load_all
from popgraph.support.progress import listening
from popgraph.support.tables import markdown_table
from popgraph.support.warnings import PopgraphWarning


def show_error(error: PopgraphError) -> None:
    """What is wrong, where, and what to do, on the error stream; in colour on a terminal."""
    errors = error.errors if isinstance(error, ErrorGroup) else (error,)
    for place, one in enumerate(errors):
        if place:
            print(file=sys.stderr)
        _show_one(one)


def _show_one(error: PopgraphError) -> None:
    parts = [("error:", error.what, "bold red")]
    if error.where:
        parts.append(("  at:", error.where, "cyan"))
    if error.hint:
        parts.append(("  try:", error.hint, "green"))
    if not is_terminal():
        for label, text, _ in parts:
            print(label, text, file=sys.stderr)
        return
    from rich.console import Console
    from rich.text import Text

    console = Console(stderr=True, highlight=False, soft_wrap=True)
    for label, text, style in parts:
        console.print(Text.assemble((label, style), " ", text))


def note(text: str) -> None:
    """What a person may want to know and a program does not: on the error stream."""
    print(text, file=sys.stderr)


def load_installed(group: str) -> None:
    """Loads what distributions bring for a listing; a broken one is told, and left out."""
    for error in load_all(group):
        warnings.warn(str(error), PopgraphWarning, stacklevel=3)


def is_terminal() -> bool:
    """Whether a person is looking (NO_COLOR is respected by whoever asks rich for colours)."""
    return sys.stderr.isatty() and os.environ.get("TERM") != "dumb"


class CompilingLine:
    """A line on a terminal that says what is being compiled, once that takes a while."""

    DELAY = 0.5
    """Seconds of compilation before which nothing is shown."""

    def __init__(self) -> None:
        self._spent, self._since, self._shown = 0.0, 0.0, False

    def __call__(self, text: str) -> None:
        now = time.monotonic()
        if self._since:
            self._spent += now - self._since
        self._since = now if text else 0.0
        if text and self._spent >= self.DELAY:
            self._write(f"\r\x1b[Kcompiling, {self._spent:.0f} s: {text}")
            self._shown = True
        elif self._shown and not text:
            self._write("\r\x1b[K")
            self._shown = False

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()


@contextmanager
def compilation_shown() -> Iterator[None]:
    """On a terminal, a line says what is being compiled; it is gone when that has ended."""
    if not is_terminal():
        yield
        return
    with listening(CompilingLine()):
        yield


def markdown_page(
    title: str, about: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]]
) -> str:
    """A generated page of the documentation: a heading, a paragraph, a table."""
    return "\n".join([f"# {title}", "", about.strip(), "", markdown_table(columns, rows)])
