"""Tests packed sequences, the CTC decoder, and operators that differ between PopART and ONNX."""

from __future__ import annotations

from itertools import product

import ml_dtypes
import numpy as np
import pytest

import popgraph
import popgraph.popart as popart
from popgraph.popart.programs.printed_tensors import Printed
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError
from tests.dialects.broken_nodes import Broken, model_of, row


def ran(builder: popart.Builder, inputs: dict[str, Array], outputs: list[str]) -> list[Array]:
    device = popart.DeviceManager().createCpuDevice()
    flow = popart.DataFlow(1, outputs)
    session = popart.InferenceSession(builder.getModelProto(), flow, deviceInfo=device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(inputs, anchors))
    return [anchors[id] for id in outputs]


def packed(batch: int, data: Array) -> tuple[popart.Builder, dict[str, Array], str, str]:
    """Squares four sequences, two of them truncated; one row is not covered."""
    builder = popart.Builder()
    arrays = {
        "offsets": np.array([0, 3, 4, 6], np.uint32),
        "lengths": np.array([3, 1, 2, 3], np.uint32),
        "kept": np.array([2, 1, 2, 3], np.uint32),
    }
    x = builder.addInputTensor(popart.TensorInfo(data), "x")
    ids = {name: builder.addInputTensor(popart.TensorInfo(a), name) for name, a in arrays.items()}
    inner = builder.createSubgraphBuilder()
    row = inner.addUntypedInputTensor()
    inner.addOutputTensor(inner.aiOnnx.mul([row, row]))
    args = [x, ids["offsets"], ids["lengths"], ids["offsets"], ids["kept"]]
    y = builder.aiGraphcore.packedDataBlock(args, [3], 10, batch, inner)
    return builder, {x: data, **{ids[name]: a for name, a in arrays.items()}}, x, y


@pytest.mark.parametrize("batch", [1, 2, 4])
def test_packed_sequences(batch: int) -> None:
    data = np.arange(18, dtype=np.float32).reshape(9, 2) - 5
    builder, inputs, _, y = packed(batch, data)
    builder.addOutputTensor(y)
    assert builder.getTensorShape(y) == [10, 2]
    expected = np.zeros((10, 2), np.float32)
    reached = [0, 1, 3, 4, 5, 6, 7, 8]
    expected[reached] = data[reached] ** 2
    np.testing.assert_array_equal(ran(builder, inputs, [y])[0], expected)


def test_packed_sequences_train() -> None:
    data = np.arange(18, dtype=np.float32).reshape(9, 2) - 5
    builder, inputs, x, y = packed(2, data)
    loss = builder.aiGraphcore.identityloss([y], popart.ReductionType.Sum)
    slope = popart.reservedGradientPrefix() + x
    device = popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(
        builder.getModelProto(), popart.DataFlow(1, [slope]), loss, popart.ConstSGD(0.1), device
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(inputs, anchors))
    expected = 2 * data
    expected[2] = 0
    np.testing.assert_array_equal(anchors[slope], expected)


def test_ctc_decoder_finds_the_likeliest_labels() -> None:
    """Compares with a sum over all paths through three steps of three labels; 0 is the blank."""
    chances = np.random.default_rng(3).dirichlet(np.ones(3), (3, 2)).astype(np.float32)
    ends = np.array([3, 2], np.uint32)
    builder = popart.Builder()
    logs = np.log(chances)
    ids = [builder.addInputTensor(popart.TensorInfo(one)) for one in (logs, ends)]
    outputs = builder.aiGraphcore.ctcbeamsearchdecoder(ids, 0, 16, 3)
    for id in outputs:
        builder.addOutputTensor(id)
    found = ran(builder, dict(zip(ids, (logs, ends), strict=True)), outputs)
    for entry, steps in enumerate(ends):
        sums: dict[tuple[int, ...], float] = {}
        for way in product(range(3), repeat=int(steps)):
            pairs = zip(way, (0, *way), strict=False)
            key = tuple(one for one, before in pairs if one and one != before)
            part = float(np.prod([chances[at, entry, one] for at, one in enumerate(way)]))
            sums[key] = sums.get(key, 0.0) + part
        best = sorted(sums.items(), key=lambda item: -item[1])[:3]
        np.testing.assert_allclose(found[0][entry], np.log([one for _, one in best]), rtol=1e-4)
        assert found[1][entry].tolist() == [len(labels) for labels, _ in best]
        for one, (labels, _) in zip(found[2][entry], best, strict=True):
            assert tuple(one[: len(labels)]) == labels


