"""Statistics and histograms of the weights of a model."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from xdsl.dialects.builtin import ComplexType, TensorType
from xdsl.ir import Attribute

from popgraph.dialects.element_types import is_number
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import Graph
from popgraph.dialects.onnx.types import describe
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.dialects.program import WeightStore
from popgraph.support.arrays import Array

BINS = 40
NUMBERS = 16
"""Most elements of a tensor that are listed."""


def weights(
    graph: Graph, store: WeightStore, trained: Mapping[str, Array]
) -> dict[str, dict[str, Any]]:
    """Type and, for numbers, distribution of each initializer by name."""
    return {
        name: _weight(one, trained[name] if name in trained else one.array(store))
        for name, one in weights_by_name(graph).items()
    }


def _weight(initializer: Initializer, array: Array) -> dict[str, Any]:
    found: dict[str, Any] = {"type": describe(initializer.result.type)}
    found |= {"elements": array.size, "bytes": array.nbytes}
    if array.size <= NUMBERS:
        found["values"] = [str(one) for one in array.reshape(-1)]
    if array.size and _is_real(initializer.result.type):
        found |= statistics(array)
    return found


def _is_real(type_: Attribute) -> bool:
    """Whether elements are ordered numbers."""
    return (
        isinstance(type_, TensorType)
        and is_number(type_.element_type)
        and not isinstance(type_.element_type, ComplexType)
    )


def statistics(array: Array) -> dict[str, Any]:
    """Statistics of the finite elements, and the number of others."""
    wide = array.astype(np.float64).reshape(-1)
    finite = wide[np.isfinite(wide)]
    found: dict[str, Any] = {"not_finite": int(wide.size - finite.size)}
    if not finite.size:
        return found
    counts, edges = np.histogram(finite, BINS)
    return found | {
        "mean": _number(finite.mean()),
        "deviation": _number(finite.std()),
        "norm": _number(np.linalg.norm(finite)),
        "zeros": int(np.count_nonzero(finite == 0)),
        "histogram": counts.tolist(),
        "edges": [float(edges[0]), float(edges[-1])],
    }


def _number(value: float | np.floating[Any]) -> float | None:
    """None for values that JSON cannot represent: sums may overflow."""
    return float(value) if np.isfinite(value) else None
