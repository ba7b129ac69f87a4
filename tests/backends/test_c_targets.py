"""Tests other vector widths, processors and compilers against the reference."""

from __future__ import annotations

import importlib.util
import json
import platform
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph import compiler
from popgraph.backends.c.build.target import host_target
from popgraph.backends.c.build.toolchain import FLAGS, Compiler, probe
from popgraph.backends.c.emit import emit
from popgraph.backends.c.print.layout import Layout
from popgraph.backends.c.print.unit import HERE
from popgraph.cli import app
from popgraph.dialects.tile.program.ops import find_program
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.support.dtypes import BY_NAME
from popgraph.support.errors import BackendError
from popgraph.support.machine import DOTPROD
from popgraph.support.machine import TARGETS as MACHINES
from tests.emulated import Process
from tests.sampling import WHOLE

ZIG = [sys.executable, "-m", "ziglang", "cc"]
needs_zig = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="ziglang is not installed"
)

NETWORK = """
opset 21

graph lenet(x: f32[2, 1, 28, 28]) -> (y) {
    weight w1: f32[6, 1, 5, 5] = he_normal(seed=1)
    weight b1: f32[6] = normal(std=0.1, seed=2)
    weight w2: f32[16, 6, 5, 5] = he_normal(seed=3)
    weight w3: f32[256, 84] = he_normal(seed=4)
    weight w4: f32[84, 10] = he_normal(seed=5)

    p1 = MaxPool(Relu(Conv(x, w1, b1)), kernel_shape=[2, 2], strides=[2, 2])
    p2 = AveragePool(Tanh(Conv(p1, w2)), kernel_shape=[2, 2], strides=[2, 2])
    y = Softmax(Gelu(Flatten(p2) @ w3) @ w4, axis=-1)
}
"""
CONVOLUTION = """
opset 21

graph convolution(x: T[2, 8, 9, 11]) -> (y) {
    weight w: T[24, 4, 3, 3] = he_normal(seed=1)
    weight b: T[24] = normal(std=0.1, seed=2)
    y = Relu(Conv(x, w, b, group=2, pads=[1, 1, 1, 1], strides=[1, 2]))
}
"""
PRODUCT = """
opset 22

graph product(x: T[5, 33]) -> (y) {
    weight w: T[33, 37] = he_normal(seed=1)
    y = Sigmoid(x @ w) + Sin(ReduceMean(x, [1], keepdims=1))
}
"""
FUNCTIONS = """
opset 21

graph functions(x: f32[5, 33]) -> (y, z, b) {
    half = Cast(x, to=f16)
    y = Cast(Exp(half) * half, to=f32) + Cast(Cast(x * 9.0, to=i8), to=f32)
    z = Pow(Abs(x), x) - Floor(x)
    least = Cast(ReduceMin(Round(x), keepdims=0), to=i32)
    b = ReduceMax(Cast(x * 100.0, to=i32), keepdims=0) + least
}
"""
ATTENTION = """
opset 21

graph attention(x: f32[2, 7, 32]) -> (y) {
    weight q: f32[32, 32] = he_normal(seed=1)
    weight k: f32[32, 32] = he_normal(seed=2)
    weight v: f32[32, 32] = he_normal(seed=3)
    weight scale: f32[32] = ones
    weight shift: f32[32] = zeros
    n = LayerNormalization(x, scale, shift)
    scores = Softmax((n @ q) @ Transpose(n @ k, perm=[0, 2, 1]) * 0.177, axis=-1)
    y = x + scores @ (n @ v)
}
"""
NORMALIZED = """
opset 21

graph normalized(x: f32[2, 6, 7, 5]) -> (y, total) {
    weight scale: f32[6] = normal(mean=1.0, std=0.1, seed=1)
    weight shift: f32[6] = normal(std=0.1, seed=2)
    n = InstanceNormalization(LRN(x, size=3), scale, shift)
    y = LogSoftmax(Where(n > x, n, Tan(x)), axis=1)
    total = ReduceL2(y, keepdims=0)
}
"""
DEPTHWISE = """
opset 21

graph depthwise(x: f32[1, 16, 13, 9]) -> (y) {
    weight w: f32[16, 1, 3, 3] = he_normal(seed=1)
    weight p: f32[24, 16, 1, 1] = he_normal(seed=2)
    h = Clip(Conv(x, w, group=16, pads=[1, 1, 1, 1]), 0.0, 6.0)
    g = Conv(Pad(h, [0, 0, 1, 0, 0, 0, 0, 2]), p)
    y = Concat(g, Expand(ReduceMean(g, [2, 3]), [1, 24, 14, 11]), axis=1)
}
"""
TRANSPOSED = """
opset 21

graph transposed(x: f32[2, 6, 5, 4]) -> (y) {
    weight w: f32[6, 4, 3, 3] = he_normal(seed=1)
    y = CumSum(LeakyRelu(ConvTranspose(x, w, strides=[2, 2], pads=[1, 1, 1, 1])), 2)
}
"""
INTEGERS = """
opset 21

graph integers(x: f32[6, 50]) -> (y, best, rows) {
    whole = Cast(x * 1000.0, to=i64)
    y = Mod(whole, 7) + whole / 3
    best = ArgMax(Cast(x * 50.0, to=i8), axis=1)
    rows = Gather(Max(Cast(x * 9.0, to=i32), Cast(Abs(x), to=i32)), [5, 0, -2])
}
"""
QUANTIZED = """
opset 21

graph quantized(x: f32[2, 9, 8, 7]) -> (y) {
    weight w: f32[12, 9, 3, 3] = normal(std=0.1, seed=1)
    weight m: f32[672, 10] = normal(std=0.1, seed=2)
    a = DequantizeLinear(QuantizeLinear(x, 0.03, Cast(121, to=u8)), 0.03, Cast(121, to=u8))
    c = DequantizeLinear(QuantizeLinear(w, 0.004, Cast(0, to=i8)), 0.004, Cast(0, to=i8))
    h = Relu(Conv(a, c, pads=[1, 1, 1, 1]))
    b = DequantizeLinear(QuantizeLinear(h, 0.02, Cast(0, to=u8)), 0.02, Cast(0, to=u8))
    d = DequantizeLinear(QuantizeLinear(m, 0.004, Cast(0, to=i8)), 0.004, Cast(0, to=i8))
    y = Flatten(b) @ d
}
"""
GRAPHS = {
    "lenet": NETWORK,
    **{f"convolution_{kind}": CONVOLUTION.replace("T", kind) for kind in ("f32", "f16", "f64")},
    **{f"product_{kind}": PRODUCT.replace("T", kind) for kind in ("f32", "bf16", "f64")},
    "functions": FUNCTIONS,
}
MORE = {
    "attention": ATTENTION,
    "normalized": NORMALIZED,
    "depthwise": DEPTHWISE,
    "transposed": TRANSPOSED,
    "integers": INTEGERS,
    "quantized": QUANTIZED,
}
"""Further graphs, tried where all cases run (`make targets`)."""
LEAST = {"f16": 4e-3, "bf16": 4e-2}
"""Tolerances of results narrower than f32."""


