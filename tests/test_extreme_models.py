"""Tests extreme models and arguments: huge shapes, future opsets, wrong names."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, helper, numpy_helper

import popgraph
from popgraph.support.errors import BackendError, ModelError, PopgraphError, RunError

HUGE = 1 << 46
"""Elements that exceed the address space, so that no machine overcommits them."""


def model(
    node: NodeProto, sizes: list[int] | None = None, shape: Any = (4,), opset: int = 17
) -> ModelProto:
    """A model of one operator on `x`, and on the constant `s`."""
    numbers = [] if sizes is None else [numpy_helper.from_array(np.array(sizes, np.int64), "s")]
    x = helper.make_tensor_value_info("x", 1, shape)
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph([node], "absurd", [x], [y], numbers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)


RELU = helper.make_node("Relu", ["x"], ["y"])
MODELS = {
    "expand": model(helper.make_node("Expand", ["x", "s"], ["y"]), [HUGE, 4]),
    "tile": model(helper.make_node("Tile", ["x", "s"], ["y"]), [HUGE]),
    "pad": model(helper.make_node("Pad", ["x", "s"], ["y"]), [HUGE, HUGE]),
    "input": model(RELU, shape=(HUGE,)),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("backend", ["c", "reference"])
def test_sizes_that_exceed_memory(name: str, backend: str) -> None:
    x = np.broadcast_to(np.float32(1), (HUGE if name == "input" else 4,))
    with pytest.raises(PopgraphError, match="memory"):
        popgraph.compile(MODELS[name], backend=backend)(x=x)


def test_errors_of_memory_name_the_size() -> None:
    with pytest.raises(BackendError, match=r"more memory than there is: .* PiB"):
        popgraph.compile(MODELS["tile"])


def test_an_opset_of_the_future() -> None:
    with pytest.raises(ModelError, match=r"opset 999 of domain ai\.onnx is not known; the last is"):
        popgraph.compile(model(RELU, opset=999))


@pytest.mark.parametrize("shape", [(4,), ("N",)], ids=["known", "open"])
@pytest.mark.parametrize(
    ("named", "message"),
    [
        ({"backend": "gpu"}, "no backend 'gpu'"),
        ({"threads": 0}, "0 threads cannot run a program"),
        ({"threads": 100_000}, "100000 threads cannot run a program"),
        ({"threads": "2"}, r"threads is int, not '2' \(str\)"),
    ],
)
def test_arguments_are_checked_before_the_first_call(
    shape: object, named: dict[str, Any], message: str
) -> None:
    with pytest.raises(PopgraphError, match=message):
        popgraph.compile(model(RELU, shape=shape), **named)


def test_unnamed_inputs_are_refused() -> None:
    run = popgraph.compile(model(RELU))
    x: Any = np.ones(4, np.float32)
    with pytest.raises(RunError, match="inputs are given by name, not as ndarray"):
        run(x)
    assert run({"x": x})["y"].tolist() == run(x=x)["y"].tolist() == [1, 1, 1, 1]