@pytest.mark.parametrize(
    "broken",
    [
        row("f32[5, 2] u32[2]", outputs=3),
        row("f32[5, 2, 4] u32[2, 1]", outputs=3),
        row("f32[5, 2, 4] u32[3]", outputs=3),
        row("f32[5, 2, 4] u32[2]", outputs=3, blank=4),
        row("f32[5, 2, 4] u32[2]", outputs=3, beam_width=2, top_paths=3),
    ],
)
def test_an_invalid_decoder_is_refused(broken: Broken) -> None:
    with pytest.raises(TypeMismatchError, match="CtcBeamSearchDecoder"):
        popgraph.compile(model_of("ai.graphcore.CtcBeamSearchDecoder", broken))


@pytest.mark.parametrize(
    ("auto_pad", "expected"),
    [("NOTSET", [[1, 4], [5, 15]]), ("SAME_UPPER", [[15, 10], [11, 4]])],
)
def test_odd_padding_of_conv_transpose(auto_pad: str, expected: list[list[int]]) -> None:
    builder = popart.Builder()
    image = np.array([[[[1, 2], [3, 4]]]], np.float32)
    kernel = np.array([[[[1, 2], [2, 1]]]], np.float32)
    ids = [builder.addInputTensor(popart.TensorInfo(one)) for one in (image, kernel)]
    y = builder.aiOnnxOpset11.convtranspose(ids, output_shape=[2, 2])
    builder.addNodeAttribute("auto_pad", auto_pad, {y})
    builder.addOutputTensor(y)
    (found,) = ran(builder, dict(zip(ids, (image, kernel), strict=True)), [y])
    np.testing.assert_array_equal(found[0, 0], expected)


def test_output_shape_of_conv_transpose_includes_pads() -> None:
    builder = popart.Builder()
    ids = [builder.addInputTensor("FLOAT", [1, 1, *size]) for size in ([3, 3], [2, 2])]
    y = builder.aiOnnx.convtranspose(ids, output_shape=[1, 1, 4, 4])
    assert builder.getTensorShape(y) == [1, 1, 4, 4]
    with pytest.raises(popart.popart_exception, match=r"output_shape 1x1x5x5, .* make 1x1x4x4"):
        builder.aiOnnx.convtranspose(ids, output_shape=[1, 1, 5, 5])


def test_the_nearest_elements_of_the_first_resize() -> None:
    builder = popart.Builder()
    data = np.arange(8, dtype=np.float32).reshape(1, 1, 8)
    x = builder.addInputTensor(popart.TensorInfo(data))
    scales = builder.aiOnnx.constant(np.array([1, 1, 3 / 8], np.float32))
    y = builder.aiOnnx.resize([x, scales])
    builder.addOutputTensor(y)
    np.testing.assert_array_equal(ran(builder, {x: data}, [y])[0], [[[0, 2, 5]]])


def test_the_first_resize_interpolates_between_centers_of_pixels() -> None:
    """`onnx.reference` aligns corners instead: 0, 2, 4 and 4."""
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [1, 1, 2])
    scales = builder.aiOnnx.constant(np.array([1, 1, 2], np.float32))
    y = builder.aiOnnx.resize([x, scales], "linear")
    builder.addOutputTensor(y)
    data = np.array([[[0, 4]]], np.float32)
    np.testing.assert_array_equal(ran(builder, {x: data}, [y])[0], [[[0, 1, 3, 4]]])


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("activations", [], "only supports 1 activation, 0 were specified"),
        ("direction", "bidirectional", "only supports `forward' direction"),
        (
            "hidden_size",
            2,
            "(2) does not match hidden size calculated from recurrenceWeights tensor (1).",
        ),
    ],
)
def test_recurrences_that_onnx_refuses(name: str, value: object, said: str) -> None:
    builder = popart.Builder()
    outputs = builder.aiOnnx.rnn([builder.addInputTensor("FLOAT", [1, 1, 1]) for _ in range(3)], 1)
    builder.addNodeAttribute(name, value, set(outputs))
    builder.addOutputTensor(outputs[0])
    with pytest.raises(popart.popart_exception) as caught:
        popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, outputs[:1]))
    assert caught.value.args[0].endswith(said) and "ai.onnx.RNN:7" in caught.value.args[0]


