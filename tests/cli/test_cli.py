"""Tests the commands: help, options, outputs, exit codes."""

from __future__ import annotations

import ctypes
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from typer.main import get_command
from typer.testing import CliRunner

import popgraph
from popgraph import compiler
from popgraph.builder.pgraph import load
from popgraph.cli import COMMANDS, app
from popgraph.cli.options import Level
from popgraph.dialects.levels import LEVELS
from popgraph.dialects.onnx import Initializer
from popgraph.passes.pipeline import PASSES
from popgraph.support.files import CONFIG, MODELS
from popgraph.support.laws import STATUSES

EXAMPLES = Path(__file__).parents[2] / "examples"
MLP = str(EXAMPLES / "mlp.pgraph")

runner = CliRunner()


def call(*arguments: object, text: str | None = None, code: int = 0) -> Any:
    """Runs the command in this process, checks its exit code, and returns the result."""
    result = runner.invoke(app, [str(one) for one in arguments], input=text)
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Points around ten centres in 64 dimensions, labelled with the index of their centre."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(10, 64)) * 1.5
    labels = generator.integers(0, 10, 300)
    points = centres[labels] + generator.normal(size=(300, 64))
    np.save(tmp_path / "x.npy", points.astype(np.float32))
    np.save(tmp_path / "labels.npy", labels)
    return tmp_path


def data(folder: Path) -> list[str]:
    return [f"x={folder / 'x.npy'}", f"labels={folder / 'labels.npy'}"]


# --- help and usage ----------------------------------------------------------------------------


def test_help_lists_every_command() -> None:
    output = call("--help").output
    for command in COMMANDS:
        assert f"\n  {command} " in output


def examples(command: str) -> list[str]:
    """The command lines in a help text, without shell syntax and trailing remarks."""
    text = re.sub(r"\\\n\s*", "", call(command, "--help").output).split("\n\n", 1)[1]
    lines = re.findall(r"^  (?:.* \| |eval \"\$\()?(popgraph .*)$", text, re.MULTILINE)
    return [re.split(r"   +| [|<>] |\)\"", one)[0] for one in lines]


