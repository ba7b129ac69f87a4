"""Tests `popgraph bench`: peers, formats, the peak measurement."""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from popgraph.backends.c.build.target import host_target
from popgraph.cli import app
from popgraph.compiler import load, parse_ir
from popgraph.dialects.tile import ProgramOp
from popgraph.dialects.tile.program.work import Counter
from popgraph.measure import peers, timing
from popgraph.measure.comparison import error, exact
from popgraph.measure.peak import ITERATIONS, peak, program
from popgraph.measure.timing import Contestant, race
from popgraph.passes.base import Compilation
from popgraph.passes.onnx.infer_shapes import specialise

MLP = str(Path(__file__).parents[2] / "examples/mlp.pgraph")
SHORT = ("--seconds", "0", "--repeats", "2")


@pytest.fixture(autouse=True)
def _unpinned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bench must not pin the test process to other cores."""
    monkeypatch.setattr(timing, "pin", lambda threads: None)


def call(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, ["bench", MLP, "--dim", "N=2", *SHORT, *arguments])
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def test_json_holds_every_number() -> None:
    found = json.loads(call("--format", "json", "--accuracy").output)
    products = 2 * (64 * 32 + 32 * 10)  # two rows, two matmuls
    assert found["gflop"] == pytest.approx(2 * products / 1e9, rel=1e-4)
    assert found["bytes_moved"] > 4 * (64 * 32 + 32 * 10)
    (ours,) = found["rows"]
    assert ours["name"] == "popgraph" and 0 < ours["best_ms"] <= ours["median_ms"]
    assert ours["gflops"] == pytest.approx(found["gflop"] / ours["best_ms"] * 1e3, rel=1e-4)
    assert ours["share_of_peak"] == pytest.approx(ours["gflops"] / found["peak_gflops"], rel=1e-4)
    assert 0 < ours["error"] < 1e-5


@pytest.mark.parametrize("name", ["onnxruntime"])
def test_a_peer_runs_the_same_model(name: str) -> None:
    pytest.importorskip(name, reason="the peer")
    found = json.loads(call("--against", name, "--format", "json", "--accuracy").output)
    ours, theirs = found["rows"]
    assert theirs["name"] == name and not theirs["refusal"]
    assert theirs["ratio"] == pytest.approx(theirs["best_ms"] / ours["best_ms"], rel=1e-4)
    assert 0 < theirs["error"] < 1e-5


def test_the_table_and_markdown_show_the_same_columns() -> None:
    for form in ("table", "markdown"):
        output = call("--format", form).output
        assert "min ms" in output and "of peak" in output and "popgraph" in output
    assert "| popgraph |" in output


def test_unknown_peers_are_named() -> None:
    assert "is not one of onnxruntime, openvino, torch" in call("--against", "tvm", code=2).stderr


def test_a_peer_that_is_not_installed_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    result = call("--against", "openvino", code=1)
    assert "pip install openvino" in result.stderr


def test_what_a_peer_refuses_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> peers.Run:
        raise ValueError("no such operator\nand more")

    monkeypatch.setitem(peers.PEERS, "picky", peers.Peer("picky", "picky", refuse))
    found = json.loads(call("--against", "picky", "--format", "json").output)
    assert found["rows"][1]["refusal"] == "picky does not take this model: no such operator"


def test_rounds_interleave_and_short_calls_are_repeated() -> None:
    order: list[str] = []
    contestants = [
        Contestant(name, lambda name=name: order.append(name))  # type: ignore[misc]
        for name in "ab"
    ]
    race(contestants, threads=1, seconds=0, rounds=3)
    assert all(len(each.samples) == 3 and each.repeats > 1 for each in contestants)
    tail = order[-3 * (contestants[0].repeats + contestants[1].repeats) :]
    changes = sum(left != right for left, right in pairwise(tail))
    assert changes == 5


def test_the_peak_does_the_work_that_it_claims() -> None:
    run, flops = peak(1)
    assert np.isfinite(run()["sums"]).all()  # type: ignore[index]
    target = host_target()
    module = parse_ir(
        program(target.vector_bytes // 4, 3 * target.registers // 4, 2), Compilation()
    )
    (plan,) = (op for op in module.ops if isinstance(op, ProgramOp))
    counted = Counter(module).calls(plan.body.block.ops).flops
    assert flops * 2 <= counted <= flops * 2 * (1 + 1 / ITERATIONS)


def test_double_precision_is_the_same_model() -> None:
    module, compilation = load(MLP)
    specialise(module, {"x": (3, 64)}, compilation.weights)
    inputs = {"x": np.random.default_rng(0).standard_normal((3, 64)).astype(np.float32)}
    (found,) = exact(module, compilation, inputs).values()
    assert found.dtype == np.float64 and found.shape == (3, 10)
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-15)
    assert error({"y": np.float32([1, 2])}, {"y": np.float64([1, 2.5])}) == 0.2
