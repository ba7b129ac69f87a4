"""Tests of npm packages: WebAssembly with a loader, in Node."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

import popgraph
from popgraph.backends.c.export.packages import wasm
from popgraph.cli import app
from popgraph.cli.models import of_model
from popgraph.support.errors import BackendError
from tests.browsers import browser as browser
from tests.browsers import served

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
KINDS = """
opset 21

graph kinds(x: f32[4, M, 8], b: f64[N, 3], i: i64[2], s: f32[]) -> (y, t, z, g, total) {
    y = Erf(Sin(x) + Tan(s)) + Acosh(Abs(x) + 1.0)
    t = Transpose(x, perm=[1, 0, 2])
    z = Reshape(Pow(Abs(b), 1.5), [-1])
    weight table: f32[5, 2] = he_normal(seed=1)
    g = Gather(table, i)
    total = ReduceSum(g, keepdims=0)
}
"""
"""Sizes of inner axes, scalars, integers, and functions of the C library."""
WIDE = """
graph wide(x: f32[64, 256]) -> (y) {
    weight w: f32[256, 256] = he_normal(seed=1)
    y = Relu(x @ w)
}
"""
"""A product that threads share."""
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


def exported(folder: Path, *options: object, text: str = NETWORK) -> Path:
    """The folder of an npm package."""
    code, output = invoked(folder, *options, text=text)
    assert code == 0, output
    return folder / "npm"


def node(folder: Path, script: str) -> list[str]:
    """The lines that a script prints in a package's folder."""
    (folder / "script.mjs").write_text(script)
    done = subprocess.run(["node", "script.mjs"], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def messages(folder: Path, name: str, calls: list[str]) -> list[str]:
    """The errors of calls of a loaded `model`; `x` is an input."""
    return node(
        folder,
        f"""
import {{ load }} from "./{name}.js";
const model = await load();
const x = new Float32Array(6);
const labels = new Int32Array(4);
for (const call of [{", ".join(f"async () => {call}" for call in calls)}]) {{
  try {{ await call(); console.log("no error"); }} catch (error) {{ console.log(String(error)); }}
}}
""",
    )


def checked(folder: Path) -> list[str]:
    """The tensors that `npm test` compares."""
    command = json.loads((folder / "package.json").read_text())["scripts"]["test"]
    done = subprocess.run(command.split(), cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    *lines, last = done.stdout.splitlines()
    assert last == "good"
    return [line.split(":")[0] for line in lines]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of a training step for 4 rows, with inference of one."""
    options = ("--train", "--no-dropout", "--dim", "N=4", "--run-dim", "N=1", "--name", "net")
    return exported(tmp_path_factory.mktemp("trained"), *options)


@pytest.fixture(scope="module")
def kinds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of a model for inference."""
    options = ("--dim", "N=..5", "--dim", "M=..4", "--indices", "error", "--name", "kinds")
    return exported(tmp_path_factory.mktemp("kinds"), *options, text=KINDS)


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package of a model for three threads."""
    options = ("--threads", "3", "--name", "wide")
    return exported(tmp_path_factory.mktemp("wide"), *options, text=WIDE)


@needs_compiler
@needs_node
def test_both_modules_pass_the_test_vectors(trained: Path, kinds: Path) -> None:
    assert checked(trained) == [
        f"{function}{simd}, {output}"
        for simd in ("", " with SIMD")
        for function, output in (("run", "y"), ("step", "y"), ("step", "loss"))
    ]
    outputs = ["y", "t", "z", "g", "total"]
    assert checked(kinds) == [
        f"run{simd}, {output}"
        for simd in ("", " with SIMD")
        for _ in range(3)
        for output in outputs
    ]


TRAINING = """
import { writeFile } from "node:fs/promises";
import { load } from "./net.js";
const model = await load();
const other = await load({ simd: false });
const x = Float32Array.from({ length: 24 }, (_, at) => Math.fround(at / 24));
const labels = new Int32Array([1, 2, 0, 1]);
const losses = [];
for (let step = 0; step < 4; step++) {
  losses.push(model.step({ x, labels }).loss);
  if (step === 1) other.load(model.save());
}
for (let step = 2; step < 4; step++) losses.push(other.step({ x, labels }).loss);
await writeFile("state.safetensors", model.save());
console.log(losses.join(" "));
console.log(model.run({ x: x.slice(0, 6) }).y.join(" "));
model.reset();
console.log(model.step({ x, labels }).loss === losses[0]);
"""


@needs_compiler
@needs_node
def test_steps_save_load_and_run_agree_with_the_trainer(trained: Path) -> None:
    """The module without SIMD continues from the state of the one with SIMD."""
    *lines, is_reset = node(trained, TRAINING)
    losses, outputs = (np.array(line.split(), np.float32) for line in lines)
    assert is_reset == "true"
    x = (np.arange(24, dtype=np.float32) / np.float32(24)).reshape(4, 6)
    given = {"x": x, "labels": np.array([1, 2, 0, 1], np.int32)}
    trainer = popgraph.Trainer(trained.parent / "net.pgraph", dropout=False)
    trainer.fit(given, epochs=4, shuffle=False)
    wanted = [row["loss"] for row in trainer.history.steps]
    np.testing.assert_allclose(losses, [*wanted, *wanted[2:]], rtol=1e-5)
    trainer.save(trained.parent / "net.onnx")
    (predicted,) = popgraph.compile(trained.parent / "net.onnx")(x=x[:1]).values()
    np.testing.assert_allclose(outputs, predicted[0], rtol=1e-5)

    state = trained / "state.safetensors"
    loaded = popgraph.load_weights(trained.parent / "net.pgraph", state, strict=False)
    assert not loaded.missing
    again = popgraph.compile(loaded)(x=x[:1])["y"]
    np.testing.assert_allclose(again, predicted, rtol=1e-5)


@needs_compiler
@needs_node
def test_wrong_calls_of_training_are_errors(trained: Path) -> None:
    wrong = {
        "model.run({ x: x.slice(1) })": 'RangeError: net.run: input "x" takes a Float32Array of 6 '
        "elements (f32[1, 6]), not of 5",
        "model.run({ x: new Float64Array(6) })": 'TypeError: net.run: input "x" takes a '
        "Float32Array of 6 elements (f32[1, 6]), not a value of type Float64Array",
        "model.run({ x: [1, 2, 3, 4, 5, 6] })": 'TypeError: net.run: input "x" takes a '
        "Float32Array of 6 elements (f32[1, 6]), not a value of type Array",
        "model.run(x)": 'TypeError: net.run takes an object of inputs: "x"',
        "model.run({ x, z: x })": 'TypeError: net.run has no input "z"; its inputs: "x"',
        "model.step({ labels })": 'TypeError: net.step: input "x" is missing',
        "model.run({ x }, { N: 1 })": "TypeError: net.run: the model has fixed sizes; pass the "
        "inputs only",
        "model.load(new Uint8Array(40))": "TypeError: net.load: these bytes are not a state that "
        "save() returned",
        "model.load('state')": "TypeError: net.load takes the bytes that save() returned",
        "model.load(model.save().slice(0, -4))": "RangeError: net.load: the state is cut off in "
        'variable "Step___v"',
        'model.variable("q")[0]': 'TypeError: net has no variable "q"; its variables: "w", "v", '
        '"Accl1___w", "Accl2___w", "Step___w", "Accl1___v", "Accl2___v", "Step___v"',
        'model.saveTo("here")': "Error: net: there is no IndexedDB here; write the bytes that "
        "save() returns to a file",
    }
    assert messages(trained, "net", [*wrong]) == [*wrong.values()]


OTHER = """
import { load } from "./net.js";
const model = await load();
const before = model.save().join();
const other = model.save();
const text = new TextDecoder("latin1").decode(other);
for (const [from, to] of [["[6,8]", "[8,6]"], ['"net"', '"tap"'], ['"v":', '"u":']]) {
  other.set(new TextEncoder().encode(to), text.indexOf(from));
  try { model.load(other); console.log("no error"); } catch (error) { console.log(error.message); }
  if (from === '"net"') other.set(new TextEncoder().encode("[6,8]"), text.indexOf("[6,8]"));
}
console.log(model.save().join() === before);
"""


@needs_compiler
@needs_node
def test_a_state_of_another_model_is_refused(trained: Path) -> None:
    assert node(trained, OTHER) == [
        'net.load: variable "w" is F32[8,6] in the state, not F32[6,8]',
        'net.load: variable "w" is F32[8,6] in the state of "tap", not F32[6,8]',
        'net.load: the state of "tap" has no variable "v": it is another model\'s',
        "true",
    ]


@needs_compiler
@needs_node
def test_wrong_calls_of_inference_are_errors(kinds: Path) -> None:
    good = (
        "x: new Float32Array(64), b: new Float64Array(6), i: new BigInt64Array(2).fill(4n), s: 1.5"
    )
    wrong = {
        f"model.run({{ {good} }}, {{ M: 2, N: 2 }})": "no error",
        f"model.run({{ {good} }}, {{ M: 2, N: 6 }})": 'RangeError: kinds.run: size "N" must be an '
        "integer from 1 to 5, not 6",
        f"model.run({{ {good} }})": 'RangeError: kinds.run: size "M" must be an integer from 1 to '
        "4, not undefined",
        f"model.run({{ {good} }}, {{ M: 3, N: 2 }})": 'RangeError: kinds.run: input "x" takes a '
        "Float32Array of 96 elements (f32[4, 3, 8]), not of 64",
        f"model.run({{ {good.replace('4n', '5n')} }}, {{ M: 2, N: 2 }})": "RangeError: kinds.run: "
        "an index in the inputs is out of range",
        f"model.run({{ {good.replace('1.5', 'x')} }}, {{ M: 2, N: 2 }})": "TypeError: kinds.run: "
        'input "s" takes a number',
        "model.step({ x })": "Error: kinds was exported for inference and cannot train: `popgraph "
        "export --train --package npm` exports step()",
        "model.save()": "Error: kinds has no state: it keeps nothing between two calls",
    }
    assert messages(kinds, "kinds", [*wrong]) == [*wrong.values()]


THREADS = """
async () => {
  const { load } = await import("./wide.js");
  const x = Float32Array.from({ length: 64 * 256 }, (_, at) => Math.sin(at));
  const [one, all] = [await load({ threads: 1 }), await load()];
  const wanted = one.run({ x }).y;
  let equal = true;
  for (let at = 0; at < 20; at++) {
    equal &&= all.run({ x }).y.every((value, index) => value === wanted[index]);
  }
  const caught = async (call) => call().then(() => "no error", (error) => error.message);
  const errors = [
    await caught(() => load({ threads: 2 })),
    await caught(() => load({ threads: 4 })),
    await caught(() => load({ threads: 2, simd: false })),
  ];
  all.close();
  errors.push(await caught(async () => all.run({ x })));
  return [one.threads, all.threads, equal, ...errors];
}
"""
BOUND = (
    "wide: threads must be an integer from 1 to 3, not 4: `popgraph export --threads` sets the "
    "largest number"
)


@needs_compiler
@needs_node
def test_threads_compute_the_same_bits(wide: Path) -> None:
    lines = node(wide, f"console.log((await ({THREADS})()).join('\\n'))")
    closed = "wide.run: the model is closed"
    assert lines == ["1", "3", "true", "no error", BOUND, "wide: threads need SIMD", closed]
    assert checked(wide)[-1] == "run with threads, y"


@needs_compiler
def test_pages_have_threads_if_they_are_isolated(wide: Path, browser: Any) -> None:
    (wide / "page.html").write_text("<!doctype html><title>Threads</title>")
    closed = "wide.run: the model is closed"
    with served(wide) as address:
        page = browser.new_page()
        page.goto(f"{address}isolated/page.html")
        assert page.evaluate(THREADS) == [
            *(1, 3, True, "no error", BOUND, "wide: threads need SIMD", closed)
        ]
        page.goto(f"{address}page.html")
        one, default, equal, refused, *rest = page.evaluate(THREADS)
        page.close()
    assert (one, default, equal) == (1, 1, True)
    assert refused.startswith("wide: threads need a page that is cross-origin isolated")
    assert rest == [BOUND, "wide: threads need SIMD", closed]


IMPORTS = """
import { readFile } from "node:fs/promises";
for (const file of ["kinds.wasm", "kinds_simd.wasm"]) {
  const module = new WebAssembly.Module(await readFile(file));
  const names = WebAssembly.Module.exports(module).map((one) => one.name);
  console.log(WebAssembly.Module.imports(module).length, names.join(" "));
}
"""


@needs_compiler
@needs_node
def test_modules_import_nothing(kinds: Path) -> None:
    assert node(kinds, IMPORTS) == ["0 memory _initialize address start run"] * 2


DECLARED = """\
export interface RunInputs {
  /** f32[4, M, 8] */
  x: Float32Array;
  /** f64[N, 3] */
  b: Float64Array;
  /** i64[2] */
  i: BigInt64Array;
  /** f32[] */
  s: number;
}
"""


def test_files_are_complete_and_their_code_is_valid(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a compiler for WebAssembly: the C is checked by this machine's."""
    sources = dict[str, bytes]()

    def compile_modules(files: dict[str, list[memoryview]], *rest: object) -> list[bytes]:
        sources.update({name: b"".join(parts) for name, parts in files.items()})
        return [b"plain", b"simd"]

    monkeypatch.setattr(wasm, "compile_modules", compile_modules)
    options = ("--dim", "N=..5", "--dim", "M=..4", "--name", "kinds")
    folder = exported(tmp_path, *options, text=KINDS)
    (tmp_path / "c").mkdir()
    for name, content in sources.items():
        (tmp_path / "c" / name).write_bytes(content)
    command = ["cc", "-std=c11", "-Wall", "-Wextra", "-Werror", "-Wno-attributes", "-fsyntax-only"]
    done = subprocess.run(
        [*command, "kinds_wasm.c"], cwd=tmp_path / "c", capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr

    manifest = json.loads((folder / "package.json").read_text())
    written = {one.name for one in folder.iterdir()}
    assert written == {
        *manifest["files"],
        *("package.json", "README.md", "check_kinds.js", "check_kinds.json"),
    }
    assert (folder / "kinds_simd.wasm").read_bytes() == b"simd"
    types = (folder / "kinds.d.ts").read_text()
    assert DECLARED in types
    assert "run(inputs: RunInputs, sizes: Sizes): RunOutputs;" in types
    assert "save()" not in types
    if shutil.which("node") is not None:
        for script in ("kinds.js", "check_kinds.js"):
            subprocess.run(["node", "--check", script], cwd=folder, check=True)


def test_without_a_compiler_the_error_names_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wasm, "compilers", lambda: iter(()))
    with pytest.raises(BackendError, match="no compiler for WebAssembly works") as raised:
        wasm.compile_modules({}, [], [], [wasm.PLAIN])
    assert "pip install ziglang" in str(raised.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--target", "riscv64"], "a package for npm cannot have --target riscv64"),
        (["--weights", "array"], "a package for npm cannot have --weights array"),
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


def test_inference_ignores_sizes_of_the_train_section(tmp_path: Path) -> None:
    (tmp_path / "net.pgraph").write_text(NETWORK)
    assert of_model(tmp_path / "net.pgraph", ["M=2", "N=4"]) == ["N=4"]


def test_sizes_of_inference_belong_to_training(tmp_path: Path) -> None:
    code, output = invoked(tmp_path, "--dim", "N=4", "--run-dim", "N=1")
    assert code == 2
    assert "belongs to --train" in output
