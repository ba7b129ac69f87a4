"""Evaluates one node: from the shape of its operand, or with onnx's reference implementation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
from onnx import FunctionProto
from xdsl.ir import SSAValue

from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.program import WeightStore

SHAPES = ("Shape", "Size")
"""Operators that read no elements."""


def evaluate_node(
    op: OnnxOp,
    values: Mapping[SSAValue, Any],
    store: WeightStore,
    opsets: Mapping[str, int],
    functions: Iterable[FunctionProto] = (),
) -> list[Any]:
    """
    The node's outputs in order, None for those that are absent.

    `values` holds its operands and what the graphs inside it capture; an operand that is None is
    absent. Raises whatever the reference raises.
    """
    if not op.domain and op.op_type in SHAPES:
        return [_of_shape(op, np.shape(values[op.operands[0]]))]
    if not op.domain and op.op_type == "Identity":
        (given,) = (values[operand] for operand in op.operands)
        if isinstance(given, np.ndarray):  # PyTorch shares equal weights by such nodes.
            return [given.copy()]
    # 239 modules of onnx.reference, which models without constant nodes never need.
    from popgraph.dialects.onnx import reference_evaluation

    return reference_evaluation.evaluate_node(op, values, store, opsets, functions)


def _of_shape(op: OnnxOp, shape: tuple[int, ...]) -> Any:
    """`Shape` clamps its range as Python's slices do."""
    if op.op_type == "Size":
        return np.array(np.prod(shape, dtype=np.int64))
    attributes = op.attribute_values()
    start, end = attributes.get("start", 0), attributes.get("end")
    assert isinstance(start, int) and isinstance(end, int | None)
    return np.array(shape[start:end], np.int64)
