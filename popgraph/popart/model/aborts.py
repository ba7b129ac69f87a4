"""PopART's `abort`: a step fails if a condition is nonzero."""

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
"""The operator, which is removed before compilation."""

ALWAYS = ""
"""Placeholder for the condition of an unconditional abort."""


def take_aborts(module: ModuleOp) -> Mapping[str, str]:
    """
    Removes the abort nodes of a model, and returns {tensor of the condition: its name in the
    model}.

    A weight is copied at the node's position, since the step may update it later.
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
"""Suffix of the copy of a weight that is a condition."""


def check_aborts(conditions: Mapping[str, str], results: Mapping[str, Array]) -> None:
    """Raises after a micro-batch with a nonzero condition."""
    for id, name in conditions.items():
        if id == ALWAYS or np.any(results[id]):
            what = f"the condition {name!r} is not 0" if name else "the model always does"
            raise poplar_application_runtime_error(
                f"abort: {what}", "ai.graphcore.Abort", "the model asks for this error"
            )
