"""
Times short calls and training steps in microseconds, beside onnxruntime, as a table.

The networks are so small that most of the time is Python: checks of inputs, and copies of inputs
and outputs. `make bench-quick` times the same calls with two revisions.

    python benchmarks/calls.py
"""

from __future__ import annotations

import argparse
import time
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
from chosen import one_of
from onnx import ModelProto

import popgraph.ort
from popgraph.backends.registry import DEFAULT, backend_named
from popgraph.builder.onnx.write import export_model
from popgraph.compiler import BuildRequest, for_this_machine, load, lower
from popgraph.measure.timing import Contestant, pin, race, random_model_inputs
from popgraph.passes.options import Options
from popgraph.support.tables import markdown_row, markdown_table

Measure: TypeAlias = Callable[[float], float]
"""Measures a call for the given seconds; returns the fastest time in seconds."""

MLP = """
graph mlp(x: f32[ROWS, 16]) -> (y: f32[ROWS, 4]) {
    weight w: f32[16, 32] = glorot_uniform
    weight v: f32[32, 4] = glorot_uniform
    y = Relu(x @ w) @ v
}
"""
NETWORKS = {
    "relu": "graph relu(x: f32[1, 16]) -> (y: f32[1, 16]) { y = Relu(x) }",
    "mlp": MLP.replace("ROWS", "1"),
    "open mlp": MLP.replace("ROWS", "N"),
}
BATCH, BATCHES = 16, 500
"""Samples of a step, and steps of an epoch."""
WINDOW = 20
"""Steps between two readings of the clock."""
HEADING = ("call", "ours us", "kernels us", "onnxruntime us", "theirs / ours")


def inputs() -> dict[str, Any]:
    return {"x": np.ones((1, 16), np.float32)}


def proto(network: str) -> ModelProto:
    module, compilation = load(NETWORKS[network])
    return export_model(module, compilation.weights)


def by_keyword(network: str) -> Callable[[], object]:
    """A call as in the tutorial."""
    run, given = popgraph.compile(NETWORKS[network], quick=False), inputs()
    return lambda: run(**given)


def by_session(network: str, runtime: ModuleType = popgraph.ort) -> Callable[[], object]:
    """A call of onnxruntime's method, by default that of `popgraph.ort`."""
    options, given = runtime.SessionOptions(), inputs()
    options.intra_op_num_threads = 1
    session = runtime.InferenceSession(proto(network).SerializeToString(), options)
    return lambda: session.run(None, given)


class Windows(popgraph.Callback):
    """The fastest step of a training, by windows of steps."""

    def __init__(self) -> None:
        self.best, self._steps, self._last = float("inf"), 0, 0.0

    def on_step(self, trainer: object, row: object) -> None:
        self._steps += 1
        if self._steps % WINDOW == 0:
            now = time.thread_time()
            if self._steps > WINDOW:
                self.best = min(self.best, (now - self._last) / WINDOW)
            self._last = now


def trainer() -> popgraph.Trainer:
    return popgraph.Trainer(NETWORKS["open mlp"], loss="cross_entropy", optimizer="sgd(0.01)")


def data(batches: int = BATCHES) -> tuple[Any, Any]:
    generator = np.random.default_rng(0)
    x = generator.standard_normal((BATCH * batches, 16)).astype(np.float32)
    return x, generator.integers(0, 4, BATCH * batches)


def fit() -> Measure:
    """Measures the steps of `Trainer.fit` on shuffled batches."""
    made, given = trainer(), data()

    def measure(seconds: float) -> float:
        windows, end = Windows(), time.thread_time() + seconds
        while windows.best == float("inf") or time.thread_time() < end:
            made.fit(given, batch=BATCH, callbacks=[windows])
        return windows.best

    return measure


