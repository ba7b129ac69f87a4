"""Tests PopART's Builder: graphs, names, annotations, signatures, errors."""

from __future__ import annotations

import inspect
import re
from typing import Any

import numpy as np
import onnx
import pytest

from popgraph.builder.opset.enums import DataType, RecomputeType, ReductionType
from popgraph.popart.api import builder as own
from popgraph.popart.api.dataflow import DataFlow
from popgraph.popart.api.debugging import OutOfMemoryError
from popgraph.popart.api.graph_transformer import GraphTransformer
from popgraph.popart.api.opsets import LAST_OPSET, onnx_opset
from popgraph.popart.api.settings import InputSettings
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.popart.api.variable_settings import VariableSettings
from popgraph.popart.builder import Builder
from popgraph.popart.exceptions import OutOfMemoryException, popart_exception
from popgraph.popart.sessions.inference_session import InferenceSession
from popgraph.support.errors import PopgraphError


def two_inputs(shape: list[int] | None = None) -> tuple[Builder, str, str]:
    builder = Builder()
    info = TensorInfo("FLOAT", shape or [2, 3])
    return builder, builder.addInputTensor(info), builder.addInputTensor(info)


def proto_of(builder: Builder) -> onnx.ModelProto:
    proto = onnx.load_from_string(builder.getModelProto())
    onnx.checker.check_model(proto)
    return proto


def test_names_have_a_counter_after_a_slash() -> None:
    builder, a, b = two_inputs()
    w = builder.addInitializedInputTensor(np.zeros((2, 3), np.float32))
    assert (a, b, w) == ("input", "input/1", "init_input")
    assert builder.aiOnnx.add([a, b]) == "Add:0"
    assert builder.aiOnnx.add([a, w]) == "Add:0/1"
    assert builder.aiOnnx.add([a, w], "called") == "Add:0/2"
    assert builder.addInputTensor("FLOAT", [1], "mine") == "mine"
    assert builder.addInputTensor("FLOAT", [1], debugContext="mine") == "mine/1"
    named = [node.name for node in proto_of(builder).graph.node]
    assert named == ["", "", "called"]


def test_scopes_stand_before_names_and_node_labels() -> None:
    builder, a, b = two_inputs()
    with builder.nameScope("outer"):
        with builder.nameScope("inner"):
            c = builder.aiOnnx.mul([a, b], "label")
            assert builder.getNameScope() == "outer/inner/"
            assert builder.getNameScope("x") == "outer/inner/x"
        d = builder.addInputTensor("FLOAT", [2])
        builder.aiOnnx.abs([c])
    builder.aiOnnx.abs([c])
    assert (c, d) == ("outer/inner/Mul:0", "outer/input")
    names = [node.name for node in proto_of(builder).graph.node]
    assert names == ["outer/inner/label", "outer/Abs", ""]


def test_several_outputs_are_a_list() -> None:
    builder, a, _ = two_inputs()
    assert builder.aiOnnx.split([a], 3, axis=1) == ["Split:0", "Split:1", "Split:2"]
    assert builder.getTensorShape("Split:2") == [2, 1]


def test_shapes_and_types_are_known_at_once() -> None:
    builder = Builder()
    x = builder.addInputTensor("FLOAT16", [2, 3, 4])
    y = builder.aiOnnx.transpose([x], [2, 0, 1])
    assert builder.getTensorShape(y) == [4, 2, 3]
    assert builder.getTensorDtypeString(y) == "float16"
    z = builder.aiOnnx.cast([y], "INT32")
    assert builder.getTensorDtypeString(z) == "int32"
    assert builder.getTensorDtypeString(builder.aiOnnx.cast([y], DataType.BOOL)) == "bool"
    probabilities = builder.addInputTensor("FLOAT", [4, 10])
    labels = builder.addInputTensor("INT32", [4])
    loss = builder.aiGraphcore.nllloss([probabilities, labels])
    each = builder.aiGraphcore.nllloss([probabilities, labels], ReductionType.NoReduction)
    assert (builder.getTensorShape(loss), builder.getTensorShape(each)) == ([], [4])


