"""Tests the writer of onnx IR: type inference and error messages."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from popgraph.dialects.onnx import Custom, op_class, tensor_type
from popgraph.dialects.onnx.types import describe
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.dialects.program import WeightStore
from popgraph.support.errors import PopgraphError


def writer() -> GraphWriter:
    made = GraphWriter({"": 17, "ai.graphcore": 1}, WeightStore())
    made.add_input("x", tensor_type("f32", ["N", 4]))
    made.add_initializer("w", np.ones((4, 5), np.float32))
    return made


def test_types_follow_from_the_schema() -> None:
    made = writer()
    (y,) = made.add_node("MatMul", ["x", "w"])
    assert describe(y.type) == "f32[N, 5]"
    values, indices = made.add_node("TopK", [y, made.add_initializer("k", [2])], outputs=2)
    assert (describe(values.type), describe(indices.type)) == ("f32[N, 2]", "i64[N, 2]")


def test_constants_are_propagated_into_shapes() -> None:
    made = writer()
    (shape,) = made.add_node("Shape", ["w"])
    (last,) = made.add_node("Gather", [shape, made.add_initializer("one", [1])], {"axis": 0})
    (double,) = made.add_node("Mul", [last, made.add_initializer("two", [2])])
    (zeros,) = made.add_node("ConstantOfShape", [double])
    assert describe(zeros.type) == "f32[10]"


def test_types_not_inferred_follow_the_type_variable() -> None:
    made = writer()
    (compressed,) = made.add_node("Compress", ["x", made.add_initializer("c", [True])])
    assert describe(compressed.type) == "f32[?]"


def test_similar_nodes_get_their_own_types() -> None:
    made = writer()
    for names in (["a", "b"], ["c", ""], ["d"]):
        values = made.add_node("Dropout", ["x"], outputs=names)
        types = ["f32[N, 4]", "bool[N, 4]"][: 2 if "b" in names else 1]
        assert [describe(value.type) for value in values] == types
    shapes = [made.add_initializer(f"s{size}", [size, -1]) for size in (2, 10)]
    found = [made.add_node("Reshape", ["w", shape])[0].type for shape in shapes]
    assert list(map(describe, found)) == ["f32[2, 10]", "f32[10, 2]"]
    found = [made.add_node("Shape", ["w"], given)[0].type for given in ({}, {"start": 1})]
    assert list(map(describe, found)) == ["i64[2]", "i64[1]"]


def test_custom_operators_take_given_types() -> None:
    made = writer()
    type_ = tensor_type("f32", [])
    (loss,) = made.add_node(
        "L1", ["x"], {"lambda": 0.5, "reduction": 1, "names": ["a"]}, domain="ai.graphcore",
        outputs=["loss"], result_types=[type_],
    )  # fmt: skip
    assert loss.type == type_
    op = loss.owner
    assert isinstance(op, Custom)
    assert op.attribute_values() == {"lambda": 0.5, "reduction": 1, "names": ["a"]}
    assert (op.domain, op.op_type, op.since_version) == ("ai.graphcore", "L1", 0)


def test_subgraphs_see_outer_values() -> None:
    made = writer()
    condition = made.add_input("c", tensor_type("bool", []))
    branches = {}
    for name, op in (("then_branch", "Neg"), ("else_branch", "Abs")):
        inner = made.subgraph(name)
        inner.add_node(op, ["x"], outputs=[f"{name}_y"])
        inner.set_outputs([f"{name}_y"])
        branches[name] = inner.graph()
    (y,) = made.add_node("If", [condition], branches, outputs=["y"])
    made.set_outputs([y])
    made.module().verify()
    assert describe(y.type) == "f32[N, 4]"


def test_generated_names_are_unique() -> None:
    made = writer()
    first, second = (made.add_node("Relu", ["x"])[0] for _ in range(2))
    assert made.value("Relu") is first
    assert made.value("Relu_1") is second


@pytest.mark.parametrize(
    ("mistake", "text"),
    [
        (
            lambda w: w.add_node("Conc", ["x"], outputs=["y"]),
            "domain ai.onnx has no operator 'Conc'\n  at: node 'y' (Conc)\n"
            "  try: the closest name is Concat",
        ),
        (
            lambda w: w.add_node("MatMul", ["w", "w"], name="m"),
            "MatMul-13 does not take inputs (f32[4, 5], f32[4, 5]): "
            "the inner dimensions are 5 and 4\n  at: node 'm' (MatMul)\n"
            "  try: a weight is [inputs, outputs], here [5, 4]; "
            "`Transpose(w, perm=[1, 0])` transposes it",
        ),
        (
            lambda w: w.add_node("Softmax", ["x"], {"axis": 1.5}, name="s"),
            "attribute 'axis' must be INT, not 1.5\n  at: node 's' (Softmax)\n"
            "  try: pass an integer",
        ),
        (
            lambda w: w.add_node("Softmax", ["x"], {"axis": 1 << 63}, name="s"),
            f"attribute 'axis' must be INT, not {1 << 63}\n  at: node 's' (Softmax)\n"
            "  try: pass an integer",
        ),
        (
            lambda w: w.add_node("Transpose", ["x"], {"perm": "10"}, name="t"),
            "attribute 'perm' must be INTS, not '10'\n  at: node 't' (Transpose)\n"
            "  try: pass a list of integers",
        ),
        (
            lambda w: w.add_node("If", ["x"], {"then_branch": 1, "else_branch": 2}, name="i"),
            "attribute 'then_branch' must be a graph, not 1\n  at: node 'i' (If)\n"
            "  try: pass a graph from GraphWriter.subgraph().graph()",
        ),
        (
            lambda w: w.add_node("Relu", ["xx"]),
            "no value 'xx' has been defined\n  at: graph 'graph'\n  try: the closest name is 'x'",
        ),
        (
            lambda w: w.add_node("Scaler", ["x"], domain="ai.onnx.ml", name="s"),
            "the model imports no operator set of domain ai.onnx.ml\n"
            "  at: node 's' (ai.onnx.ml::Scaler)\n  try: add it to the opset imports",
        ),
        (
            lambda w: w.add_input("x", tensor_type("f32", [2])),
            "two values have the name 'x'\n  at: input 'x'\n"
            "  try: give every value of the graph a unique name",
        ),
        (
            lambda w: w.module(),
            "the graph has no outputs\n  at: graph 'graph'\n  try: call set_outputs first",
        ),
    ],
)
def test_mistakes_of_callers_are_named(mistake: Callable[[GraphWriter], object], text: str) -> None:
    with pytest.raises(PopgraphError) as caught:
        mistake(writer())
    assert str(caught.value) == text


def test_a_node_made_by_its_class_can_be_added() -> None:
    made = writer()
    relu = op_class("Relu", 17).make([made.value("x")], {}, {}, ["r"], [made.value("x").type], {})
    made.add_op(relu)
    made.set_outputs(["r"])
    made.module().verify()
