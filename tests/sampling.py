"""
Samples long sweeps: a run takes the same sample every day, `make test-all` takes all cases.

If the cases of a test cost more than BUDGET seconds together, a run takes as many evenly spaced
ones as fit. A single test that costs more than ALONE does not run. `POPGRAPH_DAY=<number>` adds
these and that day's share, so that consecutive days run all cases.
`pytest.mark.budget(60)` sets another budget, and all cases of a test with `budget()` run. The
seconds of each test are in costs.json, which `make test-costs` measures.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from math import ceil, inf
from pathlib import Path
from typing import TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")

PROFILE = os.environ.get("POPGRAPH_PROFILE", "check")
"""`check` takes samples, `all` everything, `fuzz` everything and draws many more examples."""
WHOLE = PROFILE in ("all", "fuzz")
DAY = int(os.environ["POPGRAPH_DAY"]) if os.environ.get("POPGRAPH_DAY") else None
"""The day whose share is added to the sample, if any."""

TAKEN: dict[str, tuple[int, int]] = {}
"""Sampled and total cases of each sweep of this process."""
COUNTED: defaultdict[str, Counter[bool]] = defaultdict(Counter)
"""Objects that tests build, by name: how many were sampled and how many were not."""
COSTS = "tests/costs.json"
"""Path below the root of the project."""
BUDGET = 1.0
"""Seconds that the cases of one test may take together in a run."""
ALONE = 5.0
"""Seconds that a single test may take in the sample. Longer ones run on one day in DAYS, in CI."""
DAYS = 4
"""Days over which the rest of a sweep is distributed. CI took 20 min with 2, and 16 with 4."""


def share(
    name: str, cases: Sequence[T], of: int, kind: Callable[[T], Hashable] = type
) -> Sequence[T]:
    """Every `of`-th case, evenly spaced within each kind."""
    kinds: defaultdict[Hashable, list[int]] = defaultdict(list)
    for at, case in enumerate(cases):
        kinds[kind(case)].append(at)
    numbers = [
        at
        for alike in kinds.values()
        for number, at in enumerate(alike)
        if is_taken(number, min(of, len(alike)))
    ]
    TAKEN[name] = len(numbers), len(cases)
    return [cases[at] for at in sorted(numbers)]


def examples(count: int, slow: int = 1) -> int:
    """
    Number of examples of a property: `count`, or a quarter of it in the sample.

    `fuzz` draws its usual number, divided by `slow` for a property that is slower than others.
    """
    return max(count, settings.default.max_examples // slow) if WHOLE else ceil(count / 4)


def is_taken(number: int, of: int) -> bool:
    """
    Whether a run takes case `number` of a sweep that is sampled 1 in `of`.

    The sample takes the first case of the first row of `of` cases, the second of the second row,
    and so on: if every tenth case has one type and a tenth is taken, all types are taken. Other
    cases are taken on other days.
    """
    column = (number - number // of) % of
    return (
        WHOLE or column == 0 or (DAY is not None and of > 1 and _is_of_day(DAY, column, number, of))
    )


def _is_of_day(day: int, column: int, number: int, of: int) -> bool:
    """Each row has one day in DAYS, so that CI adds a quarter of the rest a day."""
    return (number // of - day) % DAYS == 0 and column == 1 + day // DAYS % (of - 1)


def is_sampled(name: str, number: int, of: int) -> bool:
    """Whether a run takes object `number`; counts it under a name."""
    COUNTED[name][is_taken(number, of)] += 1
    return is_taken(number, of)


def is_asked_for(config: pytest.Config) -> bool:
    """Whether tests are named on the command line, so that all their cases run."""
    return bool(config.option.keyword) or any("::" in argument for argument in config.args)


def costs(root: Path) -> dict[str, float]:
    """Seconds that all cases of each costly test take."""
    path = root / COSTS
    return json.loads(path.read_text()) if path.exists() else {}


def left_out(items: Iterable[pytest.Item], seconds: Mapping[str, float]) -> list[pytest.Item]:
    """The cases of costly tests that this run leaves out."""
    sweeps: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        name = function_of(item.nodeid)
        if seconds.get(name, 0) > worth(item):
            sweeps[name].append(item)
    found: list[pytest.Item] = []
    singles = 0
    for name, cases in sweeps.items():
        if len(cases) == 1:
            singles += 1
            is_others = DAY is None or (singles - DAY) % DAYS != 0
            is_long = is_others and seconds[name] > max(worth(cases[0]), ALONE)
            TAKEN[name] = int(not is_long), 1
            found += cases if is_long else []
            continue
        parts = min(len(cases), ceil(seconds[name] / worth(cases[0])))
        taken = set(share(name, cases, parts))
        found += [item for item in cases if item not in taken]
    return found


def worth(item: pytest.Item) -> float:
    """The seconds that the cases of a test may take in a run."""
    marker = item.get_closest_marker("budget")
    return BUDGET if marker is None else marker.args[0] if marker.args else inf


def function_of(nodeid: str) -> str:
    """The node id without parameters."""
    return nodeid.split("[")[0]


def measured(
    reports: Iterable[pytest.TestReport], taken: Mapping[str, tuple[int, int]]
) -> dict[str, float]:
    """Estimated seconds of all cases of each costly test, from the cases that ran."""
    seconds: defaultdict[str, float] = defaultdict(float)
    cases: defaultdict[str, set[str]] = defaultdict(set)
    for report in reports:
        name = function_of(report.nodeid)
        seconds[name] += report.duration
        cases[name].add(report.nodeid)
    for name, (some, total) in taken.items():
        if some and name in seconds:
            seconds[name] *= total / some
    many = {name for name in seconds if name in taken or len(cases[name]) > 1}
    return {
        name: round(spent, 1)
        for name, spent in sorted(seconds.items())
        if spent > (BUDGET if name in many else ALONE)
    }


def summary(
    taken: Mapping[str, tuple[int, int]],
    counted: Mapping[str, Counter[bool]],
    seconds: Mapping[str, float],
) -> str:
    """A line on the cases that `make test-all` adds to this run, or an empty text."""
    missing = {name: total - some for name, (some, total) in taken.items() if some < total}
    more = sum(missing.values()) + sum(counts[False] for counts in counted.values())
    if not more:
        return ""
    spared = sum(seconds.get(name, 0.0) * left / taken[name][1] for name, left in missing.items())
    run = "sample" if DAY is None else f"sample and the share of POPGRAPH_DAY={DAY}"
    return f"{run}: `make test-all` adds {more} cases, about {ceil(spared / 60)} min on one core"
