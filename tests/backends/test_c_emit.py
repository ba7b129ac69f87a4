"""Tests that emitted C builds with a plain compiler and computes what the executable does."""

from __future__ import annotations

import ctypes
import json
import re
import shlex
import subprocess
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner
from xdsl.builder import ImplicitBuilder
from xdsl.dialects import arith, memref
from xdsl.dialects.builtin import (
    IntegerAttr,
    MemRefType,
    ModuleOp,
    f32,
    i64,
)
from xdsl.ir import SSAValue

import popgraph
import tests.backends.c_kernels as kernels
from popgraph.backends.c.build.toolchain import candidates, probe
from popgraph.backends.c.build_program import build
from popgraph.backends.c.emit import emit, header, sources
from popgraph.backends.c.print import program as printer
from popgraph.cli import app
from popgraph.dialects.program import DataAttr, WeightStore
from popgraph.dialects.tile import BufferOp, CallOp, ProgramOp
from popgraph.support.errors import BackendError

MEMORY = MemRefType(f32, [4])
WEIGHTS = np.array([1.0, 2.0, 3.0, 4.0], np.float32)


def module(result: str = "y") -> ModuleOp:
    """prepare: twice = w + w; run: y = x + twice, in chunks, and seen += x."""

    def add(chunk: SSAValue, a: SSAValue, b: SSAValue, y: SSAValue) -> None:
        found = arith.AddfOp(memref.LoadOp.get(a, [chunk]), memref.LoadOp.get(b, [chunk]))
        memref.StoreOp.get(found, y, [chunk])

    op = kernels.function("add", [MEMORY] * 3, add)
    program = ProgramOp("main", 0, 64, 0)
    chunks = IntegerAttr(4, i64)
    with ImplicitBuilder(program.prepare.block):
        weights = BufferOp("constant", MEMORY, literal=DataAttr.of(WEIGHTS)).memory
        CallOp("add", [weights, weights, BufferOp("persistent", MEMORY).memory], chunks)
    with ImplicitBuilder(program.body.block):
        x = BufferOp("input", MEMORY, label="image/x").memory
        y = BufferOp("output", MEMORY, label=result).memory
        first = DataAttr.of(np.zeros(4, np.float32))
        seen = BufferOp("variable", MEMORY, label="seen", literal=first).memory
        CallOp("add", [x, BufferOp("persistent", MEMORY).memory, y], chunks)
        CallOp("add", [seen, x, seen], chunks)
    return ModuleOp([op, program])


USER = """
#include <stdint.h>
#include <stdio.h>
#include "main.h"
static _Alignas(64) char persistent[MAIN_PERSISTENT_BYTES];
static _Alignas(64) float weights[] = {1, 2, 3, 4}, x[] = {10, 20, 30, 40}, y[4], seen[4];
int main(void) {
    void *memory[MAIN_SLOTS] = {
        [MAIN_THREADS] = (void *)(intptr_t)2, [MAIN_PERSISTENT] = persistent,
        [CONSTANT] = weights, [MAIN_INPUT_IMAGE_X] = x, [MAIN_OUTPUT_Y] = y,
        [MAIN_VARIABLE_SEEN] = seen,
    };
    main_prepare(memory);
    main_run(memory);
    main_run(memory);
    for (int i = 0; i < 4; i++) printf("%g %g\\n", y[i], seen[i]);
    return 0;
}
"""


