"""Tests that exported C builds without a warning and computes what the reference does."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph.backends.c.export.names import members, quoted
from popgraph.backends.c.export.targets import NAMES, target_of
from popgraph.cli import app
from popgraph.support.arrays import Array
from popgraph.support.description import TensorSpec

NETWORK = """
opset 21

graph lenet(x: f32[N, 1, 12, 12]) -> (y, best) {
    weight w1: f32[6, 1, 5, 5] = he_normal(seed=1)
    weight w2: f32[96, 10] = he_normal(seed=3)
    p = MaxPool(Relu(Conv(x, w1)), kernel_shape=[2, 2], strides=[2, 2])
    y = Softmax(Flatten(p) @ w2, axis=-1)
    best = ArgMax(y, axis=1)
}
"""
LOOKUP = """
opset 21

graph lookup(x: f32[5, 3], i: i64[2]) -> (y) {
    y = Gather(x, i)
}
"""
STRICT = ["-Werror"]
ZIG = f"{sys.executable} -m ziglang cc"


def exported(folder: Path, *options: object, text: str = NETWORK) -> Path:
    """Exports a model; returns the folder of C."""
    model = folder / "net.pgraph"
    model.write_text(text)
    arguments = ["export", model, "-o", folder / "c", *options]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 0, result.output
    assert "ROM" in result.output
    return folder / "c"


def made(folder: Path, goal: str = "check", **variables: str) -> str:
    """The output of `make`, in which every warning is an error."""
    flags = [f"{name}={value}" for name, value in variables.items()]
    makefile = (folder / "Makefile").read_text().replace("-Wextra", "-Wextra -Werror")
    (folder / "Makefile").write_text(makefile)
    done = subprocess.run(["make", goal, *flags], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("weights", ["incbin", "array", "file"])
def test_exported_c_passes_its_test_vector(weights: str, tmp_path: Path) -> None:
    folder = exported(tmp_path, "--dim", "N=2", "--weights", weights)
    printed = made(folder)
    assert "good" in printed
    assert "y: " in printed
    assert "best: 0 of the largest apart" in printed


LAYERS = """
opset 21

graph layers(x: f32[1, 4, 12, 12]) -> (y) {
    weight w1: f32[8, 4, 3, 3] = he_normal(seed=1)
    weight w2: f32[8, 8, 3, 3] = he_normal(seed=2)
    weight w3: f32[8, 8, 3, 3] = he_normal(seed=3)
    weight w4: f32[8, 8, 3, 3] = he_normal(seed=4)
    weight w5: f32[288, 5] = he_normal(seed=5)
    h1 = Relu(Conv(x, w1, pads=[1, 1, 1, 1]))
    h2 = Relu(Conv(h1, w2, pads=[1, 1, 1, 1]))
    h3 = Relu(Conv(h2, w3, pads=[1, 1, 1, 1], strides=[2, 2]))
    h4 = Relu(Conv(h3, w4, pads=[1, 1, 1, 1]))
    y = Softmax(Flatten(h4) @ w5)
}
"""
"""A network with layers of one shape class."""


def sizes_of(folder: Path) -> tuple[int, int, int]:
    """Characters of the kernels' C, bytes of constants, and bytes of RAM."""
    source, header = (folder / "model.c").read_text(), (folder / "model.h").read_text()
    ram = re.search(r"MODEL_MEMORY_BYTES (\d+)", header)
    assert ram is not None
    code = source[: source.index("static void main_run")]
    return len(code), (folder / "model_weights.bin").stat().st_size, int(ram[1])


@pytest.mark.parametrize("options", [["--dim", "N=2", "--train"], ["--dim", "N=..4"]], ids=str)
def test_small_programs_pass_their_test_vector(options: list[str], tmp_path: Path) -> None:
    folder = exported(tmp_path, *options, "--optimize", "size", text=TRAINED)
    assert "good" in made(folder)
    assert " -Os " in (folder / "Makefile").read_text()
    assert " -O2" not in (folder / "Makefile").read_text() + (folder / "CMakeLists.txt").read_text()


def test_small_derivatives_pass_their_test_vector(tmp_path: Path) -> None:
    options = ["--dim", "N=2", "--derivatives", "vjp", "--optimize", "size"]
    assert "good" in made(exported(tmp_path, *options, text=TRAINED))


