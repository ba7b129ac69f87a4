"""Tests the architecture of the tests: their names, their use of public names, and samples."""

from __future__ import annotations

import ast
import functools
import json
import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from popgraph.passes.pipeline import PASSES
from tests import sampling
from tests.conftest import BUDGET, budget_line
from tests.passes.case_text import WITH_CASES
from tests.test_architecture import PACKAGE, ROOMS

TESTS = PACKAGE.parent / "tests"
ACROSS_PASSES = {
    "cases": "the claims of all passes",
    "control_flow": "branches and loops from import to results",
    "control_versions": "the versions of branches and loops from import to results",
    "depth": "no pass recurses over the depth of a graph",
    "differentiate": "second derivatives of all operations",
    "fuzz": "random networks through every pass",
    "machine": "facts of processors, and decisions of passes for each",
    "memory_bound": "the memory that all passes together leave to plan",
    "old_broadcasting": "versions of operators through the whole import",
    "onnx_gradients": "import and autodiff together",
    "training": "the graph passes in order",
}
"""Tests in tests/passes that belong to no single pass or module, with their subjects."""

PLANTED = "patched to plant a bug that tests must find"
DECIDED = "constructs schedules that the cost model would never choose"
PRIVATE = {
    "_Planner": PLANTED,
    "_apply": DECIDED,
    "_compute_x_ori": "of onnx: source positions of its reference, which rounds some wrongly",
    "_customTransformApplierSettings": "of PopART: the name by which its programs set transforms",
    "_exit": "os._exit: ends a forked child without the exit handlers of its parent",
    "_fake_quantize_learnable_per_tensor_affine": "of PyTorch: defines straight-through gradients",
    "_run": "of onnx: computes an operator in its reference; tests override it",
    "_ranks": "of a trainer: several ranks without processes that run them",
    "_runs": "marks a run that did not happen, to model the cycles of an IPU",
    "_key": "a wrong cache key is not visible from outside",
    "_layouts": DECIDED,
    "_may_read_on": PLANTED,
    "_others": "of replicas: copies of a program share weights, but not accumulators",
    "_prepared": "whether a training is pipelined, which changes no result",
    "_program": "the program of a session, which PopART's API does not expose",
    "_splits": "the threshold of splitting small images, which is not an option",
    "_save": PLANTED,
    "_twins": "of replicas, as `_others`",
    "_serializeIr": "of PopART: the name by which its programs read the IR",
}
"""Private names that tests use, each with the reason. The list may only become shorter."""


def named_in(folder: str) -> list[str]:
    """The subjects of a folder's test files: cse for `test_cse.py`."""
    paths = sorted((TESTS / folder).glob("test_*.py"))
    assert paths
    return [path.stem.removeprefix("test_") for path in paths]


def test_folders_of_cases_are_passes() -> None:
    folders = {path.name for path in (TESTS / "passes/cases").iterdir()}
    assert folders <= set(WITH_CASES), "cases are kept in folders named after passes"


def test_tests_of_passes_are_named_after_passes_or_their_modules() -> None:
    passes = {name.replace("-", "_") for name in PASSES}
    rooms = (PACKAGE / "passes", PACKAGE / "operators")
    modules = {path.stem for room in rooms for path in room.rglob("*.py")}
    strange = set(named_in("passes")) - passes - modules - set(ACROSS_PASSES)
    assert not strange, (
        "name them after a pass or a module of popgraph/passes or popgraph/operators"
    )
    assert set(ACROSS_PASSES) <= set(named_in("passes"))


@pytest.mark.parametrize("folder", ["builder", "dialects"])
def test_tests_of_rooms_are_named_after_their_parts(folder: str) -> None:
    more = {"builder": (), "dialects": ("op_contract", "random")}[folder]
    known = (*ROOMS[folder], *more)
    strange = [name for name in named_in(folder) if not name.startswith(known)]
    assert not strange, f"names begin with one of {', '.join(sorted(known))}"


@functools.cache
def private_names() -> frozenset[str]:
    """The private names that the package defines."""
    texts = [path.read_text() for path in PACKAGE.rglob("*.py")]
    defined = r"^ *(?:def |class )?(_[A-Za-z]\w*)(?:\(|:| =)"
    return frozenset(name for text in texts for name in re.findall(defined, text, re.MULTILINE))


