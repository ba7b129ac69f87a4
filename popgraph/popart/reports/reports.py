"""PopART's reports of a session, as text, JSON and CBOR, with the executed steps."""

from __future__ import annotations

import json
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from popgraph.backends.base import Executable
from popgraph.backends.registry import backend_named
from popgraph.compiler import BuildRequest
from popgraph.ipu import report as ipu_report
from popgraph.ipu.model import IpuModel
from popgraph.measure.profile_report import Call
from popgraph.measure.profile_rows import DescribedProfile
from popgraph.popart.api.devices import DeviceInfo
from popgraph.popart.api.options import SHOW_STEPS, SHOW_VARIABLES
from popgraph.popart.programs.program import Program
from popgraph.popart.reports.graph_report import GraphReport, Json
from popgraph.support.arrays import Array
from popgraph.support.cbor import to_cbor
from popgraph.support.tables import table

_LAST = 1000
"""The number of recent steps that are listed; earlier ones are only counted and summed."""

_ROUNDS = 3


@dataclass
class Executions:
    """The steps since the last report."""

    batches_per_step: int
    micro_batches_per_step: int
    """Per replica."""
    inputs: Mapping[str, Array] | None = None
    """The last batch."""
    _steps: deque[tuple[str, float]] = field(default_factory=lambda: deque(maxlen=_LAST))
    """Names and microseconds."""
    _count: int = 0
    _microseconds: float = 0.0

    def note_step(self, name: str, start: int) -> None:
        """Counts a successful step that began at `start`, by `perf_counter_ns`."""
        microseconds = (time.perf_counter_ns() - start) / 1e3
        self._steps.append((name, microseconds))
        self._count += 1
        self._microseconds += microseconds

    @property
    def count(self) -> int:
        """The number of steps."""
        return self._count

    def reset(self) -> None:
        self._steps.clear()
        self._count, self._microseconds = 0, 0.0

    def content(self) -> dict[str, Json]:
        """The number, duration and list of steps."""
        runs: list[Json] = [{"name": name, "microseconds": taken} for name, taken in self._steps]
        return {
            "steps": self._count,
            "batchesPerStep": self.batches_per_step,
            "microseconds": self._microseconds,
            "runs": runs,
        }


def kernel_times(
    lowered: BuildRequest, running: Executable, inputs: Mapping[str, Array]
) -> list[Json]:
    """
    The time of each kernel call of a batch, measured on these inputs and a copy of all variables.
    """
    tools = backend_named(lowered.backend).tools
    profile = tools.profile(lowered.module, lowered.compilation.weights, lowered.threads)
    for name in running.variables:
        profile.executable.write(name, running.read(name))
    profile.measure(inputs, _ROUNDS)
    described = DescribedProfile(lowered.module, profile).calls(sum(profile.times))
    return [_call(call) for call in described]


def _call(call: Call) -> Json:
    """A call in the report's format, with the calls of its bodies."""
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


class Reports:
    """Reports of a compiled program and its executions."""

    def __init__(
        self,
        program: Program,
        device: DeviceInfo,
        running: Executable,
        executions: Executions,
        model: IpuModel,
    ) -> None:
        """`model` is the cost model of the program on the device's IPUs."""
        self._lowered = program.code.lowered(device.threads)
        self._device, self._running, self._executions = device, running, executions
        self._model = model

    def graph(self) -> dict[str, Json]:
        return {**self._graph_report().content(), "ipu": ipu_report.content(self._model)}

    def _graph_report(self) -> GraphReport:
        return GraphReport(self._lowered.module, self._device, self._model)

    def execution(self) -> dict[str, Json]:
        """
        The steps, and the kernel times of a batch; no kernel times with the NumPy backend or before
        a step.
        """
        content = self._executions.content()
        inputs = self._executions.inputs
        is_native = backend_named(self._device.backend).is_native
        measured = content["steps"] and inputs is not None and is_native
        cycles = self._cycles()
        return {
            **content,
            "cycles": cycles,
            "simulation": {"cycles": cycles["steps"]},  # where Poplar's report has them
            "computeSets": kernel_times(self._lowered, self._running, inputs or {})
            if measured
            else [],
        }

    def _cycles(self) -> dict[str, Json]:
        """Modelled cycles of a micro-batch, and of all steps so far."""
        each: dict[str, Json] = dict(self._model.split().items())
        ran = self._executions
        return {
            "microBatch": {"total": self._model.cycles, **each},
            "steps": self._model.cycles * ran.micro_batches_per_step * ran.count,
        }

    def summary(self, title: str, options: Mapping[str, str]) -> str:
        """A text summary of both reports; `options` add details."""
        graph: Any = self.graph()
        lines = [title, *_graph_lines(graph), *ipu_report.head(self._model)]
        lines.append(_execution_line(self._executions.content()))
        if options.get(SHOW_VARIABLES) == "true":
            lines.append(_variables(graph["memory"]["tensors"]))
        if options.get(SHOW_STEPS) == "true":
            lines.append(_compute_sets(self.execution()))
        return "\n".join(lines)


def _graph_lines(graph: Mapping[str, Any]) -> list[str]:
    memory = graph["memory"]
    return [
        "Target: {type}, {numIPUs} IPU(s) of {tilesPerIPU} tiles".format(**graph["target"]),
        "Graph: {numComputeSets} compute sets, {numVertices} vertices, {numEdges} edges, "
        "{numVars} variables".format(**graph["graph"]),
        f"Memory: {memory['liveness']['alwaysLive']} bytes always live, at most "
        f"{memory['liveness']['maxNotAlwaysLive']} bytes more",
        *(f"  {name}: {count} bytes" for name, count in memory["byCategory"].items()),
    ]


def _execution_line(execution: Mapping[str, Any]) -> str:
    return "Execution: {steps} steps of {batchesPerStep} batches, {microseconds:.1f} us".format(
        **execution
    )


def _variables(tensors: Any) -> str:
    """The allocations as a table, largest first."""
    rows = [
        (str(one["bytes"]), one["category"], f"{one['type']}{one['shape']}", one["name"])
        for one in sorted(tensors, key=lambda one: -int(one["bytes"]))
    ]
    return table([("bytes", "category", "type", "variable"), *rows])


def _compute_sets(execution: Mapping[str, Any]) -> str:
    """The kernels as a table, in program order."""
    rows = [
        (f"{one['microseconds']:.1f}", f"{one['share']:.1%}", one["name"], one["source"])
        for one in execution["computeSets"]
    ]
    return table([("us", "share", "compute set", "from"), *rows])


def written(content: Mapping[str, Json], *, useCbor: bool) -> bytes:
    """The content as JSON or CBOR."""
    return to_cbor(content) if useCbor else json.dumps(content).encode()
