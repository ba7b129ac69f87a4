"""The steps of a model of which Python computes some nodes, watched as they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from popgraph.compiler import BuildRequest
from popgraph.hosted import HostedModel
from popgraph.hosted.part import Values, taken
from popgraph.passes.onnx.partition import HostStep, Segment, Step
from popgraph.support.arrays import Array


@dataclass(frozen=True)
class RanSegment:
    """A segment that has run: the request for its program, and what that took."""

    step: Segment
    request: BuildRequest
    inputs: Mapping[str, Array]


@dataclass(frozen=True)
class RanNode:
    """A node that Python has computed, and can compute again."""

    step: HostStep
    again: Callable[[], None]
    values: Values
    """All that is known then."""


def run_steps(
    request: BuildRequest, model: HostedModel, inputs: Mapping[str, Any]
) -> list[RanSegment | RanNode]:
    """The steps that run for these inputs, in order; `model` is what the request becomes."""
    found: list[RanSegment | RanNode] = []

    def watch(step: Step, values: Values) -> None:
        if isinstance(step, HostStep):
            known = dict(values)
            found.append(RanNode(step, partial(model.again, step, known), known))
            return
        piece = segment_request(request, model, step)
        called, rest = piece.for_call(taken(step, values))
        found.append(RanSegment(step, called, rest))

    model.run(inputs, watch=watch)
    return found


def segment_request(request: BuildRequest, model: HostedModel, step: Segment) -> BuildRequest:
    """The request for a segment, of which a copy may be lowered."""
    return request.piece(step.module.clone(), model.role(step))