def is_private(name: str) -> bool:
    """Whether a name is private: `_key` is, the protocols `__name__` and `_repr_html_` are not."""
    return name.startswith("_") and not name.endswith("_")


def used(node: ast.AST) -> Iterator[str]:
    """The names of other modules or objects that a node uses, including patched ones in strings."""
    if isinstance(node, ast.ImportFrom):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.Attribute) and getattr(node.value, "id", "") not in ("self", "cls"):
        yield node.attr
    for text in patched(node):
        yield from private_names() & set(text.split("."))


def patched(node: ast.AST) -> Iterator[str]:
    """The strings by which a call, or a table of calls, may name the attribute that it patches."""
    rows = [node.args] if isinstance(node, ast.Call) else []
    if isinstance(node, ast.Dict):
        rows = [value.elts for value in node.values if isinstance(value, ast.Tuple)]
    for each in (each for row in rows for each in row if isinstance(each, ast.Constant)):
        if isinstance(each.value, str):
            yield each.value


def private_uses(path: Path) -> set[str]:
    """The private names of other modules that a file uses."""
    names = {name for node in ast.walk(ast.parse(path.read_text())) for name in used(node)}
    return set(filter(is_private, names))


def test_tests_use_public_names() -> None:
    found = {
        name: path.relative_to(TESTS).as_posix()
        for path in sorted(TESTS.rglob("*.py"))
        for name in private_uses(path)
    }
    more = {name: path for name, path in found.items() if name not in PRIVATE}
    assert not more, "test public names, or make names public that others need"
    assert set(PRIVATE) <= set(found), "a name that is not used any more leaves PRIVATE"


@pytest.mark.parametrize(
    "text",
    [
        "from popgraph.support.writing import _sync_folder",
        "trust._warned.clear()",
        'monkeypatch.setattr(trust, "_warned", set())',
        'monkeypatch.setattr("popgraph.support.trust._warned", set())',
        'MUTANTS = {"all are warned": (trust, "_warned", {})}',
    ],
)
def test_private_names_are_found(text: str, tmp_path: Path) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(text)
    assert private_uses(path) in ({"_warned"}, {"_sync_folder"})
    path.write_text("self._warned = other.__dict__, built._repr_html_()")
    assert not private_uses(path)


OF_THE_HOST = {
    "backends/test_c_export_targets.py": "chooses what this machine can run; skips say so",
    "backends/test_c_targets.py": "chooses what this machine can run; skips say so",
    "backends/test_c_toolchain.py": "the host's target is what is tested",
    "cli/test_bench.py": "the peak of this machine is what is tested",
    "cli/test_schedules.py": "compares two answers about this machine",
    "passes/test_machine.py": "recognition of this machine is what is tested",
    "test_portable.py": "chooses what this machine can run; skips say so",
    "test_extend.py": "the machine is named by the environment",
    "test_suite.py": "this list",
}
"""Tests that query the machine, and the reason why their expectations do not depend on it."""


def test_expectations_do_not_depend_on_the_machine() -> None:
    """Tests set the target where it matters: `POPGRAPH_TARGET`, `POPGRAPH_MACHINE`."""
    asking = re.compile(r"\bhost_target\b|\bhost_machine\b|/proc/cpuinfo|platform\.machine\(")
    found = {
        path.relative_to(TESTS).as_posix()
        for path in TESTS.rglob("test_*.py")
        if asking.search(path.read_text())
    }
    assert found == OF_THE_HOST.keys()


def test_the_budget_of_the_suite_is_printed(pytestconfig: pytest.Config) -> None:
    assert pytestconfig.getoption("durations") == 10
    assert budget_line(100, whole=False) == "time: 1 min 40 s of the suite's 15 min"
    warning = "warning: the tests took 15 min 1 s, more than"
    assert budget_line(BUDGET + 1, whole=False).startswith(warning)
    assert budget_line(BUDGET + 1, whole=True) == "time: 15 min 1 s for everything"


def test_a_sample_is_the_same_every_day(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "TAKEN", {})
    monkeypatch.setattr(sampling, "WHOLE", False)
    monkeypatch.setattr(sampling, "DAY", None)
    assert sampling.share("sweep", range(8), 3) == [0, 4]
    assert sampling.summary(sampling.TAKEN, {}, {"sweep": 80.0}) == (
        "sample: `make test-all` adds 6 cases, about 1 min on one core"
    )
    monkeypatch.setattr(sampling, "WHOLE", True)
    assert sampling.share("sweep", range(8), 3) == list(range(8))
    assert not sampling.summary(sampling.TAKEN, {}, {})


