"""Tests steps that train some weights only: their IR, and their size as exported C."""

from __future__ import annotations

import re
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from typer.testing import CliRunner
from xdsl.dialects.builtin import ModuleOp

from popgraph.builder.pgraph import parse
from popgraph.cli import app
from popgraph.compiler import lower
from popgraph.dialects.program import VariableOp
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.dce import EliminateDeadCode
from popgraph.passes.graphcore.training.add_optimizer import AddOptimizer
from popgraph.passes.options import Options
from popgraph.training.selection import WeightPatterns
from popgraph.training.task import task_of

NET = """
graph net(x: f32[N, 1, 8, 8]) -> (y: f32[N, 3]) {
    weight `conv1.weight`: f32[4, 1, 3, 3] = he_normal(seed=1)
    weight `conv1.bias`: f32[4] = zeros
    weight `conv2.weight`: f32[6, 4, 3, 3] = he_normal(seed=2)
    weight `conv2.bias`: f32[6] = zeros
    weight `head.weight`: f32[6, 3] = glorot_uniform(seed=3)
    weight `head.bias`: f32[3] = zeros
    h = Relu(Conv(x, `conv1.weight`, `conv1.bias`, pads=[1, 1, 1, 1]))
    h2 = Relu(Conv(h, `conv2.weight`, `conv2.bias`, pads=[1, 1, 1, 1]))
    y = ReduceMean(h2, [2, 3], keepdims=0) @ `head.weight` + `head.bias`
}

train (labels: i32[N]) {
    loss = cross_entropy(y, labels)
    optimizer = Adam(0.01)
}
"""


def run(*arguments: object, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == code, result.output
    return result.output


def exported(folder: Path, *options: object) -> tuple[str, int]:
    """The C of a training step, and the bytes of RAM that it takes."""
    (folder / "net.pgraph").write_text(NET)
    where = folder / "c"
    said = run("export", folder / "net.pgraph", "--train", "--dim", "N=2", "-o", where, *options)
    found = re.search(r"RAM ([\d,]+) bytes", said)
    assert found is not None
    return (where / "model.c").read_text(), int(found[1].replace(",", ""))


def test_frozen_layers_take_no_memory_and_no_code(tmp_path: Path) -> None:
    whole, most = exported(tmp_path)
    head, fewest = exported(tmp_path, "--train-only", "head.*")
    assert 2 * fewest < most and 3 * len(head) < 2 * len(whole)
    variables = re.findall(r'{"((?:conv|head)[^"]*)"', head)
    assert variables == ["head.weight", "head.bias"]
    options = ["--lora", 1, "--lora-layers", "conv2.weight", "--lora-alpha", 2]
    adapted, few = exported(tmp_path, *options)
    assert fewest < few < most
    variables = re.findall(r'{"((?:conv|head)[^"]*)"', adapted)
    assert variables == ["conv2.lora_A.weight", "conv2.lora_B.weight"]


def step(*patterns: str) -> ModuleOp:
    """The graph of a training step, before it is fused."""
    document = parse(NET.replace("N", "2"))
    task = task_of(document)
    assert task is not None
    task = replace(task, patterns=WeightPatterns(train_only=patterns))
    compilation, options = Compilation(task.weights), Options(training=task.training)
    lower(task.module, compilation, options, level="graphcore", until=AddOptimizer.name)
    EliminateDeadCode().run(compilation, task.module)
    return task.module


@pytest.mark.parametrize(
    ("patterns", "backward", "trained"),
    [
        (["*"], 3, 6),  # two of weights, and one of the input of the second convolution
        (["head.*"], 0, 2),
        (["conv2.*"], 1, 2),
        (["conv2.bias"], 0, 1),
        (["conv1.*"], 2, 2),
        (["*.bias"], 1, 3),
    ],
    ids=str,
)
def test_no_gradient_is_computed_before_the_first_trained_weight(
    patterns: list[str], backward: int, trained: int
) -> None:
    module = step(*patterns)
    convolutions = [op for op in module.walk() if op.name.startswith("graphcore.conv")]
    assert len(convolutions) == 2 + backward
    variables = {op.variable.text for op in module.walk() if isinstance(op, VariableOp)}
    weights = {name for name in variables if re.fullmatch(r"(conv.|head)\.(weight|bias)", name)}
    assert len(weights) == trained and len(variables) == 4 * trained  # Adam: three states each
    assert all(fnmatchcase(name, "|".join(patterns)) for name in weights)


def test_a_pattern_without_a_weight_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "net.pgraph").write_text(NET)
    given = ["export", tmp_path / "net.pgraph", "--dim", "N=2", "-o", tmp_path / "c"]
    said = run(*given, "--train", "--train-only", "hed.*", code=1)
    assert "no weight matches the pattern 'hed.*'" in said
    assert "did you mean 'head.bias'? its weights are conv1.weight, conv1.bias" in said
    assert "no weights are left to train" in run(*given, "--train", "--freeze", "*", code=1)
    for option in (["--freeze", "conv*"], ["--train-only", "head.*"], ["--lora", 2]):
        assert "belongs to --train" in run(*given, *option, code=2)
    assert "requires --lora" in run(*given, "--train", "--lora-alpha", 2, code=2)
