"""The report of a run: counts by group and reason, every case that did not pass, and JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any, TypeAlias

from popgraph.conformance.groups import GROUPS
from popgraph.conformance.outcome import Computed, Outcome, Status

Counts: TypeAlias = Counter[Status | Computed]
"""Number of tests by outcome, and of passed tests by where they were computed."""


def _counted(each: Outcome, times: int = 1) -> Counts:
    row: Counts = Counter({each.status: times})
    if each.status == Status.PASSED and each.computed is not None:
        row[each.computed] += times
    return row


def counts(found: Sequence[Outcome]) -> dict[str, Counts]:
    """Counts of each group, with the total in the last row."""
    groups: dict[str, Counts] = {group: Counter() for group in GROUPS}
    for each in found:
        groups.setdefault(each.group, Counter()).update(_counted(each, len(each.suites)))
    rows = {group: row for group, row in groups.items() if row}
    return rows | {"all": sum(rows.values(), Counter[Status | Computed]())}


def counts_of_suites(found: Sequence[Outcome]) -> dict[str, Counts]:
    """Counts of each suite."""
    suites: dict[str, Counts] = {}
    for each in found:
        for suite in each.suites:
            suites.setdefault(suite, Counter()).update(_counted(each))
    return {suite: suites[suite] for suite in sorted(suites, key=_natural)}


def _natural(name: str) -> list[tuple[int, str]]:
    """Sort key in which 1.10 follows 1.9."""
    return [(int(part or 0), text) for text, part in re.findall(r"(\D*)(\d*)", name)]


def group_rows(found: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """The table by group; a test of several suites counts for each."""
    return _table("group", counts(found))


def suite_rows(found: Sequence[Outcome]) -> list[tuple[str, ...]]:
    return _table("suite", counts_of_suites(found))


def _table(heading: str, counted: dict[str, Counts]) -> list[tuple[str, ...]]:
    """The rows of a table; with C programs, passed tests are split by where they were computed."""
    in_c = any(row[by] for row in counted.values() for by in Computed)
    passed, *others = Status
    columns = [passed, *(Computed if in_c else ()), *others]
    rows = [
        (name, str(sum(row[status] for status in Status)), *(str(row[one]) for one in columns))
        for name, row in counted.items()
    ]
    return [(heading, "tests", *columns), *rows]


def host_lines(found: Sequence[Outcome]) -> list[str]:
    """Explains the columns of a table with a split of passed tests."""
    passed = [each for each in found if each.status == Status.PASSED and each.computed]
    if not passed:
        return []
    return [
        f"passed = {' + '.join(Computed)}: what computed the model when it ran. A host step is a",
        "node that Python computes; in a test that is host only no program in C runs.",
        "The package's own NumPy functions compute host steps.",
    ]


def reason_rows(found: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """The table of reasons of all tests that did not pass, most frequent first."""
    reasons: Counter[tuple[Status, str]] = Counter()
    for each in found:
        if each.status != Status.PASSED:
            reasons[each.status, each.general_reason] += len(each.suites)
    rows = [(str(count), status, reason) for (status, reason), count in reasons.most_common()]
    return [("tests", "status", "reason"), *rows]


def failing_rows(found: Sequence[Outcome], *, suites: bool = False) -> list[tuple[str, ...]]:
    """Every case that did not pass, preceded by its `suites` if there may be several."""
    return [
        (
            *([" ".join(each.suites)] if suites else []),
            each.name,
            each.group,
            each.status,
            each.reason,
        )
        for each in sorted(found, key=lambda each: (each.group, each.name))
        if each.status != Status.PASSED
    ]


def described(found: dict[str, list[Outcome]]) -> dict[str, Any]:
    """The JSON report, by backend."""
    return {
        "onnx": version("onnx"),
        "popgraph": version("popgraph"),
        "backends": {
            backend: {
                "counts": counts(outcomes),
                "tests": [asdict(each) for each in sorted(outcomes, key=lambda each: each.name)],
            }
            for backend, outcomes in found.items()
        },
    }
