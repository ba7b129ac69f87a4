"""Notes of stages: on which stage of a pipeline an operation, or its gradient, is computed."""

from __future__ import annotations

from dataclasses import dataclass

from xdsl.dialects.builtin import LocationAttr
from xdsl.ir import Operation

from popgraph.passes.analysis.notes import GRADIENT, noted, notes

_FORWARD, _BACK = "stage", "gradients-of-stage"


@dataclass(frozen=True)
class Staged:
    """What is noted on an operation."""

    stage: int
    is_gradient: bool
    """Whether it computes gradients of what the stage computes."""


def put_on_stage(op: Operation, stage: int) -> None:
    """Notes the stage of an operation; what passes make of it has the same note."""
    op.location = noted(op.location, [f"{_FORWARD} {stage}"])


def staged(location: LocationAttr) -> Staged | None:
    """What is noted in a location, if anything is."""
    for text in notes(location):
        kind, _, number = text.partition(" ")
        if kind in (_FORWARD, _BACK):
            return Staged(int(number), kind == _BACK)
    return None


def of_gradients(location: LocationAttr) -> LocationAttr:
    """The location of what computes gradients of an operation."""
    found = staged(location)
    stage = [] if found is None else [f"{_BACK} {found.stage}"]
    return noted(location, [*stage, GRADIENT])
