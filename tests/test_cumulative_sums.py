"""Tests CumSum and CumProd of all lengths: forward, reverse, exclusive, on both backends."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from onnx import helper, numpy_helper

import popgraph


@given(
    st.sampled_from(["CumSum", "CumProd"]),
    st.lists(st.integers(0, 70), min_size=1, max_size=3).filter(
        lambda shape: np.prod(shape) < 9999
    ),
    st.data(),
)
def test_cumsum_and_cumprod(operator: str, shape: list[int], data: st.DataObject) -> None:
    axis = data.draw(st.integers(0, len(shape) - 1))
    exclusive, reverse = data.draw(st.booleans()), data.draw(st.booleans())
    x = np.random.default_rng(len(shape)).uniform(0.5, 1.5, shape).astype(np.float32)
    node = helper.make_node(
        operator, ["x", "axis"], ["y"], exclusive=int(exclusive), reverse=int(reverse)
    )
    graph = helper.make_graph(
        [node],
        "running",
        [helper.make_tensor_value_info("x", 1, shape)],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.array(axis, np.int64), "axis")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 26)], ir_version=10)
    along = np.flip(x, axis) if reverse else x
    join, neutral = {"CumSum": (np.cumsum, 0), "CumProd": (np.cumprod, 1)}[operator]
    wanted = join(along.astype(np.float64), axis)
    if exclusive:
        first = np.full_like(np.take(wanted, [0] if shape[axis] else [], axis), neutral)
        wanted = np.concatenate(
            [first, np.delete(wanted, -1, axis) if shape[axis] else first], axis
        )
    wanted = np.flip(wanted, axis) if reverse else wanted
    for backend in ("c", "reference"):
        found = popgraph.compile(model, backend=backend)({"x": x})["y"]
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-5)
