"""Tests that every model that verifies compiles, even where the letter of ONNX refuses it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import popgraph
from popgraph.builder.onnx.read import import_model
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.inference import set_type
from popgraph.dialects.onnx.types import tensor_type
from popgraph.dialects.program import WeightStore
from popgraph.support.errors import ModelError

F16, F32, I32 = TensorProto.FLOAT16, TensorProto.FLOAT, TensorProto.INT32


@pytest.mark.parametrize(
    ("operator", "types", "shapes", "opset"),
    [
        ("Equal", [F32, F32], [[2], [2]], 9),
        ("Relu", [I32], [[2]], 9),
        ("Clip", [I32], [[2]], 9),
        ("Add", [F16, F32], [[2], []], 11),
        ("BatchNormalization", [F16, F32, F32, F32, F32], [[2, 3, 4], [3], [3], [3], [3]], 9),
        ("Reshape", [F32, I32], [[2, 3], [2]], 13),
    ],
)
def test_types_that_only_inference_takes(
    operator: str, types: list[int], shapes: list[list[int]], opset: int
) -> None:
    """Types of later versions, numbers in single precision beside half, shapes in 32 bits."""
    names = [f"x{place}" for place in range(len(types))]
    infos = list(map(helper.make_tensor_value_info, names, types, shapes))
    node = helper.make_node(operator, names, ["y"])
    constants = []
    if operator == "Reshape":
        constants = [helper.make_tensor(names[1], I32, [2], [3, 2])]
        del infos[1]
    graph = helper.make_graph([node], "g", infos, [helper.make_empty_tensor_value_info("y")])
    graph.initializer.extend(constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    inputs = {
        info.name: np.ones(shape, helper.tensor_dtype_to_np_dtype(type_))
        for info, type_, shape in zip(infos, types, shapes, strict=False)
    }
    assert popgraph.compile(model, backend="reference")(inputs)["y"].size


@pytest.mark.parametrize("shape", [[2], ["N"]], ids=["known", "open"])
@pytest.mark.parametrize("backend", ["c", "reference"])
def test_what_does_not_verify_is_not_compiled(backend: str, shape: list[int]) -> None:
    """Whatever went wrong before: nothing is computed from operations that break their rules."""
    info = helper.make_tensor_value_info("x", F32, shape)
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "g",
        [info],
        [helper.make_empty_tensor_value_info("y")],
    )
    module = import_model(helper.make_model(graph, ir_version=8), WeightStore())
    (value,) = model_of(module).graph.yielded
    set_type(value, tensor_type("i64", [2]))
    with pytest.raises(ModelError) as caught:
        popgraph.compile(module, backend=backend)
    assert caught.value.what.startswith("the model breaks a rule of its operators: ")
    assert caught.value.where == "node 'y' (Relu)"
