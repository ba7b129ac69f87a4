"""Tests `popgraph bisect` and reproducers: a broken pass is named, and fails again from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from xdsl.dialects.builtin import ModuleOp

from popgraph import compiler
from popgraph.backends.c.run.executable import CExecutable
from popgraph.backends.reference.meaning import assert_same_meaning
from popgraph.measure import bisect as bisection
from popgraph.passes import reproducer
from popgraph.passes.pipeline import PASSES
from popgraph.passes.reproducer import MARK, passes_in
from tests.cli.test_cli import call

TEXT = """opset 21
graph g(x: f32[N, 8]) -> y {
    weight w: f32[8, 4] = normal(seed=1)
    y = Softmax(Neg(Relu(x @ w)))
}
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "net.pgraph"
    path.write_text(TEXT)
    return path


def fixed(folder: Path) -> Path:
    """The model with all sizes known."""
    path = folder / "fixed.pgraph"
    path.write_text(TEXT.replace("[N,", "[3,"))
    return path


def bisect(model: Path, *more: str, code: int) -> str:
    output = model.with_name("reproducer.mlir")
    return call("bisect", model, "--dim", "N=3", "-o", output, *more, code=code).output


def forgets_negation(run: Any) -> Any:
    """A pass that drops one operation after its own work."""

    def wrong(self: object, compilation: object, module: ModuleOp) -> None:
        run(self, compilation, module)
        for op in module.walk():
            if op.name == "graphcore.neg":
                op.results[0].replace_all_uses_with(op.operands[0])

    return wrong


@pytest.mark.parametrize("name", ["canonicalize", "dce"])
def test_the_pass_that_changes_results_is_named(
    name: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(PASSES[name], "run", forgets_negation(PASSES[name].run))
    output = bisect(model, code=1)
    assert output.startswith(f"{name} breaks it: step 0, y")
    text = model.with_name("reproducer.mlir").read_text()
    assert passes_in(text) == name
    assert "graphcore.neg" in text
    assert call("opt", model.with_name("reproducer.mlir"), "--check", code=1).output
    monkeypatch.undo()
    assert call("opt", model.with_name("reproducer.mlir"), "--check").output


def test_a_pass_that_fails_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise KeyError("h")

    monkeypatch.setattr(PASSES["plan-memory"], "run", fails)
    assert "plan-memory breaks it: it fails: KeyError" in bisect(model, code=1)


def test_generated_code_that_is_wrong_is_found(
    model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = CExecutable.run

    def wrong(self: CExecutable, inputs: Any) -> Any:
        return {name: 2 * array for name, array in run(self, inputs).items()}

    monkeypatch.setattr(CExecutable, "run", wrong)
    assert bisect(model, code=1).startswith("the generated C breaks it")


@pytest.mark.parametrize("more", [(), ("--threads", "2")])
def test_a_sound_model_has_no_culprit(model: Path, more: tuple[str, ...]) -> None:
    assert bisect(model, *more, code=0).startswith("no pass breaks this model")
    assert not model.with_name("reproducer.mlir").exists()


def test_a_step_of_training_is_bisected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "net.pgraph"
    path.write_text(
        "opset 21\ngraph g(x: f32[N, 4]) -> p {\n"
        "    weight w: f32[4, 3] = normal(seed=1)\n"
        "    p = Softmax(Neg(x @ w))\n}\n"
        "train (labels: i32[N]) {\n    loss = nll(p, labels)\n    optimizer = SGD(0.1)\n}\n"
    )
    assert "no pass" in bisect(path, "--train", code=0)
    monkeypatch.setattr(PASSES["cse"], "run", forgets_negation(PASSES["cse"].run))
    assert bisect(path, "--train", code=1).startswith("cse breaks it")


def test_a_search_takes_few_comparisons(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PASSES["dce"], "run", forgets_negation(PASSES["dce"].run))
    compared = 0

    def counting(*given: Any, **named: Any) -> None:
        nonlocal compared
        compared += 1
        assert_same_meaning(*given, **named)

    monkeypatch.setattr(bisection, "assert_same_meaning", counting)
    bisect(model, code=1)
    assert compared <= 3 + len(PASSES).bit_length()


@pytest.mark.parametrize(("most", "first"), [(2000, "cse\n"), (5, "evaluate-constants,")])
def test_a_failure_in_the_compiler_leaves_a_reproducer(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int, first: str
) -> None:
    """A reproducer of the failing pass; of all passes if the module exceeds `MOST_OPERATIONS`."""

    def fails(*_: object) -> None:
        raise KeyError("h")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(PASSES["cse"], "run", fails)
    monkeypatch.setattr(reproducer, "MOST_OPERATIONS", most)
    module, compilation = compiler.load(fixed(tmp_path))
    with pytest.raises(KeyError) as caught:
        compiler.lower(module, compilation)
    (note,) = caught.value.__notes__
    file = Path(note.split()[2].rstrip("`"))
    assert file.parent == tmp_path
    assert file.read_text().startswith(MARK + first)
    assert "KeyError" in call("opt", file, code=1).output
    monkeypatch.undo()
    assert ("graphcore.neg" in call("opt", file).output) is (most > 5)


def test_the_command_line_names_the_reproducer(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise KeyError("h")

    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(PASSES["cse"], "run", fails)
    output = call("print", model, "--dim", "N=2", "--at", "program", code=1).output
    assert "internal error: KeyError" in output
    assert f"`popgraph opt {tmp_path}" in output