def test_goals_trade_code_constants_and_memory(tmp_path: Path) -> None:
    found = {}
    for goal in ("size", "balanced", "speed"):
        (tmp_path / goal).mkdir()
        options = ["--optimize", goal, "--target", "armv7e-m", "--weights", "incbin"]
        found[goal] = exported(tmp_path / goal, *options, text=LAYERS)
    small, medium, large = (sizes_of(folder) for folder in found.values())
    assert small[0] < medium[0] < large[0]
    assert all(one <= other for one, other in zip(small, large, strict=True))
    assert medium[1:] == small[1:]
    floats = 4 * (8 * 4 * 9 + 3 * 8 * 8 * 9 + 288 * 5)
    assert floats <= small[1] < floats + 64 * 6, "each constant is stored once, aligned to 64 bytes"
    source = (found["size"] / "model.c").read_text()
    # Three convolutions share a function. The fourth one writes an image without a halo.
    assert source.count("void kernel_mulf_addf_maximumf") == 2
    assert "vector_size" not in source and "isize n0 = 0" in source
    usual = exported(tmp_path, "--target", "armv7e-m", text=LAYERS)
    assert (usual / "model.c").read_text() == source, "microcontrollers get small programs"


def test_only_microcontrollers_get_small_programs() -> None:
    goals = {name: target_of(name).optimize for name in NAMES[1:]}
    assert goals == {**dict.fromkeys(goals, "speed"), "armv7e-m": "size"}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--optimize", "small"], "'small' is not one of 'size', 'balanced', 'speed'"),
        (["--optimize", "size", "--schedule", "net.pgraph"], "belongs to --optimize speed"),
        (["--target", "armv7e-m", "--schedule", "net.pgraph"], "belongs to --optimize speed"),
        (["--portable", "--optimize", "size"], "adds in the order of speed, not of size"),
    ],
)
def test_wrong_goals_are_errors(options: list[str], message: str, tmp_path: Path) -> None:
    (tmp_path / "net.pgraph").write_text(LAYERS)
    options = [str(tmp_path / one) if one == "net.pgraph" else one for one in options]
    arguments = ["export", str(tmp_path / "net.pgraph"), "-o", str(tmp_path / "c"), *options]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code != 0
    assert message in " ".join((result.output + str(result.exception)).split())
    assert not (tmp_path / "c").exists()


def test_portable_programs_of_microcontrollers_are_for_speed(tmp_path: Path) -> None:
    folder = exported(tmp_path, "--dim", "N=1", "--target", "armv7e-m", "--portable")
    assert " -O2 " in (folder / "Makefile").read_text()


def test_an_unknown_goal_of_a_compilation_is_an_error() -> None:
    with pytest.raises(popgraph.PopgraphError, match="unknown goal 'small'"):
        popgraph.Options(optimize="small")


HALOS = """
opset 21

graph halos(x: f32[1, 8, 14, 14]) -> (y) {
    weight a: f32[8, 8, 3, 3] = he_normal(seed=1)
    weight b: f32[8, 8, 3, 3] = he_normal(seed=2)
    weight c: f32[8, 8, 3, 3] = he_normal(seed=3)
    weight d: f32[8, 8, 1, 1] = he_normal(seed=4)
    weight e: f32[4, 16, 3, 3] = he_normal(seed=5)
    h = Relu(Conv(x, a, pads=[1, 1, 1, 1]))
    i = Relu(Conv(Relu(Conv(h, b, pads=[1, 1, 1, 1])), c, pads=[1, 1, 1, 1]) + h)
    j = Concat(Relu(Conv(i, d)), Relu(Conv(i, b, pads=[1, 1, 1, 1])), axis=1)
    y = Conv(j, e, pads=[1, 1, 1, 1])
}
"""
"""Results with halos: of an image, in the memory of an operand, and in slices of one image."""


