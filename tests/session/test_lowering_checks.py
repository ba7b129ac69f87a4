"""What PopART refuses of operators and options as it makes a program, in its words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import popgraph.session as popart
from popgraph.builder.opset.exceptions import popart_exception
from tests.session.popart_graphs import weight


def prepare(make: Callable[[Any, str, str], Any], *, trains: bool = False) -> str:
    """The error of a session for what an operator makes of an input and of a weight."""
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


def test_one_scale_that_is_a_tensor() -> None:
    def first(builder: Any, x: str, w: str) -> Any:
        return builder.aiGraphcore.scaledadd([x, w, builder.addInputTensor("FLOAT", [])])

    def second(builder: Any, x: str, w: str) -> Any:
        scale = builder.addInputTensor("FLOAT", [])
        return builder.aiGraphcore.scaledadd([x, w, "", scale], scale0=2.5)

    assert prepare(first) == "Unsupported tensor scale0 with non-tensor scale1."
    assert prepare(second) == "Unsupported scale0 2.5 with tensor scale1."


def test_what_has_no_gradient() -> None:
    def larger(builder: Any, x: str, w: str) -> Any:
        scales = builder.aiOnnx.constant(np.array([1, 1, 2, 1], np.float32))
        none = builder.aiOnnx.constant(np.array([], np.float32))
        return builder.aiOnnx.resize([w, none, scales], mode="linear")

    def collected(builder: Any, x: str, w: str) -> Any:
        rows = builder.addInputTensor("INT32", [1, 1, 4, 1])
        return builder.aiGraphcore.scatterreduce([w, rows], 4, 2, enable_index_broadcast=0)

    assert prepare(larger, trains=True) == "Resize mode 'linear' is not supported when training."
    assert prepare(collected, trains=True) == (
        "ScatterReduceGradOpx: The backward pass is implemented only for src.shape == index.shape."
    )


def with_options(**values: object) -> str:
    """The error of a session that multiplies, if there is one."""
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


def test_how_an_lstm_recomputes_counts_in_training() -> None:
    builder = popart.Builder()
    x = builder.addInputTensor("FLOAT", [5, 2, 3])
    y, _, _ = builder.aiOnnx.lstm([x, weight(builder, 1, 16, 3), weight(builder, 1, 16, 4)], 3)
    loss = builder.aiGraphcore.identityloss([y])
    options = popart.SessionOptions()
    options.lstmOptions = {"recomputationMode": "some"}
    flow, rule = popart.DataFlow(1, [loss]), popart.ConstSGD(0.1)
    with pytest.raises(popart_exception, match="Unrecognised lstm recomputation mode 'some'"):
        popart.TrainingSession(builder.getModelProto(), flow, loss, rule, userOptions=options)
