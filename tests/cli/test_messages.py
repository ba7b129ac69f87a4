"""Tests messages of commands for wrong options, names and files."""

from __future__ import annotations

import re
from enum import Enum
from importlib import import_module
from pathlib import Path
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from typer.models import ArgumentInfo, OptionInfo
from typer.testing import CliRunner

from popgraph.cli import COMMANDS, app

NET = "graph net(x: f32[N, 4]) -> y {\n  weight w: f32[4, 3] = ones\n  y = x @ w\n}"


def said(*arguments: object) -> str:
    """The error output of a failing command, without tracebacks and names of Python objects."""
    found = CliRunner().invoke(app, list(map(str, arguments)))
    assert found.exit_code in (1, 2), found.output
    text = found.stderr
    assert not re.search(r"Traceback|internal error|Value error|<[A-Za-z.]+: |object at 0x", text)
    return text


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    Path("net.pgraph").write_text(NET)
    np.save("x.npy", np.ones((2, 4), np.float32))
    np.save("wide.npy", np.ones((2, 5), np.float32))
    np.save("complex.npy", np.ones((2, 4), complex))
    Path("junk.npy").write_text("junk")
    Path("none.npy").touch()
    np.savez("x.npz", x=np.ones(2))
    return tmp_path


# --- choices -----------------------------------------------------------------------------------


def choices() -> list[tuple[str, str, type[Enum], Any]]:
    """The options and arguments of all commands whose type is an enumeration."""
    found = []
    for name in COMMANDS:
        command = import_module(f"popgraph.cli.{name}").command
        for parameter, hint in get_type_hints(command, include_extras=True).items():
            kinds = [
                one for one in _leaves(hint) if isinstance(one, type) and issubclass(one, Enum)
            ]
            infos = [one for one in _leaves(hint) if isinstance(one, OptionInfo | ArgumentInfo)]
            found += [(name, parameter, kind, info) for kind in kinds for info in infos]
    return found


def _leaves(hint: Any) -> list[Any]:
    parts = [*get_args(hint), *getattr(hint, "__metadata__", ())]
    return [hint, *(leaf for part in parts for leaf in _leaves(part))]


@pytest.mark.parametrize(
    ("name", "parameter", "kind", "info"),
    choices(),
    ids=lambda one: str(one) if isinstance(one, str) else "",
)
def test_choices_ignore_case_and_are_listed_as_they_are_typed(
    name: str, parameter: str, kind: type[Enum], info: Any
) -> None:
    if info.parser is None:
        assert not info.case_sensitive
    else:
        first = next(iter(kind))
        assert info.parser(first.value.upper()) is first
    option = next(
        (one for one in (info.default, *(info.param_decls or ())) if str(one).startswith("--")),
        f"--{parameter}",
    )
    before = [] if isinstance(info, ArgumentInfo) else ["net.onnx", *REQUIRED.get(name, ()), option]
    text = said(name, *before, "zz")
    assert "'zz' is" in text
    assert all(str(one.value) in text for one in kind)


REQUIRED = {"export": ("-o", "folder"), "emit": ("-o", "folder")}


@pytest.mark.parametrize(
    ("arguments", "last"),
    [
        (
            ["print", "net.onnx", "--at", "graphcor"],
            "Error: Invalid value for '--at': 'graphcor' is not one of onnx, graphcore, "
            "structured, "
            "loops, program, c; did you mean 'graphcore'?",
        ),
        (
            ["run", "net.onnx", "--backend", "referenc"],
            "  try: did you mean 'reference'? there are 'c' and 'reference'",
        ),
        (
            ["ops", "--level", "C"],
            "Error: Invalid value for '--level': 'C' is not one of onnx, graphcore, structured, "
            "loops, program",
        ),
    ],
)
def test_the_closest_choice_is_named(arguments: list[str], last: str) -> None:
    assert said(*arguments).splitlines()[-1] == last


# --- arrays ------------------------------------------------------------------------------------

