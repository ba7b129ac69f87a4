"""Tests that everything in an ONNX model survives conversion to text and back."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper, parser

from popgraph.builder.onnx.read import import_model
from popgraph.builder.onnx.write import export_model
from popgraph.builder.pgraph import WeightFile, load, parse, text_of
from popgraph.dialects.onnx import model_of
from popgraph.dialects.program import WeightStore
from popgraph.support.errors import ErrorGroup, ParseError, PopgraphError
from popgraph.support.safetensors import read_key, safetensors
from popgraph.support.writing import write_file
from popgraph.testing import model_difference

FLOAT = TensorProto.FLOAT


def small(text: str) -> ModelProto:
    return parser.parse_model(text)


def add() -> ModelProto:
    """A graph of one node, to which tests add metadata."""
    return small(
        """
        <ir_version: 10, opset_import: ["" : 21]>
        main (float[N, 3] x, float[N, 3] y) => (float[N, 3] z) { z = Add(x, y) }
        """
    )


def comes_back(model: ModelProto) -> str:
    """The text of a model, after checking that it parses back to the same model."""
    store = WeightStore()
    text = text_of(import_model(model, store), store)
    document = parse(text)
    back = export_model(document.module, document.weights)
    assert model_difference(model, back) == "", text
    assert text_of(document.module, document.weights) == text
    return text


# --- metadata of the model and its graph -------------------------------------------------------


def test_metadata_of_the_model_is_kept() -> None:
    model = add()
    model.ir_version, model.model_version = 8, 3
    model.producer_name, model.producer_version = "pytorch", "2.0"
    model.domain, model.doc_string = "com.example", "What it does.\n\nMore.\n"
    model.graph.doc_string = "  indented"
    for entries in (model.metadata_props, model.graph.metadata_props):
        entries.add(key="a key", value='"\n')
        entries.add(key="", value="")
    text = comes_back(model)
    assert '@ir_version(8) @producer("pytorch", "2.0") @domain("com.example") @version(3)' in text
    assert '@doc("What it does.\\n\\nMore.\\n")' in text
    assert '@meta("a key", "\\"\\n") @meta("", "")' in text
    assert '@graph_doc("  indented")' in text
    assert '@graph_meta("a key", "\\"\\n")' in text


def test_doc_strings_are_next_to_their_subjects() -> None:
    model = add()
    model.doc_string, model.graph.doc_string = "A model.", "Adds.\n\nMore."
    text = comes_back(model)
    assert text.startswith('"""A model."""\n\nopset 21\n')
    assert '{\n    """Adds.\n\n    More."""\n    z = x + y\n}' in text


def test_a_graph_without_a_name() -> None:
    model = add()
    model.graph.name = ""
    assert "@unnamed\ngraph main(" in comes_back(model)


def test_rare_fields_are_annotations_of_protobuf_text() -> None:
    model = add()
    model.training_info.add().algorithm.name = "sgd"
    model.graph.quantization_annotation.add(tensor_name="x")
    model.graph.value_info.append(helper.make_tensor_value_info("stale", FLOAT, [2]))
    assert "@proto(" in comes_back(model)


def test_every_opset_import_is_kept_whether_used_or_not() -> None:
    model = add()
    model.opset_import.add(domain="ai.onnx.ml", version=3)
    model.opset_import.add(domain="com.microsoft", version=1)
    assert comes_back(model).startswith("opset 21\nopset ai.onnx.ml 3\nopset com.microsoft 1\n")


def test_the_standard_operators_are_not_imported_for_those_of_another_domain() -> None:
    model = small(
        """
        <ir_version: 10, opset_import: ["com.example" : 2]>
        main (float[2] x) => (float[2] y) { y = com.example.Odd <axis = 1> (x) }
        """
    )
    text = comes_back(model)
    assert text.startswith("opset com.example 2\n\ngraph")
    assert "y = com.example.Odd(x, axis=1)" in text


# --- names of nodes ----------------------------------------------------------------------------


def named(names: list[str], outputs: list[str]) -> str:
    model = small('<ir_version: 10, opset_import: ["" : 21]> main (float[2] x) => (float[2] x1) {}')
    for place, (name, output) in enumerate(zip(names, outputs, strict=True)):
        before = outputs[place - 1] if place else "x"
        model.graph.node.add(op_type="Relu", name=name, input=[before], output=[output])
    model.graph.output[0].name = outputs[-1]
    return comes_back(model)


def test_node_names_follow_a_naming_rule() -> None:
    torch = named(["/a/Relu", "/b/Relu", "/c/Relu"], ["/a/Relu_out", "/b/Relu_out", "/c/Relu_out"])
    assert '@names("_out")' in torch
    assert "@name(" not in torch
    assert '@names("")' in named(["a", "b", "c"], ["a", "b", "c"])
    assert '@names("Relu_{number}")' not in named(["Relu_0", "Relu_1", "Relu_2"], ["a", "b", "c"])
    assert '@names("{operator}_{number}")' in named(["Relu_0", "Relu_1"], ["a", "b"])
    assert '@names("node/{output}")' in named(["node/a", "node/b"], ["a", "b"])
    assert "@name" not in named(["", "", ""], ["a", "b", "c"])


def test_exceptions_from_a_naming_rule_are_written() -> None:
    text = named(["a", "b", "other", "", "e", "f"], ["a", "b", "c", "d", "e", "f"])
    assert '@names("")' in text
    assert '@name("other") c = Relu(b)' in text
    assert '@name("") d = Relu(c)' in text
    assert text.count("@name(") == 2


# --- metadata of nodes and values --------------------------------------------------------------


def test_notes_on_a_node() -> None:
    model = add()
    node = model.graph.node[0]
    node.name, node.doc_string = "adds", 'says "this"'
    node.metadata_props.add(key="k", value="v")
    for attribute in (("__ipu_number", 3), ("__note", "text"), ("__list", [1, 2])):
        node.attribute.append(helper.make_attribute(*attribute))
    text = comes_back(model)
    assert "@ipu(3)" in text
    assert '@attribute("__note", "text") @attribute("__list", [1, 2])' in text
    assert '@doc("says \\"this\\"")' in text
    assert '@meta("k", "v")' in text
    assert '@names("' not in text


def test_notes_on_values() -> None:
    model = add()
    model.graph.node.add(op_type="Neg", input=["z"], output=["w"])
    model.graph.value_info.append(helper.make_tensor_value_info("w", FLOAT, ["N", None]))
    for info in (model.graph.input[0], model.graph.output[0], model.graph.value_info[0]):
        info.doc_string = "a value"
        info.metadata_props.add(key="k", value="v")
        info.type.denotation = "IMAGE"
        info.type.tensor_type.shape.dim[1].denotation = "DATA_CHANNEL"
    text = comes_back(model)
    assert (
        '(@denotation("IMAGE", "", "DATA_CHANNEL") @doc("a value") @meta("k", "v") w: f32[N, ?])'
        " = -z" in text
    )


def test_types_of_inner_values_are_those_that_the_model_declares() -> None:
    model = add()
    for name in "ab":
        model.graph.node.add(op_type="Neg", input=["z"], output=[name])
    model.graph.value_info.append(helper.make_tensor_value_info("b", FLOAT, None))
    text = comes_back(model)
    assert "    a = -z\n" in text
    assert "    b: f32[...] = -z\n" in text


def test_declarations_that_contradict_the_nodes_are_kept() -> None:
    model = add()
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("z", FLOAT, [7, "batch", 3]))
    model.graph.node.add(op_type="Neg", input=["z"], output=["w"])
    model.graph.value_info.append(helper.make_tensor_value_info("w", FLOAT, ["M", 3]))
    text = comes_back(model)
    assert "-> (@unchecked z: f32[7, batch, 3])" in text
    assert "(@unchecked w: f32[M, 3]) = -z" in text


TYPES = {
    "sequence(f32[N, ?])": "seq(float[N, ?])",
    "optional(sequence(string[2]))": "optional(seq(string[2]))",
    "map(i64, f32[...])": "map(int64, float)",
    "f32[...]": "float[]",
    "f8e4m3fn[2]": "float8e4m3fn[2]",
    "i4[a, 3]": "int4[a, 3]",
    "c128[2]": "complex128[2]",
}


@pytest.mark.parametrize("shown", TYPES)
def test_types_of_inputs(shown: str) -> None:
    model = add()
    written = small(
        f'<ir_version: 10, opset_import: ["" : 21]> g ({TYPES[shown]} v) => (float z) {{}}'
    )
    model.graph.input.append(written.graph.input[0])
    if "map" in shown:
        model.graph.input[-1].type.map_type.value_type.tensor_type.ClearField("shape")
    assert f"v: {shown})" in comes_back(model)


def test_rare_types() -> None:
    model = add()
    sparse = model.graph.input.add(name="s").type.sparse_tensor_type
    sparse.elem_type = FLOAT
    sparse.shape.dim.add().dim_value = 3
    opaque = model.graph.input.add(name="o").type.opaque_type
    opaque.domain, opaque.name = "my.domain", "Thing"
    model.graph.input.add(name="u")
    text = comes_back(model)
    assert 's: sparse(f32[3]), o: opaque("my.domain", "Thing"), u: unknown()' in text


NAMES = [
    "a b",
    "a`b",
    "\\",
    "é",
    "weight",
    "_",
    "1",
    "/x/1",
    "N:0",
    "\n",
    "graph",
    "x.y",
    "\x00",
    "#",
]


def test_names_that_are_not_identifiers() -> None:
    model = add()
    before = "z"
    for name in NAMES:
        model.graph.node.add(op_type="Neg", input=[before], output=[name])
        before = name
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "2*n + 1"
    model.graph.name = "a graph"
    assert "`2*n + 1`" in comes_back(model)


# --- weights -----------------------------------------------------------------------------------


def with_weights(*arrays: np.ndarray, ir_version: int = 10) -> ModelProto:
    model = add()
    model.ir_version = ir_version
    for place, array in enumerate(arrays):
        model.graph.initializer.append(numpy_helper.from_array(array, f"w{place}"))
    return model


def test_weights_that_are_inputs() -> None:
    model = with_weights(np.ones(2, np.float32), np.zeros((2, 2), np.int64), ir_version=3)
    for name, kind, shape in (("w0", FLOAT, [2]), ("w1", TensorProto.INT64, [2, 2])):
        model.graph.input.append(helper.make_tensor_value_info(name, kind, shape))
    text = comes_back(model)
    assert "@weights_are_inputs" in text
    assert "@input" not in text
    model.graph.input.insert(0, model.graph.input.pop())
    text = comes_back(model)
    assert "@input(0) weight w1: i64[2, 2] = zeros" in text
    assert "@input(3) weight w0" in text


def test_notes_on_weights() -> None:
    model = with_weights(np.ones(2, np.float32))
    model.graph.initializer[0].doc_string = "scales"
    assert '@doc("scales") weight w0: f32[2] = ones' in comes_back(model)


SAME = {
    "zeros": np.zeros((3, 2), np.float32),
    "ones": np.ones(3, np.int8),
    "constant(-0.0)": np.full(3, -0.0, np.float32),
    "constant(nan)": np.full(3, np.nan, np.float32),
    "constant(18446744073709551615)": np.full(2, 2**64 - 1, np.uint64),
    "bits([0x7fc00001, 0x0])": np.array([0x7FC00001, 0], np.uint32).view(np.float32),
    "[[1.0, -0.5], [inf, nan]]": np.array([1 - 0.5j, complex(np.inf, np.nan)], np.complex64),
    "[-8, 7]": np.array([-8, 7], ml_dtypes.int4),
    "[0, 3]": np.array([0, 3], ml_dtypes.uint2),
    "[0.5, -6.0]": np.array([0.5, -6], ml_dtypes.float4_e2m1fn),
    "[2.0, 0.5]": np.array([2, 0.5], ml_dtypes.float8_e8m0fnu),
    "[]": np.zeros((0, 3), np.float32),
    "[true, false]": np.array([True, False]),
    '["a", b"\\xff"]': np.array([b"a", b"\xff"], object),
    "0.1": np.float32(0.1).reshape(()),
}


@pytest.mark.parametrize("shown", SAME)
def test_first_values(shown: str) -> None:
    text = comes_back(with_weights(SAME[shown]))
    assert f" = {shown}\n" in text


def test_tensors_that_are_attributes() -> None:
    arrays = [*SAME.values(), np.zeros((2, 0, 3), np.float16), np.zeros((2, 0), np.float64)]
    model = add()
    model.opset_import.add(domain="com.example", version=1)
    for place, array in enumerate(arrays):
        node = model.graph.node.add(op_type="Odd", domain="com.example", output=[f"o{place}"])
        node.attribute.append(helper.make_attribute("t", numpy_helper.from_array(array)))
        node.attribute.append(helper.make_attribute("list", [numpy_helper.from_array(array)]))
    text = comes_back(model)
    assert "t=f32(bits([0x7fc00001, 0x0]))" in text
    assert "t=tensor(f16[2, 0, 3], [])" in text


DTYPES = [
    *(np.float32, np.float64, np.float16, np.int8, np.uint16, np.int64, np.bool_, np.complex64),
    *(np.complex128, ml_dtypes.bfloat16, ml_dtypes.int4, ml_dtypes.float8_e5m2fnuz),
    *(ml_dtypes.float4_e2m1fn, ml_dtypes.float8_e4m3fn, np.uint64),
]


def test_large_weights_are_stored_in_a_separate_file(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    arrays = [(rng.random((5, 7)) * 3).astype(dtype) for dtype in DTYPES]
    model = with_weights(*arrays)
    constant = helper.make_attribute("value", numpy_helper.from_array(arrays[0]))
    model.graph.node.add(op_type="Constant", output=["w0/const"]).attribute.append(constant)
    model.graph.node.add(op_type="Constant", output=["a"]).attribute.append(
        helper.make_attribute("sparse_value", sparse_tensor(100))
    )
    store = WeightStore()
    file = WeightFile("w.safetensors")
    text = text_of(import_model(model, store), store, file)
    assert '@weights("w.safetensors")\ngraph' in text
    assert "weight w0: f32[5, 7] = load\n" in text
    (tmp_path / "m.pgraph").write_text(text)
    write_file(tmp_path / "w.safetensors", safetensors(file.arrays))
    document = load(tmp_path / "m.pgraph")
    assert model_difference(model, export_model(document.module, document.weights)) == ""


def sparse_tensor(count: int) -> onnx.SparseTensorProto:
    return helper.make_sparse_tensor(
        numpy_helper.from_array(np.arange(count, dtype=np.float32)),
        numpy_helper.from_array(np.arange(count, dtype=np.int64)),
        [20, 20],
    )


def test_the_weight_file_is_readable_by_safetensors(tmp_path: Path) -> None:
    package = pytest.importorskip("safetensors.numpy")
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    write_file(tmp_path / "w.safetensors", safetensors({"a/b": array, "é": array[0]}))
    found = package.load_file(tmp_path / "w.safetensors")
    assert np.array_equal(found["a/b"], array)


def test_a_weight_file_may_be_overwritten_from_its_own_mapping(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    array = np.arange(40, dtype=np.float32)
    write_file(path, safetensors({"w": array}))
    write_file(path, safetensors({"first": array, "w": read_key(path, "w")}))
    assert np.array_equal(read_key(path, "w"), array)
    assert [one.name for one in tmp_path.iterdir()] == ["w.safetensors"]


def test_weights_are_loaded_from_other_file_formats(tmp_path: Path) -> None:
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "a.npy", array)
    np.savez(tmp_path / "a.npz", key=array)
    (tmp_path / "a.bin").write_bytes(b"skip" + array.tobytes())
    write_file(tmp_path / "a.safetensors", safetensors({"key": array}))
    for call in (
        'load("a.npy")',
        'load("a.npz", "key")',
        'load("a.bin", offset=4)',
        'load("a.safetensors", "key")',
    ):
        path = tmp_path / "m.pgraph"
        path.write_text(f"graph g() -> w {{\n    weight w: f32[2, 3] = {call}\n}}\n")
        document = load(path)
        model = export_model(document.module, document.weights)
        assert np.array_equal(numpy_helper.to_array(model.graph.initializer[0]), array)


@pytest.mark.parametrize(
    ("call", "what"),
    [
        ("load", "`load` without a file needs a weights file of the graph"),
        ('load("a.bin", offset=5)', "'a.bin' cannot be read: it has 12 bytes, not 8 from 5 on"),
        ('load("a.bin", offset=-1)', "'a.bin' cannot be read: it has 12 bytes, not 8 from -1 on"),
        (
            'load("a.safetensors", "k")',
            "cannot be read: it is not a .safetensors file",
        ),
        ('load("b.safetensors", "k")', "'b.safetensors' holds no array 'k'"),
        (
            'load("b.safetensors", "w")',
            "the file holds float32 of shape 3, the type says f32 of",
        ),
        ('load("../a.bin")', "'../a.bin' is not in the folder of this text"),
        ('load("a.npy", "k")', "`load` takes a file and a key"),
    ],
)
def test_weight_files_that_cannot_be_loaded(tmp_path: Path, call: str, what: str) -> None:
    (tmp_path / "a.bin").write_bytes(bytes(12))
    (tmp_path / "a.safetensors").write_bytes(b"\xff" * 40)
    write_file(tmp_path / "b.safetensors", safetensors({"w": np.zeros(3, np.float32)}))
    path = tmp_path / "m.pgraph"
    path.write_text(f"graph g() -> w {{\n    weight w: f32[2] = {call}\n}}\n")
    with pytest.raises(PopgraphError) as caught:
        load(path)
    assert what in str(caught.value)


# --- graphs inside nodes -----------------------------------------------------------------------


def test_branches_with_captures() -> None:
    model = small(
        """
        <ir_version: 10, opset_import: ["" : 21]>
        main (float[3] x, bool c) => (float[3] y) {
            w = Neg(x)
            y = If (c) <
                then_branch = yes () => (float[3] a) { a = Add(x, w) },
                else_branch = no () => (b) { b = Identity(w) }
            >
        }
        """
    )
    text = comes_back(model)
    assert (
        "    y = if c -> yes(a: f32[3]) {\n        a = x + w\n"
        "    } else -> no(b) {\n        b = w\n    }\n" in text
    )


LOOP = """
<ir_version: 10, opset_import: ["" : 21]>
main (int64 n, bool go, float[3] x) => (float[3] y, float[T, 3] all) {
    y, all = Loop (n, go, x) <
        body = turn (int64 i, bool go_in, float[3] v) => (bool on, float[3] next, float[3] seen)
        <float[3] step = {0.5, 1.0, 1.5}>
        {
            on = Identity(go_in)
            inner = If (go_in) <
                then_branch = yes () => (a) { a = Add(v, step) },
                else_branch = no () => (a) { a = Sub(v, x) }
            >
            next = Tanh(inner)
            seen = Neg(v)
        }
    >
}
"""


def test_loops_within_graphs() -> None:
    text = comes_back(small(LOOP))
    assert (
        text
        == """opset 21

