"""The report of a run: counts by group and by reason, every case that did not pass, and JSON."""

from __future__ import annotations

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
        groups.setdefault(each.group, Counter())[each.status] += 1
    rows = {group: row for group, row in groups.items() if row}
    return rows | {"all": Counter(each.status for each in found)}


def group_rows(found: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """The table by group."""
    heading = ("group", "tests", *Status)
    rows = [
        (group, str(row.total()), *(str(row[status]) for status in Status))
        for group, row in counts(found).items()
    ]
    return [heading, *rows]


def reason_rows(found: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """The table by reason, of all that did not pass, the most frequent first."""
    reasons = Counter(
        (each.status, each.general_reason) for each in found if each.status != Status.PASSED
    )
    rows = [(str(count), status, reason) for (status, reason), count in reasons.most_common()]
    return [("tests", "status", "reason"), *rows]


def failing_rows(found: Sequence[Outcome]) -> list[tuple[str, ...]]:
    """Every case that did not pass."""
    return [
        (each.name, each.group, each.status, each.reason)
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
