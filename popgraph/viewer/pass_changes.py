"""The passes of a lowering: what each of them changed, as text differences."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from xdsl.dialects.builtin import ModuleOp

from popgraph import compiler
from popgraph.dialects.levels import ONNX
from popgraph.dialects.program import WeightStore
from popgraph.measure.recorded_steps import RanNode, RanSegment
from popgraph.passes.base import Pass
from popgraph.passes.changes import difference, elided
from popgraph.passes.observer import Observer
from popgraph.passes.options import Options
from popgraph.passes.pipeline import planned

MOST_LINES = 4000
"""Most lines per difference, to keep pages small; `popgraph print --diff` shows all."""
LONGEST_TEXT = 40_000
"""Most lines of a text to be compared."""


@dataclass
class Passes(Observer):
    """The change of each pass, in order."""

    options: Options = field(default_factory=Options)
    rows: list[dict[str, Any]] = field(default_factory=list)
    _text: str | None = None

    @contextmanager
    def watching(self, step: Pass, module: ModuleOp, weights: WeightStore) -> Iterator[None]:
        before = self._text if self._text is not None else elided(str(module))
        with super().watching(step, module, weights):
            yield
        self._text = elided(str(module))
        self.rows.append({"name": step.name, **_changes(before, self._text, step.name)})

    def described(self, first: str) -> list[dict[str, Any]]:
        """Adds the levels and the reason of each pass; the first pass starts at level `first`."""
        steps = [step for step, _ in planned(self.options, first)]
        return [
            row | {"level": step.level, "to": step.result, "reason": step.why}
            for row, step in zip(self.rows, steps, strict=True)
        ]


def passes_of(request: compiler.BuildRequest) -> list[dict[str, Any]]:
    """The changes of each pass; lowers the request's module."""
    observer = Passes(options=request.options)
    compiler.lower(request.module, request.compilation, request.options, observer=observer)
    return observer.described(ONNX)


def passes_of_steps(steps: Iterable[RanSegment | RanNode]) -> list[dict[str, Any]]:
    """The changes of each pass in each compiled step, with the step's number."""
    return [
        row | {"step": number}
        for number, ran in enumerate(steps, 1)
        if isinstance(ran, RanSegment)
        for row in passes_of(ran.request)
    ]


def _changes(before: str, after: str, name: str) -> dict[str, Any]:
    sizes = [before.count("\n"), after.count("\n")]
    found = {"changed": before != after, "lines": sizes, "diff": "", "left_out": 0}
    if before == after:
        return found
    if max(sizes) > LONGEST_TEXT:
        return found | {"left_out": max(sizes)}
    lines = difference(before, after, name).split("\n")
    return found | {
        "diff": "\n".join(lines[:MOST_LINES]),
        "left_out": max(0, len(lines) - MOST_LINES),
    }