graph main(n: i64, go: bool, x: f32[3]) -> (y: f32[3], all: f32[T, 3]) {
    (_, y, all) = loop i in 0..n while go_in with (go_in = go, v: f32[3] = x) -> (
        on: bool, next: f32[3], seen: f32[3],
    ) {
        weight step: f32[3] = [0.5, 1.0, 1.5]
        on = go_in
        inner = if go_in -> yes(a) {
            a = v + step
        } else -> no(a) {
            a = v - x
        }
        next = Tanh(inner)
        seen = -v
    }
}
"""
    )


def test_an_inner_graph_may_give_an_outer_value_and_one_twice() -> None:
    model = small(LOOP)
    body = model.graph.node[0].attribute[0].g
    body.node.pop()
    body.output[2].name = "next"
    branch = body.node[1].attribute[0].g
    del branch.node[:]
    branch.output[0].name = "v"
    assert "-> yes(v) {\n" in comes_back(model)


def test_metadata_of_inner_graphs() -> None:
    model = small(LOOP)
    body = model.graph.node[0].attribute[0].g
    body.doc_string = "One turn."
    body.metadata_props.add(key="k", value="v")
    body.value_info.append(helper.make_tensor_value_info("inner", FLOAT, [3]))
    for node in body.node:
        node.name = node.output[0]
    model.graph.node[0].name = "the loop"
    text = comes_back(model)
    assert '@names("") @meta("k", "v") graph turn(' in text
    assert '"""One turn."""' in text
    assert "inner: f32[3] = if go_in -> yes(a) {\n" in text
    del body.metadata_props[:]
    text = comes_back(model)
    assert '@name("the loop")\n    (_, y, all) = loop i in 0..n while go_in with' in text
    assert '"""One turn."""' in text


def test_unusual_types_of_loop_carried_values_are_written() -> None:
    model = small(LOOP)
    body = model.graph.node[0].attribute[0].g
    body.input[0].ClearField("type")
    body.input[2].type.tensor_type.shape.dim[0].Clear()
    text = comes_back(model)
    assert "loop i: unknown() in 0..n while go_in with (go_in = go, v: f32[?] = x)" in text


SCAN = """
<ir_version: 10, opset_import: ["" : 21]>
main (float[4, 3] x, float[3] h, float[4] s) => (float[3] y, float[4, 3] all) {
    y, all = Scan <num_scan_inputs = 2, body = step (float[3] before, float[3] row, float one)
        => (float[3] next, float[3] seen) {
            next = Add(before, row)
            seen = Mul(next, one)
    }> (h, x, s)
}
"""


def test_a_scan_goes_through_rows() -> None:
    text = comes_back(small(SCAN))
    head = "(y, all) = loop row: f32[3] in x, one: f32 in s with before: f32[3] = h -> step("
    assert f"    {head}\n        next: f32[3], seen: f32[3],\n    ) {{\n" in text


def test_loops_without_syntax_are_written_as_calls() -> None:
    scan = small(SCAN)
    scan.graph.node[0].attribute.add(name="scan_input_directions", ints=[1, 0], type=7)
    assert "scan_input_directions=[1, 0]" in comes_back(scan)
    loop = small(LOOP)
    loop.graph.node[0].attribute[0].g.input[0].doc_string = "How often."
    assert "body=graph turn(@doc(" in comes_back(loop).replace("\n", "").replace("        ", "")


def test_absent_trip_counts_and_conditions() -> None:
    model = small(LOOP)
    model.graph.node[0].input[0] = model.graph.node[0].input[1] = ""
    assert "loop i in 0.. while go_in with (go_in = _, v: f32[3] = x)" in comes_back(model)


def test_unused_outputs_of_a_loop() -> None:
    model = small(LOOP)
    model.graph.node[0].output[0] = ""
    del model.graph.output[0]
    assert "(_, _, all) = loop i in 0..n" in comes_back(model)


def test_a_constant_condition_of_an_if_is_kept() -> None:
    model = small(LOOP)
    model.graph.node.insert(
        0, helper.make_node("Constant", [], ["y/1"], value=numpy_helper.from_array(np.array(True)))
    )
    body = model.graph.node[1].attribute[0].g
    branch = body.node[1]
    del body.node[:]
    branch.input[0] = "y/1"
    del model.graph.node[1]
    branch.output[0] = "y"
    for attribute in branch.attribute:
        del attribute.g.node[1:]
        attribute.g.node[0].input[:] = ["x", "x"]
    model.graph.node.add().CopyFrom(branch)
    del model.graph.output[1]
    assert "y = if bool(true) -> yes(a) {" in comes_back(model)


def test_outputs_rebound_to_other_values() -> None:
    store = WeightStore()
    model = add()
    model.graph.node.add(op_type="Neg", input=["z"], output=["w"])
    module = import_model(model, store)
    graph = model_of(module).graph
    graph.terminator.operands[0] = list(graph.nodes)[1].results[0]
    text = text_of(module, store).replace("z = x + y", "first = x + y").replace("-z", "-first")
    assert text.endswith("    w = -first\n    z = w\n}\n")
    document = parse(text)
    assert export_model(document.module, document.weights).graph.node[2].op_type == "Identity"


# --- functions ---------------------------------------------------------------------------------

FUNCTIONS = """
<ir_version: 10, opset_import: ["" : 21, "local" : 1]>
main (float[N, 4] x) => (float[N, 4] y)
{ h = local.Twice <alpha = 0.5, beta = 2> (x) y = local.Other (h) }
<domain: "local", opset_import: ["" : 17, "local" : 1]>
Twice <beta> (a) => (c)
{ b = LeakyRelu <alpha: float = @alpha> (a) c = local.Other <axes: ints = @beta> (b) }
<domain: "local", opset_import: ["" : 21, "local" : 1]>
Other <axes> (a) => (c) { t = Constant <value = float {2.0}> () c = Mul (a, t) }
"""


def functions() -> ModelProto:
    model = small(FUNCTIONS)
    model.functions[0].attribute_proto.append(helper.make_attribute("alpha", 0.25))
    return model


def test_functions_of_the_model() -> None:
    model = functions()
    model.functions[0].doc_string = "Twice."
    assert (
        comes_back(model)
        == '''opset 21
opset local 1

function local.Twice(a, *, beta, alpha=0.25) -> c {
    """Twice."""
    opset 17
    opset local 1
    b = LeakyRelu(a, alpha=alpha)
    c = local.Other(b, axes=INTS(beta))
}

function local.Other(a, *, axes) -> c {
    const t: f32 = 2.0
    c = a * t
}

graph main(x: f32[N, 4]) -> (y: f32[N, 4]) {
    h = local.Twice(x, alpha=0.5, beta=2)
    y = local.Other(h)
}
'''
    )


def test_metadata_of_functions() -> None:
    model = functions()
    function = model.functions[1]
    function.overload = "f32"
    function.metadata_props.add(key="k", value="v")
    function.value_info.append(helper.make_tensor_value_info("a", FLOAT, ["N"]))
    function.value_info.append(helper.make_tensor_value_info("c", FLOAT, ["N"]))
    function.value_info.append(helper.make_tensor_value_info("stale", FLOAT, ["N"]))
    for node in (model.functions[0].node[1], model.graph.node[1]):
        node.overload = "f32"
    for node in function.node:
        node.name = f"n_{node.output[0]}"
    text = comes_back(model)
    assert '@overload("f32") @meta("k", "v")\n@proto(' in text
    assert "function local.Other(a: f32[N], *, axes) -> c {" in text
    assert "c: f32[N] = a * t" in text
    assert '@overload("f32") y = local.Other(h)' in text


def test_a_function_may_call_another_of_its_name_but_not_itself() -> None:
    model = functions()
    model.functions[0].name, model.functions[0].overload = "Other", "first"
    model.graph.node[0].op_type, model.graph.node[0].overload = "Other", "first"
    assert '@overload("first") h = local.Other(x' in comes_back(model)
    text = comes_back(functions()).replace("const t: f32 = 2.0", "t = local.Twice(a, beta=1)")
    with pytest.raises(ErrorGroup) as caught:
        parse(text)
    first, second = map(str, caught.value.errors)
    assert first.startswith("`local.Twice` calls itself\n")
    assert second.startswith("`local.Other` calls itself\n")


DEFAULTS = {
    "1": 1,
    "0.5": 0.5,
    "2.0": 2.0,
    '"text"': "text",
    "[1, 2]": [1, 2],
    "[1.0, 2.0]": [1.0, 2.0],
    "f32([0.5, 1.5])": numpy_helper.from_array(np.array([0.5, 1.5], np.float32)),
    "nan": float("nan"),
}


@pytest.mark.parametrize("shown", DEFAULTS)
def test_defaults_of_attributes(shown: str) -> None:
    model = functions()
    model.functions[1].attribute_proto.append(helper.make_attribute("more", DEFAULTS[shown]))
    assert f"more={shown})" in comes_back(model)


@pytest.mark.parametrize("kind", ["INTS", "FLOATS", "STRINGS"])
def test_lists_without_items_have_a_kind(kind: str) -> None:
    model = functions()
    number = AttributeProto.AttributeType.Value(kind)
    model.functions[1].attribute_proto.add(name="more", type=number)
    assert f"more={kind}([])" in comes_back(model)


def test_a_reference_needs_a_kind() -> None:
    text = """function f.F(x, *, a) -> y {
    y = f.G(x, b=a)
}

