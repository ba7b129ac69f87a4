"""Tests start-up: commands and `import popgraph` import only the modules that they need."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from popgraph.cli import COMMANDS
from popgraph.compat import ALIASES

TYPER = {"typer", "click", "shellingham", "annotated_doc", "typing_extensions", "colorama"}
"""The packages that parse the command line."""
FOUND_BY_TYPER = {"pydantic", "pydantic_core", "annotated_types", "typing_inspection"}
"""Packages that newer versions of Typer import where they are installed."""
COMMAND_LINE = TYPER | FOUND_BY_TYPER

NUMPY = {"numpy", "ml_dtypes", "cython_runtime"}

SCRIPT = """
import atexit, json, os, sys

before = set(sys.modules)


def report():
    with open(os.environ["MODULES"], "w") as file:
        json.dump(sorted(set(sys.modules) - before), file)


atexit.register(report)
"""
COMMAND = """
from popgraph.__main__ import main

main()
"""
SETTLED = """
from popgraph.backends.c.cache import install_fingerprint
from popgraph.support import files

install_fingerprint.states = lambda: "the same"  # Also right after somebody has edited a module.
files.SETTLED = -1.0
"""

MODEL = """
graph net(x: f32[N, 3]) -> (y: f32[N, 2]) {
    weight w: f32[3, 2] = glorot_uniform
    weight b: f32[2] = zeros
    y = Relu(x @ w + Identity(b))
}
"""


def imported(tmp_path: Path, script: str, *arguments: str, code: int = 0) -> set[str]:
    """The modules that a process has imported at its end, except those of a bare Python."""
    listed = tmp_path / "modules.json"
    environment = {
        **os.environ,
        "MODULES": str(listed),
        "POPGRAPH_CACHE_DIR": str(tmp_path / "cache"),
        "POPGRAPH_PROGRAM_CACHE": "1",
    }
    command = [sys.executable, "-c", SCRIPT + script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == code, done.stderr
    return set(json.loads(listed.read_text()))


def packages(modules: set[str]) -> set[str]:
    """The third-party packages of modules."""
    roots = {name.partition(".")[0] for name in modules if not name.startswith("_")}
    return roots - sys.stdlib_module_names - {"popgraph"}


def rooms(modules: set[str]) -> set[str]:
    """The top-level folders and modules of this package."""
    return {name.split(".")[1] for name in modules if name.startswith("popgraph.")}


def test_importing_the_package_imports_next_to_nothing(tmp_path: Path) -> None:
    found = imported(tmp_path, "import popgraph")
    assert packages(found) == set()
    assert {name for name in found if name.startswith("popgraph")} == {
        "popgraph",
        "popgraph.support",
        "popgraph.support.garbage",
    }


def test_help_needs_no_compiler(tmp_path: Path) -> None:
    found = imported(tmp_path, COMMAND, "--help")
    assert packages(found) <= COMMAND_LINE
    assert rooms(found) <= {"__main__", "cli", "support", "measure"}


COMMAND_ARGUMENTS = {
    "bench": [],
    "bisect": [],
    "convert": ["y.onnx"],
    "emit": ["-o", "y"],
    "export": ["-o", "y"],
    "generate": ["--ids", "1"],
    "gradient": ["-o", "y.onnx"],
    "info": [],
    "print": [],
    "profile": [],
    "quantize": ["-o", "y.onnx"],
    "run": ["--random"],
    "scale": [],
    "schedules": [],
    "train": ["x=x.npy", "-o", "y.onnx"],
    "tune": [],
    "view": [],
}
"""Commands whose first argument is a model's file, and the other arguments that they need."""


@pytest.mark.parametrize("command", sorted(COMMAND_ARGUMENTS))
def test_a_file_that_does_not_exist_needs_no_compiler(tmp_path: Path, command: str) -> None:
    arguments = [command, "nosuch.onnx", *COMMAND_ARGUMENTS[command]]
    found = imported(tmp_path, COMMAND, *arguments, code=1)
    assert packages(found) <= COMMAND_LINE
    assert rooms(found) <= {"__main__", "cli", "support", "measure"}
    others = {f"popgraph.cli.{name}" for name in COMMANDS if name != command}
    assert found & others <= {"popgraph.cli.run", "popgraph.cli.completion"}


@pytest.mark.parametrize("inputs", [["-i", "x=x.npy"], ["--random"], ["--random", "--dim", "N=2"]])
def test_a_known_model_runs_without_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, inputs: list[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "net.pgraph").write_text(MODEL)
    np.save("x.npy", np.ones((4, 3), np.float32))
    for _ in range(2):
        found = imported(tmp_path, SETTLED + COMMAND, "run", "net.pgraph", *inputs)
    assert packages(found) <= COMMAND_LINE | {
        "numpy",
        "ml_dtypes",
        "platformdirs",
        "cython_runtime",
    }
    assert not rooms(found) & {"compiler", "dialects", "builder", "training", "session", "hosted"}
    passes = {name for name in found if name.startswith("popgraph.passes.")}
    assert not {name for name in passes if name.count(".") > 2}, "options need no pass"
    assert len([name for name in found if name.startswith("popgraph")]) < 100


TRAINING = """
import sys

import numpy as np

import popgraph

x, labels = np.zeros((8, 3), np.float32), np.zeros(8, np.int64)
popgraph.train(sys.argv[1], (x, labels), "cross_entropy", "Adam(0.01)", epochs=1)
"""
UNUSED = {
    "onnx.reference",
    "popgraph.popart.api.builder",
    "popgraph.cli",
    "popgraph.operators.microsoft.call",
    "popgraph.ipu",
    "popgraph.operators.recurrent",
    "popgraph.operators.ml.tree_ensembles",
    "popgraph.popart",
    "popgraph.viewer",
    "xdsl.dialects.linalg",
    "xdsl.dialects.llvm",
}
"""Modules for other kinds of models and runs, which must not be imported."""