def test_compiled_programs_have_goals() -> None:
    x = np.random.default_rng(0).standard_normal((1, 8, 14, 14), np.float32)
    small, balanced = (
        popgraph.compile(HALOS, options=popgraph.Options(optimize=goal))(x=x)["y"]
        for goal in ("size", "balanced")
    )
    expected = popgraph.compile(HALOS, backend="reference")(x=x)["y"]
    np.testing.assert_allclose(small, expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(balanced, expected, rtol=1e-5, atol=1e-4)
    assert np.any(small != balanced), "they add in other orders"


@pytest.mark.parametrize("compiler", ["cc", ZIG], ids=["cc", "zig"])
def test_exported_c_has_no_warnings_under_gcc_and_clang(compiler: str, tmp_path: Path) -> None:
    if compiler == ZIG:
        pytest.importorskip("ziglang", reason="ziglang is not installed")
    folder = exported(tmp_path, "--dim", "N=1", "--threads", "2", "--no-malloc", "--name", "net")
    assert "good" in made(folder, CC=compiler)
    assert "malloc" not in (folder / "net.c").read_text()


@pytest.mark.parametrize(
    "options",
    [["--dim", "N=2"], ["--dim", "N=1", "--weights", "array", "--threads", "2"]],
    ids=["incbin", "array and threads"],
)
def test_cmake_builds_and_checks_exported_c(options: list[str], tmp_path: Path) -> None:
    if shutil.which("cmake") is None:
        pytest.skip("cmake is not installed")
    folder = exported(tmp_path, *options)
    for command in (
        ["cmake", "-S", folder, "-B", tmp_path / "build"],
        ["cmake", "--build", tmp_path / "build"],
        ["ctest", "--test-dir", tmp_path / "build", "--output-on-failure"],
    ):
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "100% tests passed" in done.stdout


TRAINED = """
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
TRAINER = """
#include "model.h"
#include <stdio.h>

/* Trains, keeps the state behind two steps, goes on, and comes back to it. */
int main(void) {
    static _Alignas(MODEL_ALIGNMENT) char memory[MODEL_MEMORY_BYTES];
    static unsigned char state[MODEL_STATE_BYTES];
    static model self;
    float x[12], y[6], loss, losses[4];
    int32_t labels[2] = {1, 2};
    if (model_init(&self, memory)) return 1;
    for (int at = 0; at < 12; at++) x[at] = (float)at / 12;
    const model_inputs inputs = {x, labels};
    const model_outputs outputs = {y, &loss};
    for (int at = 0; at < 4; at++) {
        if (model_step(&self, &inputs, &outputs)) return 2;
        losses[at] = loss;
        if (at == 1) model_save(&self, state);
    }
    model_load(&self, state);
    for (int at = 2; at < 4; at++) {
        if (model_step(&self, &inputs, &outputs)) return 3;
        if (loss != losses[at]) return 4;
    }
    for (size_t at = 0; at < model_about.variable_count; at++) {
        const model_tensor *tensor = &model_about.variables[at];
        const float *first = (const float *)model_variable(&self, at);
        if (tensor->rank == 2) printf("%s %.9g\\n", tensor->name, (double)*first);
    }
    for (int at = 0; at < 4; at++) printf("%.9g\\n", (double)losses[at]);
    labels[0] = 7;
    return model_step(&self, &inputs, &outputs) == MODEL_BAD_INDEX ? 0 : 5;
}
"""


@pytest.mark.parametrize("compiler", ["cc", ZIG], ids=["cc", "zig"])
def test_an_exported_training_step_is_that_of_the_trainer(compiler: str, tmp_path: Path) -> None:
    """Losses and weights of four steps agree, with a state that is saved and loaded in between."""
    if compiler == ZIG:
        pytest.importorskip("ziglang", reason="ziglang is not installed")
    sizes = ("--dim", "N=2", "--run-dim", "N=1")
    folder = exported(tmp_path, "--train", *sizes, "--indices", "error", text=TRAINED)
    printed = made(folder, CC=compiler)
    assert "good" in printed
    assert printed.index("run:") < printed.index("loss:"), "inference, then steps"
    (folder / "trainer.c").write_text(TRAINER)
    command = [*compiler.split(), "-std=c11", "-Wall", "-Wextra", "-Werror"]
    command += ["trainer.c", "model.c", "model_weights.S", "-lm", "-o", "trainer"]
    subprocess.run(command, cwd=folder, check=True)
    done = subprocess.run(["./trainer"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, (done.returncode, done.stdout)
    words = done.stdout.split()
    trainer = popgraph.Trainer(tmp_path / "net.pgraph")
    x = (np.arange(12, dtype=np.float32) / np.float32(12)).reshape(2, 6)
    given = {"x": x, "labels": np.array([1, 2], np.int32)}
    trainer.fit(given, epochs=4, shuffle=False)
    wanted = [row["loss"] for row in trainer.history.steps]
    np.testing.assert_allclose([float(one) for one in words[-4:]], wanted, rtol=1e-5)
    kept = dict(zip(words[:-4:2], map(float, words[1:-4:2]), strict=True))
    trainer.save(tmp_path / "net.onnx")
    held = onnx.load(tmp_path / "net.onnx").graph.initializer
    assert {"w", "v"} <= {one.name for one in held} <= kept.keys()
    for one in held:
        assert abs(onnx.numpy_helper.to_array(one).reshape(-1)[0] - kept[one.name]) < 1e-5


INFERRED = """
#include "model.h"
#include <stdio.h>

/* Before it updates weights, a step computes what inference does. */
int main(void) {
    static _Alignas(MODEL_ALIGNMENT) char memory[MODEL_MEMORY_BYTES];
    static model self;
    float x[12], y[6], found[6], loss, first = 0;
    const int32_t labels[2] = {1, 2};
    if (model_init(&self, memory)) return 1;
    for (int at = 0; at < 12; at++) x[at] = (float)at / 12;
    const model_inputs inputs = {x, labels};
    const model_outputs outputs = {y, &loss};
    const model_run_inputs given = {x};
    const model_run_outputs results = {found};
    for (int step = 0; step < 5; step++) {
        if (model_run(&self, &given, &results) || model_step(&self, &inputs, &outputs)) return 2;
        for (int at = 0; at < 6; at++) {
            const float apart = found[at] - y[at];
            if (apart < -1e-5f || apart > 1e-5f) return 3;
        }
        if (step == 0) first = found[0];
    }
    return first == found[0] ? 4 : 0;
}
"""


def test_inference_follows_the_adapters_of_an_exported_step(tmp_path: Path) -> None:
    """Frozen weights are constants of both programs, adapters the state that they share."""
    options = ("--train", "--no-dropout", "--lora", "2", "--dim", "N=2", "--run-dim", "N=2")
    folder = exported(tmp_path, *options, text=TRAINED)
    (folder / "infers.c").write_text(INFERRED)
    command = ["cc", "-std=c11", "infers.c", "model.c", "model_weights.S", "-lm", "-o", "infers"]
    subprocess.run(command, cwd=folder, check=True)
    assert subprocess.run(["./infers"], cwd=folder).returncode == 0


def test_models_without_training_are_not_exported_with_a_step(tmp_path: Path) -> None:
    (tmp_path / "net.pgraph").write_text(NETWORK)
    arguments = ["export", tmp_path / "net.pgraph", "-o", tmp_path / "c", "--train"]
    result = CliRunner().invoke(app, list(map(str, arguments)))
    assert result.exit_code == 1
    assert "does not say how the model is trained" in result.stderr


def test_the_check_reports_wrong_results(tmp_path: Path) -> None:
    folder = exported(tmp_path, "--dim", "N=1", "--weights", "file")
    made(folder, "check_model")
    weights = np.fromfile(folder / "model_weights.bin", np.float32)
    (weights * 2).tofile(folder / "model_weights.bin")
    done = subprocess.run(["./check_model"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1
    assert "too far" in done.stdout
    assert "BAD" in done.stdout


def test_single_threaded_c_needs_no_operating_system(tmp_path: Path) -> None:
    folder = exported(tmp_path, "--dim", "N=1", "--no-malloc")
    made(folder, "model.o", ARCH="-fno-pie")
    listed = subprocess.run(["nm", "model.o"], cwd=folder, capture_output=True, text=True)
    rows = [line.split() for line in listed.stdout.splitlines()]
    undefined = {row[-1] for row in rows if row[-2] == "U"}
    assert undefined <= {"model_weights", "memcpy", "memset", "expf", "expm1f"}
    assert not [row for row in rows if row[-2] in "bBdDC"], "no global that is written"


CALLER = """
#include "model.h"
#include <cstdio>
int main() {
    const float x[15] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    const int64_t legal[2] = {4, -5}, wrong[2] = {1, 5};
    float y[6];
    model *made = model_new();
    model_inputs inputs = {x, legal};
    model_outputs outputs = {y};
    int first = model_run(made, &inputs, &outputs);
    inputs.i = wrong;
    int second = model_run(made, &inputs, &outputs);
    std::printf("%d %d %s %s\\n", first, second, model_about.inputs[0].name,
                model_about.outputs[0].type);
    char memory[MODEL_MEMORY_BYTES + MODEL_ALIGNMENT + 1];
    model own;
    char *unaligned = memory + 1;
    while (reinterpret_cast<uintptr_t>(unaligned) % MODEL_ALIGNMENT != 1) unaligned++;
    std::printf("%d %g %g\\n", model_init(&own, unaligned), y[0], y[3]);
    model_delete(made);
}
"""


def test_cpp_calls_exported_c_and_gets_its_errors(tmp_path: Path) -> None:
    folder = exported(tmp_path, "--indices", "error", "-i", indices(tmp_path), text=LOOKUP)
    made(folder, "libmodel.a")
    (folder / "user.cpp").write_text(CALLER.replace("y[0], y[3]", "0.0, 0.0"))
    command = ["c++", "-Wall", "-Wextra", "-pedantic", "-Werror", "user.cpp", "libmodel.a"]
    subprocess.run([*command, "-lm", "-o", "user"], cwd=folder, check=True)
    ran = subprocess.run(["./user"], cwd=folder, capture_output=True, text=True, check=True)
    assert ran.stdout == "0 2 x f32\n1 0 0\n"


RETURNED = """
opset 21

graph returned(x: f32[N, 40], b: f32[40]) -> (same, y, z, flat) {
    everywhere = Exp(Expand(Softmax(b), Shape(x)))
    same = Identity(x)
    z = CumSum(everywhere, 1) * x
    y = everywhere + x
    flat = Reshape(y, [-1, 20])
}
"""
"""Values without a row dimension are computed up to the bound, in memory of their own."""
TURNED = """
opset 21

graph turned(x: f32[4, M, 8], b: f32[N, 3]) -> (y, t, z) {
    y = Relu(x)
    t = Transpose(x, perm=[1, 0, 2])
    z = Reshape(Exp(b), [-1])
}
"""
CONVOLUTIONS = """
opset 21

graph convolutions(x: f32[N, 3, 12, 12]) -> (y) {
    weight w: f32[16, 3, 5, 5] = he_normal(seed=1)
    weight depth: f32[16, 1, 3, 3] = he_normal(seed=2)
    weight last: f32[16, 5] = glorot_uniform(seed=3)
    h = MaxPool(Relu(Conv(x, w, pads=[2, 2, 2, 2])), kernel_shape=[2, 2], strides=[2, 2])
    y = Softmax(Flatten(GlobalAveragePool(Conv(h, depth, pads=[1, 1, 1, 1], group=16))) @ last)
}
"""
PASSED_ON = """
graph passed_on(x: f32[N, 4], s: f32[4]) -> (none, one, same) {
    counts = Cast(s, to=7)
    none = loop i in 0..counts[0] with none = x {
        none = Tanh(none)
    }
    one = loop i in 0..counts[3] with one = x {
        one = Tanh(one)
    }
    same = if counts[0] > 0 {
        same = Tanh(x)
    } else {
        same = x
    }
}
"""
BOUNDS = {"N": (N := 9), "M": (M := 7)}
SIZED = {
    "convolutions": CONVOLUTIONS,
    "returned": RETURNED,
    "passed on": PASSED_ON,
    "turned": TURNED,
}
GUARDED = """
#define _GNU_SOURCE
#include "model.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 1 << 16 };

/* Memory that ends where nothing may be read or written. */
static float *guarded(const model_tensor *tensor, const int64_t *sizes, size_t *count) {
    size_t inner = 1;
    *count = 1;
    for (size_t axis = 0; axis < tensor->rank; axis++) {
        const int size = tensor->size[axis];
        const size_t most = size < 0 ? 1 : (size_t)model_about.sizes[size].max;
        const size_t own = size < 0 ? 1 : (size_t)sizes[size];
        const size_t outer = *count;
        *count *= outer > 1 ? tensor->shape[axis] : tensor->shape[axis] / most * own;
        inner *= tensor->shape[axis];
    }
    const size_t bytes = *count * sizeof(float);
    const size_t whole = (bytes + PAGE - 1) / PAGE * PAGE;
    char *memory = mmap(NULL, whole + PAGE, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED || mprotect(memory + whole, PAGE, PROT_NONE)) exit(10);
    return (float *)(void *)(memory + whole - bytes);
}

int main(int count, char **texts) {
    int64_t numbers[8];
    float *arrays[2][8];
    size_t counts[8];
    model_sizes sizes;
    model_inputs inputs;
    model_outputs outputs;
    for (int at = 1; at < count; at++) numbers[at - 1] = atoll(texts[at]);
    memcpy(&sizes, numbers, sizeof sizes);
    model *self = model_new();
    for (size_t at = 0; at < model_about.input_count; at++) {
        size_t elements;
        arrays[0][at] = guarded(&model_about.inputs[at], numbers, &elements);
        for (size_t one = 0; one < elements; one++)
            arrays[0][at][one] = (float)((int)(one * 37 % 23) - 11) / 8;
    }
    for (size_t at = 0; at < model_about.output_count; at++)
        arrays[1][at] = guarded(&model_about.outputs[at], numbers, &counts[at]);
    memcpy(&inputs, arrays[0], sizeof inputs);
    memcpy(&outputs, arrays[1], sizeof outputs);
    const int code = model_run(self, &sizes, &inputs, &outputs);
    for (size_t at = 0; at < model_about.output_count; at++)
        fwrite(arrays[1][at], sizeof(float), counts[at], stdout);
    model_delete(self);
    return code;
}
"""


def built(folder: Path, source: str) -> Path:
    """Builds a program that calls exported C; every warning is an error."""
    made(folder, "libmodel.a")
    (folder / "user.c").write_text(source)
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "user.c"]
    subprocess.run(
        [*command, "libmodel.a", "-lm", "-pthread", "-o", "user"], cwd=folder, check=True
    )
    return folder / "user"


def filled_input(spec: TensorSpec, numbers: Mapping[str, int]) -> Array:
    """The input that GUARDED fills in; rows of M are laid out as at its bound."""
    shape = [numbers[dim] if isinstance(dim, str) else int(dim or 0) for dim in spec.shape or ()]
    memory = [M if dim == "M" else size for dim, size in zip(spec.shape or (), shape, strict=True)]
    flat = (np.arange(np.prod(memory)) * 37 % 23 - 11) / 8
    whole: Array = flat.astype(np.float32).reshape(memory)
    return whole[tuple(map(slice, shape))]


@pytest.mark.skipif(sys.platform == "win32", reason="the caller protects memory by mprotect")
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", SIZED)
def test_exported_c_runs_every_size(name: str, threads: int, tmp_path: Path) -> None:
    """Guard pages end the memory of each array, so accesses past the rows of a call trap."""
    text = SIZED[name]
    names = ["M", "N"] if name == "turned" else ["N"]
    dims = [word for one in names for word in ("--dim", f"{one}=..{BOUNDS[one]}")]
    folder = exported(tmp_path, *dims, "--threads", threads, text=text)
    printed = made(folder)
    assert printed.count("N = ") == 3
    assert "good" in printed
    user = built(folder, GUARDED)
    run = popgraph.compile(text, backend="reference")
    for size in (1, 2, 5, 8, N):
        numbers = {"N": size, "M": min(size, M)}
        words = [str(numbers[one]) for one in names]
        done = subprocess.run([str(user), *words], capture_output=True)
        assert done.returncode == 0, done.stderr
        wanted = run({spec.name: filled_input(spec, numbers) for spec in run.inputs.values()})
        if name == "turned":  # The only output whose memory has the layout of the bound.
            rows = np.zeros((4, M, 8), np.float32)
            rows[:, : numbers["M"]] = wanted["y"]
            wanted["y"] = rows
        expected = np.concatenate([array.reshape(-1) for array in wanted.values()])
        np.testing.assert_allclose(np.frombuffer(done.stdout, np.float32), expected, 1e-4, 1e-5)


@pytest.mark.skipif(sys.platform == "win32", reason="the caller protects memory by mprotect")
def test_sizes_out_of_range_are_refused(tmp_path: Path) -> None:
    folder = exported(tmp_path, "--dim", "N=..9", text=CONVOLUTIONS)
    source = GUARDED.replace("= model_run(", "= (sizes.N = SIZE, model_run)(")
    for size in ("0", "-3", "10", "INT64_MAX", "INT64_MIN"):
        user = built(folder, source.replace("SIZE", size))
        done = subprocess.run([str(user), "2"], capture_output=True)
        assert done.returncode == 3, size
        assert not any(done.stdout)


def test_the_check_finds_loops_with_wrong_ends(tmp_path: Path) -> None:
    folder = exported(tmp_path, "--dim", "N=..9", text=CONVOLUTIONS)
    source = (folder / "model.c").read_text()
    assert source.count("&sizes->N;") == 1
    (folder / "model.c").write_text(source.replace("&sizes->N;", "&(const int64_t){1};"))
    made(folder, "check_model")
    done = subprocess.run(["./check_model"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 1
    assert "too far" in done.stdout


def test_sizes_and_inputs_may_have_the_same_name(tmp_path: Path) -> None:
    text = "graph same(n: f32[n, 3], N: f32[N, 2]) -> (y, z) {\n y = Relu(n)\n z = Relu(N)\n}"
    folder = exported(tmp_path, "--dim", "n=..7", "--dim", "N=..5", text=text)
    assert "good" in made(folder)
    header = (folder / "model.h").read_text()
    assert "int64_t size_N; /* size N, 1 to 5 */" in header
    assert "#define MODEL_SIZE_N_2_MAX 7 " in header, "macros of n and N differ"


def test_a_static_program_has_no_sizes(tmp_path: Path) -> None:
    folder = exported(tmp_path, "--dim", "N=2")
    for name in ("model.h", "model.c", "main.c", "check_data.h"):
        assert not re.search(r"model_sizes?\b|BAD_SIZE|checked\[", (folder / name).read_text()), (
            name
        )


def test_models_that_cannot_run_every_size_are_refused(tmp_path: Path) -> None:
    (tmp_path / "net.pgraph").write_text("graph reversed(x: f32[N, 4]) -> y {\n y = x[::-1]\n}")
    for command in ("export", "emit"):
        arguments = [command, tmp_path / "net.pgraph", "-o", tmp_path / "c", "--dim", "N=..8"]
        result = CliRunner().invoke(app, list(map(str, arguments)))
        assert result.exit_code == 1
        said = "cannot run for every size: graphcore.slice depends on what a size is"
        assert said in result.stderr
        assert "try: give one size: --dim N=8" in result.stderr
        assert not (tmp_path / "c").exists()


def indices(folder: Path) -> str:
    np.save(folder / "i.npy", np.array([4, -5], np.int64))
    return f"i={folder / 'i.npy'}"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--name", "int"], "'int' cannot be the prefix of C functions"),
        (["--name", "main"], "'main' cannot be the prefix of C functions"),
        (["--target", "pdp11"], "there is no target 'pdp11'"),
        ([], "--dim"),
    ],
)
def test_wrong_options_of_export_are_refused(
    options: list[str], message: str, tmp_path: Path
) -> None:
    (tmp_path / "net.pgraph").write_text(NETWORK)
    dims = ["--dim", "N=1"] if options else []
    arguments = ["export", str(tmp_path / "net.pgraph"), "-o", str(tmp_path / "c"), *dims, *options]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == 1
    assert message in result.output
    assert not (tmp_path / "c").exists()


def test_struct_members_are_unique_c_identifiers() -> None:
    labels = ["a/b", "a b", "int", "3", "", "x"]
    names = ["a_b", "a_b_2", "tensor_int", "tensor_3", "tensor", "x"]
    assert list(members(labels).values()) == names
    assert quoted('a"\\??/\n') == '"a\\042\\134\\077\\077/\\012"'
