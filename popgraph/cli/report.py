"""Output of the commands: errors, notes, tables, for terminals and pipes."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence

from popgraph.support.errors import ErrorGroup, PopgraphError
from popgraph.support.extensions import load_all
from popgraph.support.progress import is_terminal
from popgraph.support.tables import markdown_table
from popgraph.support.warnings import PopgraphWarning


def show_error(error: PopgraphError) -> None:
    """Prints errors with their locations and hints on standard error; coloured on a terminal."""
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
    """Prints information for people on standard error."""
    print(text, file=sys.stderr)


def load_installed(group: str) -> None:
    """Loads installed extensions for a listing; a broken one is skipped with a warning."""
    for error in load_all(group):
        warnings.warn(str(error), PopgraphWarning, stacklevel=3)


def markdown_page(
    title: str, about: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]]
) -> str:
    """A generated page of the documentation: heading, paragraph, table."""
    return "\n".join([f"# {title}", "", about.strip(), "", markdown_table(columns, rows)])
