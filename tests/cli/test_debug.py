"""Tests the debug settings: printed IR, dumps and checks between passes."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from xdsl.dialects.builtin import ModuleOp, StringAttr

from popgraph import compiler
from popgraph.backends.reference.meaning import assert_same_meaning
from popgraph.dialects.levels import level_of
from popgraph.passes.base import Compilation
from popgraph.passes.observer import Observer
from popgraph.passes.options import Options
from popgraph.popart.api.builder import Builder
from popgraph.popart.api.tensorinfo import TensorInfo
from popgraph.support.debug import Settings, note_source, write_dump
from popgraph.support.errors import PassError, PopgraphError


class Step:
    name = "some-pass"


def changed(module: ModuleOp) -> None:
    module.attributes["changed"] = StringAttr("yes")


def watch(observer: Observer, module: ModuleOp, *, change: bool) -> str:
    observer.output = output = io.StringIO()
    with observer.watching(Step(), module, None):
        if change:
            changed(module)
    return output.getvalue()


def test_settings_come_from_the_environment() -> None:
    given = {
        "POPGRAPH_DEBUG": "2",
        "POPGRAPH_DUMP": "some/where",
        "POPGRAPH_STOP_AFTER": "cse",
        "POPGRAPH_CHECK": "1",
    }
    assert Settings.from_environment(given) == Settings(2, Path("some/where"), "cse", True)
    off = {"POPGRAPH_DEBUG": "0", "POPGRAPH_CHECK": "0", "POPGRAPH_DUMP": ""}
    assert Settings.from_environment(off) == Settings.from_environment({}) == Settings()


@pytest.mark.parametrize("level", ["5", "-1", "yes"])
def test_levels_are_0_to_4(level: str) -> None:
    with pytest.raises(PassError, match="POPGRAPH_DEBUG"):
        Settings.from_environment({"POPGRAPH_DEBUG": level})


def test_nothing_is_shown_unless_asked_for() -> None:
    assert watch(Observer(Settings()), ModuleOp([]), change=True) == ""


def test_level_1_shows_times() -> None:
    shown = watch(Observer(Settings(1)), ModuleOp([]), change=True)
    assert shown.split()[:2] == ["1", "some-pass"]
    assert shown.endswith(" ms\n")


def test_level_2_shows_passes_that_changed_the_ir() -> None:
    assert "changed" in watch(Observer(Settings(2)), ModuleOp([]), change=True)
    assert "builtin.module" not in watch(Observer(Settings(2)), ModuleOp([]), change=False)


def test_a_named_pass_is_shown_at_any_level() -> None:
    observer = Observer(Settings(), print_after=["some-pass"])
    assert watch(observer, ModuleOp([]), change=False).startswith("// after some-pass\n")


def test_dumps_are_numbered(tmp_path: Path) -> None:
    observer = Observer(Settings(dump=tmp_path / "deep"))
    module = ModuleOp([])
    watch(observer, module, change=False)
    watch(observer, module, change=True)
    (file,) = (tmp_path / "deep").iterdir()
    assert file.name == "02_some-pass.mlir"
    assert "changed" in file.read_text()
    assert file.read_text() == f"{module!s}\n", "`popgraph opt` reads it"


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PopgraphError, match="cannot be written"):
        write_dump(tmp_path / "file", "x.mlir", "")


def test_the_check_compares_before_and_after() -> None:
    seen = []

    def same(step: object, before: ModuleOp, after: ModuleOp, weights: object) -> None:
        seen.append(("changed" in before.attributes, "changed" in after.attributes))

    watch(Observer(Settings(check=True), same_meaning=same), ModuleOp([]), change=True)
    watch(Observer(Settings(check=False), same_meaning=same), ModuleOp([]), change=True)
    assert seen == [(False, True)]


def test_c_is_shown_at_level_4(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setenv("POPGRAPH_DEBUG", "3")
    monkeypatch.setenv("POPGRAPH_DUMP", str(tmp_path))
    note_source("unit.c", "int x;\n")
    assert capsys.readouterr().err == ""
    assert (tmp_path / "unit.c").read_text() == "int x;\n"
    monkeypatch.setenv("POPGRAPH_DEBUG", "4")
    note_source("unit.c", "int x;\n")
    assert "int x;" in capsys.readouterr().err


def test_trainings_are_checked_once_their_loss_is_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    checked = []

    def compare(before: ModuleOp, after: ModuleOp, *others: object, **settings: object) -> None:
        checked.append(level_of(before))
        assert_same_meaning(before, after, *others, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr("popgraph.compiler.lowering.assert_same_meaning", compare)
    monkeypatch.setenv("POPGRAPH_CHECK", "1")
    builder = Builder()
    x = builder.addInputTensor(TensorInfo("FLOAT", [8, 4]), "x")
    labels = builder.addInputTensor(TensorInfo("INT32", [8]), "labels")
    loss = builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([x]), labels])
    builder.addOutputTensor(loss)
    compiler.lower(builder.module(), Compilation(builder.weights), Options())
    assert set(checked) == {"graphcore", "structured", "loops", "program"}