@pytest.mark.budget
@pytest.mark.parametrize("command", COMMANDS)
def test_examples_in_the_help_of_a_command_are_understood(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each help has at least one example, and the parser accepts its arguments."""
    shown = [shlex.split(one.replace("my_passes.py", "popgraph")) for one in examples(command)]
    assert any(words[1:2] == [command] for words in shown), f"{command} has no example"
    group: Any = get_command(app)
    monkeypatch.chdir(tmp_path)
    for words in shown:
        for name in words:
            if Path(name).suffix in MODELS:
                Path(name).touch()
            elif name.endswith("/"):  # the folder of a language model
                Path(name).mkdir()
                (Path(name) / CONFIG).touch()
        whole = group.make_context("popgraph", ["--version"], resilient_parsing=True)
        with group.get_command(whole, words[1]).make_context(words[1], words[2:], parent=whole):
            pass


def test_version() -> None:
    assert call("--version").output == "popgraph 0.1.0\n"


@pytest.mark.parametrize(
    "arguments",
    [
        ["bogus"],
        ["print"],
        ["print", MLP, "--at", "nowhere"],
        ["print", MLP, "--stop-after", "csee"],
        ["print", MLP, "--dim", "N"],
        ["print", MLP, "--dim", "N=0"],
        ["run", MLP, "-i", "x"],
        ["run", MLP, "-i", "x=a.npy", "-i", "x=b.npy"],
        ["run", MLP, "--threads", "0"],
        ["train", MLP, "-o", "trained.txt"],
        ["convert", MLP, "model.txt"],
        ["opt", "-p", "cse{"],
        ["opt", "-p", "nonsense"],
        ["opt", "-p", "cse{depth=3}"],
        ["bench", MLP, "--against", "tensorflow"],
    ],
)
def test_wrong_usage_has_exit_code_2(arguments: list[str]) -> None:
    result = call(*arguments, code=2)
    assert "Usage: " in result.output


def test_a_misspelt_pass_suggests_the_closest_name() -> None:
    result = call("print", MLP, "--stop-after", "csee", code=2)
    assert "there is no pass 'csee'; did you mean 'cse'?" in result.output


@pytest.mark.parametrize(
    ("words", "found"),
    [("popgraph pri", "print"), ("popgraph train --check", "--check\n--checkpoint")],
)
def test_a_shell_completes_commands_and_options(words: str, found: str) -> None:
    asked = {
        "_POPGRAPH_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(words.count(" ")),
    }
    assert sorted(script(**asked).stdout.split()) == sorted(found.split())


def test_completion_scripts_call_the_command(tmp_path: Path) -> None:
    for shell in ("bash", "zsh", "fish"):
        assert "_POPGRAPH_COMPLETE" in call("completion", shell).output
    (tmp_path / "bash").write_text(call("completion", "bash").output)
    subprocess.run(["bash", "-n", tmp_path / "bash"], check=True)


# --- exit codes --------------------------------------------------------------------------------


def script(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in a process of its own, with an empty environment."""
    command = [sys.executable, "-c", "from popgraph.cli import main; main()", *arguments]
    return subprocess.run(
        command, capture_output=True, text=True, env={"PATH": "/usr/bin:/bin", **environment}
    )


def test_model_errors_have_exit_code_1_and_a_location(tmp_path: Path) -> None:
    model = tmp_path / "bad.pgraph"
    model.write_text("graph g(x: f32[2]) -> y {\n    a = Rellu(x)\n    y = x + b\n}\n")
    done = script("print", str(model))
    assert done.returncode == 1
    assert done.stdout == ""
    assert done.stderr == (
        "error: domain ai.onnx has no operator 'Rellu'\n"
        f"  at: {model}:2:9\n"
        "     2 |     a = Rellu(x)\n"
        "       |         ^^^^^\n"
        "  try: the closest name is Relu\n"
        "\n"
        "error: there is no value `b`\n"
        f"  at: {model}:3:13\n"
        "     3 |     y = x + b\n"
        "       |             ^\n"
        "  try: define it in a line before this one\n"
    )


def test_debug_shows_tracebacks(tmp_path: Path) -> None:
    quiet = script("print", str(tmp_path / "nothing.onnx"))
    assert (quiet.returncode, quiet.stderr.splitlines()[0]) == (1, "error: there is no such file")
    assert "Traceback" not in quiet.stderr
    loud = script("print", str(tmp_path / "nothing.onnx"), POPGRAPH_DEBUG="1")
    assert loud.returncode == 1
    assert "Traceback" in loud.stderr
    wrong = script("print", MLP, "--at", "graphcore", "--dim", "N=1", POPGRAPH_DEBUG="9")
    assert (
        wrong.stderr.splitlines()[0] == "error: POPGRAPH_DEBUG must be a level from 0 to 4, not '9'"
    )


def test_a_closed_pipe_is_not_an_error() -> None:
    command = f"{sys.executable} -c 'from popgraph.cli import main; main()' ops | head -1"
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert "Traceback" not in done.stderr
    assert len(done.stdout.splitlines()) == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["print", __file__], f"error: .py is not a model format\n  at: {__file__}"),
        (["print", MLP, "--at", "c"], "error: the shape of input 'x' is not known: f32[N, 64]"),
        (["print", MLP, "--dim", "M=3"], "error: the model has no symbolic dimension 'M'"),
        (["run", MLP], "error: input 'x' is missing"),
        (
            ["run", MLP, "--random", "--dim", "N=4", "-o", "z=z.npy"],
            "error: the model has no output 'z'",
        ),
        (
            ["run", MLP, "-i", "x=nothing.npy"],
            "error: the array cannot be read: there is no such file\n  at: nothing.npy",
        ),
        (["run", MLP, "-i", f"x={MLP}"], "error: the array cannot be read: it is not an .npy file"),
        (["train", MLP], "error: no data to train on"),
        (["opt", "nothing.mlir"], "error: the file cannot be read: there is no such file\n"),
        *(
            (
                [command, "nets/m.onnx"],
                "error: m.onnx is not a .pgraph file\n  at: nets/m.onnx\n"
                "  try: `popgraph convert nets/m.onnx nets/m.pgraph` makes one",
            )
            for command in ("check", "fmt")
        ),
        (
            ["check", "net.mlir"],
            "error: net.mlir is not a .pgraph file\n  at: net.mlir\n"
            "  try: `popgraph convert` makes one of the model that this IR came from",
        ),
    ],
)
def test_user_errors_have_messages(arguments: list[str], message: str) -> None:
    assert call(*arguments, code=1).output.startswith(message)


# --- print and opt -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("level", "sign"),
    [
        ("onnx", "onnx.MatMul.v13"),
        ("graphcore", "graphcore.mat_mul"),
        ("structured", "product f32"),
        ("loops", "tile.launch"),
        ("program", "tile.program"),
        ("c", "void main_run("),
    ],
)
def test_print_shows_every_level(level: str, sign: str) -> None:
    assert sign in call("print", MLP, "--at", level, "--dim", "N=2").stdout


