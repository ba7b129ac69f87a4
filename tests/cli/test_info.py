"""Tests `popgraph info`: the description of a model in each format, and its counts."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from popgraph.cli import app
from popgraph.measure import timing

NET = """opset 18
graph net(x: f32[N, 4]) -> (y: f32[N, 3]) {
    weight w: f32[4, 3] = ones
    weight b: f32[3] = ones
    y = Relu(x @ w + b) + b
}
"""
HOST = """opset 18
graph host(x: f32[5, 4]) -> (places) {
    weight w: f32[4, 4] = ones
    places = NonZero(x @ w)
}
"""
SHAPED = """opset 18
graph net(x: f32[6], shape: i64[2]) -> (y) { y = Reshape(x, shape) }
"""


@pytest.fixture(autouse=True)
def _unpinned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(timing, "pin", lambda threads: None)


def info(text: str, folder: Path, *arguments: str, code: int = 0) -> str:
    file = folder / "net.pgraph"
    file.write_text(text)
    result = CliRunner().invoke(app, ["info", str(file), *arguments])
    assert result.exit_code == code, result.output
    return result.output


def info_json(text: str, folder: Path, *arguments: str) -> dict[str, Any]:
    return json.loads(info(text, folder, *arguments, "--json"))


def test_info_without_sizes_describes_the_file(tmp_path: Path) -> None:
    lines = info(NET, tmp_path).splitlines()
    assert [" ".join(line.split()) for line in lines[1:]] == [
        "level onnx (ai.onnx 18)",
        "input x: f32[N, 4]",
        "output y: f32[N, 3]",
        "parameters 2 tensors, 15 numbers, 60 bytes",
        "operators 4: Add 2, MatMul 1, Relu 1",
        "cost not known: the shape of input 'x' is not known: f32[N, 4]: --dim N=4",
    ]
    assert info_json(NET, tmp_path)["cost"] is None


def test_info_with_sizes_counts_multiply_adds_and_memory(tmp_path: Path) -> None:
    cost = info_json(NET, tmp_path, "--dim", "N=7")["cost"]
    assert cost["multiply_adds"] == 7 * 4 * 3
    assert cost["weights"] >= 60 and cost["bytes_moved"] >= 4 * (28 + 15 + 21)
    assert cost["estimated_cycles"] > 0


def test_bench_counts_two_operations_for_each_multiply_add(tmp_path: Path) -> None:
    (tmp_path / "net.pgraph").write_text(NET)
    short = ["--format", "json", "--seconds", "0", "--repeats", "1", "--dim", "N=7"]
    result = CliRunner().invoke(app, ["bench", str(tmp_path / "net.pgraph"), *short])
    assert json.loads(result.output)["gflop"] == pytest.approx(2 * 7 * 4 * 3 / 1e9)


def test_info_measures_on_request(tmp_path: Path) -> None:
    time = info_json(NET, tmp_path, "--dim", "N=7", "--measure")["time"]
    assert time["measured_ms"] > 0 and time["estimated_ms"] > 0 and time["threads"] == 1
    assert "measured" in info(NET, tmp_path, "--dim", "N=7", "--measure")
    info(NET, tmp_path, "--measure", code=1)


def test_rows_are_a_table_for_programs(tmp_path: Path) -> None:
    rows = list(csv.DictReader(io.StringIO(info(NET, tmp_path, "--dim", "N=7", "--csv"))))
    by_name = {(row["kind"], row["name"]): row for row in rows}
    assert (
        by_name["input", "x"]["type"] == "f32[7, 4]" and by_name["parameter", "w"]["bytes"] == "48"
    )
    assert by_name["operator", "Add"]["number"] == "2"
    assert by_name["cost", "multiply_adds"]["number"] == "84"


def test_host_steps_count_no_operations(tmp_path: Path) -> None:
    found = info_json(HOST, tmp_path)
    assert found["cost"]["multiply_adds"] == 5 * 4 * 4
    assert found["operators"] == {"MatMul": 1, "NonZero": 1}


def test_structural_inputs_take_their_values(tmp_path: Path) -> None:
    assert "decides the structure" in info(SHAPED, tmp_path)
    assert info_json(SHAPED, tmp_path, "--value", "shape=2,3")["cost"]["multiply_adds"] == 0


@pytest.mark.parametrize("level", ["graphcore", "structured", "program"])
def test_info_describes_ir_of_lower_levels(tmp_path: Path, level: str) -> None:
    (tmp_path / "net.pgraph").write_text(NET)
    printed = ["print", str(tmp_path / "net.pgraph"), "--dim", "N=7", "--at", level]
    (tmp_path / "net.mlir").write_text(CliRunner().invoke(app, printed).output)
    result = CliRunner().invoke(app, ["info", str(tmp_path / "net.mlir"), "--json"])
    found = json.loads(result.output)
    assert found["level"] == level and found["inputs"][0]["type"] == "f32[7, 4]"
    terms = None if level == "program" else 7 * 4 * 3
    assert found["cost"]["multiply_adds"] == terms and found["operators"]


def test_formats_exclude_each_other(tmp_path: Path) -> None:
    assert "exclude each other" in info(NET, tmp_path, "--json", "--csv", code=2)
