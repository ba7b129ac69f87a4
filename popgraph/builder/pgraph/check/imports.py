"""Resolves imports: the search path, file access, and circular imports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from popgraph.builder.pgraph.check.file_context import FileContext
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.text_files import read_text
from popgraph.builder.pgraph.syntax.tree import Import
from popgraph.support.errors import ParseError
from popgraph.support.files import state_or_absent
from popgraph.support.reading import Outside, Unreadable, path_inside, reading

PATH = "POPGRAPH_PATH"
"""Environment variable with folders to search, separated as in PATH."""


def folders(given: Iterable[str | Path]) -> tuple[Path, ...]:
    """The folders of the caller, then the folders in the environment."""
    named = filter(None, os.environ.get(PATH, "").split(os.pathsep))
    return tuple(map(Path, [*given, *named]))


def found(context: FileContext, item: Import) -> Path:
    """The file of an import: next to the importing file, or in a folder of the search path."""
    paths = (context.folder, *context.search)
    for folder in paths:
        path = folder / item.file.value
        with _readable(context, item):
            path_inside(folder, item.file.value)
            is_there, state = path.is_file(), state_or_absent(path)
        # Records the path as named, since a link may change, and also paths without a file yet.
        context.store.files.setdefault(path.absolute(), state)
        if is_there:
            return path
    context.source.parse_error(
        item.file.span,
        f"there is no file {item.file.value!r}",
        f"looked in {', '.join(dict.fromkeys(map(str, paths)))}; `-I FOLDER` or {PATH} add others",
    )
    raise Failed


@contextmanager
def _readable(context: FileContext, item: Import) -> Iterator[None]:
    """Converts errors for file names that cannot be imported."""
    try:
        with reading():
            yield
    except Outside as error:
        context.source.parse_error(
            item.file.span,
            f"{item.file.value!r} is not below the folder of this text",
            f"`-I FOLDER` or the environment's {PATH} name other folders to look in",
        )
        raise Failed from error
    except Unreadable as error:
        context.source.parse_error(item.file.span, f"{item.file.value!r} cannot be read: {error}")
        raise Failed from error


def text_of_file(context: FileContext, item: Import, path: Path) -> str:
    """The text of an imported file."""
    try:
        return read_text(path)
    except ParseError as error:
        context.source.note(item.file.span, error)
        raise Failed from error


def check_cycle(context: FileContext, item: Import, path: Path) -> None:
    """Fails on a circular import."""
    if path.resolve() not in context.reading:
        return
    way = [*context.reading[context.reading.index(path.resolve()) :], path.resolve()]
    context.source.parse_error(
        item.file.span,
        f"circular import: {' -> '.join(one.name for one in way)}",
        "move the common definitions to a third file",
    )
    raise Failed
