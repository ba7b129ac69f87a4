"""PopART's `abort`: a step ends with an error where a condition is not 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.opset.exceptions import poplar_application_runtime_error
from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.dialects.onnx import model_of, value_name
from popgraph.support.arrays import Array

ABORT = (DOMAIN, "Abort")
"""The operator, which no program has."""

ALWAYS = ""
"""Stands for the condition of a node that has none."""


def take_aborts(module: ModuleOp) -> tuple[str, ...]:
    """Takes the nodes out of a model, which programs have no operation for; their conditions."""
    found = []
    for node in list(model_of(module).graph.nodes):
        if (node.domain, node.op_type) == ABORT:
            condition = next(iter(node.input_values()), None)
            found.append(ALWAYS if condition is None else value_name(condition))
            node.detach()
            node.erase()
    return tuple(found)


def check_aborts(conditions: Sequence[str], results: Mapping[str, Array]) -> None:
    """Raises behind a micro-batch of which a condition asks for it."""
    for name in conditions:
        if name == ALWAYS or np.any(results[name]):
            what = f"the condition {name!r} is not 0" if name else "the model always does"
            raise poplar_application_runtime_error(
                f"abort: {what}", "ai.graphcore.Abort", "the model asks for this error"
            )
