"""The report of a run: counts by group and by reason, every case that did not pass, and JSON."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from popgraph.conformance.groups import GROUPS
from popgraph.conformance.outcome import Outcome, Status


def counts(found: Sequence[Outcome]) -> dict[str, Counter[Status]]:
    """How many of each group ended how; the last row is of all."""
    groups = {group: Counter[Status]() for group in GROUPS}
    for each in found:
        groups.setdefault(each.group, Counter())[each.status] += len(each.suites)
    rows = {group: row for group, row in groups.items() if row}
    return rows | {"all": sum(rows.values(), Counter[Status]())}


def counts_of_suites(found: Sequence[Outcome]) -> dict[str, Counter[Status]]:
    """How many of each suite ended how."""
    suites: dict[str, Counter[Status]] = {}
    for each in found:
        for suite in each.suites:
            suites.setdefault(suite, Counter())[each.status] += 1
    return {suite: suites[suite] for suite in sorted(suites, key=_natural)}


def _natural(name: str) -> list[tuple[int, str]]:
    """Numbers in it count as such: 1.10 follows 1.9."""
    return [(int(part or 0), text) for text, part in re.findall(r"(\D*)(\d*)", name)]


def group_rows(found: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """The table by group; a test of several suites counts for each."""
    return _table("group", counts(found))


def suite_rows(found: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """The table by suite."""
    return _table("suite", counts_of_suites(found))


def _table(heading: str, counted: dict[str, Counter[Status]]) -> list[tuple[str, ...]]:
    rows = [
        (name, str(row.total()), *(str(row[status]) for status in Status))
        for name, row in counted.items()
    ]
    return [(heading, "tests", *Status), *rows]


def reason_rows(found: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """The table by reason, of all that did not pass, the most frequent first."""
    reasons: Counter[tuple[Status, str]] = Counter()
    for each in found:
        if each.status != Status.PASSED:
            reasons[each.status, each.general_reason] += len(each.suites)
    rows = [(str(count), status, reason) for (status, reason), count in reasons.most_common()]
    return [("tests", "status", "reason"), *rows]


def failing_rows(found: Sequence[Outcome], *, suites: bool = False) -> list[tuple[str, ...]]:
    """Every case that did not pass, after its `suites` if there may be several."""
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
    """What JSON says, by backend."""
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
