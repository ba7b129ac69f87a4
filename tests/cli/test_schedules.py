"""Tests schedule files, `popgraph schedules` and `popgraph tune`."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from popgraph.backends.c.build.target import host_target
from popgraph.backends.c.cache.measured_schedules import keep_measured, measured
from popgraph.backends.c.run import warm_start
from popgraph.cli import app
from popgraph.compiler import for_this_machine
from popgraph.dialects.tile.structured.schedule_file import read_schedules, text_of
from popgraph.measure import timing
from popgraph.passes.options import Options
from popgraph.passes.pipeline import planned
from popgraph.support.errors import ParseError
from tests.damages import DAMAGES

TEXT = """
opset 21

graph net(x: f32[N, 64]) -> (y: f32[N, 40]) {
    weight w: f32[64, 40] = he_normal(seed=1)
    p = MatMul(x, w)
    y = Relu(p)
}
"""
DIM = ("--dim", "N=8")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPGRAPH_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(timing, "pin", lambda threads: None)


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "net.pgraph"
    path.write_text(TEXT)
    return str(path)


def call(*arguments: str) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == 0, result.output
    return result.stdout


def rows(text: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(text)["schedules"]
    return found


def decided(model: str, *arguments: str) -> str:
    """The IR line of the contraction after `schedule-contractions`."""
    arguments = (*DIM, "--stop-after", "schedule-contractions", *arguments)
    lines = call("print", model, *arguments).splitlines()
    (found,) = (line for line in lines if "product f32" in line)
    return found


def odd(way: str) -> str:
    """A schedule that the cost model never chooses."""
    return way.replace("kc 256", "kc 7")


def in_ir(way: str) -> str:
    return "schedule " + way.partition("#tile.schedule")[2]


def test_printed_schedules_can_be_edited(model: str, tmp_path: Path) -> None:
    (row,) = rows(call("schedules", model, *DIM, "--few", "3"))
    assert row["ops"] == ["p"] and len(row["others"]) == 3
    assert in_ir(row["schedule"]) in decided(model)
    file = tmp_path / "schedules.json"
    call("schedules", model, *DIM, "-o", str(file))
    file.write_text(file.read_text().replace("kc 256", "kc 7"))
    assert in_ir(odd(row["schedule"])) in decided(model, "--schedule", str(file))
    by_name = text_of([{"op": "p", "schedule": odd(row["schedule"])}])
    file.write_text(by_name)
    assert in_ir(odd(row["schedule"])) in decided(model, "--schedule", str(file))


def test_every_command_takes_a_schedule_file(model: str, tmp_path: Path) -> None:
    file = tmp_path / "schedules.json"
    file.write_text(text_of([{"op": "q", "schedule": "plain"}]))
    tile = tmp_path / "net.mlir"
    tile.write_text(call("print", model, *DIM, "--stop-after", "assign-halos"))
    commands = [
        ("run", model, "--random", *DIM),
        ("print", model, "--at", "program", *DIM),
        ("bench", model, "--seconds", "0", *DIM),
        ("profile", model, *DIM),
        ("emit", model, "-o", str(tmp_path / "c"), *DIM),
        ("opt", str(tile), "-p", "settle-loops,schedule-contractions"),
    ]
    for command in commands:
        result = CliRunner().invoke(app, [*command, "--schedule", str(file)])
        assert result.exit_code == 1, command
        assert "a contraction that this model does not have" in result.output, command
        assert "name a contraction: " in result.output


def test_schedules_do_not_change_values(model: str, tmp_path: Path) -> None:
    (row,) = rows(call("schedules", model, *DIM))
    found = []
    for number, way in enumerate([row["schedule"], odd(row["schedule"]), "plain"]):
        file, result = tmp_path / "schedules.json", tmp_path / f"{number}.npy"
        file.write_text(text_of([{"contraction": row["contraction"], "schedule": way}]))
        arguments = (*DIM, "-o", f"y={result}", "--schedule", str(file))
        call("run", model, "--random", *arguments)
        found.append(np.load(result))
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-5, atol=1e-6)


FAULTS: dict[str, str] = {
    "[1]": "a schedule file must be a JSON object with a list 'schedules'",
    "{": "the schedules cannot be read",
    '{"schedules": [{"schedule": "plain"}]}': "and either 'contraction' or 'op'",
    '{"schedules": [{"op": "p", "schedule": "quick"}]}': "'quick' is not an implementation",
}


@pytest.mark.parametrize("text", FAULTS)
def test_invalid_schedule_files_are_refused(text: str, tmp_path: Path) -> None:
    file = tmp_path / "schedules.json"
    file.write_text(text)
    with pytest.raises(ParseError) as caught:
        read_schedules(file)
    assert FAULTS[text] in caught.value.what
    assert str(file) in caught.value.where


def test_measured_schedules_are_used(model: str, tmp_path: Path) -> None:
    file = tmp_path / "tuned.json"
    text = call("tune", model, *DIM, "--seconds", "0.2", "--few", "3", "-o", str(file))
    assert "us before" in text and " p " in text
    (row,) = rows(file.read_text())
    assert len(row["microseconds"]) == 3 and row["schedule"] in row["microseconds"]
    assert measured() == (f"{row['contraction']} -> {row['schedule']}",) == read_schedules(file)
    before = decided(model)
    assert in_ir(row["schedule"]) in before

    keep_measured([row | {"schedule": odd(row["schedule"])}])
    assert in_ir(odd(row["schedule"])) in decided(model)
    assert "kc 7" not in decided(model, "--tuned", "off")
    (listed,) = rows(call("schedules", model, *DIM))
    assert listed["contraction"] == row["contraction"]


def test_a_step_of_training_is_measured() -> None:
    """Tunes forward and backward contractions; later trainings use the measured schedules."""
    mlp = str(Path(__file__).parents[2] / "examples" / "mlp.pgraph")
    here = [mlp, "--train", "--dim", "N=4"]
    forward = rows(call("schedules", mlp, "--dim", "N=4"))
    listed = rows(call("schedules", *here))
    assert len(listed) > len(forward)
    call("tune", *here, "--seconds", "0.2", "--few", "2")
    known = {text.split(" -> ")[0] for text in measured()}
    assert known and known <= {row["contraction"] for row in listed}
    keep_measured([row | {"schedule": odd(row["schedule"])} for row in listed[:1]])
    assert in_ir(odd(listed[0]["schedule"])) in call(
        "print", *here, "--stop-after", "schedule-contractions"
    )


def keys(path: Path) -> Callable[[], tuple[str, str]]:
    """The keys of the program cache and of its warm-start shortcuts."""

    def found() -> tuple[str, str]:
        options = for_this_machine(Options())
        passes = [repr(made) for _, made in planned(options)]
        return repr(passes), warm_start._key(path, (1, 2), None, 1)

    return found


def test_another_schedule_has_another_cache_key(
    model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from popgraph.backends.c.cache import install_fingerprint, program_cache

    monkeypatch.setenv(program_cache.SWITCH, "1")
    monkeypatch.setattr(install_fingerprint, "states", lambda: "the same")
    now = keys(Path(model))
    first = now()
    assert all(first) and first == now()
    keep_measured([{"contraction": "f32 ...", "schedule": "plain"}])
    second = now()
    assert all(old != new for old, new in zip(first, second, strict=True))
    keep_measured([{"contraction": "f32 ...", "schedule": "winograd 4"}])
    assert all(old != new for old, new in zip(second, now(), strict=True))


@pytest.mark.parametrize("damage", DAMAGES)
def test_damaged_measurements_are_ignored(tmp_path: Path, damage: str) -> None:
    path = keep_measured([{"contraction": "f32 ...", "schedule": "plain"}])
    assert len(measured()) == 1
    DAMAGES[damage](path)
    assert measured() == ()
    machine = for_this_machine(Options()).machine
    assert machine is not None and machine.vector_bytes == host_target().vector_bytes
    keep_measured([{"contraction": "f32 ...", "schedule": "plain"}])
    assert len(measured()) == 1


def test_the_former_name_of_the_reader_is_understood_with_a_warning() -> None:
    former = "popgraph.backends.c.cache.schedule_file"
    sys.modules.pop(former, None)
    with pytest.warns(DeprecationWarning, match="popgraph.read_schedules"):
        assert importlib.import_module(former).read is read_schedules


LOOP = """
opset 21

graph net(x: f32[8, 64]) -> y {
    weight w: f32[64, 64] = orthogonal(seed=1)
    weight v: f32[64, 32] = orthogonal(seed=2)
    weight u: f32[32, 64] = orthogonal(seed=3)
    y = Loop(
        5, true, x,
        body=graph turn(i: i64, going: bool, h: f32[8, 64]) -> (on, next) {
            on = going
            next = If(
                i < 10,
                then_branch=graph always() -> (r) { r = Tanh(h @ w) },
                else_branch=graph never() -> (r) { r = Exp(h @ v @ u) },
            )
        },
    )
}
"""


def test_contractions_in_loops_are_measured_if_they_ran(
    tmp_path: Path,
) -> None:
    (tmp_path / "net.pgraph").write_text(LOOP)
    file = tmp_path / "tuned.json"
    arguments = ["--seconds", "0.2", "--few", "2", "-o", str(file)]
    call("tune", str(tmp_path / "net.pgraph"), *arguments)
    rows = json.loads(file.read_text())["schedules"]
    assert [row["ops"] for row in rows] == [["r/1"]]
    assert all(time > 0 for time in rows[0]["microseconds"].values())
