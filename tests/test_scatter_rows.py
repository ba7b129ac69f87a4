"""Tests scattering of rows to computed indices: whole vectors and remainders, all types."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product

import ml_dtypes
import numpy as np
import pytest

from popgraph.support.arrays import Array
from tests.one_node import close, model, of_both

KINDS = ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "int8"]
WAYS: dict[str, Callable[[Array, Array], Array]] = {
    "none": lambda old, new: new,
    "add": np.add,
    "mul": np.multiply,
    "max": np.maximum,
}


def small(shape: tuple[int, ...], kind: str) -> Array:
    """Small integers, whose sums and products are exact in every type."""
    numbers = np.random.default_rng(sum(shape)).integers(0, 3, shape)
    return np.asarray(numbers.astype(getattr(ml_dtypes, kind, kind)))


@pytest.mark.parametrize(
    ("kind", "way"),
    [*product(["float32"], WAYS), *((kind, "add") for kind in KINDS[1:]), ("bool", "none")],
)
@pytest.mark.parametrize("width", [3, 16, 37])
def test_scatter_of_rows(kind: str, way: str, width: int) -> None:
    """Two rows are scattered to the same index, in order."""
    data, updates = small((5, 2, width), kind), small((4, 2, width), kind)
    places = np.array([[3], [-4], [3], [0]])
    expected = data.copy()
    for (place,), row in zip(places, updates, strict=True):
        expected[place] = WAYS[way](expected[place], row)
    inputs = {"data": data, "places": places, "updates": updates}
    proto = model("ScatterND", inputs, reduction=way)
    close(of_both(proto, inputs)["y"], expected)


def test_scatter_along_the_last_axis_is_scalar() -> None:
    """An indexed last axis is not vectorized, since adjacent updates need not be adjacent."""
    data, updates = small((3, 40), "float32"), small((3, 20), "float32")
    places = np.random.default_rng(1).integers(-40, 40, (3, 20))
    expected = data.copy()
    for row, column in np.ndindex(3, 20):
        expected[row, places[row, column]] += updates[row, column]
    inputs = {"data": data, "places": places, "updates": updates}
    proto = model("ScatterElements", inputs, axis=1, reduction="add")
    close(of_both(proto, inputs)["y"], expected)
