"""Tests limits of PopART's operator sets, with PopART's messages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import TensorProto, helper

import popgraph
import popgraph.popart as popart
from popgraph.support.arrays import Array

Write = Callable[[Any, popart.Builder], str]
RESIZED: tuple[Array, ...] = (
    np.zeros(0, np.float32),
    np.array([1, 2], np.float16),
    np.array([1, 2]),
)


def model(write: Write, opset: int) -> tuple[bytes, str]:
    builder = popart.Builder(opsets={"ai.onnx": opset})
    result = write(builder.aiOnnx, builder)
    builder.addOutputTensor(result)
    return builder.getModelProto(), result


def tensor(builder: popart.Builder, *shape: int, of: str = "FLOAT", name: str = "") -> str:
    return builder.addInputTensor(popart.TensorInfo(of, list(shape)), name)


def recurrent(**attributes: object) -> Write:
    def write(onnx: Any, builder: popart.Builder) -> str:
        operands = [tensor(builder, 2, 1, 3), tensor(builder, 1, 4, 3), tensor(builder, 1, 4, 4)]
        return str(onnx.rnn(operands, 2, **attributes)[1])

    return write


def long_memory(**attributes: object) -> Write:
    def write(onnx: Any, builder: popart.Builder) -> str:
        operands = [tensor(builder, 2, 1, 3), tensor(builder, 1, 8, 3), tensor(builder, 1, 8, 2)]
        return str(onnx.lstm(operands, 3, **attributes)[1])

    return write


def repeats_of_data(onnx: Any, builder: popart.Builder) -> str:
    repeats = tensor(builder, 2, of="INT64", name="often")
    return str(onnx.tile([tensor(builder, 2, 3), repeats]))


def bounds_of_data(onnx: Any, builder: popart.Builder) -> str:
    lowest = tensor(builder, name="lowest")
    return str(onnx.clip([tensor(builder, 2, name="x"), lowest], "MyClip"))


def slices_of_data(onnx: Any, builder: popart.Builder) -> str:
    places = [tensor(builder, 1, of="INT64", name=name) for name in ("from", "to")]
    return str(onnx.slice([tensor(builder, 4), *places]))


def unlike_means(onnx: Any, builder: popart.Builder) -> str:
    return str(onnx.mean([tensor(builder, 2, 3), tensor(builder, 3)]))


def padded_averages(onnx: Any, builder: popart.Builder) -> str:
    image = tensor(builder, 1, 1, 4, 4)
    return str(onnx.averagepool([image], [3, 3], count_include_pad=1, pads=[1, 1, 1, 1]))


def spread_maxima(onnx: Any, builder: popart.Builder) -> str:
    image = tensor(builder, 1, 1, 4, 4)
    return str(onnx.maxpool([image], 1, [2, 2], dilations=[2, 2])[0])


def doubles_like(onnx: Any, builder: popart.Builder) -> str:
    return str(onnx.randomnormallike([tensor(builder, 3, of="DOUBLE")]))


@pytest.mark.parametrize(
    ("write", "opset", "said"),
    [
        (
            recurrent(activation_alpha=[0.5]),
            7,
            "Attribute `activation_alpha' of Op([ai.onnx.RNN",
        ),
        (
            recurrent(activation_beta=[0.5]),
            7,
            "Attribute `activation_beta' of Op([ai.onnx.RNN",
        ),
        (recurrent(clip=1.0), 7, "Attribute `clip' of Op([ai.onnx.RNN:7], inputs=[input"),
        (recurrent(activations=["Affine"]), 7, "Activation type 'Affine' is not supported for"),
        (
            recurrent(direction="reverse"),
            7,
            "Op([ai.onnx.RNN:7], inputs=[input, input/1, input/2]",
        ),
        (
            long_memory(activations=["Sigmoid", "Affine", "Affine"]),
            7,
            "Activation type 'Affine' is not supported",
        ),
        (repeats_of_data, 10, "The 'Repeats' Tensor `often' must be of type Constant"),
        (
            bounds_of_data,
            11,
            "Op MyClip(ai.onnx.Clip:11), inputs=[x] currently only supports constant min/max "
            "parameters. Input 'min' (lowest) has no data.",
        ),
        (slices_of_data, 10, "Need the value of the ai.onnx.Slice:10 input 'starts' to determine"),
        (unlike_means, 7, "Inputs to ai.onnx.Mean:6 do not all the same type & shape"),
        (padded_averages, 10, "`count_include_pad` is not supported"),
        (
            spread_maxima,
            10,
            "MaxPool has dilations [2 2]. Dilations of value other",
        ),
        (doubles_like, 10, "ai.onnx.RandomNormalLike:1 : Unsupported data type requested: DOUBLE"),
    ],
)
def test_calls_that_popart_refuses(write: Write, opset: int, said: str) -> None:
    proto, result = model(write, opset)
    with pytest.raises(popart.popart_exception) as caught:
        popart.InferenceSession(proto, popart.DataFlow(1, [result]))
    assert str(caught.value).startswith(said) and str(caught.value) == caught.value.args[0]
    where, hint = caught.value.__notes__
    assert where.startswith("  at: node ") and hint.startswith("  try: ")


@pytest.mark.parametrize(
    "write",
    [recurrent(activations=["Relu"]), long_memory(), recurrent(direction="forward")],
)
def test_calls_that_popart_accepts(write: Write) -> None:
    proto, result = model(write, 7)
    popart.InferenceSession(proto, popart.DataFlow(1, [result]))


@pytest.mark.parametrize("write", [recurrent(clip=1.0), padded_averages, spread_maxima])
def test_later_opsets_and_plain_programs_have_no_such_limits(write: Write) -> None:
    later, result = model(write, 13)
    popart.InferenceSession(later, popart.DataFlow(1, [result]))
    popgraph.compile(model(write, 10)[0])


def test_an_empty_list_has_the_type_of_its_attribute() -> None:
    builder = popart.Builder()
    operands = [builder.addInputTensor("FLOAT", shape) for shape in ([2, 1, 3], [1, 4, 3])]
    outputs = builder.aiOnnx.rnn([*operands, builder.addInputTensor("FLOAT", [1, 4, 4])], 2)
    builder.addNodeAttribute("activations", [], set(outputs))
    assert builder.getNodeAttribute("activations", set(outputs)) == []


def collecting(data: list[int], indices: list[int], axis: int = 0, size: int = 5) -> None:
    builder = popart.Builder()
    ids = [builder.addInputTensor("FLOAT", data), builder.addInputTensor("UINT32", indices)]
    result = builder.aiGraphcore.scatterreduce(ids, size, axis)
    popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [result]))


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (lambda: collecting([6, 3], [6], axis=2), "axis = 2 is outside the acceptable range"),
        (lambda: collecting([6, 3], [6], size=0), "axis_size = 0 is not valid"),
        (lambda: collecting([6, 3], [6, 4]), "Failed to expand 'indices' shape (6,4)"),
        (lambda: collecting([6, 3], [6, 3, 1]), "Invalid rank for indices input."),
        (lambda: collecting([6, 3, 5], [1, 3, 5]), "Partial broadcasting of indices is not"),
    ],
)
def test_scatters_that_popart_refuses(call: Callable[[], None], said: str) -> None:
    with pytest.raises(popart.popart_exception) as caught:
        call()
    assert said in caught.value.args[0]


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (lambda b, x: b.aiGraphcore.reverse([x], [1, -2]), "invalid dimension '-2'. Only positive"),
        (lambda b, x: b.aiGraphcore.reverse([x], [2]), "dimension '2' for input tensor of rank 2"),
        (lambda b, x: b.aiGraphcore.reverse([x], [1, 1]), "Dimension 1 appears multiple times"),
        (
            lambda b, x: b.aiGraphcore.shapeddropout([x], [2, 3], 1.5),
            "ratio value 1.5 is not valid. Please use a value in the interval [0,1)",
        ),
        (
            lambda b, x: b.aiGraphcore.shapeddropout([x], [4, 3]),
            "ShapedDropout: incompatible input tensor and dropout shape.",
        ),
        (
            lambda b, x: b.aiOnnx.tile([x, b.aiOnnx.constant(np.array([1, 2, 3]))]),
            "should have one element for each dimension of the data tensor",
        ),
        (
            lambda b, x: b.aiOnnx.tile([x, b.aiOnnx.constant(np.array([1, -2]))]),
            "Values must be non-negative in each shape dimension",
        ),
        (
            lambda b, x: b.aiOnnx.expand([x, b.aiOnnx.constant(np.array([4, 5], np.int32))]),
            "corresponding dimensions must have the same value or one of them must be 1",
        ),
        (
            lambda b, x: b.aiOnnx.averagepool(
                [b.addInputTensor("FLOAT", [1, 1, 4, 4])], [2, 2], pads=[0, 0, 0]
            ),
            "Padding vector (length 3) does not have 2 values for each spatial dimension 2",
        ),
        (
            lambda b, x: b.aiOnnx.batchnormalization(
                [b.addInputTensor("FLOAT", shape) for shape in ([2, 2, 2, 2], [2], [3], [2], [2])],
                1,
            )[0],
            "expected shape of batch norm input tensor B ([3]) to be [2] to match dimension 1 of X",
        ),
        (
            lambda b, x: b.aiOnnxOpset11.resize(
                [x, *(b.aiOnnxOpset11.constant(a) for a in RESIZED)]
            ),
            "Resize op has inputs for `sizes` and `scales`.",
        ),
    ],
)
def test_calls_that_builders_or_sessions_refuse(
    write: Callable[[Any, str], object], said: str
) -> None:
    builder = popart.Builder(opsets={"ai.onnx": 11} if "Resize" in said else None)
    x = builder.addInputTensor("FLOAT", [2, 3])
    with pytest.raises(popart.popart_exception) as caught:
        y = write(builder, x)
        popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]))
    assert said in caught.value.args[0]


@pytest.mark.parametrize(
    ("write", "said"),
    [
        (
            lambda onnx, x, w: onnx.averagepool([x], [3, 3], pads=[0] * 5),
            "Padding vector (length 5) does not have 2 values for each spatial dimension 2",
        ),
        (
            lambda onnx, x, w: onnx.maxpool([x], 1, [3, 3], strides=[1]),
            "Length of strides vector 1 != number of spatial dimensions 2",
        ),
        (
            lambda onnx, x, w: onnx.conv([x, w], dilations=[1, 1, 1]),
            "Length of dilations vector 3 != number of spatial dimensions 2",
        ),
        (
            lambda onnx, x, w: onnx.conv([x, w], kernel_shape=[2, 2]),
            "kernel_shape, [2 2], does not match inferred shape from weight input 'w', [3 3]",
        ),
        (
            lambda onnx, x, w: onnx.conv([x]),
            "Conv has invalid number of inputs 1. Must be between 2..3",
        ),
        (
            lambda onnx, x, w: onnx.averagepool([x], [9, 9]),
            "Window parameter values combine to give invalid spatial output shape: [-4 -4]",
        ),
        (
            lambda onnx, x, w: onnx.pad([x], [1, 1]),
            "Padding vector (length 2) doesn't contain 2 entries per input dimension 4",
        ),
        (
            lambda onnx, x, w: onnx.maxpool([onnx.squeeze([x], [2, 3])], 1, [1]),
            "Input tensor has no spatial dimensions",
        ),
    ],
)
def test_windows_are_checked_when_a_node_is_added(
    write: Callable[[Any, str, str], object], said: str
) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 1, 4, 4], "x")
    if "no spatial" in said:
        x = builder.addInputTensor("FLOAT", [1, 1, 1, 1])
    w = builder.addInputTensor("FLOAT", [1, 1, 3, 3], "w")
    with pytest.raises(popart.popart_exception) as caught:
        write(builder.aiOnnx, x, w)
    assert caught.value.args[0].startswith(said)


@pytest.mark.parametrize("version", [9, 10, 11])
def test_updates_without_indices_are_not_scattered(version: int) -> None:
    builder = popart.Builder(opsets={"ai.onnx": version})
    data = builder.addInputTensor("FLOAT", [3, 5])
    indices = builder.addInputTensor("INT32", [1, 4])
    updates = builder.addInputTensor("FLOAT", [2, 5])
    method = "scatterelements" if version == 11 else "scatter"
    y = getattr(builder.aiOnnx, method)([data, indices, updates], 0)
    device = popart.DeviceManager().createCpuDevice(backend="reference")
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    given = {data: np.zeros((3, 5)), updates: np.arange(1, 11).reshape(2, 5)}
    fed = {id: array.astype(np.float32) for id, array in given.items()}
    fed[indices] = np.array([[0, 1, 2, 0]], np.int32)
    session.run(popart.PyStepIO(fed, anchors))
    assert anchors[y].tolist() == [[1, 0, 0, 4, 0], [0, 2, 0, 0, 0], [0, 0, 3, 0, 0]]


def test_unknown_operators() -> None:
    for domain in ("com.acme", "ai.graphcore"):
        builder = popart.Builder()
        x = builder.addInputTensor("FLOAT", [2])
        y = builder.customOp("Cube", 1, domain, [x], {}, 1)[0]
        with pytest.raises(popart.popart_exception) as caught:
            popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]))
        assert caught.value.args[0] == f"No class for {domain}.Cube:0"


def test_an_unknown_onnx_operator() -> None:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2]) for name in "xy")
    graph = helper.make_graph([helper.make_node("Foo", ["x"], ["y"])], "g", [x], [y])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 10)])
    with pytest.raises(popart.popart_exception, match=r"^No class for ai\.onnx\.Foo:0\n"):
        popart.InferenceSession(model.SerializeToString(), popart.DataFlow(1, ["y"]))


def test_a_call_requires_the_inputs_of_its_graph() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3], "x")
    body = builder.createSubgraphBuilder()
    body.setGraphName("body")
    body.addOutputTensor(body.aiOnnx.abs([body.addInputTensor("FLOAT", [2], "inner")]))
    (y,) = builder.aiGraphcore.call([x], 1, body)
    with pytest.raises(popart.popart_exception) as caught:
        popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]))
    assert caught.value.args[0] == (
        "CallOp input (@0) does not match callee input tensor (@0):\n"
        "   x -> body/inner\n   FLOAT   [3] vs FLOAT   [2]"
    )


def test_scanned_tensors_must_have_equal_lengths() -> None:
    builder = popart.Builder()
    body = builder.createSubgraphBuilder()
    state, a, b = (body.addInputTensor("FLOAT", [2]) for _ in range(3))
    total = body.aiOnnx.add([a, b])
    for one in (body.aiOnnx.add([state, total]), total):
        body.addOutputTensor(one)
    rows = [builder.addInputTensor("FLOAT", shape) for shape in ([2], [4, 2], [3, 2])]
    with pytest.raises(popart.popart_exception, match=r"do not match: 4 3"):
        y, _ = builder.aiOnnx.scan(rows, 2, body, 2)
        popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]))
