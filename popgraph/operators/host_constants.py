"""Evaluates operators that read no elements: Constant, Identity, Shape, Size."""

from __future__ import annotations

from typing import Any

import numpy as np

from popgraph.dialects.onnx.host_values import plain
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.record import computes
from popgraph.support.arrays import Array

KINDS: dict[str, Any] = {
    "value_float": np.float32,
    "value_floats": np.float32,
    "value_int": np.int64,
    "value_ints": np.int64,
    "value_string": object,
    "value_strings": object,
}
"""Element types by the attributes that hold plain values."""


@computes("Constant")
def constant(node: NodeView) -> Array:
    for name, dtype in KINDS.items():
        found = node.attribute(name)
        if found is not None:
            return np.array(found, dtype)
    found = node.attribute("value", node.attribute("sparse_value"))
    assert isinstance(found, np.ndarray)
    return found


@computes("Identity")
def identity(node: NodeView, x: Any) -> Any:
    """A copy: PyTorch's exporter shares equal weights by such nodes."""
    return list(x) if isinstance(x, list) else np.array(plain(x))


@computes("Shape")
def shape(node: NodeView, x: Any) -> Array:
    """`start` and `end` clamp as Python's slices do."""
    return np.array(np.shape(x)[node.attribute("start", 0) : node.attribute("end")], np.int64)


@computes("Size")
def size(node: NodeView, x: Any) -> Array:
    return np.array(np.prod(np.shape(x), dtype=np.int64))
