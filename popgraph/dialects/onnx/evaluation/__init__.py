"""Evaluates one node: by a NumPy function of its operator, or by what it lowers to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.ir import SSAValue

from popgraph.dialects.onnx.evaluation.given import Given, holds_text
from popgraph.dialects.onnx.evaluation.registry import FUNCTIONS, LOWERED, TEXTS
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.program import WeightStore

SHAPES = ("Shape", "Size")
"""Operators that read no elements."""


def evaluate_node(
    op: OnnxOp, values: Mapping[SSAValue, Any], store: WeightStore, opsets: Mapping[str, int]
) -> list[Any] | None:
    """
    The node's outputs in order, None for those that are absent.

    `values` holds its operands; an operand that is None is absent. The result is None if nothing
    computes the operator, unless the function does that its schema defines it by.
    """
    operands = [None if value is None else values[value] for value in op.input_values()]
    return evaluate(op, operands, store, opsets)


def evaluate(
    op: OnnxOp, operands: Sequence[Any], store: WeightStore, opsets: Mapping[str, int]
) -> list[Any] | None:
    """As `evaluate_node`, of operands in order."""
    function = FUNCTIONS.get((op.domain, op.op_type))
    if function is not None:
        with np.errstate(all="ignore"):
            found = function(Given(op, store), *operands)
        return list(found) if isinstance(found, tuple) else [found]
    if not isinstance(op, SchemaOp):
        return None
    evaluated = TEXTS if any(map(holds_text, operands)) else LOWERED
    outputs: list[Any] | None = evaluated(op, operands, store, opsets)
    return outputs