graph g(x: f32) -> y {
    y = f.F(x, a=1)
}
"""
    with pytest.raises((ParseError, ErrorGroup), match="the kind of the attribute `a` is unknown"):
        parse(text)


MISTAKES = {
    '@proto(b"\\xff") y = x': "`@proto` does not take this",
    "@input(1, 5) weight w: f32 = 1.0": "`@input` does not take this",
    "y = com.e.F(x, g=GRAPHS([1]))": "attribute `g` of com.e.F is a list of graphs",
    "y = com.e.F(x, g=INTS(2))": "attribute `g` of com.e.F is a list of integers",
    "y = com.e.F(x, g=sparse(1, 2))": "attribute `g` of com.e.F is a sparse tensor",
    'y = com.e.F(x, g=TYPE_PROTO(b"\\xff"))': "attribute `g` of com.e.F is a type",
    "weight w: c64[2] = [1.0, 2.0]": "this has the shape scalar, the type says 2",
    "weight w: c64 = 1.0": "an element of type `c64` is a list of two numbers",
    "weight w: bool = bits(1)": "an element of type `bool` is not given by its bits",
    "weight w: f32[3] = sparse(f32([1.0]), i64([7]))": "has an index outside its shape [3]",
    "weight w: f32[3] = sparse(f64([1.0]), i64([1]))": "a sparse weight is given by its values",
}


@pytest.mark.parametrize("line", MISTAKES)
def test_errors_in_rare_syntax(line: str) -> None:
    with pytest.raises(PopgraphError) as caught:
        parse(f"graph g(x: f32[2]) -> x {{\n    {line}\n}}\n")
    assert MISTAKES[line] in str(caught.value)


# --- the difference of two models --------------------------------------------------------------


def test_equivalent_spellings_compare_equal() -> None:
    first, second = with_weights(np.ones((2, 2), np.float32)), with_weights()
    second.graph.initializer.append(helper.make_tensor("w0", FLOAT, [2, 2], [1.0] * 4))
    second.graph.node[0].output.append("")
    second.doc_string = ""
    second.opset_import[0].domain = "ai.onnx"
    assert model_difference(first, second) == ""


def test_the_first_difference_is_reported_with_its_location() -> None:
    first, second = with_weights(np.ones(2, np.float32)), with_weights(np.ones(2, np.float32))
    second.graph.node[0].op_type = "Sub"
    assert model_difference(first, second) == "graph.node[0].op_type: 'Add', 'Sub'"
    second = with_weights(-np.zeros(2, np.float32))
    assert model_difference(first, second).startswith("graph.initializer['w0'].raw_data: b'")
    assert model_difference(first, add()) == "graph.initializer['w0']: only in the first"
    second.ir_version = 3
    assert model_difference(first, second) == "ir_version: 10, 3"