def test_a_cold_training_imports_only_what_a_small_network_needs(tmp_path: Path) -> None:
    """About 675 modules of this package: 100 more cost 0.03 s of every cold start."""
    model = tmp_path / "net.pgraph"
    model.write_text(MODEL)
    found = imported(tmp_path, TRAINING, str(model))
    assert not found & UNUSED
    assert len([name for name in found if name.startswith("popgraph")]) < 680
    assert len([name for name in found if name.startswith("onnx")]) < 45


COLD_RUN = """
import sys

import numpy as np

import popgraph

popgraph.compile(sys.argv[1])(x=np.ones((4, 3), np.float32))
"""


SAME_SOURCES = """
from popgraph.backends.c.cache import program_key

program_key.sources = lambda: "the same"  # Also right after somebody has edited a module.
"""


def dense(tmp_path: Path, factor: float) -> str:
    """The file of an ONNX model with one layer."""
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["h"]), helper.make_node("Relu", ["h"], ["y"])],
        "net",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [4, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [4, 2])],
        [numpy_helper.from_array(np.full((3, 2), factor, np.float32), "w")],
    )
    model = tmp_path / f"{factor}.onnx"
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), model)
    return str(model)


def test_a_cold_run_imports_only_what_a_small_network_needs(tmp_path: Path) -> None:
    """About 500 modules of this package, without training and other operators."""
    found = imported(tmp_path, COLD_RUN, dense(tmp_path, 1))
    assert not found & (UNUSED | {"lark", "popgraph.engine", "popgraph.training"})
    assert len([name for name in found if name.startswith("popgraph")]) < 520
    assert len([name for name in found if name.startswith("onnx")]) < 35


def test_known_kernels_import_no_kernel_writers(tmp_path: Path) -> None:
    first = imported(tmp_path, SAME_SOURCES + COLD_RUN, dense(tmp_path, 1))
    found = imported(tmp_path, SAME_SOURCES + COLD_RUN, dense(tmp_path, 2))
    writers = ("popgraph.passes.structured.to_loops.emit", "popgraph.backends.c.print.statements")
    assert {*writers} <= first
    assert not {name for name in found if name.startswith(writers)}
    assert "xdsl.dialects.complex" not in found


MAPPED = """
from xdsl.parser import Parser

from popgraph.dialects.registry import IRContext

text = "#tile.mapping<[64, 512] in [16, 128] at [4, 1], runs of 1024 at [2, 16], from 8>"
assert str(Parser(IRContext(), text).parse_attribute()) == text
"""


@pytest.mark.parametrize("script", [COLD_RUN, MAPPED], ids=["a run", "the text of a mapping"])
def test_the_model_of_an_ipu_is_imported_for_a_device_only(tmp_path: Path, script: str) -> None:
    """IR with tile mappings parses without the model, since any process may read it."""
    model = tmp_path / "net.pgraph"
    model.write_text(MODEL)
    assert "ipu" not in rooms(imported(tmp_path, script, str(model)))


GUEST = """
import runpy, sys

sys.argv[1:1] = ["-c"]
runpy.run_module("popgraph.compat", run_name="__main__")
"""


@pytest.mark.parametrize("module", ["popart", "poponnx", "popdist"])
def test_importing_the_guest_imports_no_compiler(tmp_path: Path, module: str) -> None:
    """320 modules, most of them NumPy's; all that a session needs are 1,200."""
    found = imported(tmp_path, GUEST, f"import {module}")
    assert packages(found) - ALIASES.keys() <= NUMPY | {"typing_extensions"}
    assert rooms(found) <= {"builder", "compat", "engine", "passes", "popart", "support"}
    assert len([name for name in found if name.startswith("popgraph")]) < 61


@pytest.mark.parametrize("era", ["2018-12", "2020-05"])
def test_popart_eras_import_lazily(tmp_path: Path, era: str) -> None:
    text = "import popart, poponnx; poponnx.ReductionType, popart.SessionOptions"
    found = imported(tmp_path, GUEST.replace('["-c"]', f'["--era", "{era}", "-c"]'), text)
    assert "popgraph.popart.eras.sessions" not in found
    assert not rooms(found) & {"compiler", "training"}


IMPORTING = """
import gc

from popgraph.support.garbage import while_importing

with while_importing():
    import colorsys

    built = [[] for _ in range(1000)]  # More than the collector lets pass without a search.
assert gc.isenabled()
old = {id(one) for one in gc.get_objects(generation=2)}
assert {id(colorsys), id(built), *map(id, built)} <= old

with while_importing():
    import colorsys

    built = [[] for _ in range(100)]
assert not {id(built), *map(id, built)} & {id(one) for one in gc.get_objects(generation=2)}
"""


def test_imports_are_frozen_for_the_garbage_collector(tmp_path: Path) -> None:
    """Runs in a process of its own, since that of the tests has frozen its imports."""
    assert "popgraph.support.garbage" in imported(tmp_path, IMPORTING)


FROZEN = """
import gc

atexit.register(lambda: print(len(gc.get_objects()), "objects left"))
"""


def test_a_command_leaves_no_objects_to_the_garbage_collector(tmp_path: Path) -> None:
    """Its last search for cycles would take longer than most of what precedes it."""
    command = [sys.executable, "-c", "import atexit" + FROZEN + COMMAND, "--help"]
    done = subprocess.run(command, capture_output=True, text=True)
    (left,) = re.findall(r"(\d+) objects left", done.stdout)
    assert int(left) < 1000
