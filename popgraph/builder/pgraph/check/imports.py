"""Resolves imports: the search path, file access, and circular imports."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from popgraph.builder.pgraph.check.file_context import Setting
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.text_files import read_text
from popgraph.builder.pgraph.syntax.tree import Import
from popgraph.support.errors import ParseError
from popgraph.support.files import seen
from popgraph.support.reading import Outside, Unreadable, beside, reading

PATH = "POPGRAPH_PATH"
"""The environment variable with folders to look in, separated as in PATH."""


def folders(given: Iterable[str | Path]) -> tuple[Path, ...]:
    """The folders of the caller, then those of the environment."""
    named = filter(None, os.environ.get(PATH, "").split(os.pathsep))
    return tuple(map(Path, [*given, *named]))


def found(setting: Setting, item: Import) -> Path:
    """The file of an import: beside the importing one, or in a folder of the search path."""
    places = (setting.folder, *setting.search)
    for folder in places:
        path = folder / item.file.value
        with _readable(setting, item):
            beside(folder, item.file.value)
            is_there, state = path.is_file(), seen(path)
        # As it is named, since a link may lead elsewhere one day; also where there is none yet.
        setting.store.files.setdefault(path.absolute(), state)
        if is_there:
            return path
    setting.source.parse_error(
        item.file.span,
        f"there is no file {item.file.value!r}",
        f"looked in {', '.join(dict.fromkeys(map(str, places)))}; `-I FOLDER` or {PATH} add others",
    )
    raise Failed


@contextmanager
def _readable(setting: Setting, item: Import) -> Iterator[None]:
    """Fails where a name cannot be that of a file to import."""
    try:
        with reading():
            yield
    except Outside as error:
        setting.source.parse_error(
            item.file.span,
            f"{item.file.value!r} does not stand below the folder of this text",
            f"`-I FOLDER` or the environment's {PATH} name other folders to look in",
        )
        raise Failed from error
    except Unreadable as error:
        setting.source.parse_error(item.file.span, f"{item.file.value!r} cannot be read: {error}")
        raise Failed from error


def text_of_file(setting: Setting, item: Import, path: Path) -> str:
    """What stands in an imported file."""
    try:
        return read_text(path)
    except ParseError as error:
        setting.source.note(item.file.span, error)
        raise Failed from error


def check_circle(setting: Setting, item: Import, path: Path) -> None:
    """Fails if a file is about to be read because of itself."""
    if path.resolve() not in setting.reading:
        return
    way = [*setting.reading[setting.reading.index(path.resolve()) :], path.resolve()]
    setting.source.parse_error(
        item.file.span,
        f"this goes round in a circle: {' -> '.join(one.name for one in way)}",
        "what both files need goes into a third",
    )
    raise Failed
