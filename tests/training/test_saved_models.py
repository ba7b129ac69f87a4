"""Tests that trained models are saved as standard ONNX, with the same results in onnxruntime."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import popgraph
from popgraph.builder.pgraph import load
from popgraph.popart import Builder
from popgraph.support.arrays import Array
from popgraph.training.trainer import Trainer

EXAMPLES = Path(__file__).parents[2] / "examples"
TRAINED = sorted(path.stem for path in EXAMPLES.glob("*.pgraph") if load(path).training is not None)
RNG = np.random.default_rng(0)


def data_of(name: str) -> dict[str, Array]:
    """Twelve samples of each example's kind."""
    images = RNG.random((12, 1, 28, 28)).astype(np.float32)
    labels = RNG.integers(0, 2, 12).astype(np.int32)
    words = {"words": RNG.integers(0, 9, (12, 6)), "lengths": np.full(12, 6, np.int32)}
    known: dict[str, dict[str, Array]] = {
        "digits_cnn": {"x": images[:, :, :8, :8], "labels": labels},
        "mlp": {"x": images.reshape(12, -1)[:, :64], "labels": labels},
        "text_classifier": {**words, "labels": labels},
        "vae": {"image": images.reshape(12, -1)},
    }
    return known[name]


def of_onnxruntime(path: Path, inputs: dict[str, Array]) -> dict[str, Array]:
    runtime = pytest.importorskip("onnxruntime", reason="the other reader of our files")
    model = onnx.load(path)
    onnx.checker.check_model(model, full_check=True)
    assert {opset.domain for opset in model.opset_import} <= {""}
    assert {node.domain for node in model.graph.node} == {""}
    session = runtime.InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    given = {one.name: inputs[one.name] for one in session.get_inputs()}
    return dict(zip(names, session.run(names, given), strict=True))


@pytest.mark.parametrize("name", TRAINED)
def test_a_trained_example_is_standard_onnx(name: str, tmp_path: Path) -> None:
    given = data_of(name)
    trainer = Trainer(EXAMPLES / f"{name}.pgraph")
    trainer.fit(given, batch=4)
    trainer.save(tmp_path / "net.onnx")
    theirs = of_onnxruntime(tmp_path / "net.onnx", given)
    ours = trainer.predict({key: array for key, array in given.items() if key != "labels"})
    found = ours if isinstance(ours, dict) else {next(iter(theirs)): ours}
    assert "labels" not in [one.name for one in onnx.load(tmp_path / "net.onnx").graph.input]
    for output, expected in theirs.items():
        assert found[output].shape == expected.shape
        if (name, output) != ("vae", "copy"):  # a random sample
            np.testing.assert_allclose(found[output], expected, rtol=1e-4, atol=1e-5)


def builder_of_all() -> tuple[popgraph.Builder, str, str]:
    """A convolution, BatchNormalization, Dropout and a loss for batches of 8."""
    builder = Builder()
    op = builder.aiOnnx
    x = builder.addInputTensor(popgraph.TensorInfo("FLOAT", [8, 2, 6, 6]), "x")
    labels = builder.addInputTensor(popgraph.TensorInfo("INT32", [8]), "labels")

    def weight(name: str, *shape: int) -> str:
        held = RNG.standard_normal(shape).astype(np.float32)
        return builder.addInitializedInputTensor(held if len(shape) > 1 else np.abs(held), name)

    y = op.conv([x, weight("kernel", 4, 2, 3, 3)])
    y = op.batchnormalization([y, *(weight(name, 4) for name in "sbmv")], 5)[0]
    y = op.flatten([op.dropout([y], 1, 0.4)[0]])
    y = op.softmax([op.matmul([y, weight("head", 64, 3)])])
    builder.addOutputTensor(y)
    loss = builder.aiGraphcore.nllloss([y, labels])
    return builder, y, loss


def test_a_session_saves_what_inference_needs(tmp_path: Path) -> None:
    """The saved model has no labels and loss, uses running statistics, and any batch size."""
    builder, y, loss = builder_of_all()
    session = popgraph.TrainingSession(
        builder.getModelProto(),
        popgraph.DataFlow(1, [loss]),
        loss,
        popgraph.ConstSGD(0.05),
        popgraph.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    images = RNG.standard_normal((8, 2, 6, 6)).astype(np.float32)
    labels = RNG.integers(0, 3, 8).astype(np.int32)
    for _ in range(3):
        session.run(popgraph.PyStepIO({"x": images, "labels": labels}, anchors))
    session.save(tmp_path / "net.onnx")
    more = RNG.standard_normal((11, 2, 6, 6)).astype(np.float32)
    found = of_onnxruntime(tmp_path / "net.onnx", {"x": more})[y]
    np.testing.assert_allclose(found, wanted(session, tmp_path, more), rtol=1e-4, atol=1e-6)
    with pytest.raises(popgraph.PopgraphError, match=r"saved as .onnx or .pgraph"):
        session.save(tmp_path / "net.bin")


def wanted(session: Any, folder: Path, x: Array) -> Array:
    """The output by NumPy, with the weights of the file that `modelToHost` writes."""
    session.modelToHost(folder / "trained.onnx")
    held = {one.name: onnx.numpy_helper.to_array(one) for one in initializers(folder)}
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))
    y = np.einsum("nchwij,ocij->nohw", windows, held["kernel"])
    scale, shift, mean, variance = (held[name].reshape(1, -1, 1, 1) for name in "sbmv")
    y = (y - mean) / np.sqrt(variance + 1e-5) * scale + shift
    logits = y.reshape(len(x), -1) @ held["head"]
    likely = np.exp(logits - logits.max(1, keepdims=True))
    return np.asarray(likely / likely.sum(1, keepdims=True))


def initializers(folder: Path) -> list[onnx.TensorProto]:
    return list(onnx.load(folder / "trained.onnx").graph.initializer)


def test_the_model_of_the_demo_is_standard_onnx(tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("digits", EXAMPLES / "digits.py")
    assert spec is not None and spec.loader is not None
    demo = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(demo)
    images = RNG.random((50, 1, 28, 28)).astype(np.float32)
    labels = RNG.integers(0, 10, 50)
    trained = popgraph.train(demo.build(), (images, labels), "nll", "SGD(0.03)")
    images = images[:3]
    trained.save(tmp_path / "digits.onnx")
    (found,) = of_onnxruntime(tmp_path / "digits.onnx", {"image": images}).values()
    np.testing.assert_allclose(trained.predict(images), found, rtol=1e-4, atol=1e-6)
