"""PopART's `abort`: a step ends with an error where a condition is not 0."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.dialects.onnx import Initializer, model_of, op_class, value_name
from popgraph.popart.exceptions import (
    popart_exception,
    poplar_application_runtime_error,
)
from popgraph.support.arrays import Array

ABORT = (DOMAIN, "Abort")
"""The operator, which no program has."""

ALWAYS = ""
"""Stands for the condition of a node that has none."""


def take_aborts(module: ModuleOp) -> Mapping[str, str]:
    """
    Takes the nodes out of a model, which programs have no operation for.

    What is left are their conditions: of each the tensor that holds it, and its own name. A weight
    is read where the node stood, since a step may change it.
    """
    found: dict[str, str] = {}
    model = model_of(module)
    for node in list(model.graph.nodes):
        if (node.domain, node.op_type) != ABORT:
            continue
        if any(result.first_use is not None for result in node.results):
            raise popart_exception("Abort has no results for others to read", node.where())
        condition = next(iter(node.input_values()), None)
        if condition is None:
            found[ALWAYS] = ALWAYS
        elif isinstance(condition.owner, Initializer):
            name = value_name(condition)
            held = f"{name}{_READ}"
            if held not in found:
                identity = op_class("Identity", model.opset_versions[""])
                read = identity.make([condition], {}, {}, [held], [condition.type], {})
                Rewriter.insert_op(read, InsertPoint.before(node))
            found[held] = name
        else:
            found[value_name(condition)] = value_name(condition)
        node.detach()
        node.erase()
    return found


_READ = "__read_to_abort"
"""Behind the name of a weight: what it is when a condition is looked at."""


def check_aborts(conditions: Mapping[str, str], results: Mapping[str, Array]) -> None:
    """Raises behind a micro-batch of which a condition asks for it."""
    for id, name in conditions.items():
        if id == ALWAYS or np.any(results[id]):
            what = f"the condition {name!r} is not 0" if name else "the model always does"
            raise poplar_application_runtime_error(
                f"abort: {what}", "ai.graphcore.Abort", "the model asks for this error"
            )