def test_the_first_opset_used_is_the_opset() -> None:
    builder, a, b = two_inputs()
    builder.aiOnnxOpset9.add([a, b])
    assert builder.aiOnnx.version == 9
    with pytest.raises(RuntimeError) as caught:
        _ = builder.aiOnnxOpset8
    assert caught.value.args[0] == (
        "Invalid opset 'aiOnnxOpset8' selected. Opset for domain ai.onnx already defined as 9"
    )
    assert proto_of(builder).opset_import[0].version == 9


def test_default_and_newest_opsets() -> None:
    assert Builder().aiOnnx.version == 10
    assert str(Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1}).aiOnnx) == "AiOnnx11"
    assert Builder().aiOnnxOpset(LAST_OPSET).version == LAST_OPSET
    with pytest.raises(ValueError, match="999"):
        Builder().aiOnnxOpset(999)
    assert issubclass(onnx_opset(11), onnx_opset(6))
    newest = own.Builder()
    assert newest.aiOnnx.version == LAST_OPSET
    newest.addOutputTensor(newest.aiOnnx.relu([newest.addInputTensor("FLOAT", [2])]))
    assert [one.version for one in proto_of(newest).opset_import] == [LAST_OPSET]


@pytest.mark.parametrize(
    ("opset", "call", "told"),
    [
        (10, lambda ops, x: ops.rmsnormalization([x, x]), "it came with opset 23, which"),
        (11, lambda ops, x: ops.reducesum([x], noop_with_empty_axes=1), "in opsets 13 to"),
        (13, lambda ops, x: ops.reducesum([x], axes=[0]), "in opsets 11 to 12, of which"),
        (13, lambda ops, x: ops.squeeze([x], [0]), "in opsets 11 to 12, of which"),
        (10, lambda ops, x: ops.rellu([x]), "did you mean 'relu'?"),
    ],
)
def test_errors_name_the_opsets_of_an_operator(opset: int, call: Any, told: str) -> None:
    """The builder that the message recommends accepts the call."""
    builder = Builder(opsets={"ai.onnx": opset})
    x = builder.addInputTensor("FLOAT", [1, 3], "x")
    with pytest.raises((AttributeError, TypeError)) as caught:
        call(builder.aiOnnx, x)
    assert told in str(caught.value)
    found = re.search(r"(Builder\(opsets=.*?\)) chooses", str(caught.value))
    if found:
        other = eval(found[1])
        call(other.aiOnnx, other.addInputTensor("FLOAT", [1, 3], "x"))


SIGNATURES = {
    (6, "add"): "(args, axis=None, broadcast=0, debugContext='')",
    (7, "add"): "(args, debugContext='')",
    (10, "averagepool"): (
        "(args, kernel_shape, ceil_mode=0, count_include_pad=0, pads=[], strides=[], "
        "debugContext='', *, auto_pad='NOTSET')"
    ),
    (9, "batchnormalization"): "(args, num_outputs, epsilon=1e-05, momentum=0.9, debugContext='')",
    (9, "cast"): "(args, to, debugContext='')",
    (9, "conv"): (
        "(args, dilations=[], group=1, kernel_shape=[], pads=[], strides=[], debugContext='', "
        "*, auto_pad='NOTSET')"
    ),
    (9, "gemm"): "(args, alpha=1.0, beta=1.0, transA=0, transB=0, debugContext='')",
    (11, "logical_if"): "(args, num_outputs, else_branch, then_branch, debugContext='')",
    (9, "lrn"): "(args, size, alpha=0.0001, beta=0.75, bias=1.0, debugContext='')",
    (9, "randomnormal"): "(shape, dtype=1, mean=0.0, scale=1.0, seed=None, debugContext='')",
    (10, "constant"): "(value, debugContext='')",
    (11, "constant"): "(value, is_value_sparse=False, debugContext='')",
    (9, "reducesum"): "(args, axes=None, keepdims=1, debugContext='')",
    (9, "slice"): "(args, ends, starts, axes=[], debugContext='')",
    (10, "slice"): "(args, debugContext='')",
    (9, "split"): "(args, num_outputs, axis=0, split=[], debugContext='')",
    (9, "topk"): "(args, k, axis=-1, debugContext='')",
    (11, "topk"): "(args, axis=-1, largest=1, sorted=1, debugContext='')",
    (9, "upsample"): "(args, mode='nearest', debugContext='')",
    (18, "split"): "(args, num_outputs, axis=0, debugContext='')",
    (20, "gelu"): "(args, approximate='none', debugContext='')",
}


