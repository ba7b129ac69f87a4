"""Tests that import and export keep metadata, functions, subgraphs, odd tensors."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper, parser
from xdsl.context import Context
from xdsl.parser import Parser

from popgraph.builder.onnx.read import import_model
from popgraph.builder.onnx.write import export_model
from popgraph.dialects.onnx import Custom, Initializer, OnnxOp, model_of
from popgraph.dialects.onnx.types import describe
from popgraph.dialects.program import BlobAttr, WeightStore
from popgraph.dialects.registry import register
from popgraph.support.errors import ModelError


def through_ir(model: ModelProto | Path) -> ModelProto:
    """The model after import, printing, parsing and export."""
    store = WeightStore()
    module = import_model(model, store)
    module.verify()
    context = Context()
    register(context)
    parsed = Parser(context, str(module)).parse_module()
    assert parsed.is_structurally_equivalent(module)
    return export_model(parsed, store)


def small(text: str) -> ModelProto:
    return parser.parse_model(text)


ADD = """
<ir_version: 8, opset_import: ["" : 17]>
main (float[N, 3] x, float[N, 3] y) => (float[N, 3] z) { z = Add(x, y) }
"""


def test_names_and_notes_survive() -> None:
    model = small(ADD)
    model.producer_name, model.producer_version = "café", "1.0\n"
    model.domain, model.model_version, model.doc_string = "d", -7, 'a "doc"\\ with % signs'
    helper.set_model_props(model, {"k": "v", "ключ": "значение"})
    model.graph.name = "graph/with:odd name"
    model.graph.doc_string = "doc"
    node = model.graph.node[0]
    node.name, node.doc_string = "layer.0/add:1", "ünïcode"
    node.metadata_props.add(key="namespace", value="x/y")
    node.device_configurations.add(configuration_id="c", pipeline_stage=3)
    model.graph.input[0].doc_string = "an input"
    model.graph.input[0].type.tensor_type.shape.dim[0].denotation = "DATA_BATCH"
    model.graph.input[1].type.denotation = "TENSOR"
    model.graph.quantization_annotation.add(tensor_name="x").quant_parameter_tensor_names.add(
        key="SCALE_TENSOR", value="s"
    )
    model.graph.metadata_props.add(key="g", value="h")
    info = model.graph.value_info.add(name="elsewhere")
    info.type.tensor_type.elem_type = 1
    info.type.tensor_type.shape.dim.add().dim_value = -1
    assert through_ir(model) == model


def test_the_node_name_is_the_location() -> None:
    model = small(ADD)
    model.graph.node[0].name = "layer.0/add"
    module = import_model(model, WeightStore())
    (node,) = model_of(module).graph.nodes
    assert node.node_name == "layer.0/add"
    assert node.location.desc.data == "layer.0/add"
    assert node.output_names == ("z",)


def test_fields_that_are_present_but_empty_stay_present() -> None:
    model = small(ADD)
    model.model_version = 0
    model.producer_name = ""
    model.graph.node[0].name = ""
    model.graph.node[0].domain = ""
    model.graph.doc_string = ""
    model.graph.value_info.add(name="")
    back = through_ir(model)
    assert back == model
    assert back.HasField("model_version")
    assert back.graph.node[0].HasField("domain")


def test_the_domain_name_ai_onnx_is_kept() -> None:
    model = small(ADD)
    model.graph.node[0].domain = "ai.onnx"
    model.opset_import[0].domain = "ai.onnx"
    assert through_ir(model) == model
    (node,) = model_of(import_model(model, WeightStore())).graph.nodes
    assert node.name == "onnx.Add.v14"


def test_symbolic_dimensions_flow_through_the_graph() -> None:
    model = small(ADD)
    graph = model_of(import_model(model, WeightStore())).graph
    assert describe(graph.yielded[0].type) == "f32[N, 3]"


def test_absent_inputs_and_outputs_stay_where_they_are() -> None:
    model = small(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        main (float[2, 1, 3] x, float[1, 16, 3] w, float[1, 16, 4] r, float[1, 1, 4] h)
            => (float[1, 1, 4] y)
        { , y = LSTM<hidden_size = 4>(x, w, r, , , h, , ) }
        """
    )
    assert list(model.graph.node[0].output) == ["", "y"]
    assert through_ir(model) == model
    (node,) = model_of(import_model(model, WeightStore())).graph.nodes
    absent = [value is None for value in node.input_values()]
    assert absent == [False, False, False, True, True, False, True, True]
    assert [value is None for value in node.output_values()] == [True, False, True]


