"""Records the steps of a model with host steps while they run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from popgraph.compiler import BuildRequest
from popgraph.hosted import HostedModel
from popgraph.hosted.part import Values, input_arrays
from popgraph.passes.onnx.partition import HostStep, Segment, Step
from popgraph.support.arrays import Array


@dataclass(frozen=True)
class RanSegment:
    """A segment that has run: its build request and its inputs."""

    step: Segment
    request: BuildRequest
    inputs: Mapping[str, Array]


@dataclass(frozen=True)
class RanNode:
    """A host step that has run, and can run again."""

    step: HostStep
    again: Callable[[], None]
    values: Values
    """All values known at that time."""


def run_steps(
    request: BuildRequest, model: HostedModel, inputs: Mapping[str, Any]
) -> list[RanSegment | RanNode]:
    """The steps that run for these inputs, in order; `model` is the request's hosted form."""
    found: list[RanSegment | RanNode] = []

    def listen(step: Step, values: Values) -> None:
        if isinstance(step, HostStep):
            known = dict(values)
            found.append(RanNode(step, partial(model.recompute, step, known), known))
            return
        piece = segment_request(request, model, step)
        called, rest = piece.for_call(input_arrays(step, values))
        found.append(RanSegment(step, called, rest))

    model.run(inputs, listener=listen)
    return found


def segment_request(request: BuildRequest, model: HostedModel, step: Segment) -> BuildRequest:
    """The build request of a segment; its module is a copy, which may be lowered."""
    return request.for_part(step.module.clone(), model.role(step))
