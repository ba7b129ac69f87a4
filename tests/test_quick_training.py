"""Tests trainers and sessions that start with quick programs, later replaced by tuned ones."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import popgraph.popart as popart
from popgraph.cli import app
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError
from popgraph.support.progress import CompilingLine
from popgraph.training.ranks import Ranks
from popgraph.training.trainer import Trainer
from tests.gated_compiler import assert_tuned, compile_by, gated, use_fresh_cache

TEXT = """
opset 21

graph net(x: f32[N, 16]) -> (y: f32[N, 4]) {
    weight w: f32[16, 32] = he_normal(seed=1)
    weight v: f32[32, 4] = he_normal(seed=2)
    y = (x @ w |> Relu |> Dropout(0.3)) @ v
}
"""
HOW = ("cross_entropy", "Adam(0.01)")
DRAW = np.random.default_rng(0)
X = DRAW.standard_normal((40, 16)).astype(np.float32)
LABELS = DRAW.integers(0, 4, 40)
BATCHES, FACTOR = 2, 3
ROWS = DRAW.standard_normal((BATCHES * FACTOR, 4, 16)).astype(np.float32)


@pytest.fixture(autouse=True)
def fresh(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A separate program cache for every test."""
    use_fresh_cache(tmp_path, monkeypatch)


