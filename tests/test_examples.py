"""Tests that the `.pgraph` examples run, train, and agree with onnxruntime."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator
from typer.testing import CliRunner

import popgraph
from popgraph.builder.onnx.write import export_model
from popgraph.builder.pgraph import load
from popgraph.cli import app

EXAMPLES = Path(__file__).parents[1] / "examples"
TEXTS = {path.stem: path for path in sorted(EXAMPLES.glob("*.pgraph"))}

Arrays = dict[str, Any]


def _matrix(rng: np.random.Generator) -> Any:
    half = rng.normal(size=(6, 6)).astype(np.float32)
    return half + half.T


INPUTS: dict[str, Callable[[np.random.Generator], Arrays]] = {
    "digits_cnn": lambda rng: {"x": rng.normal(size=(3, 1, 8, 8)).astype(np.float32)},
    "mlp": lambda rng: {"x": rng.normal(size=(3, 64)).astype(np.float32)},
    "power_iteration": lambda rng: {"a": _matrix(rng), "turns": np.array(50)},
    "quantized": lambda rng: {"x": rng.normal(size=(3, 64)).astype(np.float32)},
    "text_classifier": lambda rng: {
        "words": rng.integers(0, 5000, (3, 7)),
        "lengths": np.array([7, 3, 5], np.int32),
    },
    "transformer": lambda rng: {"tokens": rng.integers(0, 1000, (2, 9))},
    "vae": lambda rng: {"image": rng.random((16, 784)).astype(np.float32)},
}
"""The inputs of each example."""

RANDOM = {"vae"}
"""Examples with random results."""


def inputs(name: str) -> Arrays:
    return INPUTS[name](np.random.default_rng(0))


def test_every_example_has_inputs() -> None:
    assert set(INPUTS) == set(TEXTS)


@pytest.mark.parametrize("name", sorted(set(TEXTS) - RANDOM))
def test_an_example_equals_onnxruntime(name: str) -> None:
    runtime = pytest.importorskip("onnxruntime", reason="the oracle for whole networks")
    found = popgraph.compile(TEXTS[name])(inputs(name))
    for output, expected in by_onnxruntime(runtime, name).items():
        scale = max(1.0, float(np.abs(expected).max()))
        assert np.allclose(found[output], expected, rtol=1e-3, atol=1e-4 * scale), output


def by_onnxruntime(runtime: Any, name: str) -> Arrays:
    document = load(TEXTS[name])
    model = export_model(document.module, document.weights).SerializeToString()
    session = runtime.InferenceSession(model, providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    return dict(zip(names, session.run(names, inputs(name)), strict=True))


def test_the_power_iteration_finds_an_eigenvalue() -> None:
    document = load(TEXTS["power_iteration"])
    model = export_model(document.module, document.weights)
    given = inputs("power_iteration")
    _, values = ReferenceEvaluator(model).run(["vector", "values"], given)
    assert len(values) == 50
    largest = np.abs(np.linalg.eigvalsh(given["a"])).max()
    assert values.ravel()[-1] == pytest.approx(largest, rel=1e-2)


@pytest.mark.parametrize("name", ["mlp", "digits_cnn", "vae"])
def test_training_an_example_reduces_its_loss(name: str, tmp_path: Path) -> None:
    document = load(TEXTS[name])
    assert document.training is not None
    rng = np.random.default_rng(1)
    arrays = inputs(name)
    arrays = {key: np.repeat(array, 4, axis=0) for key, array in arrays.items()}
    if document.training.inputs:
        count = len(next(iter(arrays.values())))
        arrays["labels"] = rng.integers(0, 10, count // 4).repeat(4).astype(np.int32)
    data = []
    for key, array in arrays.items():
        np.save(tmp_path / f"{key}.npy", array)
        data.append(f"{key}={tmp_path / key}.npy")
    arguments = ["train", str(TEXTS[name]), *data, "--epochs", "12"]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    losses = [float(found) for found in re.findall(r"^epoch.*loss (\S+)", result.output, re.M)]
    assert losses[-1] < 0.99 * losses[0]
