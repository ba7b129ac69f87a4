"""A log with a line of JSON for each outcome, from which a later run continues."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, TypeAlias

from popgraph.conformance.cases import Case
from popgraph.conformance.outcome import Computed, Outcome, Status
from popgraph.support.errors import ModelError
from popgraph.support.writing import append_to

Key: TypeAlias = tuple[str, ...]
"""Kind, name and suites of a test."""


class Log:
    """The outcomes of a backend in a file, which may contain those of others."""

    def __init__(self, file: Path, backend: str) -> None:
        self._file, self._backend = file, backend
        self._known = dict(_read(file, backend)) if file.exists() else {}

    def outcomes(self, cases: Iterable[Case]) -> list[Outcome]:
        """The outcomes of the tests that have run."""
        keys = map(_key, cases)
        return [self._known[key] for key in keys if key in self._known]

    def left(self, cases: Iterable[Case]) -> list[Case]:
        """The tests that have not run."""
        return [case for case in cases if _key(case) not in self._known]

    def added(self, ran: Iterable[Outcome]) -> Iterator[Outcome]:
        """Appends each outcome to the file as it arrives."""
        for each in ran:
            row = {"backend": self._backend, **asdict(each)}
            append_to(self._file, json.dumps(row).encode() + b"\n")
            yield each


def _key(test: Case | Outcome) -> Key:
    return test.kind, test.name, *test.suites


def _read(file: Path, backend: str) -> Iterator[tuple[Key, Outcome]]:
    for number, line in enumerate(file.read_bytes().splitlines(), 1):
        try:
            row = json.loads(line)
            by, found = row.pop("backend"), _outcome(row)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ModelError(
                "not an outcome of a test",
                f"{file}, line {number}",
                "name a new file, or one that a run of this command wrote",
            ) from None
        if by == backend:
            yield _key(found), found


def _outcome(row: dict[str, Any]) -> Outcome:
    """The outcome of a line; JSON has lists for tuples and words for members of enumerations."""
    lists: dict[str, Any] = {name: tuple(row.pop(name)) for name in ("suites", "in_python")}
    computed, status = row.pop("computed"), Status(row.pop("status"))
    return Outcome(
        **row, **lists, status=status, computed=None if computed is None else Computed(computed)
    )