FUNCTIONS = """
<ir_version: 9, opset_import: ["" : 17, "local" : 1]>
main (float[N, 4] x) => (y) {
    h = local.Twice<alpha = 0.5>(x)
    y = local.Plain(h)
}
<domain: "local", opset_import: ["" : 17, "local" : 1]>
Twice <alpha: float = 0.25, beta> (a) => (c)
{ b = LeakyRelu<alpha: float = @alpha>(a)   c = local.Plain(b) }
<domain: "local", opset_import: ["" : 17]>
Plain (a) => (b) { b = Neg(a) }
"""


def test_functions_survive_and_their_calls_have_types() -> None:
    model = small(FUNCTIONS)
    model.functions[0].doc_string = "twice"
    model.functions[0].metadata_props.add(key="k", value="v")
    assert through_ir(model) == model
    graph = model_of(import_model(model, WeightStore())).graph
    assert all(isinstance(node, Custom) for node in graph.nodes)
    assert describe(graph.yielded[0].type) == "f32[N, 4]"


def test_overloads_are_different_functions() -> None:
    model = small(FUNCTIONS)
    model.ir_version = 10
    model.functions[1].overload = "int"
    for node in (*model.graph.node, *model.functions[0].node):
        if node.op_type == "Plain":
            node.overload = "int"
    assert through_ir(model) == model


def test_operators_of_other_domains_keep_every_kind_of_attribute() -> None:
    model = small(
        """
        <ir_version: 8, opset_import: ["" : 17, "com.example" : 2]>
        main (float[2] x) => (float[2] y, float[2] z)
        { y, , z = com.example.Mix(x, , x, ) }
        """
    )
    graph = small(ADD).graph
    for info in (*graph.input, *graph.output):
        info.name = f"inner_{info.name}"
    graph.node[0].input[:] = ["inner_x", "inner_y"]
    graph.node[0].output[:] = ["inner_z"]
    other = onnx.GraphProto()
    other.CopyFrom(graph)
    other.name = "other"
    tensor = numpy_helper.from_array(np.array([[1, 2]], np.int8), "t")
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([1.5], np.float32)),
        numpy_helper.from_array(np.array([3], np.int64)),
        [2, 2],
    )
    type_ = helper.make_tensor_type_proto(TensorProto.BFLOAT16, ["N", None, 3])
    values: dict[str, object] = {
        "f": 1e-5,
        "f_nan": float("nan"),
        "f_inf": float("-inf"),
        "f_negative_zero": -0.0,
        "i": -(1 << 63),
        "s": b"\xff\x00 not text",
        "s_empty": "",
        "t": tensor,
        "g": graph,
        "sparse": sparse,
        "type": type_,
        "floats": [1.0, 1e38, -0.0, 16777217.0],
        "ints": [1, -2, (1 << 63) - 1],
        "strings": ["a", "é", "", "%"],
        "tensors": [tensor, tensor],
        "graphs": [graph, other],
        "sparses": [sparse],
        "types": [type_, helper.make_sequence_type_proto(type_)],
    }
    node = model.graph.node[0]
    for name, value in values.items():
        node.attribute.append(helper.make_attribute(name, value))
    for kind in (AttributeProto.FLOATS, AttributeProto.INTS, AttributeProto.STRINGS):
        node.attribute.add(name=f"empty{kind}", type=kind)
    node.attribute.add(name="documented", type=AttributeProto.INT, i=3, doc_string="why")
    back = through_ir(model)
    same = back.graph.node[0].attribute
    assert [one.name for one in same] == [one.name for one in node.attribute]
    assert back.SerializeToString(deterministic=True) == model.SerializeToString(deterministic=True)


def test_old_attributes_without_a_type_come_back_without_one() -> None:
    model = small(ADD)
    node = model.graph.node.add(op_type="Relu", input=["z"], output=["r"])
    node.op_type = "LeakyRelu"
    node.attribute.add(name="alpha", f=0.5)
    assert through_ir(model) == model


