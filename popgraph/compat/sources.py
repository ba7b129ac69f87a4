"""The text of a program: a script, and the modules of its own that it imports."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path


def texts_of(roots: Sequence[Path], folders: Sequence[Path]) -> Iterator[str]:
    """
    The files, then all that they import from their own folders, from `folders` and from those that
    they add to `sys.path` by a constant; the nearest first.
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
    """A file of tests, and the files of fixtures (conftest.py) from its folder up to `top`."""
    above = [one for one in path.resolve().parents if one.is_relative_to(top)]
    return [path, *(one / "conftest.py" for one in above)]


def _imported(program: ast.Module) -> Iterator[tuple[int, str]]:
    """Dotted names of what may be modules, and from how many folders above they are counted."""
    for node in ast.walk(program):
        match node:
            case ast.Import(names=names):
                yield from ((0, one.name) for one in names)
            case ast.ImportFrom(module=module, names=names, level=level):
                start = f"{module}." if module else ""
                yield from ((level, f"{start}{one.name}") for one in names)


def _added_folders(program: ast.Module) -> Iterator[Path]:
    """What `sys.path.insert(0, "folder")` and its like name."""
    for node in ast.walk(program):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("sys.path."):
            for one in node.args:
                if isinstance(one, ast.Constant) and isinstance(one.value, str):
                    yield Path(one.value)


def _files(module: str, folders: Iterable[Path]) -> list[Path]:
    """The files of a module and of the packages around it, in the first folder that has one."""
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
