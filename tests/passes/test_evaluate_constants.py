"""Tests that nodes with constant inputs are evaluated at compile time, whatever their operator."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from xdsl.dialects.builtin import ModuleOp

import popgraph
from popgraph.compiler import load, lower, settle_nodes
from popgraph.dialects import tile
from popgraph.dialects.onnx import model_of
from popgraph.passes.onnx.evaluate_constants import MOST_ELEMENTS, evaluate_constants
from popgraph.passes.options import Options
from popgraph.support.arrays import Array

MASK = np.array([[True, False, True], [False, True, True]])


def model(nodes: list[onnx.NodeProto], *weights: tuple[str, Array]) -> onnx.ModelProto:
    tensors = [numpy_helper.from_array(array, name) for name, array in weights]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [6])
    y = helper.make_empty_tensor_value_info("y")
    graph = helper.make_graph(nodes, "g", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def chosen() -> onnx.ModelProto:
    """The nodes that exporters write for x[mask] with a constant mask."""
    return model(
        [
            helper.make_node("Not", ["mask"], ["other"]),
            helper.make_node("NonZero", ["other"], ["places"]),
            helper.make_node("Transpose", ["places"], ["rows"], perm=[1, 0]),
            helper.make_node("Reshape", ["x", "shape"], ["matrix"]),
            helper.make_node("GatherND", ["matrix", "rows"], ["y"]),
        ],
        ("mask", MASK),
        ("shape", np.array([2, 3])),
    )


def operators(made: onnx.ModelProto, options: Options | None = None) -> list[str]:
    module, compilation = load(made)
    settle_nodes(module, compilation, options or Options())
    return named(module)


def named(module: ModuleOp) -> list[str]:
    return [op.op_type for op in model_of(module).graph.nodes]


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_non_zero_of_a_constant_mask_is_evaluated(backend: str) -> None:
    assert operators(chosen(), Options(disabled=("fold-indices",))) == [
        *("Not", "Constant", "Transpose", "Reshape", "GatherND")
    ]
    run = popgraph.compile(chosen(), backend=backend)
    assert run.static, "there is one program, and no step of the host"
    x = np.arange(6, dtype=np.float32)
    np.testing.assert_array_equal(run(x=x)["y"], x.reshape(2, 3)[~MASK])


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_constants_are_evaluated_once_per_compilation(
    backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once more for each signature of an open model, in which more is constant."""
    seen = []

    def counting(*arguments: Any, **named: Any) -> None:
        seen.append(arguments)
        evaluate_constants(*arguments, **named)

    monkeypatch.setattr("popgraph.passes.onnx.evaluate_constants.evaluate_constants", counting)
    made = chosen()
    popgraph.compile(made, backend=backend)
    assert len(seen) == 1
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "N"
    run = popgraph.compile(made, backend=backend)
    assert len(seen) == 2
    run(x=np.zeros(6, np.float32))
    assert len(seen) == 3


def test_constants_computed_from_strings() -> None:
    made = model(
        [
            helper.make_node("Unique", ["words"], ["", "", "", "counts"]),
            helper.make_node("Cast", ["counts"], ["numbers"], to=TensorProto.FLOAT),
            helper.make_node("ReduceSum", ["numbers"], ["sum"], keepdims=0),
            helper.make_node("Add", ["x", "sum"], ["y"]),
        ],
        ("words", np.array(["b", "a", "b"], object)),
    )
    run = popgraph.compile(made)
    np.testing.assert_array_equal(run(x=np.zeros(6, np.float32))["y"], np.full(6, 3))


def test_an_operator_without_kernels_is_evaluated() -> None:
    made = model(
        [
            helper.make_node("MelWeightMatrix", ["bins", "length", "rate", "low", "high"], ["m"]),
            helper.make_node("ReduceSum", ["m"], ["sum"], keepdims=0),
            helper.make_node("Add", ["x", "sum"], ["y"]),
        ],
        ("bins", np.array(8, np.int64)),
        ("length", np.array(16, np.int64)),
        ("rate", np.array(8192, np.int64)),
        ("low", np.array(0.0, np.float32)),
        ("high", np.array(4096.0, np.float32)),
    )
    assert operators(made)[-2:] == ["ReduceSum", "Add"]
    run = popgraph.compile(made)
    assert run(x=np.zeros(6, np.float32))["y"].shape == (6,)


def test_trained_weights_are_not_constants() -> None:
    nodes = [
        helper.make_node("NonZero", ["w"], ["places"]),
        helper.make_node("GatherND", ["x", "rows"], ["y"]),
    ]
    nodes.insert(1, helper.make_node("Transpose", ["places"], ["rows"], perm=[1, 0]))
    floats = model(nodes, ("w", np.array([0, 1, 0, 1], np.float32)))
    whole = model(nodes, ("w", np.array([0, 1, 0, 1])))
    assert "NonZero" not in operators(floats)
    assert "NonZero" in operators(floats, Options(variables=True))
    assert "NonZero" not in operators(whole, Options(variables=True))


def test_initializers_that_are_inputs_are_not_constants() -> None:
    made = chosen()
    made.graph.input.append(helper.make_tensor_value_info("mask", TensorProto.BOOL, [2, 3]))
    assert "NonZero" in operators(made)
    x = np.arange(6, dtype=np.float32)
    assert popgraph.compile(made)(x=x, mask=~MASK)["y"].shape == (4,)


def test_nodes_with_large_constants_are_not_evaluated() -> None:
    size = MOST_ELEMENTS + 1
    nodes = [
        helper.make_node("NonZero", ["w"], ["places"]),
        helper.make_node("Cast", ["places"], ["y"], to=TensorProto.FLOAT),
    ]
    assert "NonZero" in operators(model(nodes, ("w", np.zeros(size, np.int8))))
    assert "NonZero" not in operators(model(nodes, ("w", np.zeros(64, np.int8))))


def test_random_operators_are_not_evaluated() -> None:
    nodes = [
        helper.make_node("RandomUniform", [], ["r"], shape=[6], low=-1.0, high=1.0),
        helper.make_node("NonZero", ["r"], ["places"]),
        helper.make_node("Cast", ["places"], ["y"], to=TensorProto.FLOAT),
    ]
    assert "NonZero" in operators(model(nodes))


def test_a_scatter_of_constants_is_folded() -> None:
    """Exporters write the masks of shifted windows like this."""
    data, places = np.zeros((40, 40), np.float32), np.argwhere(np.ones((30, 30)))
    made = model(
        [
            helper.make_node("ScatterND", ["data", "places", "updates"], ["mask"]),
            helper.make_node("ReduceSum", ["mask"], ["sum"], keepdims=0),
            helper.make_node("Add", ["x", "sum"], ["y"]),
        ],
        ("data", data),
        ("places", places),
        ("updates", np.full(900, 2, np.float32)),
    )
    lowered = lower(*load(made), Options(), level="structured")
    assert not any(isinstance(op, tile.ScatterOp) for op in lowered.walk())
    found = popgraph.compile(made)(x=np.zeros(6, np.float32))["y"]
    np.testing.assert_array_equal(found, np.full(6, 1800))


def test_strings_are_constants_beside_trained_weights() -> None:
    """With trained weights, floats are not constants, but strings are."""
    node = helper.make_node("StringConcat", ["s", "s"], ["y"])
    made = model([node], ("s", np.array(["a"], object)))
    made.opset_import[0].version = 20
    run = popgraph.compile(made, options=Options(variables=True))
    assert run(x=np.zeros(6, np.float32))["y"].tolist() == ["aa"]
