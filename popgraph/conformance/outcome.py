"""The outcome of one case: passed, wrong, refused, failed or skipped, with the reason."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from onnx.backend.base import Backend
from onnx.backend.test.runner import Runner

from popgraph.conformance.cases import Case
from popgraph.conformance.groups import OTHER, group_of
from popgraph.support.errors import PopgraphError


class Status(StrEnum):
    """How a case ends."""

    PASSED = "passed"
    WRONG = "wrong"
    """Other numbers, types or shapes than ONNX expects."""
    FAILED = "failed"
    """An exception that is no `PopgraphError`, a crash of the process, or too long a wait."""
    REFUSED = "refused"
    """A `PopgraphError` that says what is not supported."""
    SKIPPED = "skipped"


BROKEN = (Status.WRONG, Status.FAILED)
"""What no test may be."""

LONGEST = 300
"""Characters of a reason."""


@dataclass(frozen=True)
class Outcome:
    """What became of a case."""

    name: str
    kind: str
    group: str
    status: Status
    reason: str = ""
    seconds: float = 0.0
    suites: tuple[str, ...] = ("",)
    """All that have the case."""

    @classmethod
    def of(cls, case: Case, status: Status, reason: str = "", seconds: float = 0.0) -> Outcome:
        text = " ".join(reason.split())[:LONGEST]
        return cls(case.name, case.kind, _group(case), status, text, round(seconds, 3), case.suites)

    @property
    def general_reason(self) -> str:
        """The same for many tests: without what is between quotes or brackets."""
        text = re.sub(r"'[^']*'", "...", self.reason.split(", but ")[0])
        text = re.sub(r"\[[^]]*\]", "", text)
        return re.sub(r"\d+ of \d+|\d+ / \d+ \([\d.e-]+%\)", "...", text)[:80]


def _group(case: Case) -> str:
    if not case.is_here:
        return "downloads"
    try:
        return group_of(case.model)
    except Exception:  # a file that holds no model
        return OTHER


def outcome(case: Case, backend: type[Backend]) -> Outcome:
    """Runs a case in this process; every exception is one of the outcomes."""
    began = time.monotonic()
    try:
        skipped = case.why_skipped()
        if skipped:
            return Outcome.of(case, Status.SKIPPED, skipped)
        found = next(wrong_in(case, backend), "")
        status, reason = Status.WRONG if found else Status.PASSED, found
    except PopgraphError as error:
        status, reason = Status.REFUSED, error.what
    except Exception as error:  # whatever it is: the next case is to run
        status, reason = Status.FAILED, f"{type(error).__name__}: {error}"
    return Outcome.of(case, status, reason, time.monotonic() - began)


def wrong_in(case: Case, backend: type[Backend]) -> Iterator[str]:
    """What is wrong with the outputs of each data set; the model is prepared once."""
    prepared = backend.prepare(case.model)
    for inputs, wanted in case.data_sets():
        difference = differences(wanted, prepared.run(inputs), case.found.rtol, case.found.atol)
        if difference:
            yield difference


def differences(wanted: Sequence[Any], found: Sequence[Any], rtol: float, atol: float) -> str:
    """What ONNX's own comparison says, or nothing; it takes no note of missing elements."""
    if len(wanted) != len(found):
        return f"{len(found)} values, not {len(wanted)}"
    for one, other in zip(wanted, found, strict=True):
        difference = _difference(one, other, rtol, atol)
        if difference:
            return difference
    return ""


def _difference(wanted: Any, found: Any, rtol: float, atol: float) -> str:
    if wanted is None or found is None:
        return "" if wanted is found else f"{found!r}, not {wanted!r}"
    if isinstance(wanted, list):
        is_list = isinstance(found, list | tuple)
        return differences(wanted, found, rtol, atol) if is_list else "no sequence"
    try:
        Runner.assert_similar_outputs([wanted], [found], rtol, atol)
    except AssertionError as error:
        return str(error)
    return ""
