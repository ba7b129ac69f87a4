"""Configuration of all tests: Hypothesis, caches, `--bless`, and the time budget of the suite."""

from __future__ import annotations

import os
import tempfile
import time

import pytest
from hypothesis import HealthCheck, settings
from xdsl.ir import Block, Operation, Region, SSAValue

BUDGET = 15 * 60
"""Seconds that the whole suite may take: who waits longer tests less often."""
_STARTED = time.monotonic()

# Hypothesis would walk the whole IR graph to print one object, and never come back.
for kind in (Operation, Block, Region, SSAValue):
    kind._repr_pretty_ = lambda self, printer, cycle: printer.text(str(self))  # type: ignore[attr-defined]

_QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large]
settings.register_profile(
    "check", max_examples=20, deadline=None, suppress_health_check=_QUIET, derandomize=True
)
settings.register_profile("fuzz", max_examples=2000, deadline=None, suppress_health_check=_QUIET)
settings.load_profile(os.environ.get("POPGRAPH_PROFILE", "check"))

# Kernels compiled by one test run are found again by the next, and never in the user's cache.
os.environ.setdefault(
    "POPGRAPH_CACHE_DIR", os.path.join(tempfile.gettempdir(), "popgraph-test-cache")
)

# Tests that change a pass must see it run, and what it makes must not be found by others.
os.environ.setdefault("POPGRAPH_PROGRAM_CACHE", "0")


# What no kernel has written is NaN, in every program that a test runs.
os.environ.setdefault("POPGRAPH_POISON", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="rewrite the expected IR of pass cases")


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says what the tests took of their budget, below the slowest of them."""
    seconds = time.monotonic() - _STARTED
    terminalreporter.write_line(budget_line(seconds), yellow=seconds > BUDGET)


def budget_line(seconds: float) -> str:
    """The time that tests took beside the budget of the suite."""
    took = "{} min {} s".format(*divmod(round(seconds), 60))
    if seconds <= BUDGET:
        return f"time: {took} of the suite's {BUDGET // 60} min"
    return (
        f"warning: the tests took {took}, more than the suite's {BUDGET // 60} min: "
        "make the slowest of them faster"
    )
