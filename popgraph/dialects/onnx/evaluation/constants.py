"""Evaluates operators that read no elements: Constant, Identity, Shape, Size."""

from __future__ import annotations

from typing import Any

import numpy as np

from popgraph.dialects.onnx.evaluation.given import Given, plain
from popgraph.dialects.onnx.evaluation.registry import computes
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
def constant(given: Given) -> Array:
    for name, dtype in KINDS.items():
        found = given.get(name)
        if found is not None:
            return np.array(found, dtype)
    found = given.get("value", given.get("sparse_value"))
    assert isinstance(found, np.ndarray)
    return found


@computes("Identity")
def identity(given: Given, x: Any) -> Any:
    """A copy: PyTorch's exporter shares equal weights by such nodes."""
    return list(x) if isinstance(x, list) else np.array(plain(x))


@computes("Shape")
def shape(given: Given, x: Any) -> Array:
    """`start` and `end` clamp as Python's slices do."""
    return np.array(np.shape(x)[given.get("start", 0) : given.get("end")], np.int64)


@computes("Size")
def size(given: Given, x: Any) -> Array:
    return np.array(np.prod(np.shape(x), dtype=np.int64))
