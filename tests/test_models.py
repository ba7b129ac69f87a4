"""Tests the classic CNNs that the onnx package ships against their expected outputs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, numpy_helper

import popgraph
from popgraph.support.arrays import Array

sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))
from models import FOLDER, NAMES, light, logits, with_random_weights


def image(model: ModelProto) -> tuple[str, Array]:
    """The name and data of the input without initializer, as onnx's runner builds it."""
    filled = {each.name for each in model.graph.initializer}
    (given,) = (each for each in model.graph.input if each.name not in filled)
    shape = tuple(dim.dim_value or 1 for dim in given.type.tensor_type.shape.dim)
    count = int(np.prod(shape))
    return given.name, (np.arange(count).reshape(shape) / count).astype(np.float32)


@pytest.mark.parametrize("name", NAMES)
def test_shipped_models_give_their_expected_outputs(name: str) -> None:
    model = light(name)
    expected = TensorProto()
    expected.ParseFromString((FOLDER / f"light_{name}_output_0.pb").read_bytes())
    given, array = image(model)
    (found,) = popgraph.compile(model)({given: array}).values()
    np.testing.assert_allclose(found, numpy_helper.to_array(expected), rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_shipped_models_with_random_weights_equal_onnxruntime(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="the oracle for whole networks")
    model = logits(with_random_weights(light(name)))
    given, _ = image(model)
    rng = np.random.default_rng(0)
    shape = image(model)[1].shape
    inputs = {given: rng.standard_normal(shape).astype(np.float32)}
    (expected,) = runtime.InferenceSession(model.SerializeToString()).run(None, inputs)
    (found,) = popgraph.compile(model)(inputs).values()
    assert np.abs(found - expected).max() <= 1e-5 * np.abs(expected).max()


def test_a_path_bytes_and_a_proto_are_the_same_model(tmp_path: Path) -> None:
    model = light("squeezenet")
    onnx.save(model, tmp_path / "model.onnx")
    given, array = image(model)
    found = [
        popgraph.compile(each)({given: array})
        for each in (model, model.SerializeToString(), tmp_path / "model.onnx")
    ]
    for outputs in found:
        for name, values in outputs.items():
            np.testing.assert_array_equal(values, found[0][name])