@pytest.mark.parametrize(("version", "name"), SIGNATURES)
def test_parameters_are_in_popart_order(version: int, name: str) -> None:
    signature = inspect.signature(getattr(Builder().aiOnnxOpset(version), name))
    bare = [one.replace(annotation=one.empty) for one in signature.parameters.values()]
    assert str(inspect.Signature(bare)) == SIGNATURES[version, name]


def test_methods_have_docstrings() -> None:
    text = inspect.getdoc(Builder().aiOnnx.leakyrelu)
    assert text is not None
    assert text.startswith("LeakyRelu-6. LeakyRelu takes input data")
    assert "alpha: Coefficient of leakage." in text


def test_attributes_of_graphcore_operators_follow_from_their_signatures() -> None:
    builder, a, _ = two_inputs()
    signature = inspect.signature(builder.aiGraphcore.groupnormalization)
    assert list(signature.parameters) == ["args", "num_groups", "epsilon", "debugContext"]
    assert signature.return_annotation == "list[str]"
    assert inspect.signature(builder.aiGraphcore.scale).return_annotation == "str"
    assert (builder.aiGraphcore.scale.__doc__ or "").startswith("x * scale")
    found = builder.aiGraphcore.groupnormalization([a, a, a], 1, epsilon=1)
    epsilon = builder.getNodeAttribute("epsilon", found)
    assert (epsilon, type(epsilon)) == (1.0, float)  # an integer is accepted
    scale = {"lambda": 2}  # the name that PopART's binding has
    loss = builder.aiGraphcore.l1loss([a], **scale, reduction=ReductionType.NoReduction)
    assert builder.getNodeAttribute("lambda", loss) == 2.0
    assert builder.getNodeAttribute("reduction", loss) == "None"
    assert "ignoreIndex" not in builder.getAllNodeAttributeNames(loss)


def test_wrong_arguments_are_type_errors() -> None:
    builder, a, b = two_inputs()
    wrong = "add(): incompatible function arguments. The following argument types are supported:"
    for call in (
        lambda: builder.aiOnnx.add(a, b),
        lambda: builder.aiOnnx.add([a, b], nonsense=1),
        lambda: builder.aiOnnx.add([a, 1]),
        lambda: builder.aiOnnx.add(),
    ):
        with pytest.raises(TypeError) as caught:
            call()
        assert str(caught.value).startswith(wrong)
    with pytest.raises(TypeError, match=r"gelu\(\): incompatible function arguments"):
        builder.aiGraphcore.gelu(a)


@pytest.mark.parametrize(
    "call",
    [
        lambda onnx, own, x: onnx.softmax([x], 0.5),
        lambda onnx, own, x: onnx.softmax([x], "1"),
        lambda onnx, own, x: onnx.transpose([x], [1.0, 0.0]),
        lambda onnx, own, x: onnx.transpose([x], 1),
        lambda onnx, own, x: onnx.leakyrelu([x], "0.5"),
        lambda onnx, own, x: onnx.pad([x], [0, 0, 0, 0], 1),
        lambda onnx, own, x: own.scale([x], "1"),
        lambda onnx, own, x: own.subsample([x], [1.5, 1]),
        lambda onnx, own, x: own.identityloss([x], "Mean"),
        lambda onnx, own, x: own.identityloss([x], 0),
        lambda onnx, own, x: own.multiconv([x, x]),
        lambda onnx, own, x: own.reducemedian([x], axes=1),
    ],
)
def test_arguments_of_wrong_types_are_type_errors(call: Any) -> None:
    builder, a, _ = two_inputs()
    with pytest.raises(TypeError, match=r"^\w+\(\): incompatible function arguments\. The"):
        call(builder.aiOnnx, builder.aiGraphcore, a)
    assert not builder.getValueTensorIds()


def test_numbers_of_numpy_are_arguments() -> None:
    builder, a, _ = two_inputs()
    y = builder.aiOnnx.transpose([a], np.array([1, 0]))
    y = builder.aiOnnx.softmax([y], np.int64(1))
    y = builder.aiOnnx.leakyrelu([y], np.float32(0.5))
    assert builder.getTensorShape(builder.aiGraphcore.scale([y], np.float64(2))) == [3, 2]


