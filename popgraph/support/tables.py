"""Tables as text: aligned columns for terminals, and Markdown."""

from __future__ import annotations

from collections.abc import Sequence


def table(rows: Sequence[tuple[str, ...]]) -> str:
    """Aligned columns; the last one is not padded."""
    if not rows:
        return ""
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]) - 1)]
    return "\n".join(
        "  ".join(
            [cell.ljust(width) for cell, width in zip(row, widths, strict=False)] + [row[-1]]
        ).rstrip()
        for row in rows
    )


def markdown_row(cells: Sequence[str]) -> str:
    """A row of a Markdown table."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]], align: str = "") -> str:
    """A Markdown table; an `r` in `align` marks a right-aligned column."""
    marks = ["---:" if mark == "r" else "---" for mark in align.ljust(len(columns))]
    return "\n".join(map(markdown_row, [columns, marks, *rows]))
