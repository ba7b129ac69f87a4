"""Tests the options that switch Winograd's transforms and the rounding of activations."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from popgraph.cli import app

TEXT = """
opset 21

graph net(x: f32[1, 16, 14, 14]) -> (y: f32[1, 32, 14, 14]) {
    weight w: f32[32, 16, 3, 3] = he_normal(seed=1)
    y = Relu(Conv(x, w, pads=[1, 1, 1, 1]))
}
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "net.pgraph"
    path.write_text(TEXT)
    return str(path)


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("switch", ["on", "off"])
def test_printed_ir_shows_winograd_transforms(model: str, switch: str) -> None:
    text = call("print", model, "--stop-after", "schedule-contractions", "--winograd", switch)
    assert ("tile.transform_tiles" in text) == (switch == "on")


def test_winograd_and_direct_convolution_agree(model: str, tmp_path: Path) -> None:
    found = []
    for switch in ("on", "off"):
        file = str(tmp_path / f"{switch}.npy")
        call("run", model, "--random", "-o", f"y={file}", "--winograd", switch)
        found.append(np.load(file))
    assert np.any(found[0] != found[1])
    np.testing.assert_allclose(*found, atol=2e-6 * np.abs(found[1]).max())


FEW_BITS = """
opset 21

graph net(x: f32[2, 32]) -> (y: f32[2, 4]) {
    const codes: i8[32, 4] = zeros
    weight steps: f32[4] = ones
    y = x @ DequantizeLinear(codes, steps, axis=1)
}
"""


@pytest.mark.parametrize("activations", ["float", "int8"])
def test_printed_ir_shows_rounded_activations(activations: str, tmp_path: Path) -> None:
    (tmp_path / "net.pgraph").write_text(FEW_BITS)
    path = str(tmp_path / "net.pgraph")
    text = call("print", path, "--at", "graphcore", "--activations", activations)
    assert ("graphcore.round" in text) == (activations == "int8")


def test_wrong_activations_are_refused(tmp_path: Path) -> None:
    (tmp_path / "net.pgraph").write_text(FEW_BITS)
    for arguments, message in (
        (("run", "--activations", "int4"), "'int4' is not one of 'float', 'int8'"),
        (
            ("export", "--activations", "int8", "--derivatives", "jvp", "-o", str(tmp_path / "c")),
            "derivatives belong to --activations float",
        ),
    ):
        command, *options = arguments
        result = CliRunner().invoke(app, [command, str(tmp_path / "net.pgraph"), *options])
        assert result.exit_code == 2 and message in " ".join(result.output.split())
