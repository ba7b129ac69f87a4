"""Configuration of all tests: Hypothesis, caches, `--bless`, samples of sweeps, the time budget."""

from __future__ import annotations

import gc
import json
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from xdsl.ir import Block, Operation, Region, SSAValue

from popgraph.backends.reference import onnx_level
from tests import sampling

BUDGET = 15 * 60
"""Seconds that the whole suite may take; a longer suite is run less often."""
_STARTED = time.monotonic()

# Hypothesis would walk the whole IR graph to print one object, and hang.
for kind in (Operation, Block, Region, SSAValue):
    kind._repr_pretty_ = lambda self, printer, cycle: printer.text(str(self))  # type: ignore[attr-defined]

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
for name, examples in (("check", 10), ("all", 20)):
    settings.register_profile(
        name, max_examples=examples, deadline=None, suppress_health_check=_QUIET, derandomize=True
    )
settings.register_profile("fuzz", max_examples=2000, deadline=None, suppress_health_check=_QUIET)
settings.load_profile(sampling.PROFILE)

# Kernels are cached across test runs, apart from the user's cache.
os.environ.setdefault(
    "POPGRAPH_CACHE_DIR", os.path.join(tempfile.gettempdir(), "popgraph-test-cache")
)

# Cached programs would hide a changed pass, and its output must not enter the cache.
os.environ.setdefault("POPGRAPH_PROGRAM_CACHE", "0")


# Hundreds of processes that tests start would each compile the modules of the package again.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


# Tests run tuned programs unless they ask for quick ones, also with portable determinism.
os.environ.setdefault("POPGRAPH_QUICK", "0")


# Uninitialized memory is NaN in every program that a test runs.
os.environ.setdefault("POPGRAPH_POISON", "1")


def _by_onnx(*arguments: Any) -> Any:
    from tests.onnx_reference import run_onnx

    return run_onnx(*arguments)


@pytest.fixture(autouse=True, scope="session")
def levels_are_compared_with_onnx() -> Iterator[None]:
    """The onnx level is executed by `onnx.reference`, not by the lowering under test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnx_level, "run_onnx", _by_onnx)
        yield


@pytest.fixture(autouse=True)
def cores_are_released() -> Iterator[None]:
    """`bench`, `profile` and `tune` pin their process; later tests would share one core."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    yield
    if os.sched_getaffinity(0) != before:
        os.sched_setaffinity(0, before)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite the expected IR of pass cases")
    parser.addoption("--costs", action="store_true", help=f"rewrite {sampling.COSTS}")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers", "budget(seconds): what its cases may take together in a run; all run without"
    )


def pytest_collection(session: pytest.Session) -> None:
    """Pauses garbage collection during imports, which create no garbage."""
    gc.disable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Keeps a sample of the cases of costly tests, unless tests are named."""
    if sampling.WHOLE or sampling.is_asked_for(config):
        return
    waiting = set(sampling.left_out(items, sampling.costs(config.rootpath)))
    if waiting:
        items[:] = [item for item in items if item not in waiting]
        config.hook.pytest_deselected(items=list(waiting))


def pytest_collection_finish() -> None:
    """
    Freezes imported objects, and collects garbage less often.

    Garbage collection took a tenth of the time of tests.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


@pytest.fixture
def program_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The test's program cache, which stores programs even right after an edit of the package."""
    cache, folder = "popgraph.backends.c.cache", tmp_path / "cache"
    monkeypatch.setenv("POPGRAPH_CACHE_DIR", str(folder))
    monkeypatch.setenv("POPGRAPH_PROGRAM_CACHE", "1")
    monkeypatch.setattr("popgraph.support.files.SETTLED", -1.0)
    monkeypatch.setattr(f"{cache}.install_fingerprint.states", lambda: "the same")
    monkeypatch.setattr(f"{cache}.program_key.sources", lambda: "the same")
    return folder


def pytest_sessionfinish(session: pytest.Session) -> None:
    """A worker of pytest-xdist reports its sampled cases."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["shares"] = sampling.TAKEN
        session.config.workeroutput["counts"] = {
            name: [counts[True], counts[False]] for name, counts in sampling.COUNTED.items()
        }


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Adds the sampled cases of a finished worker."""
    output = getattr(node, "workeroutput", {})
    sampling.TAKEN.update(output.get("shares", {}))
    for name, (looked_at, passed) in output.get("counts", {}).items():
        sampling.COUNTED[name].update({True: looked_at, False: passed})


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Prints the number of cases left out, and the time of the run."""
    if terminalreporter.config.getoption("--costs"):
        rewrite_costs(terminalreporter)
    costs = sampling.costs(terminalreporter.config.rootpath)
    if line := sampling.summary(sampling.TAKEN, sampling.COUNTED, costs):
        terminalreporter.write_line(line)
    seconds = time.monotonic() - _STARTED
    late = seconds > BUDGET and not sampling.WHOLE
    terminalreporter.write_line(budget_line(seconds), yellow=late)


def rewrite_costs(reporter: pytest.TerminalReporter) -> None:
    """Updates the costs of the tests that ran, and keeps all others."""
    reports = [one for many in reporter.stats.values() for one in many if hasattr(one, "duration")]
    ran = {sampling.function_of(report.nodeid) for report in reports}
    path = reporter.config.rootpath / sampling.COSTS
    kept = {name: cost for name, cost in sampling.costs(path.parents[1]).items() if name not in ran}
    found = kept | sampling.measured(reports, sampling.TAKEN)
    path.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n")


def budget_line(seconds: float, whole: bool = sampling.WHOLE) -> str:
    """The time of the run and the budget of the suite; the whole suite has no budget."""
    took = "{} min {} s".format(*divmod(round(seconds), 60))
    if whole:
        return f"time: {took} for everything"
    if seconds <= BUDGET:
        return f"time: {took} of the suite's {BUDGET // 60} min"
    return (
        f"warning: the tests took {took}, more than the suite's {BUDGET // 60} min: "
        "make the slowest of them faster"
    )
