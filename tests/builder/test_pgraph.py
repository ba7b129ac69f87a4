"""Tests the meaning of `.pgraph` texts: operators, literals, attributes, types."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from xdsl.dialects.builtin import FileLineColLoc, NameLoc

from popgraph.builder.pgraph import Document, OptimizerCall, add_loss, load, parse, parse_optimizer
from popgraph.builder.pgraph.lower.initializers import INITIALIZERS, fans
from popgraph.dialects.onnx import Initializer, OnnxOp, model_of, tensor_type
from popgraph.dialects.onnx.metadata import graph_metadata
from popgraph.dialects.onnx.types import describe
from popgraph.support.errors import ParseError, PopgraphError

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.pgraph"))


def body(statements: str, *, head: str = "x: f32[N, 4]", opset: int = 21) -> Document:
    return parse(f"opset {opset}\ngraph g({head}) -> y {{\n{statements}\n}}", "t.pgraph")


def nodes(document: Document) -> list[OnnxOp]:
    return list(model_of(document.module).graph.nodes)


def op_types(document: Document) -> list[str]:
    return [node.op_type for node in nodes(document)]


def weight(document: Document, name: str) -> Any:
    for op in model_of(document.module).graph.block.ops:
        if isinstance(op, Initializer) and op.value_name.text == name:
            return op.array(document.weights)
    raise AssertionError(f"no weight {name}")


def test_infix_operators_bind_as_in_python() -> None:
    document = body("y = -x ** 2.0 + x * x / 2.0 - x")
    assert op_types(document) == [
        "Constant", "Pow", "Neg", "Mul", "Constant", "Div", "Add", "Sub",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("symbol", "expected"),
    [
        ("==", ["Equal"]), ("!=", ["Equal", "Not"]), ("<", ["Less"]), ("<=", ["LessOrEqual"]),
        (">", ["Greater"]), (">=", ["GreaterOrEqual"]), ("@", ["MatMul"]),
    ],
)  # fmt: skip
def test_each_symbol_is_an_operator(symbol: str, expected: list[str]) -> None:
    assert op_types(body(f"y = x {symbol} x", head="x: f32[4, 4]")) == expected


def test_inputs_by_position_or_name_and_absent_inputs() -> None:
    clip = nodes(body("y = Clip(x, _, 6)"))[-1]
    assert [value is None for value in clip.input_values()] == [False, True, False]
    named = nodes(body("y = Clip(x, max=6)"))[-1]
    assert [value is None for value in named.input_values()] == [False, True, False]


def test_a_keyword_is_an_attribute_where_the_version_has_one() -> None:
    old = nodes(body("y = Dropout(x, ratio=0.25)", opset=10))[-1]
    assert old.attribute_values()["ratio"] == pytest.approx(0.25)
    new = body("(y, mask) = Dropout(x, ratio=0.25)")
    assert op_types(new) == ["Constant", "Dropout"]
    assert nodes(new)[-1].output_names == ("y", "mask")


@pytest.mark.parametrize(
    ("statement", "dtype", "expected"),
    [
        ("y = x * 2", "float32", 2.0),
        ("y = Reshape(x, [0, 4])", "int64", [0, 4]),
        ("y = Cast(x, to=f16) * 2", "float16", 2.0),
        ("y = Cast(x, to=f64) * f64(0.5)", "float64", 0.5),
        ("y = i8([[1, -2]])", "int8", [[1, -2]]),
        ("const y = [true, false]", "bool", [True, False]),
        ("const y: u8[2] = [1, 0xff]", "uint8", [1, 255]),
        ('const y = ["a"]', "object", ["a"]),
    ],
)
def test_literals_take_the_expected_type(statement: str, dtype: str, expected: Any) -> None:
    document = body(f"    {statement}")
    held = [n.attribute_values(document.weights) for n in nodes(document)]
    array = next(values["value"] for values in held if "value" in values)
    assert isinstance(array, np.ndarray)
    assert str(array.dtype) == dtype
    assert array.tolist() == expected


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ('auto_pad="SAME_UPPER"', "SAME_UPPER"),
        ("kernel_shape=[2, 2]", [2, 2]),
        ("ceil_mode=true", 1),
        ("storage_order=0", 0),
    ],
)
def test_attributes(written: str, expected: Any) -> None:
    name = written.split("=")[0]
    extra = "" if name == "kernel_shape" else ", kernel_shape=[2, 2]"
    document = body(f"y = MaxPool(x, {written}{extra})", head="x: f32[1, 1, 4, 4]")
    assert nodes(document)[-1].attribute_values()[name] == expected


def test_dtypes_are_attributes_too() -> None:
    assert nodes(body("y = Cast(x, to=f16)"))[0].attribute_values()["to"] == 10


def test_symbolic_dimensions_flow_through() -> None:
    document = body("weight w: f32[4, 7] = zeros\n y = x @ w")
    assert describe(model_of(document.module).graph.outputs.data[0].type) == "f32[N, 7]"


def test_a_declared_type_refines_inference() -> None:
    document = parse("graph g(x: f32[?, 4]) -> (y: f32[M, 4]) {\n y = Relu(x)\n}")
    assert describe(model_of(document.module).graph.outputs.data[0].type) == "f32[M, 4]"


def test_operators_of_other_domains_are_kept() -> None:
    document = body('y: f32[N, 4] = com.example.Odd(x, _, x, a=1, f=0.5, s="t", n=[1, 2])')
    (node,) = nodes(document)
    assert (node.domain, node.op_type) == ("com.example", "Odd")
    assert node.attribute_values() == {"a": 1, "f": 0.5, "s": "t", "n": [1, 2]}
    assert describe(node.results[0].type) == "f32[N, 4]"
    assert model_of(document.module).opset_versions == {"": 21, "com.example": 1}


def test_a_domain_may_be_shortened() -> None:
    assert nodes(body("y = graphcore.Gelu(x)"))[0].domain == "ai.graphcore"
    assert nodes(body("y = ml.Normalizer(x)"))[0].domain == "ai.onnx.ml"


def test_the_newest_operators_are_the_default() -> None:
    document = parse("graph g(x: f32[2]) -> y {\n y = Relu(x)\n}")
    newest = model_of(document.module).opset_versions[""]
    assert newest >= 21
    assert nodes(document)[0].name == "onnx.Relu.v14"


def test_operations_have_source_locations() -> None:
    document = body("weight w: f32[4] = zeros\n y = Relu(\n    x + w)")
    places = {}
    for op in model_of(document.module).graph.block.ops:
        if isinstance(op.location, NameLoc) and isinstance(op.location.location, FileLineColLoc):
            at = op.location.location
            places[op.name.split(".")[1]] = (at.filename.data, at.line.data, at.column.data)
    assert places == {
        "Initializer": ("t.pgraph", 3, 8),
        "Add": ("t.pgraph", 5, 7),
        "Relu": ("t.pgraph", 4, 6),
    }


def test_the_doc_string_of_a_file_is_the_models_and_that_of_a_graph_the_graphs() -> None:
    document = parse(
        '"""File."""\ngraph g(x: f32) -> y {\n  """\n  Graph.\n    More.\n  """\n  y = x\n}'
    )
    model = model_of(document.module)
    assert model.doc is not None
    assert model.doc.text == "File."
    assert graph_metadata(model.graph).doc == "Graph.\n  More."


def test_newlines_are_free_inside_parentheses() -> None:
    text = "\r\n# c\r\n\r\ngraph g(\n  x: f32[2], # in\n) -> (\n y,\n) { y = Add(\n x,\n x,\n) }"
    assert op_types(parse(text)) == ["Add"]


# --- weights -----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", sorted(INITIALIZERS))
def test_initialisers_are_repeatable_and_of_the_right_type(name: str) -> None:
    call = {"constant": "constant(0.5)"}.get(name, name)
    first, again = (body(f"weight w: f16[8, 4] = {call}\n y = x") for _ in range(2))
    array = weight(first, "w")
    assert array.shape == (8, 4)
    assert array.dtype == np.float16
    assert np.array_equal(array, weight(again, "w"))


def test_two_weights_without_a_seed_differ_and_equal_seeds_agree() -> None:
    document = body(
        "weight a: f32[9] = normal\n weight b: f32[9] = normal\n"
        "weight c: f32[9] = normal(seed=3)\n weight d: f32[9] = normal(seed=3)\n y = x"
    )
    assert not np.array_equal(weight(document, "a"), weight(document, "b"))
    assert np.array_equal(weight(document, "c"), weight(document, "d"))


def test_distributions_have_the_moments_they_are_named_for() -> None:
    shape = "[400, 300]"
    document = body(
        f"weight n: f32{shape} = normal(mean=1, std=2, seed=1)\n"
        f"weight u: f32{shape} = uniform(-1, 3, seed=1)\n"
        f"weight g: f32{shape} = glorot_uniform(seed=1)\n"
        f"weight h: f32{shape} = he_normal(seed=1)\n y = x"
    )
    n, u, g, h = (weight(document, name) for name in "nugh")
    assert (n.mean(), n.std()) == (pytest.approx(1, abs=0.03), pytest.approx(2, rel=0.01))
    assert u.min() == pytest.approx(-1, abs=0.01)
    assert u.max() == pytest.approx(3, abs=0.01)
    limit = (6 / 700) ** 0.5
    assert np.abs(g).max() <= limit
    assert np.abs(g).max() == pytest.approx(limit, rel=0.01)
    assert h.std() == pytest.approx((2 / 400) ** 0.5, rel=0.01)


def test_values_of_other_initialisers() -> None:
    document = body(
        "weight t: f32[400, 300] = truncated_normal(std=0.5, seed=1)\n"
        "weight o: f64[3, 4, 2] = orthogonal(gain=2, seed=1)\n"
        "weight p: f64[5, 2] = orthogonal\n weight q: f64[3] = orthogonal\n"
        "weight e: f32[2, 3, 4] = eye(0.5)\n const a: i64[2, 3] = arange\n"
        "weight b: f32[3] = arange(1, -0.5)\n weight l: f32[2, 2] = linspace(-1, 2)\n y = x"
    )
    t, o, p, q, e, b, between = (weight(document, name) for name in "topqebl")
    assert np.abs(t).max() <= 1
    assert t.std() == pytest.approx(0.44, abs=0.01)
    rows = o.reshape(3, 8)
    assert np.allclose(rows @ rows.T, 4 * np.eye(3))
    assert np.allclose(p.T @ p, np.eye(2))
    assert np.linalg.norm(q) == pytest.approx(1)
    assert np.array_equal(e, np.broadcast_to(0.5 * np.eye(3, 4), (2, 3, 4)))
    (a,) = [n.attribute_values(document.weights)["value"] for n in nodes(document)[:1]]
    assert np.array_equal(a, [[0, 1, 2], [3, 4, 5]])
    assert b.tolist() == [1, 0.5, 0]
    assert between.tolist() == [[-1, 0], [1, 2]]
    with pytest.raises(ParseError, match="eye: this needs at least two axes"):
        body("weight w: f32[3] = eye\n y = x")


def test_fans_of_matrices_and_convolutions() -> None:
    assert fans((64, 10)) == (64, 10)
    assert fans((16, 3, 5, 5)) == (75, 400)
    assert fans((7,)) == (7, 7)
    assert fans(()) == (1, 1)


def test_weights_are_loaded_from_the_folder_of_the_text(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.savez(tmp_path / "w.npz", a=array, b=array.astype(np.float64))
    path = tmp_path / "m.pgraph"
    path.write_text('graph g() -> w {\n  weight w: f32[2, 3] = load("w.npz", "a")\n}')
    assert np.array_equal(weight(load(path), "w"), array)
    path.write_text('graph g() -> w {\n  weight w: f32[2, 3] = load("w.npz", "b")\n}')
    with pytest.raises(PopgraphError, match="the file holds float64"):
        load(path)
    path.write_text('graph g() -> w {\n  weight w: f32[2, 3] = load("w.npz", "c")\n}')
    with pytest.raises(ParseError, match="holds no array 'c'"):
        load(path)
    (tmp_path / "w.npz").write_bytes(b"nonsense")
    with pytest.raises(ParseError, match="cannot be read"):
        load(path)


# --- training and files ------------------------------------------------------------------------

TRAINED = """
graph g(x: f32[N, 4]) -> (y: f32[N, 3]) {
    weight w: f32[4, 3] = he_normal
    y = Softmax(x @ w)
}
train (labels: i32[N]) {
    loss = nll(y, labels)
    optimizer = Adam(0.001, beta1=0.8)
}
"""


def test_a_train_section_is_data() -> None:
    training = parse(TRAINED).training
    assert training is not None
    assert training.loss == "loss"
    assert training.inputs == ("labels",)
    assert training.optimizer is not None
    assert training.optimizer.name == "Adam"
    assert training.optimizer.arguments == {"learning_rate": 0.001, "beta1": 0.8}


def test_training_inputs_and_loss_are_absent_in_inference() -> None:
    document = parse(TRAINED)
    assert model_of(document.module).graph.input_names == ("x",)
    assert document.training is not None
    graph = model_of(document.training.module).graph
    assert graph.input_names == ("x", "labels")
    assert graph.output_names == ("y", "loss")
    assert describe(graph.outputs.data[1].type) == "f32[]"
    assert list(graph.nodes)[-1].op_type == "Nll"


def test_any_scalar_may_be_the_loss() -> None:
    document = parse(
        "graph g(x: f32[4, 2]) -> y {\n weight w: f32[2] = ones\n y = x * w\n}\n"
        "train (t: f32[4, 2]) {\n d = y - t\n loss = ReduceMean(d * d, keepdims=0)\n}"
    )
    assert document.training is not None
    assert document.training.optimizer is None
    assert model_of(document.training.module).graph.output_names == ("y", "loss")


def test_several_graphs_and_their_trainings() -> None:
    graph = "graph {}(x: f32[2]) -> y {{\n weight w: f32[2] = ones\n y = x * w\n}}\n"
    document = parse(graph.format("a") + graph.format("b") + "train b {\n loss = l1(y)\n}")
    assert list(document.graphs) == ["a", "b"]
    assert document.module is document.graphs["a"]
    assert document.training is None
    assert list(document.trainings) == ["b"]


def test_an_optimizer_expression_is_parsed() -> None:
    call = parse_optimizer("SGD(0.1, momentum=0.9, nesterov=true)")
    assert isinstance(call, OptimizerCall)
    assert call.arguments == {"learning_rate": 0.1, "momentum": 0.9, "nesterov": True}
    with pytest.raises(ParseError):
        parse_optimizer("SGD(")


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_are_well_formed(path: Path) -> None:
    document = load(path)
    assert not document.warnings
    document.module.verify()
    if document.training is not None:
        document.training.module.verify()


def test_a_file_that_is_not_text(tmp_path: Path) -> None:
    path = tmp_path / "m.pgraph"
    with pytest.raises(ParseError, match="cannot be read"):
        load(path)
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ParseError, match="UTF-8"):
        load(path)


# --- PopART's operators and losses -------------------------------------------------------------


def test_popart_operators_by_the_names_of_the_builder_have_types() -> None:
    document = body("y = graphcore.scale(graphcore.gelu(x), scale=2)")
    gelu, scale = nodes(document)
    assert (gelu.domain, gelu.op_type, scale.op_type) == ("ai.graphcore", "Gelu", "Scale")
    assert scale.attribute_values() == {"scale": 2.0}
    assert describe(scale.results[0].type) == "f32[N, 4]"


def test_enumerations_are_strings() -> None:
    document = body(
        'y = graphcore.nllloss(x, l, reduction="Sum", ignoreIndex=3)',
        head="x: f32[N, 4], l: i32[N]",
    )
    assert nodes(document)[0].attribute_values()["reduction"] == "Sum"
    assert describe(nodes(document)[0].results[0].type) == "f32[]"


@pytest.mark.parametrize(("loss", "op_type"), [("l1(y)", "L1"), ("identity(y)", "IdentityLoss")])
def test_losses_of_one_tensor(loss: str, op_type: str) -> None:
    document = parse(
        f"graph g(x: f32[2]) -> y {{\n weight w: f32[2] = ones\n y = x * w\n}}\n"
        f'train {{\n loss = {loss[:-1]}, reduction="Sum")\n}}'
    )
    assert document.training is not None
    last = list(model_of(document.training.module).graph.nodes)[-1]
    assert (last.op_type, last.attribute_values()["reduction"]) == (op_type, "Sum")


def test_a_loss_is_added_to_a_model_that_exists() -> None:
    document = body("weight w: f32[4, 3] = ones\n y = Softmax(x @ w)")
    before = str(document.module)
    labels = tensor_type("i32", ["N"])
    module, name = add_loss(document.module, document.weights, "nll(y, t)", {"t": labels})
    module.verify()
    graph = model_of(module).graph
    assert name == "loss"
    assert (graph.input_names, graph.output_names) == (("x", "t"), ("y", "loss"))
    assert [node.op_type for node in graph.nodes] == ["MatMul", "Softmax", "Nll"]
    assert str(document.module) == before


def test_a_value_of_the_model_may_be_the_loss() -> None:
    document = body("h = Relu(x)\n y = ReduceMean(h, keepdims=0)")
    module, name = add_loss(document.module, document.weights, "y", {})
    assert name == "y"
    assert model_of(module).graph.output_names == ("y",)
    with pytest.raises(PopgraphError, match="the loss must be one number"):
        add_loss(document.module, document.weights, "h", {})
    with pytest.raises(ParseError, match="there is no value `k`"):
        add_loss(document.module, document.weights, "k", {})


def test_an_added_loss_takes_a_name_that_is_free() -> None:
    document = parse("graph g(x: f32[2]) -> loss {\n loss = Relu(x)\n}")
    module, name = add_loss(document.module, document.weights, "l1(loss)", {})
    assert name == "loss_1"
    assert model_of(module).graph.output_names == ("loss", "loss_1")


def test_an_input_may_be_an_output() -> None:
    document = parse("graph g(x: f32[2]) -> x { }", "t.pgraph")
    assert model_of(document.module).graph.output_names == ("x",)
