"""Benchmarks one model as exported C beside the C that emx-onnx-cgen writes, as JSON."""

from __future__ import annotations

import argparse
import ctypes
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from models import known, model

from popgraph.backends.c.build.toolchain import candidates
from popgraph.measure.timing import Contestant, pin, race
from popgraph.support.arrays import Array

FLAGS = ("-O3", "-march=native", "-std=c11")
"""Compiler flags of the other program, which is faster than with -O2. Our Makefile has its own."""


def run(*command: str | Path) -> str:
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
    if done.returncode:
        lines = (done.stderr or done.stdout).strip().splitlines()
        raise SystemExit(f"Error: {lines[-1] if lines else command}")
    return done.stdout


def code_bytes(file: Path) -> int:
    """Size of the machine code, without tables."""
    lines = run("size", "-A", file).splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith(".text"))


Bind = Callable[[list[Array], list[Array]], Callable[[], object]]
"""Binds inputs and outputs to a call without further preparation."""


def ours(path: Path, folder: Path) -> tuple[Bind, int]:
    """Exports the model, builds it by its Makefile, and links it as a library."""
    run(sys.executable, "-m", "popgraph", "export", path, "-o", folder)
    run("make", "-C", folder, "check", f"CC={os.environ['CC']} -fPIC")
    library = folder / "model.so"
    run(os.environ["CC"], "-shared", *folder.glob("model*.o"), "-lm", "-o", library)
    loaded = ctypes.CDLL(str(library))
    loaded.model_new.restype = ctypes.c_void_p
    held = ctypes.c_void_p(loaded.model_new())

    def bind(inputs: list[Array], outputs: list[Array]) -> Callable[[], object]:
        read, written = pointers(inputs), pointers(outputs)
        assert loaded.model_run(held, read, written) == 0
        return lambda: loaded.model_run(held, read, written)

    return bind, code_bytes(folder / "model.o")


def theirs(path: Path, folder: Path) -> tuple[Bind, int]:
    """Compiles the output of emx-onnx-cgen, with embedded weights."""
    source, made, library = folder / "model.c", folder / "model.o", folder / "model.so"
    keeps = ("--large-weight-threshold", "0")
    run(sys.executable, "-m", "emx_onnx_cgen", "compile", *keeps, path, source)
    run(os.environ["CC"], *FLAGS, "-fPIC", "-c", source, "-o", made)
    run(os.environ["CC"], "-shared", made, "-lm", "-o", library)
    loaded = ctypes.CDLL(str(library))

    def bind(inputs: list[Array], outputs: list[Array]) -> Callable[[], object]:
        given = [ctypes.c_void_p(array.ctypes.data) for array in (*inputs, *outputs)]
        return lambda: loaded.model(*given)

    return bind, code_bytes(made)


def pointers(arrays: list[Array]) -> ctypes.Array[ctypes.c_void_p]:
    """A struct of pointers to these arrays."""
    return (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))


def arrays(infos: Any, rng: np.random.Generator) -> list[Array]:
    """Random arrays with the types and shapes of a graph."""
    found = []
    for info in infos:
        tensor = info.type.tensor_type
        shape = [dim.dim_value for dim in tensor.shape.dim]
        assert all(shape), f"{info.name} has a size that is not known"
        dtype = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        found.append(np.ascontiguousarray(rng.standard_normal(shape)).astype(dtype))
    return found


def ram(folder: Path) -> int:
    """The RAM according to our header."""
    said = re.search(r"MODEL_MEMORY_BYTES (\d+)", (folder / "model.h").read_text())
    assert said is not None
    return int(said[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("name", type=known)
    parser.add_argument("--threads", type=int, choices=[1], default=1)
    parser.add_argument("--seconds", type=float, default=3, help="at least")
    parser.add_argument("--rounds", type=int, default=15, help="at least")
    arguments = parser.parse_args()
    os.environ.setdefault("CC", next(iter(candidates())).command[0])
    with tempfile.TemporaryDirectory() as name:
        print(json.dumps(measured(arguments, Path(name))))


def measured(arguments: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Times and sizes of both, and the difference of their results."""
    path = folder / "model.onnx"
    proto = onnx.shape_inference.infer_shapes(model(arguments.name))
    onnx.save(proto, path)
    held = {each.name for each in proto.graph.initializer}
    rng = np.random.default_rng(0)
    inputs = arrays([one for one in proto.graph.input if one.name not in held], rng)
    contestants, results, code = [], [], []
    for who, make in (("ours", ours), ("theirs", theirs)):
        (folder / who).mkdir()
        bind, size = make(path, folder / who)
        results.append(arrays(proto.graph.output, rng))
        contestants.append(Contestant(who, bind(inputs, results[-1])))
        code.append(size)
    pin(1)
    race(contestants, threads=1, seconds=arguments.seconds, rounds=arguments.rounds)
    apart = max(
        float(np.max(np.abs(one - other)) / max(1e-30, np.max(np.abs(other))))
        for one, other in zip(*results, strict=True)
    )
    return {
        "model": arguments.name,
        "ours_ms": contestants[0].best * 1e3,
        "theirs_ms": contestants[1].best * 1e3,
        "code": code,
        "ram": ram(folder / "ours"),
        "differ_by": apart,
    }


if __name__ == "__main__":
    main()
