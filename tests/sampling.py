"""
Shares of long sweeps: a run takes today's, `make test-all` takes all of them.

The cases of a test that costs more than DAILY seconds take turns by the day. One that is marked
`daily(60)` is worth so many seconds, and all cases of one that is `daily()` run. What tests cost
stands in costs.json, which `make test-costs` writes anew.
"""

from __future__ import annotations

import json
import os
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import date
from math import ceil, inf
from pathlib import Path
from typing import TypeAlias, TypeVar

import pytest
from hypothesis import settings

T = TypeVar("T")

PROFILE = os.environ.get("POPGRAPH_PROFILE", "check")
"""`check` takes shares, `all` everything, `fuzz` everything and draws many more examples."""
WHOLE = PROFILE in ("all", "fuzz")
DAY = int(os.environ.setdefault("POPGRAPH_DAY", str(date.today().toordinal())))
"""Shares take turns by the day. Processes of one run have the same one, at midnight, too."""

Sweep: TypeAlias = tuple[tuple[str, ...], int]
"""The names of the cases that are taken, and how many there are."""
TAKEN: dict[str, Sweep] = {}
"""What this process takes of the sweeps that it has met, for the report."""
COUNTED: defaultdict[str, Counter[bool]] = defaultdict(Counter)
"""How many of what tests make on their way had a turn in this process, and how many had none."""
COSTS = "tests/costs.json"
"""Where it stands, below the root of the project."""
DAILY = 2.0
"""Seconds that the cases of one test may take together in a run."""
MOST_NAMED = 40
"""Longer shares are counted only."""


def share(
    name: str,
    cases: Sequence[T],
    of: int,
    named: Callable[[T], str] = str,
    kind: Callable[[T], Hashable] = type,
) -> Sequence[T]:
    """Today's one of so many shares, which are alike where neighbours are; some of each kind."""
    kinds: defaultdict[Hashable, list[int]] = defaultdict(list)
    for at, case in enumerate(cases):
        kinds[kind(case)].append(at)
    numbers = [
        at
        for alike in kinds.values()
        for number, at in enumerate(alike)
        if is_turn(number, min(of, len(alike)))
    ]
    taken = [cases[at] for at in sorted(numbers)]
    TAKEN[name] = tuple(map(named, taken)), len(cases)
    return taken


def examples(count: int, slow: int = 1) -> int:
    """
    How many a property draws that is worth so many: all of them, or a quarter a day.

    `fuzz` draws as many as of any other; of one that is so many times as slow, as many less.
    """
    return max(count, settings.default.max_examples // slow) if WHOLE else ceil(count / 4)


def is_turn(number: int, of: int) -> bool:
    """
    Whether it is the turn of this one of many today; the first has it on days 0, `of`, ...

    Of so many in a row one has it, each time the next: where each tenth is of one type, and a tenth
    is taken, all types are.
    """
    return WHOLE or (number - number // of - DAY) % of == 0


def has_turn(name: str, number: int, of: int) -> bool:
    """Whether what has this number is looked at today; under this name, it is counted."""
    COUNTED[name][is_turn(number, of)] += 1
    return is_turn(number, of)


def is_asked_for(config: pytest.Config) -> bool:
    """Whether somebody names tests, who is to get them on every day."""
    return bool(config.option.keyword) or any("::" in argument for argument in config.args)


def costs(root: Path) -> dict[str, float]:
    """The seconds of all cases of each test that takes long."""
    path = root / COSTS
    return json.loads(path.read_text()) if path.exists() else {}


def left_out(items: Iterable[pytest.Item], seconds: Mapping[str, float]) -> list[pytest.Item]:
    """The cases of costly tests whose turn is another day."""
    sweeps: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        name = function_of(item.nodeid)
        if seconds.get(name, 0) > worth(item):
            sweeps[name].append(item)
    found: list[pytest.Item] = []
    for name, cases in sweeps.items():
        parts = min(len(cases), ceil(seconds[name] / worth(cases[0])))
        taken = set(share(name, cases, parts, named=label))
        found += [item for item in cases if item not in taken]
    return found


def worth(item: pytest.Item) -> float:
    """The seconds that the cases of a test may take in a run."""
    marker = item.get_closest_marker("daily")
    return DAILY if marker is None else marker.args[0] if marker.args else inf


def function_of(nodeid: str) -> str:
    """The test that a case belongs to."""
    return nodeid.split("[")[0]


def measured(reports: Iterable[pytest.TestReport], taken: Mapping[str, Sweep]) -> dict[str, float]:
    """What all cases of each costly test would have taken, of which some have run."""
    seconds: defaultdict[str, float] = defaultdict(float)
    cases: defaultdict[str, set[str]] = defaultdict(set)
    for report in reports:
        name = function_of(report.nodeid)
        seconds[name] += report.duration
        cases[name].add(report.nodeid)
    for name, (some, total) in taken.items():
        if some and name in seconds:
            seconds[name] *= total / len(some)
    many = {name for name in seconds if name in taken or len(cases[name]) > 1}
    return {name: round(seconds[name], 1) for name in sorted(many) if seconds[name] > DAILY}


def label(item: pytest.Item) -> str:
    """What is in the brackets of its name."""
    return item.name.partition("[")[2].removesuffix("]")


def lines(taken: Mapping[str, Sweep], counted: Mapping[str, Counter[bool]]) -> Iterator[str]:
    """What a run says of its shares."""
    short = {name: sweep for name, sweep in taken.items() if len(sweep[0]) < sweep[1]}
    passed = {name: counts for name, counts in counted.items() if counts[False]}
    if short or passed:
        yield f"today's shares (POPGRAPH_DAY={DAY} repeats them, `make test-all` runs all):"
    for name, (cases, total) in sorted(short.items()):
        yield f"  {name}: {len(cases)} of {total}, {total - len(cases)} left out"
        listed = "; ".join(cases) if len(cases) <= MOST_NAMED else ""
        yield from textwrap.wrap(listed, 100, initial_indent="    ", subsequent_indent="    ")
    for name, counts in sorted(passed.items()):
        yield f"  {name}: {counts[True]} of {counts.total()}, {counts[False]} left out"
