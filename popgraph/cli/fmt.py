"""`popgraph fmt`: formats `.pgraph` texts."""

from __future__ import annotations

import sys
from difflib import unified_diff
from pathlib import Path
from typing import Annotated

import typer

from popgraph.cli.options import Folders
from popgraph.cli.report import note
from popgraph.support.errors import ErrorGroup, PopgraphError
from popgraph.support.writing import write_text

STDIN = Path("-")


def command(
    files: Annotated[
        list[Path], typer.Argument(help=".pgraph files; - for the standard input.", metavar="FILES")
    ],
    check: Annotated[
        bool, typer.Option("--check", help="Do not write; exit with 1 if a file would change.")
    ] = False,
    diff: Annotated[bool, typer.Option("--diff", help="Do not write; print the changes.")] = False,
    folders: Folders = None,
) -> None:
    """
    Format .pgraph texts in the standard layout. Comments are kept.

    \b
    popgraph fmt net.pgraph
    popgraph fmt --check *.pgraph
    popgraph fmt - < net.pgraph

    A file with errors is not changed; its errors are reported.
    """
    from popgraph.builder.pgraph.print.formatter import format_text
    from popgraph.builder.pgraph.syntax.text_files import read_text

    changed = 0
    refused: list[PopgraphError] = []
    for path in files:
        try:
            before = sys.stdin.read() if path == STDIN else read_text(path)
            after = format_text(before, "<stdin>" if path == STDIN else str(path))
        except PopgraphError as error:
            refused.append(error)
            continue
        changed += before != after
        if diff:
            sys.stdout.writelines(_difference(path, before, after))
        elif path == STDIN and not check:
            sys.stdout.write(after)
        elif before != after:
            if not check:
                write_text(path, after)
            note(f"{path}: {'would change' if check else 'changed'}")
    if refused:
        raise ErrorGroup(refused)
    if (check or diff) and changed:
        raise typer.Exit(1)


def _difference(path: Path, before: str, after: str) -> list[str]:
    old, new = before.splitlines(keepends=True), after.splitlines(keepends=True)
    return list(unified_diff(old, new, f"{path} (before)", f"{path} (after)"))
