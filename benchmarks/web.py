"""
Benchmarks npm packages in headless Chromium, beside onnxruntime-web and TensorFlow.js.

    python benchmarks/web.py                 all networks
    python benchmarks/web.py lenet mlp       some of them
    python benchmarks/web.py --rounds 5      longer

npm installs the peers into --folder at the first run. Every program has one thread: onnxruntime-web
and TensorFlow.js's wasm backend are set to --threads. Inference is of one sample, training of
batches of 32 with Adam. TensorFlow.js has no gradient of convolutions in its wasm backend.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from importlib.resources import files
from pathlib import Path
from typing import Any

from chosen import one_of
from playwright.sync_api import Error, sync_playwright

from popgraph.support.tables import markdown_table

sys.path.append(str(Path(__file__).parents[1]))
from tests.browsers import BROWSERS, served

PEERS = ("onnxruntime-web", "@tensorflow/tfjs", "@tensorflow/tfjs-backend-wasm")
BATCH = 32
TEXTS = {
    "lenet": (files("popgraph.zoo") / "lenet.pgraph").read_text(),
    "mlp": """
opset 21

def dense(x: f32[N, inputs], outputs) -> y {
    weight w: f32[inputs, outputs] = he_normal
    weight b: f32[outputs] = zeros
    y = x @ w + b
}

graph mlp(x: f32[N, 784]) -> (logits: f32[N, 10]) {
    logits = x |> dense(256) |> Relu |> dense(128) |> Relu |> dense(10)
}

train (labels: i32[N]) {
    loss = cross_entropy(logits, labels)
    optimizer = Adam(learning_rate=0.001)
}
""",
    "encoder": """
opset 21

let width = 64

def dense(x: f32[N, T, inputs], outputs) -> y {
    weight w: f32[inputs, outputs] = glorot_uniform
    weight b: f32[outputs] = zeros
    y = x @ w + b
}

def normalized(x: f32[N, T, D]) -> y {
    weight scale: f32[D] = ones
    weight bias: f32[D] = zeros
    y = LayerNormalization(x, scale, bias)
}

def heads(x: f32[N, T, D]) -> y {
    y = Transpose(Reshape(x, [0, 0, 4, 16]), perm=[0, 2, 1, 3])
}

def layer(x: f32[N, T, width]) -> y {
    n = normalized(x)
    q = n |> dense(width) |> heads
    k = Transpose(n |> dense(width) |> heads, perm=[0, 1, 3, 2])
    v = n |> dense(width) |> heads
    mixed = Softmax(q @ k * 0.25) @ v
    a = x + (Reshape(Transpose(mixed, perm=[0, 2, 1, 3]), [0, 0, 64]) |> dense(width))
    y = a + (normalized(a) |> dense(256) |> Gelu |> dense(width))
}

graph encoder(x: f32[N, 32, width]) -> (y) {
    y = x |> layer |> layer
}
""",
}
TRAINED = {"lenet": ("cpu", "webgl"), "mlp": ("wasm", "cpu")}
"""The backends of TensorFlow.js that can train a network; webgl is software without a GPU."""


def popgraph(*arguments: object) -> None:
    command = [sys.executable, "-m", "popgraph", *map(str, arguments)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def prepare(folder: Path, name: str) -> None:
    """Exports a network for inference and training, and as ONNX."""
    text = folder / f"{name}.pgraph"
    text.write_text(TEXTS[name])
    popgraph("convert", text, folder / f"{name}.onnx")
    package = ("--package", "npm", "--name", "net")
    popgraph("export", text, "--dim", "N=1", *package, "-o", folder / f"{name}_run")
    if name in TRAINED:
        step = folder / f"{name}_step"
        popgraph("export", text, "--train", "--dim", f"N={BATCH}", *package, "-o", step)


def row(kind: str, name: str, measured: dict[str, Any]) -> list[str]:
    (_, ours), (peer, theirs) = measured["times"].items()
    return [kind, name, f"{ours:.3f}", peer, f"{theirs:.3f}", f"{theirs / ours:.2f}"]


def measure(page: Any, address: str, call: str) -> Any:
    """The result of a call of web.js in a fresh page."""
    page.goto(address + "isolated/empty.html")  # Threads need shared memory.
    return page.evaluate(f"import('./web.js').then((web) => web.{call})")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[1])
    parser.add_argument(
        "names", nargs="*", type=one_of("network", TEXTS), metavar="NAME", help=", ".join(TEXTS)
    )
    parser.add_argument("--folder", type=Path, default=Path("build/web"))
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--milliseconds", type=int, default=500, help="of each round")
    arguments = parser.parse_args()
    folder = arguments.folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "node_modules").exists():
        subprocess.run(
            ["npm", "install", "--no-audit", "--no-fund", *PEERS], cwd=folder, check=True
        )
    shutil.copy(Path(__file__).with_name("web.js"), folder)
    (folder / "empty.html").write_text("<!doctype html><title>Benchmark</title>")
    names = arguments.names or [*TEXTS]
    for name in names:
        prepare(folder, name)
    options = (
        f"{{threads: {arguments.threads}, rounds: {arguments.rounds}, "
        f"milliseconds: {arguments.milliseconds}}}"
    )
    rows = []
    with served(folder) as address, sync_playwright() as driver:
        chromium = next(filter(None, map(shutil.which, BROWSERS)), None)
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page()
        for name in names:
            found = measure(page, address, f"inference('{name}', {options})")
            assert found["apart"] < 1e-3, f"{name}: outputs differ by {found['apart']}"
            rows.append(row("inference", name, found))
            for backend in TRAINED.get(name, ()):
                try:
                    found = measure(page, address, f"training('{name}', '{backend}', {options})")
                except Error as error:
                    print(f"{name}, {backend}: {error.message.splitlines()[0]}", file=sys.stderr)
                    continue
                rows.append(row("training", name, found))
        browser.close()
    print("Milliseconds of a call:\n")
    print(markdown_table(["", "network", "PopGraph", "peer", "its time", "ratio"], rows))


if __name__ == "__main__":
    main()
