"""The architecture of the tests: named after what they test, and using its public names only."""

from __future__ import annotations

import pytest

from popgraph.passes.pipeline import PASSES
from tests.test_architecture import PACKAGE, ROOMS

TESTS = PACKAGE.parent / "tests"
ACROSS_PASSES = {
    "cases": "the claims of all passes",
    "depth": "no pass recurses over the depth of a graph",
    "fuzz": "random networks through every pass",
    "memory_bound": "what all passes together leave to plan",
    "old_broadcasting": "versions of operators through the whole import",
    "onnx_gradients": "import and autodiff together",
    "training": "the graph passes in order",
}
"""Tests in tests/passes that belong to no single pass or module, each with what it is about."""


def named_in(folder: str) -> list[str]:
    """What the test files of a folder are named after: `test_cse.py` after cse."""
    paths = sorted((TESTS / folder).glob("test_*.py"))
    assert paths
    return [path.stem.removeprefix("test_") for path in paths]


def test_folders_of_cases_are_passes() -> None:
    folders = {path.name for path in (TESTS / "passes/cases").iterdir()}
    assert folders <= set(PASSES), "cases are kept in folders named after passes"


def test_tests_of_passes_are_named_after_passes_or_their_modules() -> None:
    passes = {name.replace("-", "_") for name in PASSES}
    modules = {path.stem for path in (PACKAGE / "passes").rglob("*.py")}
    strange = set(named_in("passes")) - passes - modules - set(ACROSS_PASSES)
    assert not strange, "name them after a pass or a module of popgraph/passes"
    assert set(ACROSS_PASSES) <= set(named_in("passes"))


@pytest.mark.parametrize("folder", ["builder", "dialects"])
def test_tests_of_rooms_are_named_after_rooms(folder: str) -> None:
    more = {"builder": (), "dialects": ("op_contract", "random")}[folder]
    known = (*ROOMS[folder], *more)
    strange = [name for name in named_in(folder) if not name.startswith(known)]
    assert not strange, f"names begin with one of {', '.join(sorted(known))}"