def test_the_command_line_knows_the_levels() -> None:
    assert tuple(Level) == (*LEVELS, "c")
    assert "is not one of onnx, graphcore" in call("print", MLP, "--at", "middle", code=2).output


def test_earlier_names_of_levels_and_passes_are_understood() -> None:
    now = call("print", MLP, "--at", "program", "--dim", "N=2").stdout
    with pytest.warns(FutureWarning, match="the level tile is now program"):
        assert call("print", MLP, "--at", "tile", "--dim", "N=2").stdout == now
    with pytest.warns(FutureWarning, match="graphcore-to-tile is now graphcore-to-structured"):
        text = call("print", MLP, "--dim", "N=2", "--stop-after", "graphcore-to-tile").stdout
    assert "tile.reduce" in text


def test_print_stops_after_a_pass_and_shows_others_on_the_way() -> None:
    arguments = ["--dim", "N=2", "--stop-after", "expand", "--print-after", "onnx-to-graphcore"]
    output = call("print", MLP, *arguments).stdout
    head, first, last = output.split("builtin.module")
    assert head == "// after onnx-to-graphcore\n"
    assert "graphcore.softmax" in first
    assert "graphcore.softmax" not in last
    assert "graphcore.exp" in last


PROGRAM = """
pg.graph @main inputs [#pg.bytes<"x">] {
^bb0(%x: tensor<2xf32>):
  %dead = graphcore.exp %x : (tensor<2xf32>) -> tensor<2xf32>
  %y = graphcore.neg %x : (tensor<2xf32>) -> tensor<2xf32>
  pg.return [#pg.bytes<"y">], %y : tensor<2xf32>
}
"""


def test_opt_runs_passes_over_text(tmp_path: Path) -> None:
    output = call("opt", "-p", "cse,dce", "--check", text=PROGRAM).stdout
    assert "graphcore.neg" in output
    assert "graphcore.exp" not in output
    file = tmp_path / "in.mlir"
    file.write_text(PROGRAM)
    assert "graphcore.exp" in call("opt", file).stdout


def test_opt_names_the_property_that_a_pass_lacks() -> None:
    softmax = PROGRAM.replace("graphcore.neg %x", "graphcore.softmax %x {axis = 0 : i64}")
    error = call("opt", "-p", "graphcore-to-structured", text=softmax, code=1).output
    assert error == (
        "error: graphcore-to-structured needs the property expanded (no composite is left, such "
        "as softmax: each operation has a kind that lowering knows)\n"
        "  at: graphcore.softmax\n"
        "  try: run expand first\n"
    )
    assert "tile.reduce" in call("opt", "-p", "expand,graphcore-to-structured", text=softmax).stdout


def test_opt_takes_the_options_of_a_pass() -> None:
    tiled = call(
        "opt", "-p", "graphcore-to-structured,structured-to-loops{vector-bytes=16}", text=PROGRAM
    ).stdout
    assert "tile.launch" in tiled
    assert call("opt", "-p", "structured-to-loops{no-such=1}", text=PROGRAM, code=2)


def test_opt_refuses_text_that_is_not_ir() -> None:
    assert "error: not valid IR" in call("opt", text="pg.graph", code=1).output


# --- run ---------------------------------------------------------------------------------------


def softmax(x: Any) -> Any:
    power = np.exp(x - x.max(-1, keepdims=True))
    return power / power.sum(-1, keepdims=True)


def mlp(x: Any) -> Any:
    """The example's output, computed by NumPy."""
    held = {op.value_name.text: op for op in load(MLP).module.walk() if isinstance(op, Initializer)}
    weights = load(MLP).weights
    w1, b1, w2, b2 = (held[name].array(weights) for name in ("w1", "b1", "w2", "b2"))
    return softmax(np.maximum(x @ w1 + b1, 0) @ w2 + b2)


@pytest.mark.parametrize("backend", ["c", "reference"])
def test_run_computes_what_the_text_says(folder: Path, backend: str) -> None:
    output = folder / "y.npy"
    arguments = ["-i", f"x={folder / 'x.npy'}", "-o", f"y={output}", "--backend", backend]
    shown = call("run", MLP, *arguments).stdout
    assert shown == f"y: float32[300, 10] -> {output}\n"
    x = np.load(folder / "x.npy")
    np.testing.assert_allclose(np.load(output), mlp(x), atol=1e-5)