@pytest.mark.parametrize("name", ["debugContext", "debugPrefix", "debugName", "name"])
def test_a_label_by_any_of_its_names(name: str) -> None:
    builder, a, b = two_inputs()
    for method in (builder.aiOnnx.add, builder.aiGraphcore.atan2):
        method([a, b], **{name: "mine"})
    assert [node.name for node in proto_of(builder).graph.node] == ["mine", "mine"]


def test_mistakes_are_popart_exceptions_and_ours() -> None:
    builder, _, _ = two_inputs()
    with pytest.raises(
        popart_exception, match=r"Unknown tensor 'inpt' \(valid tensors are in"
    ) as caught:
        builder.aiOnnx.relu(["inpt"])
    assert isinstance(caught.value, PopgraphError)
    assert "'input'" in caught.value.hint
    early = own.Builder()
    rows = [early.addInputTensor("FLOAT", shape) for shape in ([2, 3], [9])]
    with pytest.raises(popart_exception, match="does not take inputs"):
        early.aiOnnx.concat(rows, 0)
    with pytest.raises(popart_exception, match="nonsense is not an known tensor"):
        builder.getTensorShape("nonsense")


@pytest.mark.parametrize("early", [True, False])
def test_nodes_are_refused_with_messages_of_popart(early: bool) -> None:
    """PopART's builder leaves these checks to the session."""
    builder = own.Builder(opsets={"ai.onnx": 10}) if early else Builder()
    a = builder.addInputTensor("FLOAT", [3, 4], "a")
    half = builder.addInputTensor("FLOAT16", [3, 4], "half")
    row = builder.addInputTensor("FLOAT", [3], "row")
    scalar = builder.addInputTensor("FLOAT", [], "scalar")
    both = builder.aiOnnx.constant(np.array([-1, -1]))
    refused = [
        (
            lambda: builder.aiOnnx.matmul([a, a]),
            "Op(ai.onnx.MatMul:9, inputs=[a, a], outputs=[MatMul:0]) contracting dimensions "
            "unequal: lhs 'a' [3 4], rhs 'a' [3 4]",
        ),
        (
            lambda: builder.aiOnnx.matmul([a, scalar], "name"),
            "Op(name (ai.onnx.MatMul:9), inputs=[a, scalar], outputs=[MatMul:0/1]) doesn't support "
            "scalar tensor scalar as the rhs input",
        ),
        (
            lambda: builder.aiOnnx.add([a, row]),
            "np broadcasting failed on 'Op 101 (ai.onnx.Add:7)', frames [3, 4] and [3] are not "
            "aligned",
        ),
        (
            lambda: builder.aiOnnx.mul([half, a]),
            "np broadcasting failed on Op 101 (ai.onnx.Mul:7), incompatible types FLOAT16 and "
            "FLOAT (shapes [3 4] and [3 4])",
        ),
        (
            lambda: builder.aiOnnx.reshape([a, both]),
            "Need the value of the ai.onnx.Reshape:5 input 'shape' to determine the output shape, "
            "but was unable because shape input to ReshapeOp can only use -1 to specify one "
            "unknown dimension",
        ),
    ]
    for call, message in refused:
        with pytest.raises(popart_exception) as caught:
            flow = DataFlow(1, [call()])
            InferenceSession(builder.getModelProto(), flow)
        assert caught.value.args[0] == message
        if not early:
            return  # the builder has that node now


def test_nodes_in_called_graphs_are_refused_with_the_same_messages() -> None:
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [3, 4], "x")
    called = builder.createSubgraphBuilder()
    a = called.addInputTensor("FLOAT", [3, 4])
    called.addOutputTensor(called.aiOnnx.matmul([a, a]))
    y = builder.aiGraphcore.call([x], 1, called)[0]
    with pytest.raises(popart_exception, match="contracting dimensions unequal"):
        InferenceSession(builder.getModelProto(), DataFlow(1, [y]))


def test_questions_about_tensors() -> None:
    builder, a, _ = two_inputs()
    w = builder.addInitializedInputTensor(np.arange(6, dtype=np.float64).reshape(3, 2).T)
    i = builder.addInitializedInputTensor(np.arange(3))
    y = builder.aiOnnx.relu([a])
    builder.addOutputTensor(y)
    assert builder.getInputTensorIds() == ["input", "input/1", w, i]
    assert builder.getOutputTensorIds() == [y]
    assert builder.getValueTensorIds() == [y]
    assert builder.getTrainableTensorIds() == [w]
    assert builder.isInitializer(w)
    assert not builder.isInitializer(a)
    held = {
        one.name: onnx.numpy_helper.to_array(one) for one in proto_of(builder).graph.initializer
    }
    np.testing.assert_array_equal(held[w], np.arange(6, dtype=np.float64).reshape(3, 2).T)


