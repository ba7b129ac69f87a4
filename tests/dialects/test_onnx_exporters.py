"""Tests that models of common exporters compile even where ONNX's schemas refuse them."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import TensorProto, helper

import popgraph
from popgraph.builder.onnx.read import import_model
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.types import tensor_type
from popgraph.dialects.program import WeightStore
from popgraph.dialects.value_types import set_type
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
def test_types_accepted_by_inference_only(
    operator: str, types: list[int], shapes: list[list[int]], opset: int
) -> None:
    """Types of later versions, f32 beside f16, shapes in 32 bits."""
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


@pytest.mark.parametrize("fed", [True, False], ids=["fed", "constant"])
@pytest.mark.parametrize("backend", ["c", "reference"])
def test_range_with_one_element_bounds(backend: str, fed: bool) -> None:
    """
    ONNX demands scalars, but its own function body of RMSNormalization-23 once used one-element
    tensors.
    """
    bounds = {"start": [2], "limit": [9], "delta": [3]}
    infos = [helper.make_tensor_value_info(name, TensorProto.INT64, [1]) for name in bounds]
    constants = [
        helper.make_tensor(name, TensorProto.INT64, [1], value) for name, value in bounds.items()
    ]
    graph = helper.make_graph(
        [helper.make_node("Range", list(bounds), ["y"])],
        "g",
        infos if fed else [],
        [helper.make_tensor_value_info("y", TensorProto.INT64, ["N"])],
        [] if fed else constants,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    inputs = {name: np.array(value) for name, value in bounds.items()} if fed else {}
    found = popgraph.compile(model, backend=backend)(inputs)["y"]
    np.testing.assert_array_equal(found, [2, 5, 8], strict=True)


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_group_normalization_18_scales_groups(backend: str) -> None:
    """ONNX deprecates this version, but exporters used it and onnxruntime runs it."""
    types = {"x": [3, 4, 2, 2], "scale": [2], "bias": [2]}
    infos = [helper.make_tensor_value_info(name, F32, shape) for name, shape in types.items()]
    node = helper.make_node("GroupNormalization", list(types), ["y"], num_groups=2, epsilon=0.01)
    graph = helper.make_graph(
        [node], "g", infos, [helper.make_tensor_value_info("y", F32, types["x"])]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    draw = np.random.default_rng(0)
    inputs = {name: draw.normal(size=shape).astype("f4") for name, shape in types.items()}
    rows = inputs["x"].reshape(3, 2, 8).astype(np.float64)
    rows = (rows - rows.mean(2, keepdims=True)) / np.sqrt(rows.var(2, keepdims=True) + 0.01)
    wanted = rows * inputs["scale"][:, None] + inputs["bias"][:, None]
    found = popgraph.compile(model, backend=backend)(inputs)["y"]
    np.testing.assert_allclose(found, wanted.reshape(3, 4, 2, 2), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("shape", [[2], ["N"]], ids=["static", "dynamic"])
@pytest.mark.parametrize("backend", ["c", "reference"])
def test_models_that_do_not_verify_are_not_compiled(backend: str, shape: list[int]) -> None:
    """Nothing is computed from operations that do not verify, whatever went wrong earlier."""
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
    assert caught.value.what.startswith("the model violates a rule of its operators: ")
    assert caught.value.where == "node 'y' (Relu)"
