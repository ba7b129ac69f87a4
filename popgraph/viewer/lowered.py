"""The way down of one program: its graphs, kernels, calls and memory, and what was measured."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from xdsl.ir import Operation

from popgraph import compiler
from popgraph.backends.registry import backend_named
from popgraph.backends.tools import Traced
from popgraph.measure.profile_report import Call, itself
from popgraph.measure.profile_rows import Described
from popgraph.measure.timing import random_model_inputs
from popgraph.support.arrays import Array
from popgraph.viewer.flame import Measured
from popgraph.viewer.kernels import called, calls, kernels
from popgraph.viewer.memory import memory
from popgraph.viewer.recording import Recording

Rows = list[dict[str, Any]]


@dataclass
class Lowered:
    """What a page shows of a program, or of several that follow each other."""

    graphs: dict[str, Rows] = field(default_factory=dict)
    types: dict[int, list[str]] = field(default_factory=dict)
    """Those of the results of each node of the model."""
    kernels: Rows = field(default_factory=list)
    calls: Rows = field(default_factory=list)
    memories: Rows = field(default_factory=list)
    """That of each program."""
    steps: Rows = field(default_factory=list)
    """Of a model of which Python computes some nodes: what is computed by which program."""
    measured: list[Measured] = field(default_factory=list)
    total: float = 0.0
    """Microseconds of a step as a whole, if it was measured."""


def lowered(
    request: compiler.BuildRequest, rounds: int, inputs: Mapping[str, Array] | None = None
) -> Lowered:
    """The way down of a module, which is spent; measured on these inputs, or on random ones."""
    module, options = request.module, request.options
    recording = Recording(options=options)
    compiler.lower(module, request.compilation, options, observer=recording)
    found = Lowered(
        graphs=recording.graphs,
        types=recording.types,
        kernels=kernels(module, backend_named(request.backend).tools),
        calls=calls(module, recording),
        memories=[memory(module)],
    )
    if rounds:
        _measure(found, request, inputs, rounds)
    return found


def _measure(
    found: Lowered,
    request: compiler.BuildRequest,
    inputs: Mapping[str, Array] | None,
    rounds: int,
) -> None:
    """What each call of a step takes, in microseconds, and what those take that it makes."""
    module = request.module
    tools = backend_named(request.backend).tools
    profile = tools.profile(module, request.compilation.weights, request.threads)
    given = random_model_inputs(profile.executable.inputs) if inputs is None else inputs
    profile.measure(given, rounds)
    rows = Described(module, profile).calls(sum(profile.times))
    numbers: dict[Operation, int] = {op: number for number, (_, _, op) in enumerate(called(module))}
    found.total = profile.total / 1e3
    for traced, row in zip(profile.traced, rows, strict=True):
        found.calls[numbers[traced.op]]["time"] = row.microseconds
        found.measured += _leaves(traced, row, numbers)


def _leaves(traced: Traced, row: Call, numbers: Mapping[Operation, int]) -> Iterator[Measured]:
    """The calls of kernels that a call makes, and what a loop or a branch takes itself."""
    for inner, body in zip(traced.bodies, row.bodies, strict=True):
        for one, described in zip(inner.calls, body.calls, strict=True):
            yield from _leaves(one, described, numbers)
    own = itself(row) if row.bodies else row
    yield Measured(numbers[traced.op], own.kernel, own.microseconds, own.count)
