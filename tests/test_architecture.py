"""Do imports point down, and does every room keep to its own?"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "popgraph"
ALLOWED = {
    "support": set(),
    "dialects": {"support"},
    "builder": {"support", "dialects"},
    "passes": {"support", "dialects"},
    "backends": {"support", "dialects"},
    "runner": {"support", "dialects", "backends"},
    "compiler": {"support", "dialects", "builder", "passes", "backends", "runner"},
    "start": {"support", "dialects", "passes", "backends", "runner"},
    "testing": {"support", "dialects", "builder", "passes", "backends", "compiler"},
    "universe": {"support", "dialects", "passes", "backends"},
    "session": {"support", "dialects", "builder", "passes", "backends", "compiler"},
    "compat": {"support", "dialects", "builder", "compiler", "session"},
    "cli": {
        "support", "dialects", "builder", "passes", "backends", "compiler", "session", "testing",
    },
}  # fmt: skip
"""Who may import whom: a room may import itself and these."""

LEVELS = ("onnx", "graphcore", "tile")
ONLY = {
    "onnx": (
        "dialects/onnx/",
        "builder/onnx_",
        "backends/reference/onnx_level.py",
        "testing/onnx_",
    ),
    "lark": ("builder/dsl/",),
    "hypothesis": ("testing/",),
}  # fmt: skip
"""Third-party packages that only some files may import."""
ORACLES = {"torch", "onnxruntime", "openvino", "tensorflow", "sklearn", "mlxtend"}

FILES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imports(path: Path) -> Iterator[tuple[str, int]]:
    """Every imported module, absolute, with its line; from-imports name the package too."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{name_of(path)}:{node.lineno}: relative import"
            yield node.module or "", node.lineno
            for alias in node.names:
                yield f"{node.module}.{alias.name}", node.lineno


def room(module: str) -> str | None:
    """`popgraph.passes.graphcore.cse` is in room `passes`."""
    parts = module.split(".")
    return parts[1] if parts[0] == "popgraph" and len(parts) > 1 and parts[1] in ALLOWED else None


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_point_down(path: Path) -> None:
    own = room("popgraph." + name_of(path).removesuffix(".py").replace("/", "."))
    if own is None:  # popgraph/__init__.py names everything, lazily
        return
    for module, line in imports(path):
        other = room(module)
        assert other in {None, own} | ALLOWED[own], (
            f"{name_of(path)}:{line}: {own} may not import {other}"
        )


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_levels_do_not_know_each_other(path: Path) -> None:
    name = name_of(path)
    for level in LEVELS:
        if not name.startswith(f"dialects/{level}/"):
            continue
        for module, line in imports(path):
            for other in LEVELS:
                foreign = other != level and module.startswith(f"popgraph.dialects.{other}")
                assert not foreign, f"{name}:{line}: dialect {level} may not import {other}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_third_party_packages_stay_in_their_rooms(path: Path) -> None:
    name = name_of(path)
    for module, line in imports(path):
        package = module.split(".")[0]
        assert package not in ORACLES, f"{name}:{line}: {package} is for tests only"
        if package in ONLY:
            assert name.startswith(ONLY[package]), f"{name}:{line}: may not import {package}"


def test_support_knows_no_ir() -> None:
    """What runs a program that was compiled before stands on it, and starts without xDSL."""
    found = [
        f"{name_of(path)}:{line}"
        for path in FILES
        if name_of(path).startswith("support/")
        for module, line in imports(path)
        if module.split(".")[0] == "xdsl"
    ]
    assert not found


def test_only_the_peers_of_a_benchmark_are_imported_by_name() -> None:
    """`popgraph bench --against` imports what a user asks for; nothing else may."""
    wanted = re.compile(rf'import_module\("({"|".join(sorted(ORACLES))})')
    assert {name_of(path) for path in FILES if wanted.search(path.read_text())} == {"cli/peers.py"}


def test_no_import_inside_functions_except_where_laziness_is_the_point() -> None:
    lazy = ("__init__.py", "cli/", "universe.py", "dialects/registry.py", "compat/")
    found = []
    for path in FILES:
        if name_of(path).endswith("__init__.py") or name_of(path).startswith(lazy):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                found += [
                    f"{name_of(path)}:{inner.lineno}"
                    for inner in ast.walk(node)
                    if isinstance(inner, ast.Import | ast.ImportFrom)
                ]
    assert not found, f"imports inside functions: {found}"


def test_every_module_says_which_question_it_answers() -> None:
    silent = [name_of(path) for path in FILES if not ast.get_docstring(ast.parse(path.read_text()))]
    assert not silent, f"no docstring: {silent}"


def test_no_room_for_leftovers() -> None:
    forbidden = {"utils", "util", "common", "helpers", "helper", "misc"}
    found = [name_of(path) for path in FILES if forbidden & set(path.with_suffix("").parts)]
    assert not found
