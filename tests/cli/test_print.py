"""Tests `popgraph print`: elision, diffs and colours."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph.cli import app, colours
from popgraph.passes.changes import difference, elided, renumbered

MLP = str(Path(__file__).parents[2] / "examples/mlp.pgraph")
PRINT = ("print", MLP, "--dim", "N=2", "--at", "graphcore", "--elide")


def call(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, list(arguments), color=True)
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def test_large_constants_and_long_lists_are_elided() -> None:
    whole, short = call(*PRINT[:-1]).output, call(*PRINT).output
    assert max(map(len, whole.splitlines())) > 300
    assert max(map(len, short.splitlines())) < 250
    assert len(whole.splitlines()) == len(short.splitlines())
    assert re.search(r'pg.constant #pg.blob<"[0-9a-f]{12}\.\.\." : tensor<32x10xf32>>', short)
    numbers = ", ".join(map(str, range(40)))
    assert elided(f"x [{numbers}] y") == "x [0, 1, 2, 3, 4, 5, ... 34 more] y"
    kept = '[0, 1] "0123456789abcdef" affine_map<(d0) -> (d0)>'
    assert elided(kept) == kept


def test_a_diff_shows_what_a_pass_changes() -> None:
    shown = call(*PRINT, "--diff", "expand").output.splitlines()
    assert shown[:2] == ["--- before expand", "+++ after expand"]
    (removed,) = (line for line in shown[2:] if line.startswith("-"))
    assert "graphcore.softmax" in removed
    assert any(line.startswith("+") and "graphcore.exp" in line for line in shown)
    assert not any(line.startswith(("+", "-")) and "mat_mul" in line for line in shown)


def test_diffs_of_all_passes_are_those_of_each_that_changes_something() -> None:
    shown = call(*PRINT, "--diff", "all").output
    assert re.findall("^--- before (.*)", shown, re.M) == ["onnx-to-graphcore", "expand"]
    assert call(*PRINT, "--diff", "cse").output == (
        "// cse changed nothing: it ran on the result of expand and found nothing to do; "
        "--diff expand shows that change, --diff all every pass\n"
    )


def test_a_diff_range_covers_all_passes_between() -> None:
    shown = call(*PRINT, "--diff", "autodiff..dce", code=1).stderr
    assert "autodiff..dce did not run here" in shown, "nothing is trained"
    shown = call(*PRINT, "--diff", "onnx-to-graphcore..expand").output
    assert re.findall("^(?:---|\\+\\+\\+) .*", shown, re.M) == [
        "--- before onnx-to-graphcore",
        "+++ after expand",
    ]
    assert re.search("^-.*onnx.Softmax", shown, re.M) and re.search("^\\+.*gr.*exp", shown, re.M)
    assert "dce..expand did not run" in call(*PRINT, "--diff", "dce..expand", code=1).stderr
    assert "did you mean 'expand'" in call(*PRINT, "--diff", "expnd..dce", code=2).stderr


PRODUCT = """graph product(x: f32[24, 256]) -> (y) {
    weight w: f32[256, 512] = glorot_uniform
    y = x @ w
}
"""
"""A product whose panels are prefetched: four blocks of rows read each of them."""


@pytest.fixture
def product(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("POPGRAPH_TARGET", "avx2")
    (tmp_path / "product.pgraph").write_text(PRODUCT)
    return str(tmp_path / "product.pgraph")


def test_cached_kernels_are_printed_pass_by_pass(product: str) -> None:
    popgraph.compile(product)(x=np.zeros((24, 256), np.float32))
    passes = ("structured-to-loops", "prefetch-panels")
    asked = [word for name in passes for word in ("--print-after", name)]
    shown = call("print", product, "--at", "loops", *asked).output
    _, written, changed = re.split("^// after .*$", shown, flags=re.M)
    assert "#tile.prefetch_next<" in written and "tile.prefetch %" not in written
    assert "#tile.prefetch_next<" not in changed and "tile.prefetch %" in changed
    functions = re.findall("func.func private .*", shown)
    assert functions and all(line.endswith("{") for line in functions)


def test_intermediate_texts_are_elided_too(product: str) -> None:
    asked = ["--at", "structured", "--print-after", "graphcore-to-structured", "--elide"]
    shown = call("print", product, *asked).output
    assert shown.count("pg.constant") == shown.count('..." : tensor') == 2


def test_diffs_of_kernels_ignore_value_numbers(product: str) -> None:
    shown = call("print", product, "--at", "loops", "--diff", "prefetch-panels").output
    changed = [line[1:] for line in shown.splitlines()[2:] if line.startswith(("+", "-"))]
    texts = [re.sub("%[0-9]+", "%", line).strip() for line in changed]
    assert set(texts) - {"}"} <= {
        *("% = arith.constant 4 : index", "% = arith.constant 170 : index"),
        *("% = arith.muli %, % : index", "% = arith.addi %, % : index"),
        "tile.prefetch %[%] : memref<131072xf32>",
        next(text for text in texts if "#tile.prefetch_next<" in text),
    }


def test_value_numbers_follow_definitions() -> None:
    """Diffs ignore the numbers of values, but not a use of another value."""
    before = ["f(%0: f32) {", "  %1 = a %0", "  for %2 = %1 (%3 = %0) {", "  c %1, %2", "  d %1"]
    after = [
        *("f(%0: f32) {", "  %1 = new", "  %2 = a %0", "  for %3 = %2 (%4 = %0) {"),
        *("  c %2, %3", "  d %1"),
    ]
    assert renumbered(before, after) == [*after[:1], *after[2:5], "  d %2"]
    assert difference("%0 = a", "%1 = a", "p").splitlines()[3:] == ["-%0 = a", "+%1 = a"]


def test_constants_keep_their_names_down_to_the_program() -> None:
    shown = call(*PRINT[:4], "--at", "program", "--elide").output
    names = re.findall(r"%(\w+) = tile.buffer \"constant\"", shown)
    assert names == ["w1", "b1", "w2", "b2"]


@pytest.mark.parametrize("level", ["graphcore", "program", "c"])
def test_colours_do_not_change_the_text(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ("print", MLP, "--dim", "N=2", "--at", level)
    plain = call(*asked).output
    assert "\033" not in plain
    monkeypatch.setattr(colours, "wanted", lambda: True)
    shown = call(*asked).output
    assert shown.count("\033[") > 50
    assert re.sub("\033\\[[0-9;]*m", "", shown).rstrip() == plain.rstrip()


def test_added_and_removed_lines_have_colours() -> None:
    shown = colours.diff("--- before a\n+++ after a\n@@ -1 +1 @@\n-old\n+new\n same").split("\n")
    assert shown[3:] == ["\033[31m-old\033[0m", "\033[32m+new\033[0m", " same"]


@pytest.mark.parametrize(
    ("terminal", "name", "value", "shown"),
    [
        (True, "NO_COLOR", "", True),
        (True, "NO_COLOR", "1", False),
        (True, "TERM", "dumb", False),
        (False, "NO_COLOR", "", False),
    ],
)
def test_colours_are_for_terminals_or_on_request(
    terminal: bool, name: str, value: str, shown: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stdout.isatty", lambda: terminal, raising=False)
    assert colours.wanted() is shown


STEP = """graph net(x: f32[N, 4]) -> y {
    weight w: f32[4, 3] = normal(seed=1)
    y = x @ w
}
train (labels: i64[N]) {
    loss = nll(y, labels)
    optimizer = SGD(0.01)
    SAID
}
"""


@pytest.mark.parametrize(
    ("said", "shown", "noted"),
    [
        ("accumulate = 4", "Accum___w", "one of the 4 micro-batches"),
        ("clip = 1.5", "0000c03f", ""),
        ('quantize = "int8"', 'pg.update <"w">', "quantize has no effect on a single step"),
    ],
)
def test_a_step_has_the_options_of_its_text(
    said: str, shown: str, noted: str, tmp_path: Path
) -> None:
    path = tmp_path / "net.pgraph"
    path.write_text(STEP.replace("SAID", said))
    found = call("print", str(path), "--train", "--dim", "N=8", "--at", "graphcore")
    assert shown in found.stdout
    assert noted in found.stderr
