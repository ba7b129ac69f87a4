"""The source of a program: its script, and the modules of its own that it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path


def texts_of(roots: Sequence[Path], folders: Sequence[Path]) -> Iterator[str]:
    """
    The texts of the files, then of all modules they import, nearest first.

    Modules are searched in their own folders, in `folders`, and in constant folders that they add
    to `sys.path`.
    """
    waiting, seen = [one for one in roots if one.is_file()], set[Path]()
    where = list(dict.fromkeys([*(one.parent for one in waiting), *folders]))
    while waiting:
        path = waiting.pop(0)
        if (known := path.resolve()) in seen or path.suffix != ".py":
            continue
        seen.add(known)
        text = path.read_bytes().decode(errors="replace")
        yield text
        try:
            program = ast.parse(text)
        except (SyntaxError, ValueError):
            continue
        where += [one for one in _added_folders(program) if one not in where]
        for level, module in _imported(program):
            waiting += _files(module, [path.parents[level - 1]] if level else where)


def roots_of_tests(path: Path, top: Path) -> list[Path]:
    """A test file, and the conftest.py files from its folder up to `top`."""
    above = [one for one in path.resolve().parents if one.is_relative_to(top)]
    return [path, *(one / "conftest.py" for one in above)]


def _imported(program: ast.Module) -> Iterator[tuple[int, str]]:
    """(level, dotted name) of all imports; names may be modules or their members."""
    for node in ast.walk(program):
        match node:
            case ast.Import(names=names):
                yield from ((0, one.name) for one in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                start = f"{module}." if module else ""
                yield from ((level, f"{start}{one.name}") for one in names)


def _added_folders(program: ast.Module) -> Iterator[Path]:
    """Constant folders in calls such as `sys.path.insert(0, "folder")`."""
    for node in ast.walk(program):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("sys.path."):
            for one in node.args:
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    yield Path(one.value)


def _files(module: str, folders: Iterable[Path]) -> list[Path]:
    """The files of a module and its packages, in the first folder that has some."""
    parts = module.split(".")
    for folder in folders:
        found = [
            file
            for count in range(1, len(parts) + 1)
            for base in [folder.joinpath(*parts[:count])]
            for file in (base.with_suffix(".py"), base / "__init__.py")
            if file.is_file()
        ]
        if found:
            return found
    return []
