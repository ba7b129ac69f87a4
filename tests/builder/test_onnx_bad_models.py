"""Tests that invalid models end in errors with what, where and what to do."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
from onnx import GraphProto, ModelProto, TensorProto, helper, numpy_helper, parser

import popgraph
from popgraph.builder.budget import MODELS
from popgraph.builder.onnx.read import import_model
from popgraph.dialects.program import WeightStore
from popgraph.support.errors import ModelError, PopgraphError, TypeMismatchError

HEADER = '<ir_version: 8, opset_import: ["" : 17]>\n'


def model(body: str, arguments: str = "float[2, 3] x", results: str = "y") -> ModelProto:
    return parser.parse_model(f"{HEADER} main ({arguments}) => ({results}) {{ {body} }}")


def error_of(bad: ModelProto | bytes | str | Path) -> PopgraphError:
    with pytest.raises(PopgraphError) as caught:
        import_model(bad, WeightStore())
    return caught.value


CASES: dict[str, tuple[ModelProto, str, str]] = {
    "unknown operator": (
        model("y = Rellu(x)"),
        "domain ai.onnx has no operator 'Rellu'",
        "the closest name is Relu",
    ),
    "operator of another standard domain": (
        model("y = Scaler(x)"),
        "domain ai.onnx has no operator 'Scaler'",
        "Scaler is an operator of domain ai.onnx.ml",
    ),
    "domain that is not imported": (
        model("y = ai.onnx.ml.Scaler(x)"),
        "the model imports no operator set of domain ai.onnx.ml",
        "add it to the opset imports",
    ),
    "operator newer than the opset": (
        model("y = Mish(x)"),
        "operator Mish does not exist in opset 17 of domain ai.onnx",
        "import opset 18 or later",
    ),
    "removed operator": (
        model("y = Upsample(x, x)"),
        "operator Upsample was removed in opset 10 of domain ai.onnx",
        "import an earlier opset, or use what replaced it",
    ),
    "unknown attribute": (
        model("y = Softmax<axes = 1>(x)"),
        "Softmax-13 has no attribute 'axes'",
        "the closest name is 'axis'",
    ),
    "attribute of another kind": (
        model('y = Softmax<axis = "last">(x)'),
        "attribute 'axis' of Softmax must be INT, not #pg.bytes<\"last\">",
        "",
    ),
    "missing attribute": (model("y = Cast(x)"), "Cast-13 needs the attribute 'to'", ""),
    "missing input": (
        model("y = Add(x)"),
        "Add-14 needs the input 'B'",
        "2 inputs are required",
    ),
    "too many inputs": (model("y = Relu(x, x)"), "Relu-14 has at most 1 inputs, not 2", ""),
    "too many outputs": (
        model("y, z = Relu(x)"),
        "Relu-14 has at most 1 outputs, not 2",
        "",
    ),
    "value that nobody computes": (
        model("y = Add(x, xx)"),
        "no value 'xx' has been defined",
        "the closest name is 'x'",
    ),
    "output that nobody computes": (
        model("z = Relu(x)"),
        "output 'y' is computed by no node",
        "define it before it is used",
    ),
    "name given twice": (
        model("y = Relu(x) y = Neg(x)"),
        "two values have the name 'y'",
        "give every value of the graph a unique name",
    ),
    "node named as an input": (
        model("x = Relu(x)", results="x"),
        "two values have the name 'x'",
        "give every value of the graph a unique name",
    ),
    "wrong order": (
        model("y = Relu(z) z = Neg(x)"),
        "value 'z' is used before the node that computes it",
        "sort the model's nodes: a node must follow the nodes whose outputs it uses",
    ),
    "cycle": (
        model("a = Add(x, c) b = Relu(a) c = Neg(b) y = Relu(c)"),
        "the graph has a cycle: c -> a -> b -> c",
        "a graph computes every value before it is used; use Loop or Scan for repetition",
    ),
    "cycle of one": (
        model("a = Add(x, a) y = Relu(a)"),
        "the graph has a cycle: a -> a",
        "a graph computes every value before it is used; use Loop or Scan for repetition",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_errors_have_what_and_hint(name: str) -> None:
    bad, what, hint = CASES[name]
    error = error_of(bad)
    assert isinstance(error, ModelError)
    assert (error.what, error.hint) == (what, hint)
    assert error.where


def test_shapes_that_do_not_fit() -> None:
    bad = model("y = Add(x, b)", "float[2, 3] x, float[2, 4] b")
    bad.graph.node[0].name = "layer/add"
    error = error_of(bad)
    assert isinstance(error, TypeMismatchError)
    assert str(error) == (
        "Add-14 does not take inputs (f32[2, 3], f32[2, 4]): "
        "sizes 3 and 4 do not broadcast at axis -1\n"
        "  at: node 'layer/add' (Add)\n"
        "  try: sizes aligned from the last axis must be equal or 1"
    )


def test_a_declared_type_that_contradicts_the_node() -> None:
    error = error_of(model("y = Relu(x)", results="int64[2, 3] y"))
    assert error.what == "value 'y' is declared as i64[2, 3], but the node computes f32[2, 3]"


def test_a_function_that_calls_itself() -> None:
    bad = parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17, "l" : 1]> main (float[2] x) => (y) { y = l.F(x) }
        <domain: "l", opset_import: ["" : 17, "l" : 1]> F (a) => (b) { b = l.G(a) }
        <domain: "l", opset_import: ["" : 17, "l" : 1]> G (a) => (b) { b = l.F(a) }
        """
    )
    assert error_of(bad).what == "function l::F calls itself: l::F -> l::G -> l::F"