def test_the_model_proto_is_a_snapshot() -> None:
    builder, a, b = two_inputs()
    builder.addOutputTensor(builder.aiOnnx.add([a, b]))
    before = builder.getModelProto()
    c = builder.aiOnnx.mul([a, b])
    builder.addOutputTensor(c)
    assert [n.op_type for n in onnx.load_from_string(before).graph.node] == ["Add"]
    assert [n.op_type for n in proto_of(builder).graph.node] == ["Add", "Mul"]


def test_a_loaded_model_can_be_extended(tmp_path: object) -> None:
    builder, a, b = two_inputs([4, 4])
    y = builder.aiOnnx.softmax([builder.aiOnnx.add([a, b])])
    builder.addOutputTensor(y)
    path = f"{tmp_path}/model.onnx"
    builder.saveModelProto(path)
    for source in (path, builder.getModelProto()):
        more = Builder(source)
        labels = more.addInputTensor("INT32", [4])
        loss = more.aiGraphcore.nllloss([y, labels])
        assert (labels, loss) == ("input/2", "Nll:0")
        assert more.aiOnnx.version == 10
        assert more.aiOnnx.add([a, b]) == "Add:0/1"
        assert [n.op_type for n in proto_of(more).graph.node] == ["Add", "Softmax", "Nll", "Add"]


def test_annotations_of_nodes_survive_a_file() -> None:
    builder, a, b = two_inputs()
    with builder.virtualGraph(1), builder.pipelineStage(2):
        assert builder.getVirtualGraph() == 1
        c = builder.aiOnnx.add([a, b])
        with builder.virtualGraph(3):
            d = builder.aiOnnx.add([c, b])
    e = builder.aiGraphcore.gelu([d])
    builder.virtualGraph(e, 4)
    builder.recomputeOutput(c, RecomputeType.Recompute)
    builder.addNodeAttribute("__mine", [1, 2], {e})
    assert not builder.hasVirtualGraph()
    for held in (builder, Builder(builder.getModelProto())):
        assert [held.getVirtualGraph(id) for id in (c, d, e)] == [1, 3, 4]
        assert held.getInt64NodeAttribute("__pipeline_stage", {d}) == 2
        assert held.getInt64VectorNodeAttribute("__mine", {e}) == [1, 2]
        assert held.getRecomputeOutputInBackwardPass(c)
        assert not held.nodeHasAttribute("__pipeline_stage", {e})
    builder.removeNodeAttribute("__mine", {e})
    assert builder.getAllNodeAttributeNames({e}) == ["__debug_info_id", "__ipu_number"]
    with pytest.raises(popart_exception) as caught:
        builder.getVirtualGraph()
    assert caught.value.args[0] == "Virtual graph not set in current scope."


def test_own_attributes_can_be_changed() -> None:
    builder, a, _ = two_inputs()
    y = builder.aiOnnx.leakyrelu([a])
    builder.addNodeAttribute("alpha", 0.5, {y})
    assert builder.getFloatNodeAttribute("alpha", {y}) == 0.5
    with pytest.raises(popart_exception, match="already has attribute alpha"):
        builder.addNodeAttribute("alpha", 0.25, {y})
    assert proto_of(builder).graph.node[0].attribute[0].f == 0.5


def test_branches_see_the_graph_around_them() -> None:
    builder, a, b = two_inputs()
    condition = builder.addInputTensor("BOOL", [])
    branches = []
    for method in ("add", "mul"):
        branch = builder.createSubgraphBuilder()
        branch.addInputTensorFromParentGraph(a)
        y = getattr(branch.aiOnnx, method)([a, b])
        assert y.endswith(":0")
        branch.addOutputTensor(y)
        branches.append(branch)
    [y] = builder.aiOnnx.logical_if([condition], 1, *branches)
    builder.addOutputTensor(y)
    assert builder.getTensorShape(y) == [2, 3]
    graph = proto_of(builder).graph
    inner = {one.name: one.g.node[0].op_type for one in graph.node[0].attribute}
    assert inner == {"else_branch": "Add", "then_branch": "Mul"}
    with pytest.raises(popart_exception, match="unrecognised Tensor nothing from higher"):
        branches[0].addInputTensorFromParentGraph("nothing")


