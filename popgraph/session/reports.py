"""PopART's reports of a session, as text, JSON and CBOR."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from popgraph.backends.base import Executable
from popgraph.session.devices import DeviceInfo
from popgraph.session.executions import Executions, kernel_times
from popgraph.session.graph_report import GraphReport, Json, TileMap
from popgraph.session.options import SHOW_STEPS, SHOW_VARIABLES
from popgraph.session.program import Program
from popgraph.support.cbor import to_cbor
from popgraph.support.tables import table


class Reports:
    """What is known of a compiled program and its executions."""

    def __init__(
        self, program: Program, device: DeviceInfo, running: Executable, executions: Executions
    ) -> None:
        self._lowered = program.lowered(device.threads)
        self._device, self._running, self._executions = device, running, executions

    def graph(self) -> dict[str, Json]:
        return self._graph_report().content()

    def tile_map(self) -> TileMap:
        return self._graph_report().tile_map()

    def _graph_report(self) -> GraphReport:
        return GraphReport(self._lowered.module, self._device)

    def execution(self) -> dict[str, Json]:
        """The steps, and the kernels of a batch, if one ran; NumPy's backend has no kernels."""
        content = self._executions.content()
        inputs = self._executions.inputs
        measured = content["steps"] and inputs is not None and self._device.backend == "c"
        return {
            **content,
            "computeSets": kernel_times(self._lowered, self._running, inputs or {})
            if measured
            else [],
        }

    def summary(self, title: str, options: Mapping[str, str]) -> str:
        """The most important numbers of both, for people; more of them as `options` say."""
        graph: Any = self.graph()
        lines = [title, *_graph_lines(graph), _execution_line(self._executions.content())]
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
    """The pieces of memory, the largest first."""
    rows = [
        (str(one["bytes"]), one["category"], f"{one['type']}{one['shape']}", one["name"])
        for one in sorted(tensors, key=lambda one: -int(one["bytes"]))
    ]
    return table([("bytes", "category", "type", "variable"), *rows])


def _compute_sets(execution: Mapping[str, Any]) -> str:
    """The kernels in the order of the program."""
    rows = [
        (f"{one['microseconds']:.1f}", f"{one['share']:.1%}", one["name"], one["source"])
        for one in execution["computeSets"]
    ]
    return table([("us", "share", "compute set", "from"), *rows])


def written(content: Mapping[str, Json], *, useCbor: bool) -> str | bytes:
    """The content as JSON, or as CBOR."""
    return to_cbor(content) if useCbor else json.dumps(content)