def test_tensors_are_printed_after_every_batch(capfd: pytest.CaptureFixture[str]) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [3])
    w = builder.addInitializedInputTensor(np.array([1, 2, 3], np.float32), "w")
    y = builder.aiGraphcore.printtensor([builder.aiOnnx.mul([x, w])], title="product")
    shown = builder.aiGraphcore.printtensor([x], print_gradient=0, openBracket="<", digits=1)
    z = builder.aiOnnx.add([y, shown])
    loss = builder.aiGraphcore.identityloss([z], popart.ReductionType.Sum)
    unused = builder.aiGraphcore.printtensor([builder.aiOnnx.neg([x])], title="beside")
    builder.addOutputTensor(unused)
    device = popart.DeviceManager().createCpuDevice()
    flow = popart.DataFlow(2, [loss])
    session = popart.TrainingSession(
        builder.getModelProto(), flow, loss, popart.ConstSGD(1e-12), device
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    capfd.readouterr()
    batches = np.array([[2, 4, 6], [8, 10, 12.25]], np.float32)
    session.run(popart.PyStepIO({x: batches}, anchors))
    assert set(anchors) == {loss}
    lines = capfd.readouterr().err.splitlines()
    assert lines == [
        "product: [ 2.000000  8.000000 18.000000]",
        "product_gradient: [1.0000000 1.0000000 1.0000000]",
        f"{x}: <2 4 6]",
        "beside: [-2.0000000 -4.0000000 -6.0000000]",
        "product: [ 8.000000 20.000000 36.750000]",
        "product_gradient: [1.0000000 1.0000000 1.0000000]",
        f"{x}: <8e+00 1e+01 1e+01]",
        "beside: [ -8.000000 -10.000000 -12.250000]",
    ]


@pytest.mark.parametrize(
    ("value", "settings", "said"),
    [
        (np.arange(1200), {"summariseThreshold": 0, "maxLineWidth": 0}, None),
        (np.arange(1200), {"edgeItems": 1}, "[   0 ... 1199]"),
        (np.arange(9), {"maxLineWidth": 9}, "[0 1 2 3\n 4 5 6 7\n 8]"),
        (np.array([1.5, 22.25], np.float32), {"floatFormat": 1, "digits": 5}, "[ 1.500 22.250]"),
        (
            np.array([1.5, 22.25], np.float32),
            {"floatFormat": 2, "digits": 4},
            "[1.500e+00 2.225e+01]",
        ),
        (np.array([1.5, 22.25], np.float32), {"floatFormat": 3}, "[1.5 22.25]"),
        (np.array([1.5, 22.25], np.float32), {"digits": 0}, "[1.5 22.25]"),
        (np.arange(9, 11), {"digits": 0}, "[9 10]"),
        (np.array([2**-40, -1], np.float32), {"digits": 3}, "[ 9.09e-13 -1.00e+00]"),
        (np.array([np.nan, np.inf, 2], np.float32), {"digits": 2}, "[nan inf 2.0]"),
        (np.zeros((0, 2), np.float32), {}, "[]"),
        (np.array([1, 2], ml_dtypes.bfloat16), {"digits": 2}, "[1.0 2.0]"),
    ],
)
def test_tensors_are_printed_in_the_format_of_the_node(
    value: Array, settings: dict[str, int], said: str | None
) -> None:
    """PrintTensorFmt: `digits` counts all digits, 0 switches a rule off."""
    whole = f"[{' '.join(f'{one:4}' for one in range(1200))}]"
    assert Printed("x", "t", settings).text(value) == f"t: {said or whole}"


@pytest.mark.parametrize("checked", [False, True])
def test_numbers_that_are_not_finite_end_a_step(checked: bool) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [2])
    y = builder.aiOnnx.log([x])
    builder.addOutputTensor(y)
    options = popart.SessionOptions()
    options.enableFloatingPointChecks = checked
    device = popart.DeviceManager().createCpuDevice()
    session = popart.InferenceSession(
        builder.getModelProto(), popart.DataFlow(1, [y]), device, userOptions=options
    )
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO({x: np.array([1, 2], np.float32)}, anchors))
    zero = popart.PyStepIO({x: np.array([0, 2], np.float32)}, anchors)
    if not checked:
        session.run(zero)
        assert np.isinf(anchors[y][0])
        return
    with pytest.raises(popart.poplar_application_runtime_error, match=f"result '{y}' holds"):
        session.run(zero)


def test_a_model_that_always_aborts_does_so_in_a_step_of_several_batches() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("INT32", [1])
    y = builder.aiOnnx.add([x, x])
    builder.aiGraphcore.abort([])
    device = popart.DeviceManager().createCpuDevice(backend="reference")
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(2, [y]), device)
    session.prepareDevice()
    stepio = popart.PyStepIO({x: np.zeros((2, 1), np.int32)}, session.initAnchorArrays())
    with pytest.raises(popart.poplar_application_runtime_error, match=r"^abort: the model alwa"):
        session.run(stepio)


@pytest.mark.parametrize("conditional", [True, False])
def test_a_model_may_abort(conditional: bool) -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("INT32", [1])
    y = builder.aiOnnx.add([x, x])
    builder.aiGraphcore.abort([y] if conditional else [])
    builder.addOutputTensor(y)
    device = popart.DeviceManager().createCpuDevice()
    session = popart.InferenceSession(builder.getModelProto(), popart.DataFlow(1, [y]), device)
    session.prepareDevice()
    anchors = session.initAnchorArrays()
    steps = [popart.PyStepIO({x: np.array(one, np.int32)}, anchors) for one in ([0], [3])]
    if conditional:
        session.run(steps[0])
        assert anchors[y].tolist() == [0]
    with pytest.raises(popart.poplar_application_runtime_error, match=r"^abort: the "):
        session.run(steps[1])
