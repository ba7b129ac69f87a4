"""Tests `fold-indices`: index arithmetic becomes constants, unless something refers to it."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import popgraph
from popgraph.backends.reference.meaning import assert_same_meaning
from popgraph.compiler import load, settle_nodes
from popgraph.dialects.onnx import OnnxOp, model_of
from popgraph.dialects.onnx.containers import Model
from popgraph.dialects.program import WeightStore
from popgraph.passes.onnx.evaluate_constants import replace_by_constants
from popgraph.passes.onnx.fold_indices import FoldIndices
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError

X = np.arange(12, dtype=np.float32).reshape(4, 3)


def rows_of(x: list[int | str], *, outputs: tuple[str, ...] = ("y",)) -> onnx.ModelProto:
    """x as [2, 6], by a shape that is computed from x's and from an input with a default."""
    nodes = [
        helper.make_node("Shape", ["x"], ["shape"]),
        helper.make_node("Gather", ["shape", "zero"], ["rows"]),
        helper.make_node("Div", ["rows", "two"], ["half"]),
        helper.make_node("Unsqueeze", ["half", "axes"], ["first"]),
        helper.make_node("Constant", [], ["rest"], value=numpy_helper.from_array(np.array([-1]))),
        helper.make_node("Concat", ["first", "rest"], ["wanted"], axis=0),
        helper.make_node("Reshape", ["x", "wanted"], ["y"]),
    ]
    held = {"zero": np.array(0), "two": np.array(2), "axes": np.array([0])}
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, x)
    graph = helper.make_graph(
        nodes,
        "g",
        [given],
        [helper.make_empty_tensor_value_info(name) for name in outputs],
        [numpy_helper.from_array(array, name) for name, array in held.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def left(made: onnx.ModelProto, options: Options | None = None) -> dict[str, str]:
    """The operators after the pass, by their first output."""
    module, compilation = load(made)
    settle_nodes(module, compilation, options or Options())
    module.verify()
    return {op.output_names[0]: op.op_type for op in model_of(module).graph.nodes}


def test_a_shape_becomes_one_constant() -> None:
    assert left(rows_of([4, 3])) == {"wanted": "Constant", "y": "Reshape"}
    run = popgraph.compile(rows_of([4, 3]))
    np.testing.assert_array_equal(run(x=X)["y"], X.reshape(2, 6))


def test_an_open_shape_stays() -> None:
    assert list(left(rows_of(["n", 3])).values()).count("Div") == 1
    run = popgraph.compile(rows_of(["n", 3]))
    for rows in (4, 2):
        np.testing.assert_array_equal(run(x=X[:rows])["y"], X[:rows].reshape(rows // 2, -1))


def test_outputs_stay() -> None:
    made = rows_of([4, 3], outputs=("y", "half"))
    kept = {"rows": "Constant", "half": "Div", "wanted": "Constant", "y": "Reshape"}
    assert left(made) == kept
    found = popgraph.compile(made)(x=X)
    assert found["half"] == 2 and found["y"].shape == (2, 6)


def test_indices_that_a_call_may_override_stay() -> None:
    made = rows_of([4, 3])
    made.graph.input.append(helper.make_tensor_value_info("two", TensorProto.INT64, []))
    assert left(made)["half"] == "Div" and left(made)["rows"] == "Constant"
    run = popgraph.compile(made)
    assert run(x=X)["y"].shape == (2, 6)
    assert run(x=X, two=np.array(4))["y"].shape == (1, 12)


@pytest.mark.parametrize(
    "options", [Options(extra_outputs=("rows",)), Options(disabled=("fold-indices",))], ids=str
)
def test_options_keep_all_nodes(options: Options) -> None:
    assert len(left(rows_of([4, 3]), options)) == 7


def test_a_planted_bug_changes_the_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    def backwards(op: OnnxOp, arrays: list[Array], model: Model, store: WeightStore) -> None:
        replace_by_constants(op, [array[..., ::-1] for array in arrays], model, store)

    def check() -> None:
        module, compilation = load(rows_of([4, 3]))
        before = module.clone()
        FoldIndices().run(compilation, module)
        assert_same_meaning(before, module, compilation.weights, tolerance=0.0)

    check()
    monkeypatch.setattr("popgraph.passes.onnx.fold_indices.replace_by_constants", backwards)
    with pytest.raises((AssertionError, PopgraphError)):
        check()


def test_float_arithmetic_stays() -> None:
    """Its rounding is that of the kernels."""
    made = rows_of([4, 3])
    del made.graph.node[2]
    half = [
        helper.make_node("Cast", ["rows"], ["real"], to=TensorProto.FLOAT),
        helper.make_node("Mul", ["real", "scale"], ["scaled"]),
        helper.make_node("Cast", ["scaled"], ["half"], to=TensorProto.INT64),
    ]
    for place, node in enumerate(half, 2):
        made.graph.node.insert(place, node)
    scale: Array = np.array(0.5, np.float32)
    made.graph.initializer.append(numpy_helper.from_array(scale, "scale"))
    kept = left(made)
    assert kept["rows"] == "Constant" and kept["scaled"] == "Mul" and kept["half"] == "Cast"
    assert popgraph.compile(made)(x=X)["y"].shape == (2, 6)
