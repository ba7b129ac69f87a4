"""Tests `--device`: the modelled IPU profile of a model file, and errors of wrong devices."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from popgraph.cli import app

NET = """opset 21
graph net(x: f32[N, 64]) -> (y) {
    weight w: f32[64, 32] = normal
    y = x @ w
}"""


@pytest.fixture
def net(tmp_path: Path) -> str:
    file = tmp_path / "net.pgraph"
    file.write_text(NET)
    return str(file)


def run(*arguments: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, list(arguments))
    return done.exit_code, done.output


def test_a_profile_of_two_ipus(net: str, tmp_path: Path) -> None:
    kept = tmp_path / "kept.json"
    code, shown = run("profile", net, "--dim", "N=8", "--device", "ipu:2:16", "--json", str(kept))
    assert code == 0, shown
    assert "Model of 2 ipu2 with 16 tiles of 624 KiB" in shown
    assert "tile.reduce" in shown
    found = json.loads(kept.read_text())
    assert (found["machine"]["numIPUs"], found["machine"]["tilesPerIPU"]) == (2, 16)
    assert f"{found['cycles']['total']} cycles" in shown


def test_the_printed_level_has_the_mapping(net: str) -> None:
    code, shown = run("print", net, "--dim", "N=8", "--at", "structured", "--device", "ipu:1:16")
    assert code == 0, shown
    assert "mapping = #tile.mapping<[8, 32, 64] in [" in shown


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("profile", "--device", "gpu"), "unknown device"),
        (("profile", "--device", "ipu:0"), "NAME:IPUS"),
        (("profile", "--device", "ipu", "--csv", "x.csv"), "kept by --json"),
        (("print", "--device", "ipu", "--at", "program"), "structured level"),
    ],
)
def test_limits_of_a_device_are_errors(
    net: str, arguments: tuple[str, ...], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    command, *rest = arguments
    code, shown = run(command, net, "--dim", "N=8", *rest)
    assert code == 2
    assert message in shown
