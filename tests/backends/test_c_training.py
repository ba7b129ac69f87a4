"""Tests of exported training steps: accumulation, deltas, the use of memory, the trainer's bits."""

from __future__ import annotations

import json
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph.cli import app
from popgraph.support.arrays import Array
from tests.backends.test_c_export import exported, made

ROOT = Path(__file__).parents[2]
NETWORK = """
opset 21

graph net(x: f32[2, 6]) -> (y: f32[2, 3]) {
    weight w: f32[6, 8] = he_normal(seed=1)
    weight v: f32[8, 3] = he_normal(seed=2)
    weight bias: f32[3] = zeros
    y = Tanh(x @ w) @ v + bias
}

train (labels: i32[2]) {
    loss = cross_entropy(y, labels)
    optimizer = OPTIMIZER
}
"""
TEXTS = {
    "momentum": NETWORK.replace("OPTIMIZER", "SGD(0.1, momentum=0.9)"),
    "adam, clipped": NETWORK.replace("OPTIMIZER", "Adam(0.01)\n    clip = 0.5"),
}
STEPS = 4
CALLER = """
#include "model.h"
#include <stdio.h>

/* Trains on four batches of a file, and writes the weights; the state survives a restart. */
int main(void) {
    static _Alignas(MODEL_ALIGNMENT) char memory[MODEL_MEMORY_BYTES];
    static unsigned char state[MODEL_STATE_BYTES];
    static float weights[MODEL_DELTA_COUNT];
    static model self;
    float x[12], y[6], loss;
    int32_t labels[2];
    const model_inputs inputs = {x, labels};
    const model_outputs outputs = {y, &loss};
    FILE *file = fopen("batches", "rb");
    if (file == NULL || model_init(&self, memory)) return 1;
    for (int at = 0; at < 4; at++) {
        if (fread(x, 1, sizeof x, file) + fread(labels, 1, sizeof labels, file) !=
            sizeof x + sizeof labels) return 2;
        if (model_step(&self, &inputs, &outputs)) return 3;
        if (at == 2) { /* As if the device were switched off within an update. */
            model_save(&self, state);
            if (model_step(&self, &inputs, &outputs) || model_init(&self, memory)) return 4;
            model_load(&self, state);
        }
    }
    fclose(file);
    if (model_get_weights(&self, weights, sizeof weights)) return 5;
    fwrite(weights, sizeof *weights, MODEL_DELTA_COUNT, stdout);
    return 0;
}
"""


def built(folder: Path, source: str) -> Path:
    """Builds a program that calls exported C; every warning is an error."""
    made(folder, "libmodel.a")
    (folder / "user.c").write_text(source)
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-pedantic", "-Werror", "user.c"]
    subprocess.run([*command, "libmodel.a", "-lm", "-o", "user"], cwd=folder, check=True)
    return folder / "user"


