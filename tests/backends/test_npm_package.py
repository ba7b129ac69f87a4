"""Tests of npm packages: WebAssembly with a loader, in Node."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest
from typer.testing import CliRunner

from popgraph.cli import app

NETWORK = """
opset 21

graph net(x: f32[N, 6]) -> (y: f32[N, 3]) {
    weight w: f32[6, 8] = he_normal(seed=1)
    weight v: f32[8, 3] = he_normal(seed=2)
    y = Softmax(Dropout(Relu(x @ w), 0.25) @ v)
}

train (labels: i32[N]) {
    loss = nll(y, labels)
    optimizer = Adam(0.01)
}
"""
needs_compiler = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed"
)
needs_node = pytest.mark.skipif(shutil.which("node") is None, reason="node is not installed")


def invoked(folder: Path, *options: object, text: str = NETWORK) -> tuple[int, str]:
    """The exit code and output of an export as an npm package."""
    model = folder / "net.pgraph"
    model.write_text(text)
    arguments = ["export", model, "--package", "npm", "-o", folder / "npm", *options]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    return result.exit_code, result.output


def node(folder: Path, script: str, arguments: Sequence[str] = ()) -> str:
    """The output of a script that runs in a package's folder."""
    (folder / "script.mjs").write_text(script)
    command = ["node", "script.mjs", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of a training step."""
    folder = tmp_path_factory.mktemp("trained")
    code, output = invoked(folder, "--train", "--dim", "N=4", "--name", "net")
    assert code == 0, output
    return folder / "npm"


@needs_compiler
@needs_node
def test_both_modules_pass_the_test_vectors(trained: Path) -> None:
    manifest = json.loads((trained / "package.json").read_text())
    command = manifest["scripts"]["test"].split()
    done = subprocess.run(command, cwd=trained, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert lines[-1] == "good"
    assert [line.split(":")[0] for line in lines[:-1]] == [
        "step, y",
        "step, loss",
        "step with SIMD, y",
        "step with SIMD, loss",
    ]
    assert set(manifest["files"]) < {one.name for one in trained.iterdir()}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "riscv64"], "a package for npm cannot have --target riscv64"),
        (["--weights", "array"], "a package for npm cannot have --weights array"),
        (["--threads", "2"], "modules with threads are not supported"),
        (["--package", "nmp"], "there is no package 'nmp'"),
    ],
)
def test_options_that_do_not_fit_are_refused(
    options: list[str], message: str, tmp_path: Path
) -> None:
    code, output = invoked(tmp_path, "--dim", "N=4", *options)
    assert code == 1
    assert message in output
    assert not (tmp_path / "npm").exists()
