"""Joins the steps of a model with host steps into one lowering, with the edges between them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from xdsl.ir import Operation, SSAValue

from popgraph import compiler
from popgraph.dialects.levels import GRAPHCORE, ONNX, STRUCTURED
from popgraph.dialects.onnx.containers import value_name
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.types import STRING, describe
from popgraph.measure.inputs import random_inputs
from popgraph.measure.profile import host_time
from popgraph.measure.recorded_steps import RanNode, RanSegment, run_steps
from popgraph.passes.onnx.partition import Piece, is_literal, read_by, why_hosted
from popgraph.passes.onnx.structural_inputs import structural_inputs
from popgraph.support import dtypes
from popgraph.support.errors import ModelError, NeedsHostError
from popgraph.viewer.flame import Measured
from popgraph.viewer.kernels import MAIN
from popgraph.viewer.lowered import Lowered, Rows, lowered
from popgraph.viewer.nodes import Node, Operand, plain
from popgraph.viewer.provenance import origins, source_line

HOST_CALL: dict[str, Any] = {
    "kernel": None,
    "programs": [],
    "chunks": 1,
    "flops": 0,
    "moved": 0,
    "cycles": 0,
    "program": MAIN,
    "prepared": False,
    "step": 0,
    "schedules": None,
}
"""Defaults of the calls of host steps, which have no kernel."""
LOWER = {GRAPHCORE: ONNX, STRUCTURED: GRAPHCORE}
"""Levels whose graphs are joined -> the level above."""


def ran_steps(
    request: compiler.BuildRequest, reason: NeedsHostError | None
) -> list[RanSegment | RanNode]:
    """Runs the steps on random inputs."""
    for name in structural_inputs(request.module, request.compilation.weights):
        raise reason or ModelError(
            f"input {name!r} decides the structure of the model, and its value is not known",
            hint=f"--value {name}=2 says it",
        )
    inputs = random_inputs(request.module)
    return run_steps(request, request.steps(reason), inputs)


def combine_lowerings(steps: Iterable[RanSegment | RanNode], threads: int, rounds: int) -> Lowered:
    """Joins the lowerings of all steps; each has a scope of its own in the graphs."""
    combiner = _Combiner(threads, rounds)
    for step in steps:
        combiner.add(step)
    return combiner.found


@dataclass
class _Combiner:
    """The steps joined so far."""

    threads: int
    rounds: int
    found: Lowered = field(default_factory=lambda: Lowered(graphs={level: [] for level in LOWER}))
    _givers: dict[str, dict[SSAValue, int]] = field(
        default_factory=lambda: {level: {} for level in LOWER}
    )
    """By level, the node that computes each value of the model."""
    _calls: int = 0
    """Number of previous calls in a step of the whole model."""

    def add(self, ran: RanSegment | RanNode) -> None:
        number = len(self.found.steps) + 1
        first = len(self.found.calls)
        about = self._node(ran) if isinstance(ran, RanNode) else self._segment(ran, number)
        for call in self.found.calls[first:]:
            if call["step"] is not None:
                call["step"] = self._calls
                self._calls += 1
        calls = list(range(first, len(self.found.calls)))
        self.found.steps.append({"title": f"step {number}", "calls": calls, **about})

    # compiled steps

    def _segment(self, ran: RanSegment, number: int) -> dict[str, Any]:
        one = lowered(ran.request.copy(), self.rounds, ran.inputs)
        found, first = self.found, len(self.found.calls)
        starts = {level: len(rows) for level, rows in found.graphs.items()} | {ONNX: 0}
        for level in LOWER:
            self._append_graph(level, one.graphs[level], starts, f"step {number}", ran.step)
        for call in one.calls:
            for level in LOWER:
                call[level] = [starts[level] + node for node in call[level]]
            call["kernel"] = call["kernel"] and f"{number}.{call['kernel']}"
        for kernel in one.kernels:
            kernel["name"] = f"{number}.{kernel['name']}"
        found.types |= one.types
        found.kernels += one.kernels
        found.calls += one.calls
        found.memories += [row | {"title": f"step {number}"} for row in one.memories]
        found.measured += [_offset(measured, first) for measured in one.measured]
        found.total += one.total
        ends = {kind: _boundary(one.graphs[GRAPHCORE], kind) for kind in ("input", "output")}
        return {"why": "", "takes": ends["input"], "gives": ends["output"]}

    def _append_graph(
        self, level: str, rows: Rows, starts: Mapping[str, int], scope: str, piece: Piece
    ) -> None:
        """Appends a graph, and connects its inputs to the nodes that compute them."""
        givers = self._givers[level]
        for node in rows:
            node["id"] += starts[level]
            node["scope"] = f"{scope}/{node['scope']}".strip("/")
            node["sources"] = [starts[LOWER[level]] + one for one in node["sources"]]
            for operand in node["inputs"]:
                if operand["node"] is not None:
                    operand["node"] += starts[level]
            if (
                node["kind"] == "input"
                and (giver := givers.get(piece.inputs[node["name"]])) is not None
            ):
                node["inputs"] = [node["outputs"][0] | {"node": giver}]
            elif node["kind"] == "output" and node["name"] in piece.outputs:
                givers[piece.outputs[node["name"]]] = node["id"]
        self.found.graphs[level] += rows

    # host steps

    def _node(self, ran: RanNode) -> dict[str, Any]:
        op, found, sources = ran.step.op, self.found, origins(ran.step.op, ONNX)
        flows = {
            "takes": [_typed_name(value, ran.values) for value in dict.fromkeys(read_by(op))],
            "gives": [
                _typed_name(value, ran.values) for value in op.output_values() if value is not None
            ],
        }
        found.types |= {number: [one["type"] for one in flows["gives"]] for number in sources[:1]}
        core = self._host_node(GRAPHCORE, ran, flows, sources)
        structured = self._host_node(STRUCTURED, ran, flows, [core])
        call = {
            **HOST_CALL,
            "label": _label(op),
            "why": why_hosted(op),
            "name": source_line(op).name,
            ONNX: sources,
            GRAPHCORE: [core],
            STRUCTURED: [structured],
        }
        if self.rounds:
            call["time"] = host_time(ran, self.threads, self.rounds) / 1e3
            found.measured.append(Measured(len(found.calls), _label(op), call["time"], 1))
            found.total += call["time"]
        found.calls.append(call)
        return {"why": why_hosted(op), **flows}

    def _host_node(
        self, level: str, ran: RanNode, flows: Mapping[str, Rows], sources: list[int]
    ) -> int:
        """Adds a host step as a node between the graphs of compiled steps; returns its number."""
        op, rows, givers = ran.step.op, self.found.graphs[level], self._givers[level]
        number = len(rows)
        read = zip(flows["takes"], dict.fromkeys(read_by(op)), strict=True)
        inputs = [
            Operand(one["name"], one["type"], givers.get(value), _is_stored(value))
            for one, value in read
        ]
        outputs = [Operand(one["name"], one["type"]) for one in flows["gives"]]
        name = source_line(op).name
        node = Node(number, _label(op), name, "", inputs, outputs, sources=sources)
        rows.append(plain(node))
        givers |= dict.fromkeys(op.results, number)
        return number


def _label(op: OnnxOp) -> str:
    return f"{op.op_type} in Python"


def _is_stored(value: SSAValue) -> bool:
    return isinstance(value.owner, Operation) and is_literal(value.owner)


def _offset(measured: Measured, calls: int) -> Measured:
    return Measured(measured.call + calls, measured.name, measured.microseconds, measured.calls)


def _boundary(rows: Rows, kind: str) -> Rows:
    """The inputs or the outputs of a graph."""
    side = "inputs" if kind == "output" else "outputs"
    return [
        {"name": row["name"], "type": row[side][0]["type"]} for row in rows if row["kind"] == kind
    ]


def _typed_name(value: SSAValue, values: Mapping[SSAValue, Any]) -> dict[str, str]:
    """The name of a value, and the type that it had in this run."""
    return {"name": value_name(value), "type": _type(value, values.get(value))}


def _type(value: SSAValue, found: object) -> str:
    if not isinstance(found, np.ndarray):
        return describe(value.type)
    numbers = found.dtype.kind not in "OUS"
    element = dtypes.from_numpy(found.dtype).name if numbers else describe(STRING)
    return f"{element}[{', '.join(map(str, found.shape))}]"
