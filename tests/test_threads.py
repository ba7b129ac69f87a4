"""Tests that results are bitwise equal for every number of threads."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

import popgraph
from popgraph import compiler
from popgraph.backends.c.print.unit import POOL, headers
from popgraph.backends.interface import MOST_THREADS
from popgraph.dialects.tile import CallOp
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import Options, Training
from popgraph.support.arrays import Array

NETWORK = """
opset 13

graph network(x: T[2, 3, 40, 40], labels: i32[2]) -> (probabilities, loss) {
    weight w1: T[16, 3, 3, 3] = he_normal(seed=1)
    weight b1: T[16] = normal(std=0.1, seed=2)
    weight w2: T[24, 16, 3, 3] = he_normal(seed=3)
    weight scale: T[24] = ones
    weight shift: T[24] = zeros
    weight mean: T[24] = zeros
    weight deviation: T[24] = ones
    weight w3: T[2400, 65] = he_normal(seed=4)
    weight b3: T[65] = zeros

    p1 = MaxPool(Relu(Conv(x, w1, b1, pads=[1, 1, 1, 1])), kernel_shape=[2, 2], strides=[2, 2])
    c2 = BatchNormalization(Conv(p1, w2, pads=[1, 1, 1, 1]), scale, shift, mean, deviation)
    p2 = AveragePool(Sigmoid(c2), kernel_shape=[2, 2], strides=[2, 2])
    probabilities = Softmax(Gemm(Flatten(p2), w3, b3), axis=-1)
    loss = ai.graphcore.Nll(probabilities, labels)
}
"""
WEIGHTS = ("w1", "b1", "w2", "w3", "b3")
THREADS = (1, 2, 3)
RUNS = 3


def data(kind: str) -> dict[str, Array]:
    x = np.random.default_rng(0).standard_normal((2, 3, 40, 40))
    dtype = {"f32": np.float32, "f64": np.float64, "f16": np.float16}[kind]
    return {"x": x.astype(dtype), "labels": np.array([3, 1], np.int32)}


@pytest.fixture
def path(tmp_path: Path, kind: str) -> Path:
    made = tmp_path / "network.pgraph"
    made.write_text(NETWORK.replace("T[", f"{kind}["))
    return made


@pytest.mark.parametrize("kind", ["f32"])
def test_models_have_kernels_of_several_chunks(path: Path) -> None:
    """Without several chunks, the other tests could not fail."""
    module, compilation = compiler.load(path)
    compiler.lower(module, compilation, Options(threads=2))
    chunks = [op.chunks.value.data for op in module.walk() if isinstance(op, CallOp)]
    assert sum(count > 1 for count in chunks) >= 4


@pytest.mark.parametrize("kind", ["f32", "f64", "f16"])
def test_inference_on_any_number_of_threads(path: Path, kind: str) -> None:
    inputs, found = data(kind), set[bytes]()
    for threads in THREADS:
        run = popgraph.compile(path, threads=threads)
        found |= {run(inputs)["probabilities"].tobytes() for _ in range(RUNS)}
    assert len(found) == 1


@pytest.mark.parametrize("kind", ["f32", "f64"])
def test_training_on_any_number_of_threads(path: Path, kind: str) -> None:
    """Two steps: the second one reveals different rounding in the first."""
    inputs, found = data(kind), set[tuple[bytes, ...]]()
    training = Training("loss", SGD(learning_rate=Scalar(0.1), momentum=Scalar(0.9)))
    for threads in THREADS * 2:
        run = popgraph.compile(path, threads=threads, options=Options(training=training))
        losses = [run(inputs)["loss"].tobytes() for _ in range(2)]
        program = run.program(inputs)
        found.add((*losses, *(program.read(name).tobytes() for name in WEIGHTS)))
    assert len(found) == 1


def test_the_maximum_of_threads_is_that_of_the_pool() -> None:
    (size,) = re.findall(r"POPGRAPH_RANGES = (\d+)", headers(POOL)[POOL])
    assert int(size) == MOST_THREADS