@pytest.fixture(params=GRAPHS | MORE if WHOLE else GRAPHS)
def graph(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return written(request.param, tmp_path)


@pytest.fixture(params=GRAPHS | MORE if WHOLE else ["lenet", "functions"])
def few_graphs(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return written(request.param, tmp_path)


def written(name: str, folder: Path) -> Path:
    path = folder / f"{name}.pgraph"
    path.write_text((GRAPHS | MORE)[name])
    return path


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPGRAPH_CACHE_DIR", str(tmp_path / "cache"))


def inputs(path: Path) -> dict[str, Array]:
    dtype, shape = re.search(r"x: (\w+)\[([\d, ]+)\]", path.read_text()).groups()  # type: ignore[union-attr]
    sizes = [int(size) for size in shape.split(",")]
    x = np.random.default_rng(0).standard_normal(sizes)
    return {"x": x.astype(BY_NAME[dtype].numpy)}


def check(path: Path, found: dict[str, Array]) -> None:
    wanted = popgraph.compile(path, backend="reference")(inputs(path))
    tolerance = LEAST.get(path.stem.split("_")[-1], 2e-3 if path.stem == "functions" else 2e-5)
    assert wanted.keys() == found.keys()
    for name, array in wanted.items():
        exact, other = array.astype(np.float64), found[name].astype(np.float64)
        np.testing.assert_allclose(other, exact, tolerance, tolerance, err_msg=name)


def has(flag: str) -> bool:
    """Whether this machine has a CPU feature."""
    try:
        return flag in Path("/proc/cpuinfo").read_text().split()
    except OSError:
        return False


TARGETS = [
    pytest.param(name, marks=pytest.mark.skipif(not has(flag), reason=f"no {flag} here"))
    for name, flag in (("sse2", "sse2"), ("avx2", "avx2"), ("avx512", "avx512vl"))
]


@pytest.mark.parametrize("name", TARGETS)
def test_every_vector_width_computes_the_same(
    name: str, graph: Path, cache: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("POPGRAPH_TARGET", name)
    assert host_target().name == name
    check(graph, popgraph.compile(graph)(inputs(graph)))


@needs_zig
def test_clang_computes_the_same(graph: Path, cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", shlex.join(ZIG))
    check(graph, popgraph.compile(graph)(inputs(graph)))


LANES = """
#include "runtime.h"
typedef f32 f32x8 __attribute__((vector_size(32)));
f32x8 tanh_of_lanes(f32x8 x) {
    return POPGRAPH_LANES(f32x8, f32, f32x8, f32, 8, popgraph_tanhf, x);
}
"""


def tuned(machine: str, text: str) -> str:
    """The assembly of C that is compiled and tuned for a machine."""
    compiler = Compiler(("cc", f"-mtune={machine}"), f"tuned for {machine}", "avx2")
    asked = probe(compiler)
    if asked.reason:
        pytest.skip(f"cc makes no code for {machine}: {asked.reason}")
    options = [*asked.flags, *FLAGS, f"-I{HERE}", "-S", "-o", "-", "-x", "c", "-"]
    done = compiler.run(options, text)
    assert done.good, done.reason
    return done.output


def test_functions_on_lanes_use_whole_vectors() -> None:
    """Two halves of a vector go through memory: a function on all lanes takes 1.5 times as long."""
    code = tuned("znver1", LANES)
    assert re.search(r"mul\w*ps.*%ymm", code)
    assert not re.search(r"mul\w*ps.*%xmm", code)


POWERS = LANES.replace("f32x8 tanh_of_lanes", "f32x8 cubes_of_lanes").replace(
    "return POPGRAPH_LANES(f32x8, f32, f32x8, f32, 8, popgraph_tanhf, x);",
    """
    union { f32x8 v; f32 s[8]; } from = {.v = x}, to;
    for (int k = 0; k < 8; k++)
        to.s[k] = popgraph_powf(from.s[k], 3.1f) + popgraph_powf(from.s[k], from.s[k]);
    return to.v;
    """,
)


def test_functions_with_two_calls_are_vectorized() -> None:
    """A call would compute one lane after the other."""
    code = tuned("haswell", POWERS)
    assert "popgraph_powf" not in code
    assert re.search(r"fmadd\w*pd.*%ymm", code)


def test_special_cases_of_log_are_one_mask_each() -> None:
    """One mask each for subnormals, zero, infinity and arguments without a logarithm."""
    code = tuned("haswell", LANES.replace("popgraph_tanhf", "popgraph_logf"))
    assert len(re.findall(r"\tvcmp\w*ps", code)) <= 5, "one of them is for integers, too"


@pytest.mark.skipif(platform.machine() != "x86_64", reason="only x86 has such arithmetic")
@pytest.mark.parametrize("standard", ["-std=c11", "-std=gnu11"])
@pytest.mark.parametrize("arithmetic", ["387", "both", "sse"])
def test_x87_arithmetic_is_refused(arithmetic: str, standard: str) -> None:
    """Functions that split floats by bits would silently give wrong results."""
    compiler = Compiler(("cc", f"-mfpmath={arithmetic}"), arithmetic, "sse2")
    if probe(compiler).reason:
        pytest.skip(f"cc cannot be asked for it: {probe(compiler).reason}")
    done = compiler.run([standard, f"-I{HERE}", "-S", "-o", "-", "-x", "c", "-"], LANES)
    assert done.good == (arithmetic == "sse")
    assert done.good or "needs float arithmetic that is rounded to float" in done.reason


PRODUCTS = """
#include "runtime.h"
typedef f32 f32x8 __attribute__((vector_size(32)));
void rows(i64 terms, const f32 *a, const f32x8 *b, f32x8 *sums) {
    f32x8 s0 = sums[0], s1 = sums[1], s2 = sums[2];
    for (i64 n = 0; n < terms; n++) {
        const f32x8 v = POPGRAPH_KEPT(f32x8, b[n]);
        s0 += a[n] * v;
        s1 += a[n + 1024] * v;
        s2 += a[n + 2048] * v;
    }
    sums[0] = s0;
    sums[1] = s1;
    sums[2] = s2;
}
void window(i64 terms, const f32x8 *w, const f32x8 *x, f32x8 *sum) {
    f32x8 s = sum[0];
    for (i64 n = 0; n < terms; n++) {
        s += w[0] * x[n];
        s += w[1] * x[n + 1];
        s += w[2] * x[n + 2];
    }
    sum[0] = s;
}
"""


@pytest.mark.parametrize("machine", ["generic", "haswell", "znver3"])
def test_contractions_use_fma_and_load_vectors_once(machine: str) -> None:
    """With GCC 12's own cost tables of Zen, GEMM of 4 x 3 vectors took 1.4 times as long."""
    rows, window = tuned(machine, PRODUCTS).split("window:")
    assert len(re.findall(r"vfmadd\w+\s+%ymm\d+, %ymm", rows)) == 3
    assert not re.search(r"vfmadd\w+\s+\S*\(", rows)
    assert len(re.findall("vfmadd", window)) == 3
    assert "vaddps" not in window


def test_an_unknown_target_is_refused(cache: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPGRAPH_TARGET", "itanium")
    with pytest.raises(BackendError, match="there is no target 'itanium'") as caught:
        host_target()
    assert caught.value.hint == "set POPGRAPH_TARGET to native, avx512, avx2, sse2, neon"


@pytest.mark.parametrize(
    ("name", "wanted"), [("avx512", (64, 32)), ("avx2", (32, 16)), ("neon", (16, 32))]
)
def test_vectors_of_a_named_target_need_no_compiler(
    name: str, wanted: tuple[int, int], cache: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Emitted code is compiled elsewhere, so no working compiler is needed."""
    monkeypatch.setenv("POPGRAPH_TARGET", name)
    monkeypatch.setenv("CC", "/bin/false")
    found = host_target()
    assert (found.name, found.vector_bytes, found.registers) == (name, *wanted)
    (tmp_path / "net.pgraph").write_text(GRAPHS["product_f32"])
    arguments = ["emit", str(tmp_path / "net.pgraph"), "-o", str(tmp_path / "c")]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 0, result.output
    widths = set(re.findall(r"f32x(\d+)", (tmp_path / "c" / "kernels.c").read_text()))
    assert max(map(int, widths)) == wanted[0] // 4
    build = json.loads((tmp_path / "c" / "program.json").read_text())["build"]
    assert build.startswith("cc -std=gnu11" if name == "neon" else "cc -march=x86-64-v")


@pytest.mark.skipif(platform.machine() == "aarch64", reason="this machine has NEON")
def test_a_compiler_for_another_machine_is_refused(
    cache: None, monkeypatch: pytest.MonkeyPatch, graph: Path
) -> None:
    monkeypatch.setenv("POPGRAPH_TARGET", "neon")
    monkeypatch.setenv("CC", "cc")
    with pytest.raises(BackendError, match=r"cc \(it does not compile for neon\)"):
        popgraph.compile(graph)


# NEON: cross-compiled, and run under QEMU or Unicorn

DRIVER = """
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include "main.h"
static void *load(const char *name, size_t bytes) {
    void *memory = aligned_alloc(64, (bytes + 127) / 64 * 64);
    FILE *file = fopen(name, "rb");
    if (file) { if (fread(memory, 1, bytes, file) != bytes) exit(1); fclose(file); }
    return memory;
}
static void save(const char *name, const void *memory, size_t bytes) {
    FILE *file = fopen(name, "wb");
    fwrite(memory, 1, bytes, file);
    fclose(file);
}
int main(void) {
    void *memory[MAIN_SLOTS];
LINES
    return 0;
}
"""


def driver(
    path: Path, folder: Path, words: Sequence[str] = ()
) -> dict[str, tuple[Path, np.dtype[np.generic], list[int]]]:
    """Writes a NEON program and its data to `folder`; returns the paths of its outputs."""
    module, compilation = compiler.load(path)
    options = Options(machine=replace(MACHINES["neon"], words=tuple(words)))
    compiler.lower(module, compilation, options)
    for name, parts in emit(module, compilation.weights).items():
        (folder / name).write_bytes(b"".join(parts))
    table = Layout(find_program(module, "main"))
    sizes = {"arena": "MAIN_ARENA_BYTES", "persistent": "MAIN_PERSISTENT_BYTES"}
    lines, saved, outputs = list[str](), list[str](), {}
    for number, slot in enumerate(table.slots):
        if slot.space == "threads":
            lines.append(f"memory[{number}] = (void *)(intptr_t)2;")
            continue
        size: object = sizes.get(slot.space)
        if slot.dtype is not None:
            size = int(np.prod(slot.shape, dtype=int)) * slot.dtype.numpy.itemsize
        if slot.literal is not None:
            (folder / f"{number}.bin").write_bytes(
                slot.literal.array(compilation.weights).tobytes()
            )
        if slot.space == "input":
            (folder / f"{number}.bin").write_bytes(inputs(path)[slot.label].tobytes())
        lines.append(f'memory[{number}] = load("{number}.bin", {size});')
        if slot.space == "output":
            assert slot.dtype is not None
            outputs[slot.label] = (folder / f"{number}.out", slot.dtype.numpy, list(slot.shape))
            saved.append(f'save("{number}.out", memory[{number}], {size});')
    lines += ["main_prepare(memory);", "main_run(memory);", *saved]
    (folder / "user.c").write_text(DRIVER.replace("LINES", "\n".join(lines)))
    return outputs


ZIG_NEON = [*ZIG, "-target", "aarch64-linux-musl"]
CROSS = {
    "aarch64, zig": (ZIG_NEON, "aarch64"),
    "aarch64, gcc": (["aarch64-linux-gnu-gcc"], "aarch64"),
    "arm, gcc": (["arm-linux-gnueabihf-gcc", "-march=armv7-a", "-mfpu=neon-vfpv4"], "arm"),
}
"""Cross compilers, each with QEMU's name of the machine."""


def run_there(binary: Path, machine: str) -> None:
    """Runs a program of another machine in its folder: directly, by QEMU or by Unicorn."""
    emulator = shutil.which(f"qemu-{machine}")
    if platform.machine() == machine or emulator is not None:
        command = [str(binary)] if emulator is None else [emulator, str(binary)]
        subprocess.run(command, cwd=binary.parent, check=True)
        return
    if machine != "aarch64" or importlib.util.find_spec("unicorn") is None:
        pytest.skip(
            f"compiled; it runs where qemu-{machine}, or for aarch64 the package unicorn, is"
        )
    process = Process(binary, binary.parent)
    assert process.run() == 0, process.said


@pytest.mark.parametrize("cross", CROSS)
def test_neon_code_computes_the_same(cross: str, few_graphs: Path, tmp_path: Path) -> None:
    compiler, machine = CROSS[cross]
    if compiler[0] == sys.executable and importlib.util.find_spec("ziglang") is None:
        pytest.skip("ziglang is not installed")
    if shutil.which(compiler[0]) is None:
        pytest.skip(f"{compiler[0]} is not installed")
    run_driver(few_graphs, tmp_path, compiler, machine)


@needs_zig
def test_packed_bytes_use_the_dot_product_of_arm(tmp_path: Path) -> None:
    """ARM's dot product instruction multiplies bytes, with the same result."""
    compiler = [*ZIG_NEON, "-mcpu=generic+dotprod"]
    run_driver(written("quantized", tmp_path), tmp_path, compiler, "aarch64", DOTPROD)
    command = [*compiler, *FLAGS, "-S", "kernels.c", "-o", "kernels.s"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)
    assert "\tsdot\t" in (tmp_path / "kernels.s").read_text()


def run_driver(
    path: Path, folder: Path, compiler: Sequence[str], machine: str, words: Sequence[str] = ()
) -> None:
    """Cross-compiles a graph, runs it, and compares its outputs with the reference."""
    outputs = driver(path, folder, words)
    sources = ["user.c", "program.c", "kernels.c"]
    command = [*compiler, *FLAGS, "-static", *sources, "-lm", "-o", "user"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    run_there(folder / "user", machine)
    check(
        path,
        {
            name: np.frombuffer(found.read_bytes(), dtype).reshape(shape)
            for name, (found, dtype, shape) in outputs.items()
        },
    )