def layout(folder: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads((folder / "model.json").read_text())["delta"]
    return found


def flat(folder: Path, weights: dict[str, Array]) -> Array:
    """The weights of a trainer in the layout of deltas."""
    return np.concatenate([weights[str(one["name"])].reshape(-1) for one in layout(folder)])


def test_the_weights_are_those_of_the_trainer_bit_by_bit(tmp_path: Path) -> None:
    folder = exported(tmp_path, "--train", "--accumulate", 2, text=TEXTS["adam, clipped"])
    assert "outputs and state: the trainer's, bit by bit" in made(folder)
    generator = np.random.default_rng(0)
    x = generator.normal(size=(2 * STEPS, 6)).astype(np.float32)
    labels = generator.integers(0, 3, 2 * STEPS).astype(np.int32)
    batches = [(x[at : at + 2], labels[at : at + 2]) for at in range(0, 2 * STEPS, 2)]
    content = b"".join(part.tobytes() for batch in batches for part in batch)
    (folder / "batches").write_bytes(content)
    done = subprocess.run([built(folder, CALLER)], cwd=folder, capture_output=True)
    assert done.returncode == 0
    trainer = popgraph.Trainer(tmp_path / "net.pgraph", accumulate=2)
    trainer.fit({"x": x, "labels": labels}, epochs=1, shuffle=False)
    wanted = flat(folder, dict(trainer.weights()))
    assert np.array_equal(np.frombuffer(done.stdout, np.float32), wanted)


@pytest.fixture(scope="module")
def accumulating(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A step with momentum that updates after three batches."""
    folder = tmp_path_factory.mktemp("accumulating")
    return exported(folder, "--train", "--accumulate", 3, text=TEXTS["momentum"])


def test_the_check_finds_other_bits_than_the_trainer_s(accumulating: Path) -> None:
    data = (accumulating / "check_data.h").read_text()
    state = re.search(r"trained_state\[\] = \{UINT64_C\((\w+)\)", data)
    assert state is not None
    (accumulating / "check_data.h").write_text(data.replace(state[1], "0x1"))
    made(accumulating, "check_model")
    done = subprocess.run(["./check_model"], cwd=accumulating, capture_output=True, text=True)
    (accumulating / "check_data.h").write_text(data)
    assert done.returncode == 1
    assert "w: not the trainer's bits" in done.stdout
    assert "good" not in done.stdout


def test_the_check_says_why_it_compares_no_bits(accumulating: Path, tmp_path: Path) -> None:
    made(accumulating, "clean")
    assert "not the trainer's" in made(accumulating, CFLAGS="-std=c11 -O1")
    made(accumulating, "clean")
    for options, reason in (
        (["--target", "riscv64"], "the export is for riscv64"),
        (["--optimize", "size"], "the trainer optimizes for speed, not for size"),
    ):
        elsewhere = exported(tmp_path, "--train", *options, text=TEXTS["momentum"])
        assert reason in (elsewhere / "main.c").read_text()


EARLY = """
#include "model.h"
#include <stdio.h>

/* Updates after two batches instead of three, and says nothing new right after it. */
int main(void) {
    static _Alignas(MODEL_ALIGNMENT) char memory[MODEL_MEMORY_BYTES];
    static float weights[2][MODEL_DELTA_COUNT];
    static model self;
    float x[12], y[6], loss;
    int32_t labels[2];
    const model_inputs inputs = {x, labels};
    const model_outputs outputs = {y, &loss};
    FILE *file = fopen("batches", "rb");
    if (file == NULL || model_init(&self, memory)) return 1;
    for (int at = 0; at < 2; at++) {
        if (fread(x, 1, sizeof x, file) + fread(labels, 1, sizeof labels, file) !=
            sizeof x + sizeof labels) return 2;
        if (model_step(&self, &inputs, &outputs)) return 3;
    }
    for (int at = 0; at < 2; at++) {
        model_update(&self);
        if (model_get_weights(&self, weights[at], sizeof *weights)) return 4;
    }
    fwrite(weights, sizeof *weights, 2, stdout);
    return 0;
}
"""


def test_an_early_update_takes_the_mean_so_far(accumulating: Path) -> None:
    generator = np.random.default_rng(1)
    x = generator.normal(size=(4, 6)).astype(np.float32)
    labels = generator.integers(0, 3, 4).astype(np.int32)
    batches = [(x[at : at + 2], labels[at : at + 2]) for at in (0, 2)]
    content = b"".join(part.tobytes() for batch in batches for part in batch)
    (accumulating / "batches").write_bytes(content)
    done = subprocess.run([built(accumulating, EARLY)], cwd=accumulating, capture_output=True)
    assert done.returncode == 0
    found, later = np.frombuffer(done.stdout, np.float32).reshape(2, -1)
    assert np.array_equal(found, later), "momentum moves no weight without a gradient"
    trainer = popgraph.Trainer(accumulating.parent / "net.pgraph", accumulate=2)
    trainer.fit({"x": x, "labels": labels}, epochs=1, shuffle=False)
    wanted = flat(accumulating, dict(trainer.weights()))
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-7)


def test_portable_steps_have_the_trainer_s_bits_on_every_machine(tmp_path: Path) -> None:
    """Code for another target, built without the instructions of this one, computes the same."""
    options = ("--train", "--portable", "--target", "riscv64", "--accumulate", 2)
    folder = exported(tmp_path, *options, text=TEXTS["adam, clipped"])
    assert "outputs and state: the trainer's, bit by bit" in made(folder, CC="cc", ARCH="-O1")


DELTAS = """
#include "model.h"
#include <stdio.h>
#include <string.h>

int main(void) {
    static _Alignas(MODEL_ALIGNMENT) char memory[MODEL_MEMORY_BYTES];
    static float first[MODEL_DELTA_COUNT], last[MODEL_DELTA_COUNT], delta[MODEL_DELTA_COUNT];
    static model self;
    const size_t bytes = MODEL_DELTA_BYTES;
    const float x[12] = {1, 2, 3, 4, 5, 6, -1, -2, -3, -4, -5, -6};
    const int32_t labels[2] = {1, 2};
    float y[6], loss;
    const model_inputs inputs = {x, labels};
    const model_outputs outputs = {y, &loss};
    if (model_init(&self, memory) || model_get_weights(&self, first, bytes)) return 1;
    for (int at = 0; at < 4; at++)
        if (model_step(&self, &inputs, &outputs)) return 2;
    if (model_get_weights(&self, last, bytes)) return 3;
    for (int at = 0; at < 2; at++) { /* The exported weights, and a copy of them. */
        if (model_get_delta(&self, at ? first : NULL, delta, bytes)) return 4;
        for (size_t one = 0; one < MODEL_DELTA_COUNT; one++)
            if (delta[one] != last[one] - first[one]) return 5;
    }
    if (model_set_weights(&self, first, bytes)) return 6;
    if (model_apply_delta(&self, delta, bytes, 0.5f)) return 7;
    if (model_get_weights(&self, last, bytes)) return 8;
    fwrite(first, 1, bytes, stdout);
    fwrite(delta, 1, bytes, stdout);
    fwrite(last, 1, bytes, stdout);
    /* A delta of another model, or a part of one, changes nothing. */
    if (model_apply_delta(&self, delta, bytes - 4, 1.0f) != MODEL_BAD_SIZE) return 9;
    if (model_set_weights(&self, delta, 2 * bytes) != MODEL_BAD_SIZE) return 10;
    if (model_get_delta(&self, NULL, delta, 0) != MODEL_BAD_SIZE) return 11;
    if (model_get_weights(&self, delta, 4) != MODEL_BAD_SIZE) return 12;
    if (model_get_weights(&self, first, bytes)) return 13;
    return memcmp(first, last, bytes) ? 14 : 0;
}
"""


def test_deltas_are_differences_of_weights(accumulating: Path) -> None:
    user = built(accumulating, DELTAS)
    done = subprocess.run([user], cwd=accumulating, capture_output=True)
    assert done.returncode == 0
    first, delta, last = np.frombuffer(done.stdout, np.float32).reshape(3, -1)
    names = [(one["name"], one["shape"], one["first"]) for one in layout(accumulating)]
    assert names == [("w", [6, 8], 0), ("v", [8, 3], 48), ("bias", [3], 72)]
    assert (delta[:72] != 0).mean() > 0.8
    assert not first[72:].any(), "zeros take no ROM, and are a base nevertheless"
    np.testing.assert_allclose(last, first + np.float32(0.5) * delta, rtol=2e-7)


def test_deltas_are_of_weights_and_running_statistics(tmp_path: Path) -> None:
    text = """
    graph net(x: f32[4, 6, 3]) -> (y: f32[4, 6, 3]) {
        const fixed: f32[6] = ones
        weight scale: f32[6] = ones
        weight shift: f32[6] = zeros
        weight mean: f32[6] = zeros
        weight variance: f32[6] = ones
        y = BatchNormalization(x * scale[0], fixed, shift, mean, variance)
    }
    train (target: f32[4, 6, 3]) {
        loss = mse(y, target)
        optimizer = Adam(0.01)
    }
    """
    target = ("--train", "--target", "riscv64")
    folder = exported(tmp_path, *target, text=text)
    assert {one["name"] for one in layout(folder)} == {"scale", "shift", "mean", "variance"}
    halves = text.replace("f32", "f16")
    folder = exported(tmp_path, *target, text=halves)
    assert "There are no deltas" in (folder / "model.h").read_text()
    assert not layout(folder)
    assert "get_delta" not in (folder / "model.c").read_text()


DEEP = (
    "graph net(x: f32[N, 16]) -> (y: f32[N, 16]) {\n"
    + "".join(f"    weight w{at}: f32[16, 16] = he_normal(seed={at})\n" for at in range(12))
    + "    h0 = x\n"
    + "".join(f"    h{at + 1} = Tanh(h{at} @ w{at})\n" for at in range(12))
    + "    y = h12\n}\ntrain (target: f32[N, 16]) {\n    loss = mse(y, target)\n"
    "    optimizer = SGD(0.1)\n}\n"
)


def used(folder: Path) -> dict[str, int]:
    """The bytes of each row of the table of RAM."""
    rows = json.loads((folder / "model.json").read_text())["ram"]
    return {row["name"]: row["bytes"] for row in rows}


def memory_bytes(folder: Path) -> int:
    found = re.search(r"_MEMORY_BYTES (\d+)\n", (folder / "model.h").read_text())
    assert found is not None
    return int(found[1])


def test_the_table_of_ram_is_the_memory_plan(tmp_path: Path) -> None:
    target = ("--train", "--target", "armv7e-m")
    plain = exported(tmp_path, *target, "--dim", "N=64", text=DEEP).rename(tmp_path / "plain")
    again = exported(
        tmp_path, *target, "--dim", "N=64", "--recompute", "checkpoints", text=DEEP
    ).rename(tmp_path / "again")
    split = exported(tmp_path, *target, "--dim", "N=4", "--accumulate", 16, text=DEEP)
    for folder in (plain, again, split):
        assert sum(used(folder).values()) == memory_bytes(folder)
        assert used(folder)["weights"] == 12 * 16 * 16 * 4
    assert "optimizer state" not in used(plain)
    assert used(plain)["activations"] >= 11 * 64 * 16 * 4
    assert used(again)["activations"] <= used(plain)["activations"] * 0.6
    assert memory_bytes(again) < memory_bytes(plain)
    assert used(split)["accumulated gradients"] == used(split)["weights"]
    assert used(split)["activations"] <= used(plain)["activations"] / 8
    at = json.loads((plain / "model.json").read_text())["peak"]
    assert re.fullmatch(r"(the gradient of )?\w+(/\w+)? \(net.pgraph:\d+\)", at), at


def test_each_weight_is_updated_before_the_next_gradient(tmp_path: Path) -> None:
    """At no time are there gradients of more than two weights, with momentum."""
    text = DEEP.replace("SGD(0.1)", "SGD(0.1, momentum=0.9)")
    folder = exported(tmp_path, "--train", "--target", "armv7e-m", "--dim", "N=1", text=text)
    rows = used(folder)
    assert rows["optimizer state"] == rows["weights"]
    weight, activation = 16 * 16 * 4, 64
    assert rows.get("gradients", 0) + rows.get("scratch", 0) <= 2 * (weight + activation)


@pytest.mark.parametrize(
    ("arguments", "section", "message"),
    [
        (["--train", "--accumulate", 0], "", "accumulate must be an integer of at least 1, not 0"),
        (["--train", "--accumulate", -2], "", "at least 1, not -2"),
        (["--train", "--recompute", "all"], "", "one of none, checkpoints, norms, not 'all'"),
        (["--accumulate", 2], "", "belongs to --train"),
        (["--recompute", "norms"], "", "belongs to --train"),
        (["--train", "--derivatives", "vjp"], "", "has no derivatives"),
        (["--train", "--dim", "N=..8"], "", "a training step has one size for N"),
        (["--train"], "loss_scale = 'auto'", "has a constant loss scale"),
        (["--train"], "replicas = 2", "an exported step has no replicas"),
        (["--train"], "stages = 2", "an exported step has no stages"),
        (["--train"], "quantize = 'int8'", "an exported step has no quantize"),
        (["--train", "--target", "riscv64"], "precision = 'bf16'", "no dot products of bf16"),
    ],
)
def test_wrong_options_have_messages(
    arguments: list[object], section: str, message: str, tmp_path: Path
) -> None:
    quoted = section.replace("'", '"')
    text = DEEP.replace("optimizer =", f"{quoted}\n    optimizer =")
    (tmp_path / "net.pgraph").write_text(text)
    dims = [] if "--dim" in arguments else ["--dim", "N=4"]
    command = ["export", tmp_path / "net.pgraph", "-o", tmp_path / "c", *arguments, *dims]
    result = CliRunner().invoke(app, list(map(str, command)))
    assert result.exit_code in (1, 2)
    assert message in " ".join(result.output.split())
    assert not (tmp_path / "c").exists()


def test_export_says_how_to_need_less_ram(tmp_path: Path) -> None:
    text = DEEP.replace("optimizer =", 'clip = 1.0\n    recompute = "checkpoints"\n    optimizer =')
    (tmp_path / "net.pgraph").write_text(text)
    command = ["export", tmp_path / "net.pgraph", "-o", tmp_path / "c", "--dim", "N=4"]
    command += ["--train", "--target", "riscv64"]
    said = CliRunner().invoke(app, list(map(str, command))).output
    listed = dict(re.findall(r"RAM +([a-z ]+?) +([\d,]+)", said))
    found = {name: int(size.replace(",", "")) for name, size in listed.items()}
    assert found == used(tmp_path / "c")
    assert "RAM is at its peak in" in said
    ways = said.split("To need less RAM, the largest use first:")[1]
    assert "gradients: `clip` needs all at once" in ways
    assert "--recompute" not in ways, "it is used already"


def test_options_of_the_text_are_exported(tmp_path: Path) -> None:
    text = TEXTS["momentum"].replace("optimizer", "accumulate = 3\n    optimizer")
    target = ("--train", "--target", "riscv64")
    folder = exported(tmp_path, *target, text=text)
    assert "MODEL_ACCUMULATE 3 " in (folder / "model.h").read_text()
    folder = exported(tmp_path, *target, "--accumulate", 1, text=text)
    assert "MODEL_ACCUMULATE" not in (folder / "model.h").read_text()


def test_the_firmware_of_the_page_learns_on_a_cortex_m4(tmp_path: Path) -> None:
    for tool in ("arm-none-eabi-gcc", "qemu-system-arm"):
        if shutil.which(tool) is None:
            pytest.skip(f"{tool} is not installed")
    page = (ROOT / "docs/train-on-device.md").read_text()
    (text,) = re.findall(r"```pgraph\n(.*?)```", page, re.DOTALL)
    sources = re.findall(r"```c\n/\* (\w+\.c) \*/\n(.*?)```", page, re.DOTALL)
    assert [name for name, _ in sources] == ["firmware.c", "system.c"]
    for name, source in sources:
        (tmp_path / name).write_text(source)
    (tmp_path / "gestures.pgraph").write_text(text)
    (commands,) = re.findall(r"```text\n(.*?)```", page, re.DOTALL)
    lines = [line[2:] for line in commands.splitlines() if line.startswith("$ ")]
    (export,) = re.findall(r"\$ popgraph (export .* -o gestures_c)", page)
    printed = ""
    for line in (f"{sys.executable} -m popgraph {export}", *lines):
        done = subprocess.run(line.split(), cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        printed = done.stdout
    wanted = [line for line in commands.splitlines() if line.startswith("after")]
    assert printed.splitlines() == wanted


def test_three_devices_learn_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn", reason="the digits come with scikit-learn")
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(ROOT / "examples/federated/server.py"), run_name="__main__")
