"""Tests `share-nodes`: equal nodes of an open model are merged, unless they are distinguishable."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popgraph
from popgraph.compiler import load
from popgraph.dialects.onnx import model_of
from popgraph.dialects.program.weights import INLINE_BYTES
from popgraph.passes.onnx.share_nodes import ShareNodes
from popgraph.passes.options import Options
from popgraph.support.arrays import Array

X = np.random.default_rng(0).normal(size=(4, 3)).astype(np.float32)


def model(nodes: list[onnx.NodeProto], *outputs: str) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 3])],
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in outputs],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def constant(name: str, array: Array) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=numpy_helper.from_array(array))


def left(made: onnx.ModelProto) -> list[str]:
    module, compilation = load(made)
    ShareNodes().run(compilation, module)
    module.verify()
    return [op.op_type for op in model_of(module).graph.nodes]


def two_layers() -> onnx.ModelProto:
    """Exporters write layers like this, each with its own constants and shape arithmetic."""
    nodes: list[onnx.NodeProto] = []
    for number, x in enumerate(("x", "y0")):
        names = [f"{name}{number}" for name in ("minus", "axis", "row", "shape", "y")]
        minus, axis, row, shape, y = names
        nodes += [
            constant(minus, np.array(-1)),
            constant(axis, np.array([0])),
            helper.make_node("Unsqueeze", [minus, axis], [row]),
            helper.make_node("Concat", [row, f"three{number}"], [shape], axis=0),
            helper.make_node("Reshape", [x, shape], [f"z{number}"]),
            helper.make_node("Tanh", [f"z{number}"], [y]),
        ]
        nodes.insert(-3, constant(f"three{number}", np.array([3])))
    return model(nodes, "y1")


def test_equal_nodes_are_merged() -> None:
    once = ["Constant", "Constant", "Unsqueeze", "Constant", "Concat", "Reshape", "Tanh"]
    assert left(two_layers()) == [*once, "Reshape", "Tanh"]


def test_an_open_model_with_merged_nodes_computes_the_same() -> None:
    run = popgraph.compile(two_layers())
    assert not run.static
    for count in (4, 2):
        found = run(x=X[:count])["y1"]
        np.testing.assert_allclose(found, np.tanh(np.tanh(X[:count])), rtol=1e-6)


def test_extra_outputs_of_merged_nodes() -> None:
    run = popgraph.compile(two_layers(), options=Options(extra_outputs=("row1",)))
    np.testing.assert_array_equal(run(x=X)["row1"], [-1])


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (helper.make_node("Elu", ["x"], ["a"]), helper.make_node("Elu", ["x"], ["b"], alpha=0.5)),
        (
            helper.make_node("LeakyRelu", ["x"], ["a"], alpha=0.0),
            helper.make_node("LeakyRelu", ["x"], ["b"], alpha=-0.0),
        ),
        (
            helper.make_node("RandomNormalLike", ["x"], ["a"]),
            helper.make_node("RandomNormalLike", ["x"], ["b"]),
        ),
        (
            helper.make_node("Neg", ["x"], ["a"], __ipu_number=0),
            helper.make_node("Neg", ["x"], ["b"], __ipu_number=1),
        ),
    ],
    ids=["attributes", "signs of zero", "random numbers", "IPU numbers"],
)
def test_different_nodes_are_not_merged(first: onnx.NodeProto, second: onnx.NodeProto) -> None:
    made = model([first, second, helper.make_node("Sub", ["a", "b"], ["y"])], "y")
    assert left(made) == [first.op_type, second.op_type, "Sub"]


def test_nodes_of_outputs_are_not_merged() -> None:
    nodes = [helper.make_node("Neg", ["x"], [name]) for name in ("a", "b", "c", "d")]
    made = model([*nodes, helper.make_node("Add", ["c", "d"], ["y"])], "a", "b", "y")
    assert left(made) == ["Neg", "Neg", "Neg", "Add"]
    found = popgraph.compile(made)(x=X)
    for name, expected in {"a": -X, "b": -X, "y": -2 * X}.items():
        np.testing.assert_array_equal(found[name], expected)


def test_large_constants_are_not_merged() -> None:
    many = np.ones(INLINE_BYTES, np.float32)
    made = model(
        [constant("a", many), constant("b", many), helper.make_node("Add", ["a", "b"], ["y"])], "y"
    )
    assert left(made) == ["Constant", "Constant", "Add"]
