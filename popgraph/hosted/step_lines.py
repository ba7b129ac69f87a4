"""Descriptions of a model's steps, one line each."""

from __future__ import annotations

from collections.abc import Iterable

from xdsl.ir import SSAValue

from popgraph.dialects.onnx.containers import value_name
from popgraph.dialects.onnx.types import describe
from popgraph.passes.onnx.partition import HostStep, Step, read_by, why_hosted

OPERATORS = 6
"""Most operators of a segment to name in a line."""


def step_line(number: int, step: Step) -> str:
    """Describes a step in one line: its kind, operators, inputs and outputs."""
    if isinstance(step, HostStep):
        does = f"in Python: {step.op.op_type} ({why_hosted(step.op)})"
        given: list[SSAValue] = list(read_by(step.op))
        made: list[SSAValue] = list(step.op.results)
    else:
        names = list(dict.fromkeys(op.op_type for op in step.nodes))
        does = ", ".join([*names[:OPERATORS], *(["..."] if names[OPERATORS:] else [])])
        does = f"compiled: {does}"
        given, made = list(step.inputs.values()), list(step.outputs.values())
    return f"step {number + 1}, {does}; {_described(given)} -> {_described(made)}"


def _described(values: Iterable[SSAValue]) -> str:
    texts = [f"{value_name(value)}: {describe(value.type)}" for value in dict.fromkeys(values)]
    return ", ".join(texts) or "nothing"
