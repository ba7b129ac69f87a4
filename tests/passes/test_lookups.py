"""Tests ReverseSequence against NumPy on every backend, and its gradient."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from popgraph.support.arrays import Array
from tests.one_node import found, model
from tests.passes.test_onnx_gradients import check
from tests.passes.test_scatter import drawn


def reversed_(x: Array, lengths: Array, time: int) -> Array:
    result = x.copy()
    for batch, length in enumerate(lengths):
        at: Any = (slice(length), batch) if time == 0 else (batch, slice(length))
        result[at] = np.flip(x[at], 0)
    return result


@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=4),
    st.integers(0, 1),
    st.sampled_from(["float32", "int64", "bool", "uint8", "float16"]),
    st.integers(0, 99),
    st.sampled_from(("reference", "c")),
)
def test_reverse_sequence(shape: list[int], time: int, dtype: str, seed: int, backend: str) -> None:
    x = drawn(shape, dtype, seed)
    lengths = np.random.default_rng(seed).integers(0, shape[time] + 1, shape[1 - time])
    made = model(
        "ReverseSequence", {"x": x, "n": lengths}, opset=10, time_axis=time, batch_axis=1 - time
    )
    result = found(made, {"x": x, "n": lengths}, backend)["y"]
    np.testing.assert_array_equal(result, reversed_(x, lengths, time))


def test_reverse_sequence_gradients_are_slopes() -> None:
    x, lengths = drawn((4, 3, 2), "float64", 0), np.array([4, 1, 3])
    made = model("ReverseSequence", {"x": x, "n": lengths}, opset=10)
    assert check(made, [x, lengths], [x])