def by_popart() -> Callable[[], object]:
    """A step of PopART's session, on the same batch again and again."""
    popart: Any = import_module("popgraph.compat.popart")
    builder = popart.Builder()
    x, labels = data(1)
    image = builder.addInputTensor(popart.TensorInfo("FLOAT", x.shape), "x")
    label = builder.addInputTensor(popart.TensorInfo("INT32", labels.shape), "label")
    generator = np.random.default_rng(0)
    hidden, out = (
        builder.addInitializedInputTensor(generator.standard_normal(shape).astype(np.float32))
        for shape in ((16, 32), (32, 4))
    )
    onnx = builder.aiOnnx
    scores = onnx.softmax([onnx.matmul([onnx.relu([onnx.matmul([image, hidden])]), out])])
    loss = builder.aiGraphcore.nllloss([scores, label])
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, {loss: popart.AnchorReturnType("ALL")}),
        loss,
        popart.ConstSGD(0.01),
        deviceInfo=popart.DeviceManager().createCpuDevice(),
    )
    session.prepareDevice()
    session.weightsFromHost()
    given = {"x": x, "label": labels.astype(np.int32)}
    step = popart.PyStepIO(given, session.initAnchorArrays())
    return lambda: session.run(step)


def fastest(contestant: Contestant) -> Measure:
    """Measures the fastest call of a contestant."""

    def measure(seconds: float) -> float:
        contestant.samples.clear()
        race([contestant], threads=1, seconds=seconds, rounds=3)
        return contestant.best

    return measure


def calling(call: Callable[[], object]) -> Measure:
    return fastest(Contestant("", call))


CALLS: dict[str, Callable[[], Measure]] = {
    "relu": lambda: calling(by_keyword("relu")),
    "mlp": lambda: calling(by_keyword("mlp")),
    "open mlp": lambda: calling(by_keyword("open mlp")),
    "relu, ort": lambda: calling(by_session("relu")),
    "mlp, ort": lambda: calling(by_session("mlp")),
    "step, fit": fit,
    "step, popart": lambda: calling(by_popart()),
}
"""{call: a function that prepares its measurement}."""


def request_of(name: str) -> BuildRequest:
    """The program that a call runs."""
    if name.startswith("step"):
        made = trainer()
        made.fit(data(1), batch=BATCH)
        return made.request()
    module, compilation = load(NETWORKS["mlp" if "mlp" in name else "relu"])
    return BuildRequest(module, compilation, Options(), DEFAULT, 1)


def kernels(name: str, seconds: float) -> float:
    """The time of the program alone, without Python."""
    request = request_of(name)
    options = for_this_machine(request.options, 1)
    lower(request.module, request.compilation, options)
    profile = backend_named(DEFAULT).tools.profile(request.module, request.compilation.weights, 1)
    given = random_model_inputs(profile.executable.inputs)
    profile.measure(given, max(100, int(seconds * 2e4)), call_by_call=False)
    return profile.total * 1e-9


def theirs(name: str, seconds: float) -> float | None:
    """The time of onnxruntime, which has no training in its wheels."""
    if name.startswith("step") or find_spec("onnxruntime") is None:
        return None
    import onnxruntime

    network = name.partition(",")[0]
    return calling(by_session(network, onnxruntime))(seconds)


def cells(name: str, seconds: float) -> list[str]:
    own, alone, other = CALLS[name]()(seconds), kernels(name, seconds), theirs(name, seconds)
    times = ["-" if one is None else f"{1e6 * one:.2f}" for one in (own, alone, other)]
    return [name, *times, "-" if other is None else f"**{other / own:.2f}**"]


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names",
        nargs="*",
        metavar="CALL",
        type=one_of("call", CALLS),
        help=", ".join(map(repr, CALLS)),
    )
    parser.add_argument("--seconds", type=float, default=3.0, help="of each time")
    given = parser.parse_args(arguments)
    warnings.simplefilter("ignore")
    pin(1)
    print(markdown_table(HEADING, [], " rrrr"))
    for name in given.names or CALLS:
        print(markdown_row(cells(name, given.seconds)), flush=True)


if __name__ == "__main__":
    main()