def test_imports_are_looked_for_in_the_folders_of_the_option(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    layers = "def f(x: f32[...]) -> y {\n y = Relu(x)\n}"
    (tmp_path / "lib" / "layers.pgraph").write_text(layers)
    path = tmp_path / "m.pgraph"
    path.write_text('import "layers.pgraph"\ngraph g(x: f32[2]) -> y {\n y = f(x)\n}')
    before = dict(os.environ)
    assert "y: float32[2]" in call("run", path, "--random", "-I", tmp_path / "lib").output
    assert dict(os.environ) == before
    assert "there is no file 'layers.pgraph'" in call("run", path, "--random", code=1).output


def test_run_draws_missing_inputs_from_the_seed() -> None:
    first = call("run", MLP, "--random", "--dim", "N=2").stdout
    assert first.startswith("y: float32[2, 10]\n[[")
    assert call("run", MLP, "--random", "--dim", "N=2").stdout == first
    assert call("run", MLP, "--random", "--dim", "N=2", "--seed", "1").stdout != first


def test_run_converts_numbers_of_the_same_kind_only(folder: Path) -> None:
    np.save(folder / "wide.npy", np.zeros((2, 64)))
    result = call("run", MLP, "-i", f"x={folder / 'wide.npy'}")
    assert "x: float64 is converted to float32" in result.stderr
    np.save(folder / "text.npy", np.array([["a"]]))
    call("run", MLP, "-i", f"x={folder / 'text.npy'}", code=1)


def test_run_refuses_arrays_of_the_wrong_shape(folder: Path) -> None:
    np.save(folder / "narrow.npy", np.zeros((2, 63), np.float32))
    assert "f32[N, 64]" in call("run", MLP, "-i", f"x={folder / 'narrow.npy'}", code=1).output


def test_run_reads_a_model_once(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[object] = []

    def counted(model: object, **how: Any) -> Any:
        read.append(model)
        return compiler.load(model, **how)

    monkeypatch.setattr("popgraph.compiler.compiling.load", counted)
    monkeypatch.setattr("popgraph.cli.models.load", counted)
    call("run", MLP, "-i", f"x={folder / 'x.npy'}", "--backend", "reference")
    assert read == [Path(MLP)]
    wrong = call("run", MLP, "-i", f"y={folder / 'x.npy'}", "--backend", "reference", code=1)
    assert len(read) == 2
    assert "'y'" in wrong.output


def test_run_takes_ir_of_a_lower_level(tmp_path: Path) -> None:
    file, x, y = tmp_path / "m.mlir", tmp_path / "x.npy", tmp_path / "y.npy"
    file.write_text(PROGRAM)
    np.save(x, np.array([1.5, -2], np.float32))
    call("run", file, "-i", f"x={x}", "-o", f"y={y}")
    assert np.load(y).tolist() == [-1.5, 2.0]


# --- train -------------------------------------------------------------------------------------


def accuracy(folder: Path, model: Path) -> float:
    call("run", model, "-i", f"x={folder / 'x.npy'}", "-o", f"y={folder / 'y.npy'}")
    found = np.load(folder / "y.npy").argmax(1)
    return float((found == np.load(folder / "labels.npy")).mean())


def losses(output: str) -> list[float]:
    return [float(line.split()[-1]) for line in output.splitlines() if line.startswith("epoch")]


def test_train_by_the_train_section(folder: Path) -> None:
    target = folder / "trained.onnx"
    result = call("train", MLP, "--data", *data(folder), "--epochs", 3, "-o", target)
    found = losses(result.stdout)
    assert len(found) == 3
    assert found[2] < 0.1 < found[0]
    assert accuracy(folder, target) == 1.0


def test_train_an_onnx_model_for_a_loss_given_as_an_option(folder: Path) -> None:
    model, target = folder / "m.onnx", folder / "t.pgraph"
    call("convert", MLP, model)
    arguments = [
        "--loss",
        "nll(y, labels)",
        "--optimizer",
        "Adam(0.01)",
        "--epochs",
        4,
        "-o",
        target,
    ]
    call("train", model, *data(folder), *arguments)
    assert accuracy(folder, target) > 0.98


def test_quantized_weights_are_trained_if_gradients_go_straight_through(folder: Path) -> None:
    options = ["--loss", "nll(y, labels)", "--optimizer", "Adam(0.01)", "--epochs", 3]
    arguments = ["train", EXAMPLES / "quantized.pgraph", *data(folder), *options]
    still, trained = (
        losses(call(*arguments, *more).stdout) for more in ([], ["--straight-through"])
    )
    assert still[-1] > 1.5
    assert trained[-1] < 0.1


def test_options_override_the_train_section(folder: Path) -> None:
    still = call("train", MLP, *data(folder), "--epochs", 2, "--optimizer", "SGD(0.0)")
    first, second = losses(still.stdout)
    assert first == pytest.approx(second, rel=0.1)
    assert first > 2


def test_backends_train_alike(folder: Path) -> None:
    arguments = ["train", MLP, *data(folder), "--batch", 100]
    fast = losses(call(*arguments).stdout)
    slow = losses(call(*arguments, "--backend", "reference").stdout)
    assert fast == pytest.approx(slow, rel=1e-4)


def test_few_samples_are_one_batch(folder: Path) -> None:
    assert losses(call("train", MLP, *data(folder), "--batch", 10000).stdout)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--loss", "nll(z, labels)"], "there is no value `z`\n  at: <loss>:1:5"),
        (["--loss", "y"], "the loss must be one number"),
        (["--loss", "nll(y,"], "this `(` is never closed"),
        (["--optimizer", "Adan(1)"], "there is no optimizer 'Adan'\n  at: <optimizer>:1:1"),
        (["--optimizer", "SGD(1, momentun=1)"], "SGD has no parameter 'momentun'"),
        (["--optimizer", "SGD(1, nesterov=2)"], "'nesterov' of SGD is true or false, not 2"),
    ],
)
def test_training_errors_have_messages(folder: Path, arguments: list[str], message: str) -> None:
    model = folder / "m.onnx"
    call("convert", MLP, model)
    usual = {"--loss": "nll(y, labels)", "--optimizer": "SGD(0.1)"}
    usual[arguments[0]] = arguments[1]
    given = [part for pair in usual.items() for part in pair]
    assert message in call("train", model, *data(folder), *given, code=1).output