def test_argmax_has_the_integer_type_of_labels() -> None:
    """ArgMax is INT64 in ONNX but INT32 in PopART, whose programs compare it with labels."""
    builder = Builder()
    x, labels = (builder.addInputTensor(type_, [3, 4]) for type_ in ("FLOAT", "INT32"))
    wide = builder.addInputTensor("INT64", [3, 1])
    places = builder.aiOnnx.argmax([x], 1)
    _, seconds = builder.aiOnnx.topk([x, builder.aiOnnx.constant(np.array([1]))])
    with builder.virtualGraph(1):
        same = builder.aiOnnx.equal([labels, places])
    assert builder.getTensorShape(same) == [3, 4]
    assert builder.getVirtualGraph("Cast:0") == 1
    apart = builder.aiOnnx.sub([seconds, labels])
    beside = builder.aiOnnx.sub([places, wide])
    types = [builder.getTensorDtypeString(id) for id in (places, apart, beside)]
    assert types == ["int64", "int32", "int64"]


def test_custom_op_infers_types_of_popart_operators() -> None:
    builder, a, _ = two_inputs()
    (y,) = builder.customOp("Detach", 1, "ai.graphcore", [a], {"pass_through_creation": 1}, 1)
    shape = builder.getTensorShape(a)
    assert builder.getTensorShape(builder.aiOnnx.relu([y])) == shape
    # Ranks that the operator does not accept.
    builder.customOp("SplineWeighting", 1, "ai.graphcore", [a] * 4, {}, 1)


def test_lists_of_a_custom_operator_may_hold_numpy_integers() -> None:
    builder, a, _ = two_inputs()
    counted = {"sizes": [np.sum(np.ones(3, np.int32)), 4]}
    builder.customOp("Sparse", 1, "com.example", [a], counted)
    [node] = proto_of(builder).graph.node
    assert list(node.attribute[0].ints) == [3, 4]
    with pytest.raises(popart_exception, match=r"Invalid type provided in .* attribute 'sizes'"):
        builder.customOp("Sparse", 1, "com.example", [a], {"sizes": np.int64(3)})


def test_reshape_const_and_constants() -> None:
    builder, a, _ = two_inputs()
    y = builder.reshape_const(builder.aiOnnx, [a], [3, 6 / 3])
    assert builder.getTensorShape(y) == [3, 2]
    c = builder.aiOnnx.constant(np.float32(2))
    assert builder.getTensorShape(builder.aiOnnx.mul([y, c])) == [3, 2]


def test_arrays_are_copied() -> None:
    builder = Builder()
    array = np.zeros(2, np.float32)
    w = builder.addInitializedInputTensor(array)
    array[:] = 1
    builder.addOutputTensor(builder.aiOnnx.relu([w]))
    [held] = proto_of(builder).graph.initializer
    assert onnx.numpy_helper.to_array(held).tolist() == [0, 0]


def test_tensor_info() -> None:
    info = TensorInfo(np.float64, (2, 3))
    assert (info.data_type(), info.data_type_lcase()) == ("DOUBLE", "float64")
    assert (info.dataType(), info.nelms(), info.nbytes()) == (DataType.DOUBLE, 6, 48)
    assert info == TensorInfo(np.zeros((2, 3))) == TensorInfo("DOUBLE", [2, 3])
    assert info.strides([2, 3]) == [24, 8]
    assert TensorInfo("BOOL", []).data_type_lcase() == "bool"
    with pytest.raises(popart_exception, match="no ONNX type FLAOT, they're"):
        TensorInfo("FLAOT", [1])
    shapes = {"()": [], "(2)": [2], "(2,3)": [2, 3], "(-1,2,)": [-1, 2]}
    assert {text: TensorInfo("FLOAT", text).shape() for text in shapes} == shapes
    for text in ("", "(", "[2,3]", "2,3", "(2, 3)", "(n,3)", "(,)"):
        with pytest.raises(popart_exception, match=r"invalid string for shape|contains a space"):
            TensorInfo("FLOAT", text)
    for wrong in ((1, [2]), ("FLOAT",)):
        with pytest.raises(TypeError, match="Can not create TensorInfo with args"):
            TensorInfo(*wrong)