def test_exponential_expansion_of_functions_is_refused() -> None:
    """Each function calls the previous one twice: 24 functions expand to 2**25 nodes."""
    domain = '<domain: "l", opset_import: ["" : 17, "l" : 1]>'
    functions = [f"{domain} F0 (a) => (b) {{ b = Neg(a) }}"]
    functions += [
        f"{domain} F{level} (a) => (b) {{ c = l.F{level - 1}(a) b = l.F{level - 1}(c) }}"
        for level in range(1, 26)
    ]
    head = '<ir_version: 8, opset_import: ["" : 17, "l" : 1]> main (float[2] x) => (y)'
    bad = parser.parse_model("\n".join([f"{head} {{ y = l.F25(x) }}", *functions]))
    error = error_of(bad)
    assert "expand to 33,554,432 nodes; the limit is 100,000" in error.what
    assert error.where == "function l::F25"
    assert f"{MODELS}=10 in the environment" in error.hint


def test_the_limit_of_expansion_is_adjustable(monkeypatch: pytest.MonkeyPatch) -> None:
    model = parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17, "l" : 1]> main (float[2] x) => (y) { y = l.F(x) }
        <domain: "l", opset_import: ["" : 17]> F (a) => (b) { c = Neg(a) b = Neg(c) }
        """
    )
    monkeypatch.setenv(MODELS, "0.00001")
    assert "expand to 2 nodes; the limit is 1" in error_of(model).what
    monkeypatch.setenv(MODELS, "0.00002")
    assert popgraph.compile(model)
    monkeypatch.setenv(MODELS, "none")
    assert error_of(model).hint == f"`{MODELS}=10`"


def test_a_function_that_is_defined_twice() -> None:
    bad = parser.parse_model(
        """
        <ir_version: 8, opset_import: ["" : 17, "l" : 1]> main (float[2] x) => (y) { y = l.F(x) }
        <domain: "l", opset_import: ["" : 17]> F (a) => (b) { b = Neg(a) }
        """
    )
    bad.functions.append(bad.functions[0])
    assert error_of(bad).what == "function l::F is defined twice"


def with_tensor(**fields: object) -> ModelProto:
    bad = model("y = Relu(x)")
    bad.graph.initializer.append(TensorProto(name="w", **fields))
    return bad


@pytest.mark.parametrize(
    ("bad", "what"),
    [
        (
            with_tensor(data_type=1, dims=[2], raw_data=b"1234567"),
            "tensor 'w' has shape [2], but another number of elements",
        ),
        (
            with_tensor(data_type=1, dims=[3], float_data=[1.0]),
            "tensor 'w' has shape [3], but another number of elements",
        ),
        (
            with_tensor(data_type=8, dims=[3], string_data=[b"a"]),
            "tensor 'w' has shape [3], but another number of elements",
        ),
        (
            with_tensor(data_type=1, dims=[1 << 40, 1 << 40]),
            f"tensor 'w' of shape [{1 << 40}, {1 << 40}] cannot exist",
        ),
        (
            with_tensor(data_type=1, dims=[1 << 40]),
            f"tensor 'w' has shape [{1 << 40}], but another number of elements",
        ),
        (with_tensor(data_type=1, dims=[-1]), "tensor 'w' of shape [-1] cannot exist"),
        (
            with_tensor(data_type=99, dims=[1], raw_data=b"1"),
            "tensor 'w' has element type number 99, which is not one of ONNX's",
        ),
        (
            with_tensor(data_type=0, dims=[1], raw_data=b"1"),
            "tensor 'w' has element type number 0, which is not one of ONNX's",
        ),
    ],
)
def test_damaged_tensors(bad: ModelProto, what: str) -> None:
    error = error_of(bad)
    assert isinstance(error, ModelError)
    assert error.what == what
    assert error.hint


def test_absurd_dimensions_of_an_input() -> None:
    bad = model("y = Relu(x)", f"float[{1 << 40}, {1 << 40}] x")
    assert error_of(bad).what == f"a tensor of shape [{1 << 40}, {1 << 40}] cannot exist"


def test_sparse_tensor_with_an_index_outside() -> None:
    bad = model("y = Relu(x)")
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([1.5], np.float32), "s"),
        numpy_helper.from_array(np.array([4], np.int64)),
        [2, 2],
    )
    bad.graph.sparse_initializer.append(sparse)
    assert error_of(bad).what == "sparse tensor 's' has an index outside its shape [2, 2]"


def test_a_name_that_is_not_utf8() -> None:
    data = model("y = Relu(x)").SerializeToString().replace(b"Relu", b"Re\xffu")
    assert error_of(data).what == "a name in the model is not UTF-8"


def test_deeply_nested_graphs() -> None:
    inner = GraphProto(name="leaf")
    inner.node.add(op_type="Identity", input=["x"], output=["leaf"])
    inner.output.add(name="leaf")
    for depth in range(30):
        outer = GraphProto(name=f"g{depth}")
        node = outer.node.add(op_type="If", input=["c"], output=[f"v{depth}"])
        node.attribute.append(helper.make_attribute("then_branch", inner))
        node.attribute.append(helper.make_attribute("else_branch", outer.__class__(name="none")))
        outer.output.add(name=f"v{depth}")
        inner = outer
    bad = model("y = Relu(x)", "float[2] x, bool c")
    bad.graph.node[0].CopyFrom(inner.node[0])
    bad.graph.node[0].output[0] = "y"
    assert isinstance(error_of(bad), PopgraphError)


NO_MODEL = "not an ONNX model, or a truncated one"


def test_bytes_that_are_not_a_model(tmp_path: Path) -> None:
    whole = model("y = Relu(x)").SerializeToString()
    assert error_of(b"version https://git-lfs.github.com/spec/v1").what == NO_MODEL
    assert error_of(whole[:-5]).what == NO_MODEL
    assert error_of(b"").what == "the model has no graph"
    assert error_of(ModelProto()).what == "the model has no graph"
    no_opset = ModelProto.FromString(whole)
    del no_opset.opset_import[:]
    assert error_of(no_opset).what == "the model has no opset import"
    path = tmp_path / "m.onnx"
    assert error_of(path).what == "the model cannot be read: there is no such file"
    path.write_bytes(whole[:-5])
    error = error_of(path)
    assert (error.what, error.where) == (NO_MODEL, f"file {str(path)!r}")


def test_damaged_bytes_end_in_popgraph_errors() -> None:
    """Every failure is a PopgraphError; the other mutants happen to be valid models."""
    numbers = random.Random(7)
    seeds = [bad.SerializeToString() for bad, _, _ in CASES.values()]
    refused = 0
    for _ in range(1500):
        data = bytearray(numbers.choice(seeds))
        for _ in range(numbers.randint(1, 4)):
            data[numbers.randrange(len(data))] = numbers.randrange(256)
        try:
            import_model(bytes(data), WeightStore()).verify()
        except PopgraphError:
            refused += 1
    assert refused > 500