def test_a_missing_output_folder_is_reported_before_training(folder: Path) -> None:
    target = folder / "nowhere" / "trained.onnx"
    result = call("train", MLP, *data(folder), "-o", target, code=2)
    assert "there is no folder" in result.output
    assert not losses(result.stdout)


def test_an_unwritable_output_is_reported_first(folder: Path) -> None:
    taken = folder / "taken.onnx"
    taken.mkdir()
    for command in (
        ["train", MLP, *data(folder), "-o"],
        ["profile", MLP, "--dim", "N=2", "--json"],
        ["profile", MLP, "--dim", "N=2", "--html"],
        ["tune", MLP, "--dim", "N=2", "-o"],
        ["schedules", MLP, "--dim", "N=2", "-o"],
        ["gradient", MLP, "--dim", "N=2", "-o"],
    ):
        result = call(*command, taken, code=2)
        assert "is a folder" in result.output
        assert not result.stdout
    assert "is a folder" in call("run", MLP, "--random", "-o", f"p={taken}", code=2).output
    assert "this is a folder, not a model" in call("run", taken, code=1).output


def test_outputs_are_saved_under_the_given_name(folder: Path) -> None:
    call("run", MLP, "--random", "-o", f"y={folder / 'p'}")
    assert np.load(folder / "p").shape == (1, 10)
    assert not (folder / "p.npy").exists()


def test_random_inputs_fit_the_given_inputs(folder: Path) -> None:
    model = folder / "two.pgraph"
    model.write_text("graph two(x: f32[N], b: f32[N]) -> y { y = x + b }")
    np.save(folder / "b.npy", np.zeros(5, np.float32))
    assert "float32[5]" in call("run", model, "--random", "-i", f"b={folder / 'b.npy'}").output


def test_random_strings_are_refused_by_name(folder: Path) -> None:
    model = folder / "words.pgraph"
    model.write_text("graph words(x: string[2]) -> y { y = Identity(x) }")
    output = call("run", model, "--random", code=1).output
    assert "input 'x' is string[2]: only numeric tensors can be generated" in output


def test_sequences_are_printed_tensor_by_tensor(folder: Path) -> None:
    model = folder / "pieces.pgraph"
    model.write_text(
        "graph pieces(x: f32[3, 2]) -> s { s = SplitToSequence(x, axis=0, keepdims=1) }"
    )
    output = call("run", model, "--random").output
    assert [f"s[{at}]: float32[1, 2]" in output for at in range(3)] == [True] * 3
    kept = call("run", model, "--random", "-o", f"s={folder / 's.npy'}", code=1).output
    assert "output 's' is not an array" in kept