def test_a_c_program_calls_emitted_c(tmp_path: Path) -> None:
    files = emit(module(), WeightStore())
    headers = [
        "conversions.h",
        "derived.h",
        "functions.h",
        "main.h",
        "pool.h",
        "portable.h",
        "runtime.h",
        "vectors.h",
    ]
    others = ["kernels.c", "program.c", "program.json", "memory_5.bin", "memory_6.bin"]
    assert sorted(files) == sorted([*headers, *others])
    for name, parts in files.items():
        (tmp_path / name).write_bytes(b"".join(parts))
    assert (tmp_path / "memory_6.bin").read_bytes() == WEIGHTS.tobytes()
    described = (tmp_path / "main.h").read_text()
    found = re.search(r"(MAIN_CONSTANT_\d+) = .*f32 4, 16 bytes, read by prepare", described)
    assert found is not None
    (tmp_path / "user.c").write_text(USER.replace("CONSTANT]", f"{found[1]}]"))
    command = ["cc", "-std=c11", "-Wall", "-Werror", "-pthread", "user.c", "program.c"]
    subprocess.run([*command, "kernels.c", "-lm", "-o", "user"], cwd=tmp_path, check=True)
    done = subprocess.run(["./user"], cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout == "12 20\n24 40\n36 60\n48 80\n"


@pytest.mark.parametrize("most", [1, 1000])
def test_split_steps_compute_the_same(most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(printer, "MOST_CALLS", most)
    made = build(module(), WeightStore(), threads=2)
    x = np.array([10, 20, 30, 40], np.float32)
    assert made.run({"image/x": x})["y"].tolist() == [12, 24, 36, 48]
    assert made.read("seen").tolist() == [10, 20, 30, 40]


def test_a_step_of_many_calls_is_several_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = sources(module())["program.c"]
    monkeypatch.setattr(printer, "MOST_CALLS", 2)
    assert sources(module())["program.c"] == whole, "as many as one function may have"
    monkeypatch.setattr(printer, "MOST_CALLS", 1)
    source = sources(module())["program.c"]
    _, step = source.split("void main_run(void *const *memory) {")
    calls = [line.strip() for line in step.split("}")[0].splitlines() if line]
    assert calls == ["main_run_part_0(memory);", "main_run_part_1(memory);"]
    assert "main_prepare_part" not in source


def test_labels_cannot_break_out_of_comments() -> None:
    assert '/* "y */ of two": f32 4' not in (text := header(module("y */ of two")))
    assert '/* "y * / of two": f32 4' in text


def test_a_missing_program_is_named() -> None:
    with pytest.raises(BackendError, match=r"no tile\.program 'train'"):
        sources(module(), "train")


def test_only_threaded_programs_contain_the_thread_pool() -> None:
    """A program for one thread uses neither pthread nor signals."""
    alone, several = sources(module(), threads=1), sources(module(), threads=2)
    assert "pool.h" in several
    assert "serial.h" not in several
    assert "serial.h" in alone
    assert not re.search("pthread|sigfillset", "".join(alone.values()))


def test_the_build_line_names_compiler_and_flags() -> None:
    alone, several = header(module(), threads=1), header(module(), threads=2)
    (compiler,) = (one for one in [next(candidates())] if not probe(one).reason)
    flags = probe(compiler).flags
    for text in (alone, several):
        assert f"{compiler.name} {' '.join(flags)} -std=gnu11 -O2" in text
    assert "-pthread" in several
    assert "-pthread" not in alone


ROWS = "graph rows(x: f32[N, 6]) -> y {\n weight w: f32[6, 9] = he_normal\n y = Relu(x @ w)\n}"


def test_the_description_of_a_program_names_its_sizes(tmp_path: Path) -> None:
    """A program for many sizes runs when called as program.json describes."""
    (tmp_path / "rows.pgraph").write_text(ROWS)
    arguments = ["emit", tmp_path / "rows.pgraph", "-o", tmp_path / "c", "--dim", "N=..8"]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    described = json.loads((tmp_path / "c/program.json").read_text())
    (size,) = described["sizes"]
    assert (size["name"], size["bound"]) == ("N", 8)
    assert (
        '"N" is a size of a run, 1 to 8: axis 0 of "x", axis 0 of "y"'
        in (tmp_path / "c/main.h").read_text()
    )
    subprocess.run(shlex.split(described["build"]), cwd=tmp_path / "c", check=True)
    library = ctypes.CDLL(str(tmp_path / "c/model.so"))
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)
    y = np.zeros((5, 9), np.float32)
    given = {"N": np.array(5), "x": x, "y": y}
    arrays = []
    for entry in described["memory"]:
        sizes = {"arena": described["arena"], "persistent": described["persistent"]}
        array = given.get(entry.get("name", ""), np.zeros(sizes.get(entry["space"], 0) + 64))
        if "file" in entry:
            array = np.fromfile(tmp_path / "c" / entry["file"], np.float32)
        arrays.append(array)
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    pointers[0] = 1
    library.main_prepare(pointers)
    library.main_run(pointers)
    expected = popgraph.compile(ROWS, backend="reference")(x=x)["y"]
    np.testing.assert_allclose(y, expected, 1e-5, 1e-6)