ARRAYS: dict[str, tuple[list[str], str]] = {
    "no such input": (
        ["z=nosuch.npy"],
        "error: the model has no input 'z'\n  try: the model's inputs are 'x'\n",
    ),
    "another case": (
        ["X=x.npy"],
        "error: the model has no input 'X'\n  try: the model's inputs are 'x'; did you mean 'x'?\n",
    ),
    "no name": (["x.npy"], "Error: Invalid value for --input: 'x.npy' is not NAME=VALUE\n"),
    "twice": (["x=x.npy", "x=x.npy"], "Error: Invalid value for --input: 'x' is given twice\n"),
    "no such file": (
        ["x=y.npy"],
        "error: the array cannot be read: there is no such file; did you mean "
        "'x.npy'?\n  at: y.npy\n  try: numpy.save writes arrays, one per file\n",
    ),
    "junk": (
        ["x=junk.npy"],
        "error: the array cannot be read: it is not an .npy file, or it holds Python objects\n"
        "  at: junk.npy\n  try: numpy.save writes arrays, one per file\n",
    ),
    "an empty file": (
        ["x=none.npy"],
        "error: the array cannot be read: the file is empty\n"
        "  at: none.npy\n  try: numpy.save writes arrays, one per file\n",
    ),
    "an archive": (
        ["x=x.npz"],
        "error: the array cannot be read: it is an .npz file, not an .npy file\n"
        "  at: x.npz\n  try: numpy.save writes arrays, one per file\n",
    ),
    "a folder": (
        ["x=."],
        "error: the array cannot be read: it is a folder, not a file\n"
        "  at: .\n  try: numpy.save writes arrays, one per file\n",
    ),
    "another shape": (
        ["x=wide.npy"],
        "error: input 'x' is f32[N, 4], not f32[2, 5]\n  at: input 'x'\n"
        "  try: dimension 1 must be 4\n",
    ),
    "another kind of numbers": (
        ["x=complex.npy"],
        "error: input 'x' holds complex128, the model requires float32\n"
        "  try: pass np.asarray(x, np.float32)\n",
    ),
}


@pytest.mark.parametrize("case", ARRAYS)
@pytest.mark.parametrize("command", [["run"], ["export", "--dim", "N=2", "-o", "folder"]])
def test_wrong_arrays_are_refused_before_compilation(
    case: str, command: list[str], net: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("popgraph.compiler.requests.lower", None)
    monkeypatch.setattr("popgraph.compiler.lower", None)
    given, message = ARRAYS[case]
    text = said(*command, "net.pgraph", *(part for one in given for part in ("-i", one)))
    assert text.endswith(message if command == ["run"] else message.replace("[N, 4]", "[2, 4]"))


def test_names_of_outputs_are_checked_first(net: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("popgraph.compiler.requests.lower", None)
    assert said("run", "net.pgraph", "-i", "x=x.npy", "-o", "Y=y.npy") == (
        "error: the model has no output 'Y'\n  try: its outputs are 'y'; did you mean 'y'?\n"
    )


# --- files -------------------------------------------------------------------------------------

TARGETS = {
    "convert": ["o.onnx"],
    "generate": ["--ids", "1"],
    "emit": ["-o", "out"],
    "export": ["-o", "out"],
    "gradient": ["-o", "o.onnx"],
    "quantize": ["-o", "o.onnx"],
}
READERS = (
    *("print", "info", "view", "run", "train", "convert", "check", "fmt", "bench", "profile"),
    *("emit", "export", "generate", "opt", "tune", "schedules", "bisect", "scale"),
    *("gradient", "quantize"),
)


@pytest.mark.parametrize("file", ["nosuch.onnx", "none.onnx", "text.onnx", ".", "x.npy", "folder/"])
@pytest.mark.parametrize("command", READERS)
def test_every_command_refuses_files_that_are_not_models(
    command: str, file: str, net: Path
) -> None:
    Path("none.onnx").touch()
    Path("text.onnx").write_text("hello")
    said(command, file, *TARGETS.get(command, ()))


# --- training ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            ["--loss", "mse"],
            "error: no optimizer is given\n  at: net.pgraph\n"
            "  try: --optimizer 'Adam(0.001)', or 'SGD(0.1, momentum=0.9)'; the opt",
        ),
        (
            ["--optimizer", "SGD(0.1)"],
            "  try: --loss 'cross_entropy(y, labels)', or a name alone; ",
        ),
        (
            ["--loss", "mse", "--optimizer", "SGD(0.1)", "--resume"],
            "error: --resume requires a checkpoint\n  at: resume\n  try: --checkpoint run.ckpt\n",
        ),
    ],
)
def test_the_command_names_its_options(options: list[str], message: str, net: Path) -> None:
    np.save("t.npy", np.ones((2, 3), np.float32))
    assert message in said("train", "net.pgraph", "x=x.npy", "t=t.npy", *options)
