"""Stage notes: the pipeline stage that computes an operation or its gradient."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Operation

from popgraph.passes.analysis.notes import GRADIENT, noted, notes

_FORWARD, _BACK = "stage", "gradients-of-stage"


@dataclass(frozen=True)
class Staged:
    """The stage note of an operation."""

    stage: int
    is_gradient: bool
    """Whether the operation computes gradients of the stage's operations."""


def note_stage(op: Operation, stage: int) -> None:
    """Notes the stage of an operation; operations that replace it inherit the note."""
    op.location = noted(op.location, [f"{_FORWARD} {stage}"])


def staged(location: LocationAttr) -> Staged | None:
    """The stage note in a location; None without one."""
    for text in notes(location):
        kind, _, number = text.partition(" ")
        if kind in (_FORWARD, _BACK):
            return Staged(int(number), kind == _BACK)
    return None


def of_gradients(location: LocationAttr) -> LocationAttr:
    """The location for gradients of an operation with this location."""
    found = staged(location)
    stage = [] if found is None else [f"{_BACK} {found.stage}"]
    return noted(location, [*stage, GRADIENT])
