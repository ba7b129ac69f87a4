"""The outcome of one case: passed, wrong, refused, failed or skipped, with the reason."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from onnx.backend.base import Backend, BackendRep
from onnx.backend.test.runner import Runner

from popgraph.backend import CBackend, PreparedModel
from popgraph.backends.base import ComputedBy
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


class Computed(StrEnum):
    """What computes a model."""

    C = "C"
    MIXED = "C and host"
    """Programs in C run between nodes that Python computes."""
    HOST = "host only"
    """No program in C runs: Python computes all nodes."""

    @classmethod
    def of(cls, by: ComputedBy) -> Computed:
        if not by.in_c:
            return cls.HOST
        return cls.MIXED if by.in_python else cls.C


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
    computed: Computed | None = None
    """What has computed it, where a backend in C ran it to its end."""
    in_python: tuple[str, ...] = ()
    """The operators that Python has computed."""

    @classmethod
    def of(cls, case: Case, status: Status, reason: str = "", seconds: float = 0.0) -> Outcome:
        text = " ".join(reason.split())[:LONGEST]
        return cls(case.name, case.kind, _group(case), status, text, round(seconds, 3), case.suites)

    def computed_by(self, by: ComputedBy) -> Outcome:
        """The same, with what has computed the case."""
        return replace(
            self,
            computed=Computed.of(by),
            in_python=tuple(sorted(by.in_python)),
        )

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
    by: ComputedBy | None = None
    try:
        skipped = case.why_skipped()
        if skipped:
            return Outcome.of(case, Status.SKIPPED, skipped)
        prepared = backend.prepare(case.model)
        found = next(wrong_in(case, prepared), "")
        if isinstance(prepared, PreparedModel) and _is_in_c(backend):
            by = prepared.computed_by
        status, reason = Status.WRONG if found else Status.PASSED, found
    except PopgraphError as error:
        status, reason = Status.REFUSED, error.what
    except Exception as error:  # whatever it is: the next case is to run
        status, reason = Status.FAILED, f"{type(error).__name__}: {error}"
    made = Outcome.of(case, status, reason, time.monotonic() - began)
    return made if by is None else made.computed_by(by)


def _is_in_c(backend: type[Backend]) -> bool:
    return issubclass(backend, CBackend) and backend.NAME == CBackend.NAME


def wrong_in(case: Case, prepared: BackendRep) -> Iterator[str]:
    """What is wrong with the outputs of each data set."""
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