@pytest.fixture
def gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file whose existence lets the compiler of tuned programs continue."""
    yield from gated(tmp_path, monkeypatch)


def losses(trainer: Trainer) -> list[float]:
    return [row["loss"] for row in trainer.history.steps]


def test_a_trainer_continues_from_the_quick_program(gate: Path) -> None:
    plain = Trainer(TEXT, *HOW)
    trainer = Trainer(TEXT, *HOW, quick=True)
    trainer.fit((X, LABELS), epochs=3, batch=16, validation=0.2)
    assert not trainer.tuned and not trainer.wait(timeout=0)
    gate.touch()
    assert_tuned(trainer)
    trainer.fit((X, LABELS), epochs=3, batch=16, validation=0.2)
    for _ in range(2):
        plain.fit((X, LABELS), epochs=3, batch=16, validation=0.2)
    assert plain.tuned and plain.wait()
    np.testing.assert_allclose(losses(trainer), losses(plain), rtol=1e-4)
    np.testing.assert_allclose(trainer.history["val_loss"], plain.history["val_loss"], rtol=1e-4)
    for name, array in plain.weights().items():
        np.testing.assert_allclose(trainer.weights()[name], array, rtol=1e-3, atol=1e-5)


def test_portable_training_starts_quickly_with_the_same_bits(
    gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POPGRAPH_QUICK", raising=False)
    monkeypatch.setattr("popgraph.compiler.requests.LEAST_OPERATIONS", 1)
    trainer = Trainer(TEXT, *HOW, determinism="portable")
    trainer.fit((X, LABELS), epochs=2, batch=20)
    assert not trainer.tuned
    gate.touch()
    assert_tuned(trainer)
    trainer.fit((X, LABELS), epochs=2, batch=20)
    plain = Trainer(TEXT, *HOW, determinism="portable", quick=False)
    for _ in range(2):
        plain.fit((X, LABELS), epochs=2, batch=20)
    assert losses(trainer) == losses(plain)
    for name, array in plain.weights().items():
        np.testing.assert_array_equal(trainer.weights()[name], array)


def test_other_training_offers_it_in_the_line_of_progress(
    gate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("POPGRAPH_QUICK", raising=False)
    monkeypatch.setattr("popgraph.background.is_awaited", lambda: True)
    monkeypatch.setattr("popgraph.support.progress.is_terminal", lambda: True)
    monkeypatch.setattr(CompilingLine, "DELAY_SECONDS", 0.0)
    written = io.StringIO()
    monkeypatch.setattr(sys, "stderr", written)
    gate.touch()
    trainer = Trainer(TEXT, *HOW)
    trainer.prepare((X, LABELS), batch=20)
    assert trainer.tuned
    assert "by compiler (quick=True starts sooner)" in written.getvalue()
    Trainer(TEXT, *HOW, quick=False).prepare((X, LABELS), batch=10)
    assert written.getvalue().rpartition("(quick=True")[2].count("by compiler")


def test_ranks_refuse_quick_programs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Ranks, "are_several", True)
    with pytest.raises(PopgraphError, match="weights of the ranks would diverge"):
        Trainer(TEXT, *HOW, quick=True)


def session(*, quick: bool, factor: int = FACTOR, **more: Any) -> popart.TrainingSession:
    """A session that trains two layers by Adam."""
    builder = popart.Builder()
    x = builder.addInputTensor(popart.TensorInfo("FLOAT", [4, 16]), "x")
    draw = np.random.default_rng(1)
    for rows, columns in ((16, 32), (32, 4)):
        first = draw.standard_normal((rows, columns)).astype(np.float32)
        weight = builder.addInitializedInputTensor(first, f"w{rows}")
        (dropped,) = builder.aiOnnx.dropout([x], 1, 0.3)
        x = builder.aiOnnx.tanh([builder.aiOnnx.matmul([dropped, weight])])
    loss = builder.aiGraphcore.l1loss([x], 0.1)
    options = popart.SessionOptions()
    options.enableQuickStart = quick
    options.enableGradientAccumulation, options.accumulationFactor = factor > 1, factor
    for name, value in more.items():
        setattr(options, name, value)
    made = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(BATCHES, {loss: popart.AnchorReturnType("All")}),
        loss,
        popart.Adam({"defaultLearningRate": (0.01, False)}),
        popart.DeviceManager().createCpuDevice(),
        userOptions=options,
    )
    made.prepareDevice()
    made.setRandomSeed(7)
    made.weightsFromHost()
    return made


def stepped(made: popart.TrainingSession, rows: Array) -> Array:
    """The losses of one step."""
    anchors = made.initAnchorArrays()
    made.run(popart.PyStepIO({"x": rows}, anchors))
    (found,) = anchors.values()
    return np.array(found)


@pytest.mark.parametrize("factor", [1, FACTOR])
def test_a_session_continues_from_the_quick_program(gate: Path, factor: int) -> None:
    rows = ROWS[: BATCHES * factor]
    quick = session(quick=True, factor=factor)
    found = [stepped(quick, rows) for _ in range(3)]
    assert not quick.tuned and not quick.wait(timeout=0)
    gate.touch()
    assert_tuned(quick)
    found += [stepped(quick, rows) for _ in range(3)]
    plain = session(quick=False, factor=factor)
    assert plain.tuned and plain.wait()
    np.testing.assert_allclose(found, [stepped(plain, rows) for _ in range(6)], rtol=1e-4)
    again = session(quick=True, factor=factor)
    assert again.tuned, "what the cache has is not built quickly"
    stepped(again, rows)


def test_a_tuned_program_may_take_over_within_a_batch(gate: Path) -> None:
    """After two of three micro-batches, gradients and count carry over to the tuned program."""
    rows, quick = iter(ROWS), session(quick=True)
    count = 0

    def read(id: str, _: bool) -> Array:
        nonlocal count
        count += 1
        if count == FACTOR + 2:
            assert not quick.tuned
            gate.touch()
            assert_tuned(quick)
        return np.ascontiguousarray(next(rows))

    stepio = popart.PyStepIOCallback(
        read, lambda _: None, lambda _: np.zeros(1, np.float32), lambda _: None
    )
    quick.run(stepio)
    plain = session(quick=False)
    stepped(plain, ROWS)
    quick.weightsToHost()
    plain.weightsToHost()
    states = [one.weights() for one in (quick, plain)]
    assert len(states[0]) > 2, "weights and moments"
    for name, array in states[1].items():
        np.testing.assert_allclose(states[0][name], array, 1e-4, 1e-6, err_msg=name)


def test_options_that_exclude_quick_programs() -> None:
    apart = {"enableDistributedReplicatedGraphs": True, "globalReplicationFactor": 2}
    with pytest.raises(popart.popart_exception, match="weights of the processes would differ"):
        session(quick=True, factor=1, **apart)
    with pytest.raises(popart.popart_exception, match="the weights of the program that trains"):
        session(quick=True, factor=1, createImplicitPipeliningFwdOnlyProgram=True)


def test_the_command_trains_from_a_quick_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_by(tmp_path, monkeypatch, "exit 1")
    model, output = tmp_path / "net.pgraph", tmp_path / "out.onnx"
    model.write_text(TEXT)
    arrays = {"x": X, "labels": LABELS}
    for name, array in arrays.items():
        np.save(tmp_path / f"{name}.npy", array)
    given = [f"{name}={tmp_path / name}.npy" for name in arrays]
    how = ["--loss", HOW[0], "--optimizer", HOW[1], "-o", str(output)]
    plain = CliRunner().invoke(app, ["train", str(model), *given, *how])
    assert plain.exit_code != 0, "the compiler of tuned programs fails"
    done = CliRunner().invoke(app, ["train", str(model), *given, *how, "--quick"])
    assert done.exit_code == 0, done.output
    assert output.exists()


def test_the_run_command_uses_only_a_quick_program(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compile_by(tmp_path, monkeypatch, "exit 1")
    model = tmp_path / "net.pgraph"
    model.write_text(TEXT)
    how = ["run", str(model), "--random", "--dim", "N=2"]
    assert CliRunner().invoke(app, how).exit_code != 0, "the compiler of tuned programs fails"
    done = CliRunner().invoke(app, [*how, "--quick"])
    assert done.exit_code == 0 and "y: float32[2, 4]" in done.output, done.output


def test_the_run_command_answers_before_the_tuned_program_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gate: Path
) -> None:
    monkeypatch.delenv("POPGRAPH_QUICK", raising=False)
    monkeypatch.setattr("popgraph.background.is_awaited", lambda: True)
    monkeypatch.setattr("popgraph.compiler.requests.LEAST_OPERATIONS", 1)
    model = tmp_path / "net.pgraph"
    model.write_text(TEXT)
    gate.touch()
    how = ["run", str(model), "--random", "--dim", "N=2"]
    done = CliRunner().invoke(app, how)
    assert done.exit_code == 0 and "y: float32[2, 4]" in done.output, done.output
    monkeypatch.setenv("CC", "/bin/false")
    again = CliRunner().invoke(app, how)
    assert again.exit_code == 0, "the tuned program is cached"
    file = tmp_path / "y.npy"
    stored = CliRunner().invoke(app, [*how, "--dim", "N=3", "-o", f"y={file}"])
    assert stored.exit_code != 0 and not file.exists(), "files come from tuned programs only"
