"""
Counts instructions of the generated code, and compares with stored counts.

There are two counts per step of a few small models. One is computed from the final IR: operations
on floats and memory in the loops of all kernels. The other is the processor's instructions,
counted by valgrind; it depends on the compiler, whose version is stored with it.

    python benchmarks/instructions.py            compare with benchmarks/instructions.json
    python benchmarks/instructions.py --write    store the new counts
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path

import numpy as np
import onnx
from models import light, with_random_weights
from onnx import TensorProto, helper, numpy_helper
from xdsl.ir import Attribute

from popgraph import zoo
from popgraph.backends.c.build.toolchain import FLAGS, GCC_FLAGS
from popgraph.compiler import load, lower
from popgraph.dialects.tile.program.ops import find_program
from popgraph.dialects.tile.program.work import Counter
from popgraph.passes.onnx.infer_shapes import specialise
from popgraph.passes.options import Options
from popgraph.support.dtypes import DTYPES
from popgraph.support.machine import PRESETS, TARGETS
from popgraph.support.shapes import Shape

HERE = Path(__file__).parent
STORED = HERE / "instructions.json"
EXAMPLES = HERE.parent / "examples"
TOLERANCE = 0.02
TEXTS: dict[str, dict[str, Shape | Attribute]] = {
    "mlp": {"x": (1, 64)},
    "lenet": {"image": (1, 1, 28, 28)},
    "quantized": {"x": (1, 64)},
    "mlp_bf16": {"x": (1, 64)},
}
"""{example, or network of the zoo: shape of its input}."""
HALVES = "_bf16"
"""Suffix of examples that are converted to half precision."""
MODELS = (*TEXTS, "squeezenet", "lstm")
TARGET, MARCH = "avx2", "-march=x86-64-v3"
"""Valgrind does not support AVX-512."""
C = "c"
"""The folder of emitted C."""


def model(name: str, folder: Path) -> Path:
    """The model as a file, for one image or one row."""
    if name.endswith(HALVES):
        text = (EXAMPLES / f"{name.removesuffix(HALVES)}.pgraph").read_text()
        path = folder / f"{name}.pgraph"
        path.write_text(re.sub(r"\bf32\b", "bf16", text))
        return path
    if name in TEXTS:
        folder = zoo.FOLDER if name in zoo.names() else EXAMPLES
        return folder / f"{name}.pgraph"
    path = folder / f"{name}.onnx"
    made = lstm(16, 64) if name == "lstm" else with_random_weights(light(name))
    onnx.save(made, path)
    return path


def lstm(steps: int, units: int) -> onnx.ModelProto:
    """An LSTM layer for one sequence, with as many input features as units."""
    rng = np.random.default_rng(0)
    shapes = {"w": (1, 4 * units, units), "r": (1, 4 * units, units), "b": (1, 8 * units)}
    drawn = {name: 0.1 * rng.standard_normal(shape) for name, shape in shapes.items()}
    graph = helper.make_graph(
        [helper.make_node("LSTM", ["x", *drawn], ["y"], hidden_size=units)],
        "lstm",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [steps, 1, units])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [steps, 1, 1, units])],
        [numpy_helper.from_array(array.astype(np.float32), name) for name, array in drawn.items()],
    )
    opsets = [helper.make_opsetid("", 14)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def static_count(name: str) -> dict[str, int]:
    """
    Operation counts of one step, from the loops of its kernels.

    Vectors have 32 bytes, for halves 64.
    """
    with tempfile.TemporaryDirectory() as folder:
        module, compilation = load(model(name, Path(folder)))
    if name in TEXTS:
        specialise(module, TEXTS[name], compilation.weights)
    machine = PRESETS["zen4"] if name.endswith(HALVES) else TARGETS[TARGET]
    lower(module, compilation, Options(machine=machine))
    program = find_program(module, "main")
    return asdict(Counter(module).calls(program.body.block.ops))


def compiler() -> str:
    """The first line of `cc --version`; "" if it is absent."""
    if shutil.which("cc") is None:
        return ""
    done = subprocess.run(["cc", "--version"], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]


def obstacle() -> str:
    """The reason why instructions cannot be counted here; "" if they can."""
    if platform.machine() not in ("x86_64", "AMD64") or platform.system() != "Linux":
        return "instructions are counted on x86-64 Linux only"
    if shutil.which("valgrind") is None:
        return "valgrind is not installed (apt-get install valgrind)"
    if not compiler() or "clang" in compiler():
        return "cc is not GCC, by whose code the counts were made"
    return ""


def instructions(name: str) -> int:
    """The processor's instructions in one step."""
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        emit(name, folder)
        return counted(folder)


def emit(name: str, folder: Path) -> None:
    """Writes the C of a model into a folder."""
    command = [sys.executable, "-m", "popgraph", "emit", str(model(name, folder))]
    command += ["-o", str(folder / C)]
    dims = ["--dim", "N=1"] if name in TEXTS else []
    environment = {**os.environ, "CC": "cc", "POPGRAPH_TARGET": TARGET}
    subprocess.run([*command, *dims], env=environment, capture_output=True, check=True)


def counted(folder: Path) -> int:
    """Builds a program that runs one step of the C in a folder, and counts its instructions."""
    source, program, result = folder / C, folder / "step", folder / "callgrind.out"
    subprocess.run(
        [
            *("cc", *FLAGS, *GCC_FLAGS, MARCH, f"-I{source}", str(HERE / "step.c")),
            *(str(source / "program.c"), str(source / "kernels.c"), "-lm", "-o", str(program)),
        ],
        capture_output=True,
        check=True,
    )
    subprocess.run(
        [
            *("valgrind", "--tool=callgrind", "--collect-atstart=no"),
            *("--toggle-collect=main_run", f"--callgrind-out-file={result}"),
            *(str(program), *map(str, memory(source))),
        ],
        capture_output=True,
        check=True,
        cwd=folder,
    )
    total = re.search(r"^(?:summary|totals): (\d+)", result.read_text(), re.MULTILINE)
    assert total, "callgrind says nothing"
    return int(total[1])


def memory(source: Path) -> list[int | str]:
    """The size, or a file with the content, of each entry of the memory table."""
    described = json.loads((source / "program.json").read_text())
    sizes = {dtype.name: dtype.numpy.itemsize for dtype in DTYPES}
    entries: list[int | str] = []
    for slot in described["memory"][1:]:
        if "file" in slot:
            entries.append(str(source / slot["file"]))
        elif "shape" in slot:
            entries.append(int(np.prod(slot["shape"], dtype=np.int64)) * sizes[slot["dtype"]])
        else:
            entries.append(described[slot["space"]])
    return entries


def count() -> dict[str, object]:
    """All counts that are possible on this machine."""
    found: dict[str, object] = {"static": {name: static_count(name) for name in MODELS}}
    if not obstacle():
        found["compiler"] = compiler()
        found["instructions"] = {name: instructions(name) for name in MODELS}
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--write", action="store_true", help=f"into {STORED.name}")
    arguments = parser.parse_args()
    found = count()
    print(json.dumps(found, indent=1))
    if arguments.write:
        STORED.write_text(json.dumps(found, indent=1) + "\n")
        return
    print("kept:", STORED.read_text(), sep="\n")


if __name__ == "__main__":
    main()