@pytest.mark.parametrize("command", [["run", MLP, "--random"], ["train", MLP]])
def test_seeds_are_not_negative(command: list[str]) -> None:
    assert "greater than or equal to 0" in call(*command, "--seed", "-1", code=2).output


@pytest.mark.parametrize("command", ["check", "fmt"])
def test_an_unreadable_file_does_not_hide_other_errors(tmp_path: Path, command: str) -> None:
    nowhere, wrong = tmp_path / "nowhere.pgraph", tmp_path / "wrong.pgraph"
    wrong.write_text("graph g(x: f32[2]) -> y {\n y =\n}\n")
    output = call(command, nowhere, wrong, code=1).output
    assert "the file cannot be read" in output
    assert "is missing after `=`" in output


def test_arrays_of_different_lengths(folder: Path) -> None:
    np.save(folder / "labels.npy", np.zeros(7, np.int32))
    message = "error: the arrays have different numbers of samples (x: 300, labels: 7)"
    assert call("train", MLP, *data(folder), code=1).output.startswith(message)


# --- convert, emit -----------------------------------------------------------------------------


def test_convert_to_onnx_and_back_keeps_weights(tmp_path: Path) -> None:
    a, b, c = (tmp_path / name for name in ("a.onnx", "b.pgraph", "c.onnx"))
    for source, target in ((MLP, a), (a, b), (b, c)):
        call("convert", source, target)
    assert (tmp_path / "b.safetensors").exists()
    assert a.read_bytes() == c.read_bytes()


@pytest.mark.parametrize("command", ["run", "bench", "profile"])
def test_unspecified_sizes_default_to_1_with_a_note(command: str, tmp_path: Path) -> None:
    """All commands that make up inputs apply this default; `--dim` sets named sizes only."""
    named = "graph net(x: f32[N, 4], z: f32[M]) -> (y: f32[N, 4]) {\n    y = Relu(x) + z\n}\n"
    (tmp_path / "net.pgraph").write_text(named)
    call("convert", tmp_path / "net.pgraph", tmp_path / "a.onnx")
    proto = onnx.load(tmp_path / "a.onnx")
    for one in (*proto.graph.input, *proto.graph.output):
        one.type.tensor_type.shape.dim[0].Clear()
    onnx.save(proto, tmp_path / "b.onnx")
    options = {
        "run": ["--random"],
        "bench": ["--seconds", "0", "--repeats", "1"],
        "profile": ["--rounds", "1"],
    }
    for file, said in (
        ("net.pgraph", "M = 1, N = 1 by default (set another size by --dim M=4)"),
        ("b.onnx", "unnamed sizes are 1 by default"),
    ):
        assert said in call(command, tmp_path / file, *options[command]).stderr


def test_convert_fixes_dimensions_and_cuts(tmp_path: Path) -> None:
    text = """
    graph net(x: f32[N, 4], z: f32[N]) -> (y: f32[N, 2], other: f32[N]) {
        weight w: f32[4, 2] = ones
        h = Relu(x)
        y = h @ w
        other = Neg(z)
    }
    """
    (tmp_path / "net.pgraph").write_text(text)
    call("convert", tmp_path / "net.pgraph", tmp_path / "a.onnx", "--dim", "N=3")
    whole = onnx.load(tmp_path / "a.onnx").graph
    assert [one.dim_value for one in whole.input[0].type.tensor_type.shape.dim] == [3, 4]
    call("convert", tmp_path / "a.onnx", tmp_path / "b.onnx", "--output", "h")
    cut = onnx.load(tmp_path / "b.onnx").graph
    assert [one.name for one in cut.input] == ["x"] and [one.name for one in cut.output] == ["h"]
    assert not cut.initializer and [one.op_type for one in cut.node] == ["Relu"]
    x = np.array([[1, -2, 3, -4]] * 3, np.float32)
    (found,) = popgraph.compile(tmp_path / "b.onnx")(x=x).values()
    np.testing.assert_array_equal(found, np.maximum(x, 0))
    result = call("convert", tmp_path / "a.onnx", tmp_path / "c.onnx", "--output", "yy", code=1)
    assert "the model has no value 'yy'" in result.stderr and "'y'" in result.stderr
    result = call("convert", tmp_path / "a.onnx", tmp_path / "c.onnx", "--dim", "M=1", code=1)
    assert "no symbolic dimension 'M'" in result.stderr