ELEMENT_TYPES = [
    (TensorProto.FLOAT, np.array([1.5, -0.0, np.inf, 1e-45], np.float32)),
    (TensorProto.DOUBLE, np.array([1e300, 1000001.0], np.float64)),
    (TensorProto.FLOAT16, np.array([1.5, -0.0, np.inf], np.float16)),
    (TensorProto.BFLOAT16, np.array([1.5, -3.0], ml_dtypes.bfloat16)),
    (TensorProto.FLOAT8E4M3FN, np.array([1.5, -3.0], ml_dtypes.float8_e4m3fn)),
    (TensorProto.FLOAT8E8M0, np.array([2.0, 4.0], ml_dtypes.float8_e8m0fnu)),
    (TensorProto.INT4, np.array([1, -8, 7], ml_dtypes.int4)),
    (TensorProto.UINT2, np.array([0, 1, 2, 3, 1], ml_dtypes.uint2)),
    (TensorProto.FLOAT4E2M1, np.array([1.5, -3.0, 6.0], ml_dtypes.float4_e2m1fn)),
    (TensorProto.FLOAT6E2M3, np.array([1.5, -3.0, 7.5], ml_dtypes.float6_e2m3fn)),
    (TensorProto.INT8, np.array([-128, 127], np.int8)),
    (TensorProto.UINT16, np.array([0, 65535], np.uint16)),
    (TensorProto.INT32, np.array([-(1 << 31)], np.int32)),
    (TensorProto.INT64, np.array([-(1 << 63)], np.int64)),
    (TensorProto.UINT64, np.array([(1 << 64) - 1], np.uint64)),
    (TensorProto.BOOL, np.array([True, False], np.bool_)),
    (TensorProto.COMPLEX64, np.array([1 + 2j], np.complex64)),
    (TensorProto.COMPLEX128, np.array([1 - 2j], np.complex128)),
]


@pytest.mark.parametrize("raw", [True, False], ids=["raw", "typed"])
@pytest.mark.parametrize(
    ("number", "array"), ELEMENT_TYPES, ids=[TensorProto.DataType.Name(n) for n, _ in ELEMENT_TYPES]
)
def test_tensors_of_every_element_type(number: int, array: np.ndarray, raw: bool) -> None:
    tensor = numpy_helper.from_array(array, "w")
    assert tensor.data_type == number
    if not raw:
        tensor = helper.make_tensor("w", number, array.shape, array.tolist())
    model = small(ADD)
    model.graph.initializer.append(tensor)
    assert through_ir(model) == model
    store = WeightStore()
    graph = model_of(import_model(model, store)).graph
    (initializer,) = graph.initializers
    found = initializer.array(store)
    assert found.dtype == array.dtype
    assert found.tobytes() == array.tobytes()


def test_string_and_sparse_initializers() -> None:
    model = small(ADD)
    strings = np.array([["a", "é"], ["", "%\n"]], object)
    model.graph.initializer.append(numpy_helper.from_array(strings, "names"))
    sparse = helper.make_sparse_tensor(
        numpy_helper.from_array(np.array([1.5, 2.5], np.float32), "sparse"),
        numpy_helper.from_array(np.array([[0, 1], [1, 2]], np.int64)),
        [2, 3],
    )
    model.graph.sparse_initializer.append(sparse)
    assert through_ir(model) == model
    store = WeightStore()
    names, dense = model_of(import_model(model, store)).graph.initializers
    assert names.array(store).tolist() == strings.tolist()
    assert dense.array(store).tolist() == [[0, 1.5, 0], [0, 0, 2.5]]


def test_initializers_that_are_inputs_too_keep_their_place() -> None:
    model = small(ADD)
    model.ir_version = 3
    for name in ("second", "first"):
        model.graph.initializer.append(numpy_helper.from_array(np.ones((1, 3), np.float32), name))
    declared = helper.make_tensor_value_info("first", TensorProto.FLOAT, [1, 3])
    model.graph.input.insert(0, declared)
    model.graph.input.append(helper.make_tensor_value_info("second", TensorProto.FLOAT, [1, 3]))
    model.graph.node[0].input[1] = "first"
    assert through_ir(model) == model
    graph = model_of(import_model(model, WeightStore())).graph
    assert graph.input_names == ("x", "y")


def test_large_weights_are_kept_in_the_store_and_not_in_the_text() -> None:
    model = small(ADD)
    array = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(array, "w"))
    store = WeightStore()
    module = import_model(model, store)
    (initializer,) = model_of(module).graph.initializers
    assert isinstance(initializer.value.elements, BlobAttr)
    assert len(str(module)) < 2000
    assert export_model(module, store) == model


def external_model(folder: Path, **changes: str) -> Path:
    model = small(ADD)
    array = np.arange(12, dtype=np.float32).reshape(4, 3)
    tensor = model.graph.initializer.add(
        name="w", data_type=TensorProto.FLOAT, dims=[4, 3], data_location=TensorProto.EXTERNAL
    )
    entries = {"location": "w.bin", "offset": "4", "length": "48"} | changes
    for key, value in entries.items():
        tensor.external_data.add(key=key, value=value)
    (folder / "w.bin").write_bytes(b"skip" + array.tobytes())
    path = folder / "m.onnx"
    path.write_bytes(model.SerializeToString())
    return path


def test_external_data_is_mapped_and_exported_inline(tmp_path: Path) -> None:
    path = external_model(tmp_path)
    store = WeightStore()
    module = import_model(path, store)
    (initializer,) = model_of(module).graph.initializers
    array = initializer.array(store)
    assert array.tolist() == np.arange(12).reshape(4, 3).tolist()
    assert isinstance(array.base, np.memmap) or isinstance(array, np.memmap)
    assert export_model(module, store) == onnx.load(path)


