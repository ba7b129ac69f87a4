"""Tests PopART's errors of operators and options at lowering, with its messages."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import popgraph.popart as popart
from popgraph.popart.exceptions import popart_exception
from tests.popart.popart_graphs import weight


def prepare(make: Callable[[Any, str, str], Any], *, trains: bool = False) -> str:
    """The error of a session whose operator takes an input and a weight."""
    builder = popart.Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    x = builder.addInputTensor("FLOAT", [1, 1, 4, 2])
    found = make(builder, x, weight(builder, 1, 1, 4, 2))
    y = found if isinstance(found, str) else found[0]
    device = popart.DeviceManager().createCpuDevice(backend="reference")
    model = builder.getModelProto
    session: popart.InferenceSession | popart.TrainingSession
    if trains:
        loss = builder.aiGraphcore.identityloss([y])
        flow = popart.DataFlow(1, [loss])
        session = popart.TrainingSession(model(), flow, loss, popart.ConstSGD(0.1), device)
    else:
        session = popart.InferenceSession(model(), popart.DataFlow(1, [y]), device)
    with pytest.raises(popart_exception) as caught:
        session.prepareDevice()
    return str(caught.value.args[0])


def test_a_gru_of_both_directions() -> None:
    def gru(builder: Any, x: str, w: str) -> Any:
        matrices = [weight(builder, 2, 12, size) for size in (2, 4)]
        return builder.aiOnnx.gru(
            [builder.aiOnnx.squeeze([x], [0]), *matrices], 2, direction="bidirectional"
        )

    said = prepare(gru)
    assert said.startswith(
        "Bidirectional GRU has not yet been implemented. This is for Op Op(ai.onnx.GRU:7, inputs="
    )


def stepped(builder: Any, given: Mapping[str, np.ndarray], *anchors: str, loss: str = "") -> Any:
    """The anchors of one step of a session, which trains if there is a loss."""
    device = popart.DeviceManager().createCpuDevice(backend="reference")
    model, flow = builder.getModelProto(), popart.DataFlow(1, anchors)
    session: popart.InferenceSession | popart.TrainingSession
    if loss:
        session = popart.TrainingSession(model, flow, loss, popart.ConstSGD(0.1), device)
    else:
        session = popart.InferenceSession(model, flow, device)
    session.prepareDevice()
    session.weightsFromHost()
    found = session.initAnchorArrays()
    session.run(popart.PyStepIO(given, found))
    return [found[id] for id in anchors]


def test_operators_that_only_popgraph_computes() -> None:
    """A tensor as scale; gradients of Resize, reflective Pad, and indexed updates."""
    builder = popart.Builder(opsets={"ai.onnx": 11, "ai.graphcore": 1})
    scale, x = builder.addInputTensor("FLOAT", [], "scale"), weight(builder, 1, 1, 3, 2)
    ops, graphcore = builder.aiOnnx, builder.aiGraphcore
    first = graphcore.scaledadd([x, x, scale])
    second = graphcore.scaledadd([x, x, "", scale], scale0=2.5)
    larger = ops.resize(
        [
            x,
            ops.constant(np.zeros(0, np.float32)),
            ops.constant(np.array([1, 1, 2, 1], np.float32)),
        ],
        mode="linear",
    )
    mirrored = ops.pad([x, ops.constant(np.array([0, 0, 1, 0, 0, 0, 0, 0]))], mode="reflect")
    rows = ops.constant(np.array([0, 0, 1], np.int32).reshape(1, 1, 3, 1))
    summed = graphcore.scatterreduce([x, rows], 2, 2, enable_index_broadcast=0)
    losses = [
        graphcore.identityloss([one], popart.ReductionType.Sum)
        for one in (larger, mirrored, summed)
    ]
    loss = ops.sum(losses)
    flow = {"scale": np.array(7, np.float32)}
    a, b = stepped(builder, flow, first, second)
    (gradient,) = stepped(builder, flow, f"Gradient___{x}", loss=loss)
    held = np.ones((1, 1, 3, 2), np.float32)
    np.testing.assert_array_equal(a, 8 * held)
    np.testing.assert_array_equal(b, 9.5 * held)
    # Each row is twice in the resized image, the second is mirrored, and updates have one column.
    by_hand = np.array([[2 + 1 + 1, 2 + 1], [2 + 2 + 1, 2 + 2], [2 + 1 + 1, 2 + 1]])
    np.testing.assert_allclose(gradient[0, 0], by_hand)


def with_options(**values: object) -> str:
    """The error of a session with a matmul and a convolution, or an empty text."""
    builder = popart.Builder()
    product = builder.aiOnnx.matmul([builder.addInputTensor("FLOAT", [2, 3]), weight(builder, 3)])
    image = builder.addInputTensor("FLOAT", [1, 1, 3, 3])
    window = builder.aiOnnx.conv([image, weight(builder, 1, 1, 2, 2)])
    options = popart.SessionOptions()
    for name, value in values.items():
        setattr(options, name, value)
    flow = popart.DataFlow(1, [product, window])
    try:
        popart.InferenceSession(builder.getModelProto(), flow, userOptions=options)
    except popart_exception as error:
        return str(error.args[0])
    return ""


def test_options_of_libraries_are_read_where_an_operator_uses_them() -> None:
    assert with_options(partialsTypeMatMuls="Half", kahnTieBreaker="FIFO") == ""
    assert with_options(partialsTypeMatMuls="x").startswith(
        "Unable to get option 'partialsTypeMatMul' from string 'x'."
    )
    assert with_options(convolutionOptions={"partialsType": "X"}) == "Bad partialsType 'x'"
    assert with_options(lstmOptions={"recomputationMode": "x"}) == ""
    assert with_options(kahnTieBreaker="foo") == (
        'Unrecognised KahnTieBreaker, foo. Should be one of "fifo", "greedy", and "random".'
    )


def test_recompute_options_of_an_lstm_matter_in_training() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [5, 2, 3])
    y, _, _ = builder.aiOnnx.lstm([x, weight(builder, 1, 16, 3), weight(builder, 1, 16, 4)], 3)
    loss = builder.aiGraphcore.identityloss([y])
    options = popart.SessionOptions()
    options.lstmOptions = {"recomputationMode": "some"}
    flow, rule = popart.DataFlow(1, [loss]), popart.ConstSGD(0.1)
    with pytest.raises(popart_exception, match="Unrecognised lstm recomputation mode 'some'"):
        popart.TrainingSession(builder.getModelProto(), flow, loss, rule, userOptions=options)
