"""Tests that the ratio of Dropout, fed or written by the host, is read in every step."""

from __future__ import annotations

import warnings

import numpy as np
import onnx
import pytest
from onnx import parser

import popgraph
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Options, Training
from popgraph.support.warnings import UntrainedWeightsWarning

COUNT = 1000


def model(signature: str = "", initializer: str = "") -> onnx.ModelProto:
    return parser.parse_model(
        f'<ir_version: 10, opset_import: ["" : 13]> '
        f"g (float[{COUNT}] x{signature}) => (float[{COUNT}] y, float loss) "
        f"<bool training = {{1}}, float scale = {{1}}{initializer}> "
        "{ h = Mul(x, scale)  y = Dropout(h, ratio, training)  loss = ReduceMean<keepdims = 0>(y) }"
    )


def options() -> Options:
    return Options(training=Training("loss", SGD(learning_rate=Scalar(0.0)), gradients=("x",)))


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_a_fed_dropout_ratio_and_its_gradient(backend: str) -> None:
    step = popgraph.compile(model(", float ratio"), backend=backend, options=options())
    for ratio in (0.0, 0.25, 0.75, 1.0):
        x = np.ones(COUNT, np.float32)
        found = step({"x": x, "ratio": np.float32(ratio)})
        kept = found["y"] != 0
        scale = 1 / (1 - ratio) if ratio < 1 else 0
        assert abs(kept.mean() - (1 - ratio)) < 0.06
        np.testing.assert_allclose(found["y"], kept * scale, rtol=1e-5)
        np.testing.assert_allclose(found["Gradient___x"], kept * scale / COUNT, rtol=1e-5)


@pytest.mark.parametrize("backend", ["reference", "c"])
def test_a_dropout_ratio_written_by_the_host_is_read_in_every_step(backend: str) -> None:
    made = model(initializer=", float ratio = {0.5}")
    with warnings.catch_warnings():
        # The ratio is a setting, not a weight.
        warnings.simplefilter("error", UntrainedWeightsWarning)
        step = popgraph.compile(made, backend=backend, options=options()).static
    assert step is not None
    x = {"x": np.ones(COUNT, np.float32)}
    assert abs((step.run(x)["y"] != 0).mean() - 0.5) < 0.06
    step.write("ratio", np.array(0.9, np.float32))
    assert abs((step.run(x)["y"] != 0).mean() - 0.1) < 0.06
    assert step.read("ratio") == np.float32(0.9)
