"""What a session ran, for `getExecutionReport`: its steps, and what each kernel takes."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from popgraph.backends.base import Executable
from popgraph.backends.registry import backend_named
from popgraph.compiler import BuildRequest
from popgraph.measure.profile_report import Call
from popgraph.measure.profile_rows import Described
from popgraph.popart.reports.graph_report import Json
from popgraph.support.arrays import Array

_LAST = 1000
"""So many steps are told one by one; of those before, only their number and sum."""

_ROUNDS = 3


@dataclass(frozen=True)
class _Step:
    """One call of `run`."""

    name: str
    microseconds: float

    def described(self) -> Json:
        return {"name": self.name, "microseconds": self.microseconds}


@dataclass
class Executions:
    """The steps since the last report."""

    batches_per_step: int
    micro_batches_per_step: int
    """Of each replica."""
    inputs: Mapping[str, Array] | None = None
    """The last batch."""
    _steps: deque[_Step] = field(default_factory=lambda: deque(maxlen=_LAST))
    _count: int = 0
    _microseconds: float = 0.0

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        """Around one step, which counts if it succeeds."""
        start = time.perf_counter_ns()
        yield
        microseconds = (time.perf_counter_ns() - start) / 1e3
        self._steps.append(_Step(name, microseconds))
        self._count += 1
        self._microseconds += microseconds

    @property
    def count(self) -> int:
        """How many steps there were."""
        return self._count

    def reset(self) -> None:
        self._steps.clear()
        self._count, self._microseconds = 0, 0.0

    def content(self) -> dict[str, Json]:
        """What ran, and how long it took."""
        return {
            "steps": self._count,
            "batchesPerStep": self.batches_per_step,
            "microseconds": self._microseconds,
            "runs": [step.described() for step in self._steps],
        }


def kernel_times(
    lowered: BuildRequest, running: Executable, inputs: Mapping[str, Array]
) -> list[Json]:
    """What each call of a batch takes: measured on these inputs, and a copy of all variables."""
    tools = backend_named(lowered.backend).tools
    profile = tools.profile(lowered.module, lowered.compilation.weights, lowered.threads)
    for name in running.variables:
        profile.executable.write(name, running.read(name))
    profile.measure(inputs, _ROUNDS)
    described = Described(lowered.module, profile).calls(sum(profile.times))
    return [_call(call) for call in described]


def _call(call: Call) -> Json:
    """A call as a report tells it, with what it runs."""
    bodies: list[Json] = [
        {"name": body.name, "count": body.count, "computeSets": [_call(one) for one in body.calls]}
        for body in call.bodies
    ]
    return {
        "name": call.kernel,
        "kind": call.kind,
        "source": call.source,
        "count": call.count,
        "microseconds": call.microseconds,
        "share": call.share,
        "flops": call.flops,
        "bytesMoved": call.moved,
        "bytesInUse": call.in_use,
        "bodies": bodies,
    }