@pytest.mark.parametrize("kind", [TensorProto.FLOAT, TensorProto.INT4], ids=["plain", "packed"])
def test_the_store_knows_every_file_that_was_read(tmp_path: Path, kind: int) -> None:
    path = external_model(tmp_path)
    model = onnx.load(path, load_external_data=False)
    model.graph.initializer[0].data_type = kind
    model.graph.initializer[0].external_data[2].value = "48" if kind == TensorProto.FLOAT else "6"
    path.write_bytes(model.SerializeToString())
    store = WeightStore()
    import_model(path, store)
    assert set(store.files) == {path.resolve(), (tmp_path / "w.bin").resolve()}


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        (
            {"location": "../w.bin"},
            "the external data file '../w.bin' is outside the model's folder",
        ),
        ({"location": "/w.bin"}, "the external data file '/w.bin' is outside the model's folder"),
        ({"location": ""}, "the external data file '' is outside the model's folder"),
        ({"location": "none.bin"}, "the external data file 'none.bin' is missing"),
        (
            {"length": "4800"},
            "the external data file 'w.bin' has 52 bytes; bytes 4 to +4800 are required",
        ),
        (
            {"offset": "-1"},
            "the external data file 'w.bin' has 52 bytes; bytes -1 to +48 are required",
        ),
        (
            {"offset": "x"},
            "the external data file 'w.bin' has 52 bytes; bytes x to +48 are required",
        ),
        ({"length": "44"}, "tensor 'w' of shape [4, 3] takes 48 bytes, its file holds 44"),
    ],
)
def test_external_data_that_cannot_be_read(
    tmp_path: Path, changes: dict[str, str], what: str
) -> None:
    path = external_model(tmp_path, **changes)
    with pytest.raises(ModelError) as caught:
        import_model(path, WeightStore())
    assert caught.value.what == what
    assert caught.value.hint


def test_a_link_out_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(bytes(64))
    folder = tmp_path / "model"
    folder.mkdir()
    path = external_model(folder, location="link.bin")
    (folder / "link.bin").symlink_to(tmp_path / "secret")
    with pytest.raises(ModelError, match="outside the model's folder"):
        import_model(path, WeightStore())


def test_external_data_requires_the_path_of_the_model(tmp_path: Path) -> None:
    model = onnx.load(external_model(tmp_path), load_external_data=False)
    with pytest.raises(ModelError) as caught:
        import_model(model, WeightStore())
    assert caught.value.what == "tensor 'w' is stored in the external file 'w.bin'"
    assert caught.value.hint == "pass the path of the model, so that files next to it can be found"


def test_nested_graphs_see_outer_values() -> None:
    model = small(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        main (float[3] x, bool c) => (y) {
            w = Neg(x)
            y = If (c) <
                then_branch = yes () => (float[3] a) { a = Add(x, w) },
                else_branch = no () => (float[3] b) { b = Identity(w) }
            >
        }
        """
    )
    assert through_ir(model) == model
    module = import_model(model, WeightStore())
    branch = next(op for op in module.walk() if isinstance(op, OnnxOp) and op.op_type == "If")
    then = branch.attribute_values()["then_branch"]
    assert then.output_names == ("a",)  # type: ignore[attr-defined]
    assert describe(branch.results[0].type) == "f32[3]"


def test_opset_imports_of_unused_domains_are_kept() -> None:
    model = small(ADD)
    model.opset_import.add(domain="com.microsoft", version=1)
    assert through_ir(model) == model


def test_the_oldest_models_import_no_opset() -> None:
    model = ModelProto(ir_version=2)
    model.graph.node.add(op_type="Neg", input=["x"], output=["y"])
    for into, name in ((model.graph.input, "x"), (model.graph.output, "y")):
        into.append(helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]))
    assert through_ir(model) == model
    (node,) = model_of(import_model(model, WeightStore())).graph.nodes
    assert node.name == "onnx.Neg.v1"


def test_sequences_optionals_and_maps_have_types() -> None:
    model = small(
        """
        <ir_version: 8, opset_import: ["" : 17]>
        main (float[2] x, float[2] y) => (s, o)
        { s = SequenceConstruct(x, y)   o = Optional(s) }
        """
    )
    assert through_ir(model) == model
    graph = model_of(import_model(model, WeightStore())).graph
    assert [describe(value.type) for value in graph.yielded] == [
        "sequence(f32[2])",
        "optional(sequence(f32[2]))",
    ]
    assert not any(isinstance(op, Initializer) for op in graph.block.ops)
