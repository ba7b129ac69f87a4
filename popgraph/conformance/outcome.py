"""The outcome of a case: passed, wrong, refused, failed or skipped, with the reason."""

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
from popgraph.conformance.cases import Bounds, Case
from popgraph.conformance.groups import OTHER, group_of
from popgraph.support.errors import PopgraphError


class Status(StrEnum):
    """The possible outcomes of a case."""

    PASSED = "passed"
    WRONG = "wrong"
    """Values, types or shapes differ from ONNX's."""
    FAILED = "failed"
    """An exception other than `PopgraphError`, a crash, or a timeout."""
    REFUSED = "refused"
    """A `PopgraphError` that names an unsupported feature."""
    SKIPPED = "skipped"


class Computed(StrEnum):
    """The share of C programs and of Python in computing a model."""

    C = "C"
    MIXED = "C and host"
    """C programs run between nodes that Python computes."""
    HOST = "host only"
    """Python computes all nodes; no C program runs."""

    @classmethod
    def of(cls, by: ComputedBy) -> Computed:
        if not by.in_c:
            return cls.HOST
        return cls.MIXED if by.in_python else cls.C


BROKEN = (Status.WRONG, Status.FAILED)
"""Outcomes that no test may have."""

LONGEST = 300
"""Most characters of a reason."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case."""

    name: str
    kind: str
    group: str
    status: Status
    reason: str = ""
    seconds: float = 0.0
    suites: tuple[str, ...] = ("",)
    """All suites that contain the case."""
    computed: Computed | None = None
    """C, Python or both, if a C backend completed the case."""
    in_python: tuple[str, ...] = ()
    """The operators that Python computed."""

    @classmethod
    def of(cls, case: Case, status: Status, reason: str = "", seconds: float = 0.0) -> Outcome:
        text = " ".join(reason.split())[:LONGEST]
        return cls(case.name, case.kind, _group(case), status, text, round(seconds, 3), case.suites)

    def computed_by(self, by: ComputedBy) -> Outcome:
        """Adds where the case was computed."""
        return replace(
            self,
            computed=Computed.of(by),
            in_python=tuple(sorted(by.in_python)),
        )

    @property
    def general_reason(self) -> str:
        """
        The reason without quoted names, brackets and counts, so that similar ones group together.
        """
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
    """Runs a case in this process; every exception becomes an outcome."""
    began = time.monotonic()
    by: ComputedBy | None = None
    try:
        skipped = case.why_skipped()
        if skipped:
            return Outcome.of(case, Status.SKIPPED, skipped)
        prepared = backend.prepare(case.model)
        found = next(wrong_outputs(case, prepared), "")
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


def wrong_outputs(case: Case, prepared: BackendRep) -> Iterator[str]:
    """Yields a description of the wrong outputs of each data set."""
    for inputs, wanted in case.data_sets():
        bounds = case.bounds or (case.found.atol,) * len(wanted)
        difference = differences(wanted, prepared.run(inputs), case.found.rtol, bounds)
        if difference:
            yield difference


def differences(
    wanted: Sequence[Any], found: Sequence[Any], rtol: float, bounds: Bounds | float
) -> str:
    """
    The first difference by ONNX's own comparison, plus missing values; empty if there is none.
    """
    if len(wanted) != len(found):
        return f"{len(found)} values, not {len(wanted)}"
    atols = bounds if isinstance(bounds, tuple) else (bounds,) * len(wanted)
    if len(wanted) != len(atols):
        return f"{len(wanted)} values, but {len(atols)} bounds"
    for one, other, atol in zip(wanted, found, atols, strict=True):
        difference = _difference(one, other, rtol, atol)
        if difference:
            return difference
    return ""


def _difference(wanted: Any, found: Any, rtol: float, atol: float | None) -> str:
    if wanted is None or found is None:
        return "" if wanted is found else f"{found!r}, not {wanted!r}"
    if isinstance(wanted, list):
        is_list = isinstance(found, list | tuple)
        alike = (atol,) * len(wanted)
        return differences(wanted, found, rtol, alike) if is_list else "no sequence"
    if atol is None:
        types = [f"{each.dtype} of shape {list(each.shape)}" for each in (found, wanted)]
        return "" if types[0] == types[1] else f"{types[0]}, not {types[1]}"
    try:
        Runner.assert_similar_outputs([wanted], [found], rtol, atol)
    except AssertionError as error:
        return str(error)
    return ""