def test_results_of_a_tensor_of_unknown_shape_have_a_type() -> None:
    """A loss of any tensor is a scalar, as in PopART's shape inference."""
    builder = Builder()
    x, to = builder.addInputTensor("FLOAT16", [6]), builder.addInputTensor("INT64", [2])
    labels = builder.addInputTensor("INT32", [2])
    unknown, own = builder.aiOnnx.reshape([x, to]), builder.aiGraphcore
    losses = [own.nllloss([unknown, labels]), own.l1loss([unknown], 0.1)]
    losses += [own.identityloss([unknown]), own.nllloss([unknown, labels], ReductionType.Sum)]
    assert [builder.getTensorShape(id) for id in losses] == [[]] * 4
    each = own.nllloss([unknown, labels], ReductionType.NoReduction)
    assert builder.getTensorShape(each) == [2]
    types = {builder.getTensorDtypeString(id) for id in (unknown, each, *losses)}
    assert types == {"float16"}
    with pytest.raises(popart_exception, match="The shape of tensor Subsample:0 is not known"):
        builder.getTensorShape(own.subsample([unknown], [1, 2]))


def test_an_attribute_that_no_schema_knows_is_kept() -> None:
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2])
    y = builder.aiOnnx.relu([x])
    builder.addOutputTensor(y)
    builder.addNodeAttribute("colour", "red", {y})
    assert builder.nodeHasAttribute("colour", {y})
    assert builder.getAllNodeAttributeNames({y}) == ["__debug_info_id", "colour"]
    assert builder.getStringNodeAttribute("colour", {y}) == "red"

    again = Builder(builder.getModelProto())
    assert again.getStringNodeAttribute("colour", {y}) == "red"
    assert again.getModelProto() == builder.getModelProto()
    again.removeNodeAttribute("colour", {y})
    assert not again.nodeHasAttribute("colour", {y})
    assert again.getModelProto() == Builder(again.getModelProto()).getModelProto()


def test_an_unknown_attribute_of_a_file_is_an_error() -> None:
    """A misspelt `axis` in a file is an error."""
    builder = Builder()
    y = builder.aiOnnx.softmax([builder.addInputTensor("FLOAT", [2, 3])])
    builder.addOutputTensor(y)
    model = onnx.ModelProto.FromString(builder.getModelProto())
    model.graph.node[0].attribute.add(name="axes", type=onnx.AttributeProto.INT, i=1)
    with pytest.raises(popart_exception, match="axes"):
        Builder(model)


def test_attributes_of_a_schema_are_not_annotations() -> None:
    builder = Builder()
    y = builder.aiOnnx.softmax([builder.addInputTensor("FLOAT", [2, 3])], axis=0)
    builder.addOutputTensor(y)
    model = onnx.ModelProto.FromString(builder.getModelProto())
    model.graph.node[0].metadata_props.add(key="popgraph.kept", value="axis")
    assert Builder(model).getInt64NodeAttribute("axis", {y}) == 0
    assert Builder(model).getModelProto() == model.SerializeToString()


def test_a_call_keeps_annotations_and_its_graph() -> None:
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2])
    inner = builder.createSubgraphBuilder()
    inner.addOutputTensor(inner.aiOnnx.relu([inner.addUntypedInputTensor()]))
    with builder.virtualGraph(1):
        (y,) = builder.aiGraphcore.call([x], 1, inner)
    builder.pipelineStage(y, 2)
    builder.addOutputTensor(y)
    assert builder.getVirtualGraph(y) == 1
    assert builder.getInt64NodeAttribute("__pipeline_stage", {y}) == 2
    assert builder.nodeHasAttribute("callee", {y})
    (node,) = onnx.ModelProto.FromString(builder.getModelProto()).graph.node
    assert {one.name for one in node.attribute} >= {"callee", "__ipu_number", "__pipeline_stage"}


def test_an_annotation_cannot_be_set_twice() -> None:
    builder = Builder()
    x = builder.addInputTensor("FLOAT", [2, 4])
    halves = builder.aiOnnx.split([x], 2, axis=1)
    builder.virtualGraph(set(halves), 1)
    with pytest.raises(popart_exception, match="Node already has attribute __ipu_number"):
        builder.virtualGraph(set(halves), 1)