def test_convert_to_ir_says_what_is_not_in_it(tmp_path: Path) -> None:
    """Text of the IR refers to large tensors without their elements."""
    large = numpy_helper.from_array(np.zeros((64, 64), np.float32), "w")
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [2, 64]) for name in "xy")
    product = helper.make_node("MatMul", ["x", "w"], ["y"])
    graph = helper.make_graph([product], "g", [x], [y], [large])
    onnx.save(helper.make_model(graph), tmp_path / "large.onnx")
    result = call("convert", tmp_path / "large.onnx", tmp_path / "large.mlir")
    assert "large.mlir names large tensors (1) without their elements" in result.stderr
    (tmp_path / "small.pgraph").write_text("graph g(x: f32[2]) -> (y) {\n    y = Relu(x)\n}\n")
    assert not call("convert", tmp_path / "small.pgraph", tmp_path / "small.mlir").stderr


def test_print_reads_the_schedules_at_every_level(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.json")
    result = call("print", MLP, "--at", "onnx", "--schedule", missing, code=1)
    assert missing in result.stderr


def test_convert_to_ir(tmp_path: Path) -> None:
    call("convert", MLP, tmp_path / "m.mlir")
    again = call("print", tmp_path / "m.mlir").stdout
    assert again == call("print", MLP).stdout == (tmp_path / "m.mlir").read_text()


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_emitted_c_can_be_built_and_run(tmp_path: Path) -> None:
    call("emit", MLP, "--dim", "N=2", "-o", tmp_path)
    described = json.loads((tmp_path / "program.json").read_text())
    subprocess.run(described["build"].split(), cwd=tmp_path, check=True, capture_output=True)
    x = np.random.default_rng(1).normal(size=(2, 64)).astype(np.float32)
    arrays = [memory_of(entry, described, tmp_path, x) for entry in described["memory"]]
    table = (ctypes.c_void_p * len(arrays))(
        *[1 if array is None else array.ctypes.data for array in arrays]
    )
    library = ctypes.CDLL(str(tmp_path / "model.so"))
    for function in described["functions"]:
        library[function](table)
    (place,) = [i for i, entry in enumerate(described["memory"]) if entry["space"] == "output"]
    found = arrays[place].view(np.float32).reshape(2, 10)
    np.testing.assert_allclose(found, mlp(x), atol=1e-5)


def memory_of(entry: Any, described: Any, folder: Path, x: Any) -> Any:
    """The memory of an entry of the table, 64-byte aligned; None for the number of threads."""
    if entry["space"] == "threads":
        return None
    if "file" in entry:
        held = (folder / entry["file"]).read_bytes()
    elif entry["space"] == "input":
        held = x.tobytes()
    else:
        held = bytes(described.get(entry["space"], 2 * 10 * 4))
    raw = np.empty(len(held) + 64, np.uint8)
    start = -raw.ctypes.data % 64
    raw[start : start + len(held)] = np.frombuffer(held, np.uint8)
    return raw[start : start + len(held)]


# --- lists -------------------------------------------------------------------------------------


def test_opt_names_the_level_that_a_pass_lowers() -> None:
    """A pass that finds no operation of its level would change nothing."""
    error = call("opt", "-p", "onnx-to-graphcore", text=PROGRAM, code=1).output
    assert "onnx-to-graphcore lowers the onnx level" in error
    error = call("opt", "-p", "structured-to-loops", text=PROGRAM, code=1).output
    assert "the module is at the graphcore level" in error
    assert "try: run graphcore-to-structured first" in error


def test_passes_declare_their_order() -> None:
    lines = call("passes", "--order").stdout.splitlines()
    found = [line.split(maxsplit=2)[2] for line in lines if " split-kernels*" in line]
    assert found == ["needs unhanded-constants"]


def test_passes_are_listed_in_their_order() -> None:
    lines = call("passes").stdout.splitlines()
    names = [line.split("  ")[1].strip() or line.split()[1] for line in lines]
    (crossing,) = (number for number, line in enumerate(lines) if "onnx -> graphcore" in line)
    assert all(line.startswith("onnx ") for line in lines[:crossing])
    assert len(lines) == len(names) >= 15
    assert "hand-numbers*" in lines[-1].split()


def test_rewrites_are_listed_with_their_proofs() -> None:
    *rows, _, total = call("passes", "--proofs").stdout.splitlines()
    statuses = [status for row in rows for status in STATUSES if f"  {status}  " in row]
    assert len(statuses) == len(rows)
    counts = ", ".join(f"{statuses.count(status)} {status}" for status in STATUSES)
    assert total.startswith(f"{len(rows)} rewrites: {counts};")
    (neutral,) = (row for row in rows if "DropNeutral" in row)
    assert "derived" in neutral and "x + -0.0  ->  x" in neutral and "f64" in neutral


def test_operators_of_each_level() -> None:
    assert "Conv " in call("ops", "conv").stdout
    assert "Relu" not in call("ops", "conv").stdout
    assert "graphcore.softmax" in call("ops", "--level", "graphcore").stdout
    assert "tile.launch" in call("ops", "--level", "loops").stdout


def test_doctor_names_the_compiler_and_packages() -> None:
    output = call("doctor").stdout
    assert "compiler used" in output
    assert "xdsl" in output


def test_doctor_says_when_no_compiler_works(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    result = call("doctor", code=1)
    assert "error: no C compiler works; tried no-such-compiler (No such file" in result.output


def test_an_unknown_operator_is_an_error() -> None:
    output = call("ops", "sofmax", code=1).output
    assert "error: no operator name contains 'sofmax'\n  try: the closest is Softmax" in output


def test_sizes_are_for_models_with_symbols(tmp_path: Path) -> None:
    text = call("print", MLP, "--at", "graphcore", "--dim", "N=2").stdout
    file = tmp_path / "mlp.mlir"
    file.write_text(text)
    output = call("print", file, "--at", "program", "--dim", "N=3", code=1).output
    assert "error: all dimensions of a module of the graphcore level are known" in output


def test_options_of_passes_are_spelled_as_they_are_written() -> None:
    text = call("print", MLP, "--at", "graphcore", "--dim", "N=2").stdout
    output = call("opt", "-p", "structured-to-loops{vector=1}", text=text, code=2).output
    assert 'not found in expected arguments ["vector-bytes"' in output


def test_internal_errors_are_reported_as_such(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("popgraph.cli.models.load", lambda path: 1 / 0)
    output = call("convert", MLP, "m.onnx", code=1).output
    assert output.startswith("error: internal error: ZeroDivisionError")


def test_opt_checks_the_output_of_print() -> None:
    """The text omits the elements of large weights, and the check does not need them."""
    shown = call("print", MLP, "--at", "graphcore", "--dim", "N=2").stdout
    assert "#pg.blob" in shown
    assert "graphcore.mat_mul" in call("opt", "-p", "cse,dce", "--check", text=shown).stdout


def test_opt_check_finds_a_pass_that_changes_the_meaning(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(self: object, compilation: object, module: Any) -> None:
        for op in module.walk():
            if op.name == "graphcore.neg":
                op.results[0].replace_all_uses_with(op.operands[0])

    monkeypatch.setattr(PASSES["dce"], "run", wrong)
    assert call("opt", "-p", "dce", text=PROGRAM).stdout
    assert "error: " in call("opt", "-p", "dce", "--check", text=PROGRAM, code=1).output


def test_debug_and_dump_show_every_pass(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPGRAPH_DEBUG", "4")
    monkeypatch.setenv("POPGRAPH_DUMP", str(tmp_path))
    shown = call("run", MLP, "--random").stderr
    for sign in (" ms\n", "// after onnx-to-graphcore", "// after plan-memory", "void main_run("):
        assert sign in shown
    kept = sorted(path.name for path in tmp_path.iterdir())
    assert any(name.endswith("_plan-memory.mlir") for name in kept)
    assert "main_0.c" in kept


def test_rows_of_arrays_are_aligned(tmp_path: Path) -> None:
    (tmp_path / "t.pgraph").write_text("graph g(x: f32[2, 3]) -> y { y = Relu(x) }")
    shown = call("run", tmp_path / "t.pgraph", "--random").stdout.splitlines()
    assert [line.rfind("[") for line in shown[1:]] == [1, 1]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_epoch_lines_are_above_the_progress_bar(folder: Path) -> None:
    import pty

    main, other = pty.openpty()
    code = "import sys; from popgraph.cli import main; main()"
    arguments = ["train", MLP, f"x={folder / 'x.npy'}", f"labels={folder / 'labels.npy'}"]
    options = ["--backend", "reference", "--optimizer", "SGD(0.1)", "--loss", "nll(y, labels)"]
    with subprocess.Popen(
        [sys.executable, "-c", code, *arguments, *options], stdout=other, stderr=other
    ) as process:
        assert process.wait(60) == 0
    os.close(other)
    shown = os.read(main, 1 << 16).decode()
    os.close(main)
    assert "epoch 1/1" in shown
    assert ":--\x1b[0mepoch" not in shown.replace(" ", "")
    assert ":--epoch" not in shown.replace(" ", "")
