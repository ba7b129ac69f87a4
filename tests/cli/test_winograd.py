"""Tests the options that switch Winograd's transforms on and off."""

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