@pytest.mark.parametrize("of", range(1, 6))
def test_consecutive_days_run_all_cases(of: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "TAKEN", {})
    monkeypatch.setattr(sampling, "WHOLE", False)
    monkeypatch.setattr(sampling, "DAY", None)
    sample, seen = set(sampling.share("sweep", range(20), of)), set[int]()
    for day in range(7, 7 + sampling.DAYS * max(of - 1, 1)):
        monkeypatch.setattr(sampling, "DAY", day)
        taken = set(sampling.share("sweep", range(20), of))
        assert sample <= taken
        seen |= taken
    assert seen == set(range(20))


def test_sampled_objects_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "COUNTED", defaultdict(Counter))
    monkeypatch.setattr(sampling, "WHOLE", False)
    monkeypatch.setattr(sampling, "DAY", None)
    seen = [number for number in range(9) if sampling.is_sampled("things", number, 3)]
    assert seen == [0, 4, 8]
    assert "adds 6 cases" in sampling.summary({}, sampling.COUNTED, {})


def report(nodeid: str, seconds: float) -> Any:
    return SimpleNamespace(nodeid=nodeid, duration=seconds)


def test_costs_are_estimated_for_all_cases() -> None:
    long, short = sampling.BUDGET, sampling.BUDGET / 10
    reports = [
        report("t.py::test_many[0]", long),
        report("t.py::test_many[1]", long / 2),
        report("t.py::test_many[1]", long / 2),
        report("t.py::test_few[0]", short),
        report("t.py::test_few[1]", short),
        report("t.py::test_alone", long * 2),
        report("t.py::test_long", sampling.ALONE * 2),
        report("t.py::test_shared[3]", long),
    ]
    found = sampling.measured(reports, {"t.py::test_shared": (1, 4)})
    assert found == {
        "t.py::test_long": 2 * sampling.ALONE,
        "t.py::test_many": 2 * long,
        "t.py::test_shared": 4 * long,
    }


def test_costs_name_existing_tests() -> None:
    """`make test-costs` updates the costs."""
    for name in sampling.costs(TESTS.parent):
        path, _, function = name.partition("::")
        assert f"def {function}(" in (TESTS.parent / path).read_text(), name


SWEEP = """
import pytest

@pytest.mark.parametrize("case", range(7))
def test_case(case):
    assert case >= 0

@pytest.mark.budget
@pytest.mark.parametrize("case", range(7))
def test_whole(case):
    assert case >= 0
"""


@pytest.mark.parametrize(
    ("profile", "day", "workers", "chosen", "passed"),
    [
        ("check", "", "1", "", "9 passed"),
        ("check", "8", "1", "", "10 passed"),
        ("all", "8", "0", "", "14 passed"),
        ("check", "", "0", "::test_case[0]", "1 passed"),
    ],
)
@pytest.mark.budget
def test_costly_tests_are_sampled(
    profile: str, day: str, workers: str, chosen: str, passed: str, tmp_path: Path
) -> None:
    """Samples work with pytest-xdist, and a test that is named runs all cases."""
    (tmp_path / "conftest.py").write_text((TESTS / "conftest.py").read_text())
    (tmp_path / "test_sweep.py").write_text(SWEEP)
    (tmp_path / "tests").mkdir()
    costs = {f"test_sweep.py::{name}": 3 * sampling.BUDGET for name in ("test_case", "test_whole")}
    (tmp_path / sampling.COSTS).write_text(json.dumps(costs))
    (tmp_path / "pytest.ini").write_text(f"[pytest]\npythonpath = {TESTS.parent}\n")
    command = ["-m", "pytest", "-n", workers, f"test_sweep.py{chosen}"]
    environment = os.environ | {"POPGRAPH_PROFILE": profile, "POPGRAPH_DAY": day}
    ran = subprocess.run(
        [sys.executable, *command], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert passed in ran.stdout, ran.stdout + ran.stderr
    left = {"9 passed": "adds 5 cases", "10 passed": "adds 4 cases"}
    assert left.get(passed, "") in ran.stdout
    assert ("`make test-all` adds" in ran.stdout) == (passed in left)
