"""The lowering of one program: its graphs, kernels, calls, memory and times."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation

from popgraph import compiler
from popgraph.backends.registry import backend_named
from popgraph.backends.tools import Traced
from popgraph.dialects.tile.program.lifetimes import bytes_in_use, lifetimes
from popgraph.dialects.tile.program.ops import find_program
from popgraph.dialects.tile.program.work import Counter
from popgraph.measure.profile_report import Call, own_time
from popgraph.measure.profile_rows import DescribedProfile
from popgraph.measure.timing import random_model_inputs
from popgraph.support.arrays import Array
from popgraph.viewer.flame import Measured
from popgraph.viewer.kernels import called, calls, kernels
from popgraph.viewer.recording import LoweringRecorder

Rows = list[dict[str, Any]]


@dataclass
class Lowered:
    """The page's data of a lowered program, or of several in sequence."""

    graphs: dict[str, Rows] = field(default_factory=dict)
    types: dict[int, list[str]] = field(default_factory=dict)
    """The result types of each node of the model."""
    kernels: Rows = field(default_factory=list)
    calls: Rows = field(default_factory=list)
    memories: Rows = field(default_factory=list)
    """The memory of each program."""
    steps: Rows = field(default_factory=list)
    """For a model with host steps: the calls of each step."""
    measured: list[Measured] = field(default_factory=list)
    total: float = 0.0
    """Microseconds of a whole step, if timed."""


def lowered(
    request: compiler.BuildRequest, rounds: int, inputs: Mapping[str, Array] | None = None
) -> Lowered:
    """Lowers a module in place and describes it; times it on these inputs, or on random ones."""
    module, options = request.module, request.options
    recording = LoweringRecorder(options=options)
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
    """Times each call of a step, in microseconds, including calls in bodies."""
    module = request.module
    tools = backend_named(request.backend).tools
    profile = tools.profile(module, request.compilation.weights, request.threads)
    given = random_model_inputs(profile.executable.inputs) if inputs is None else inputs
    profile.measure(given, rounds)
    rows = DescribedProfile(module, profile).calls(sum(profile.times))
    numbers: dict[Operation, int] = {op: number for number, (_, _, op) in enumerate(called(module))}
    found.total = profile.total / 1e3
    for traced, row in zip(profile.traced, rows, strict=True):
        found.calls[numbers[traced.op]]["time"] = row.microseconds
        found.measured += _leaves(traced, row, numbers)


def _leaves(traced: Traced, row: Call, numbers: Mapping[Operation, int]) -> Iterator[Measured]:
    """The kernel calls below a call, and the overhead of loops and branches."""
    for inner, body in zip(traced.bodies, row.bodies, strict=True):
        for one, described in zip(inner.calls, body.calls, strict=True):
            yield from _leaves(one, described, numbers)
    own = own_time(row) if row.bodies else row
    yield Measured(numbers[traced.op], own.kernel, own.microseconds, own.count)


def memory(module: ModuleOp) -> dict[str, Any]:
    """Bytes in use at each call of a step, and the buffers of the arena by offset and lifetime."""
    program, counter = find_program(module, "main"), Counter(module)
    return {
        "arena": program.arena.value.data,
        "persistent": program.persistent.value.data,
        "lower_bound": program.lower_bound.value.data,
        "in_use": bytes_in_use(program, counter),
        "pieces": [asdict(one) for one in lifetimes(program, counter)],
    }