def test_excluded_patterns_have_names() -> None:
    builder = Builder()
    y = builder.aiOnnx.relu([builder.addInputTensor("FLOAT", [2])])
    with pytest.raises(popart_exception, match="Invalid pattern name 'RemoveAll'"):
        builder.excludePatterns(y, ["OpToIdentity", "RemoveAll"])
    builder.excludePatterns(y, ["OpToIdentity"])
    assert builder.getStringVectorNodeAttribute("__exclude_patterns", {y}) == ["OpToIdentity"]


@pytest.mark.parametrize(
    "call",
    [
        lambda builder: builder.addInputTensor(),
        lambda builder: builder.addInputTensor(3),
        lambda builder: builder.addInputTensor("FLOAT"),
        lambda builder: builder.addInputTensor("FLOAT", [1], nonsense=1),
        lambda builder: builder.addInputTensor(TensorInfo("FLOAT", [1]), 3),
        lambda builder: builder.addInitializedInputTensor(),
        lambda builder: builder.addInitializedInputTensor(np.ones(1), nonsense=1),
    ],
)
def test_inputs_of_no_form_are_type_errors(call: Any) -> None:
    with pytest.raises(TypeError, match=r"\(\): incompatible function arguments"):
        call(Builder())


def test_inputs_by_name() -> None:
    builder, info = Builder(), TensorInfo("FLOAT", [2])
    x = builder.addInputTensor(dataType="FLOAT16", shape=[2, 3], debugContext="x")
    assert (builder.getTensorDtypeString(x), builder.getTensorShape(x)) == ("float16", [2, 3])
    assert builder.addInputTensor(tensorInfo=info, settings=InputSettings(), name="y") == "y"
    assert builder.addInputTensor(info, InputSettings(), "z") == "z"
    ones = np.ones(2, np.float32)
    assert builder.addInitializedInputTensor(initVal=ones, debugContext="w") == "w"
    assert builder.addInitializedInputTensor(ones, VariableSettings(), "v") == "v"


@pytest.mark.parametrize("model", ["nothing.onnx", b"nothing"])
@pytest.mark.parametrize("reader", [Builder, GraphTransformer])
def test_sources_that_are_not_models(reader: Any, model: Any) -> None:
    with pytest.raises(popart_exception) as caught:
        reader(model)
    said = caught.value.args[0]
    assert said.startswith("Failed to load a ModelProto from the string ")
    assert said.endswith(
        "Check that it is either a valid path to an existing onnx model file, or is a valid onnx "
        "ModelProto string."
    )


def test_an_error_that_says_how_much_memory() -> None:
    told = OutOfMemoryError()
    error = OutOfMemoryException(told)
    assert (error.error, error.args[0]) == (told, str(told))
    assert (error.getSummaryReport(), error.getProfilePath()) == ("", "")


def test_weights_of_texts_are_not_trained() -> None:
    builder = Builder()
    words = builder.addInitializedInputTensor(np.array(["a"]))
    w = builder.addInitializedInputTensor(np.ones(2, np.float16))
    assert builder.getTrainableTensorIds() == [w]
    with pytest.raises(popart_exception, match="holds no numbers"):
        builder.getTensorDtypeString(words)


def test_nodes_that_a_session_will_refuse_have_shapes() -> None:
    """PopART's builder infers shapes without checking element types."""
    builder = Builder()
    a = builder.addInputTensor(TensorInfo("FLOAT", [2, 3]))
    b = builder.addInputTensor(TensorInfo("FLOAT", [4, 1, 3]))
    both = builder.aiOnnx.logical_and([a, b])
    assert builder.getTensorShape(both) == [4, 2, 3]
    assert builder.getTensorDtypeString(both) == "bool"
    assert builder.getTensorShape(builder.aiOnnx.logical_not([a])) == [2, 3]
    labels = builder.addInputTensor(TensorInfo("INT32", [3]))
    loss = builder.aiGraphcore.nllloss([a, labels], ReductionType.Mean)
    assert builder.getTensorShape(loss) == []
    builder.addOutputTensor(both)
    with pytest.raises(PopgraphError, match="its input `A` is not f32"):
        InferenceSession(builder.getModelProto(), DataFlow(1, [both]))
