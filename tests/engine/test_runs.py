"""Tests programs of many micro-batches on plain arrays, without a trainer or a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest

import popgraph
from popgraph.builder.pgraph import parse
from popgraph.engine.engine import Engine
from popgraph.engine.errors import UnknownOutputError
from popgraph.engine.host_weights import HostWeights
from popgraph.engine.plan import StepPlan
from popgraph.engine.program import Program, Request
from popgraph.engine.replicas import SequentialReplicas
from popgraph.engine.runs import StepRunner
from popgraph.engine.shares import StepShard
from popgraph.engine.steps import Steps
from popgraph.engine.streams import ReturnPolicy, Stream
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.support.arrays import Array

NET = """
graph net(x: f32[4, 3], t: f32[4, 2]) -> (loss: f32) {
    weight w: f32[3, 2] = [[0.1, 0.2], [0.3, -0.4], [-0.5, 0.6]]
    y = x @ w |> Tanh
    loss = ReduceMean((y - t) * (y - t), keepdims=0)
}
"""
RNG = np.random.default_rng(3)
BATCHES, ROWS = 2, 4


class Arrays:
    """Streams over arrays: inputs have a row per micro-batch, outputs collect in lists."""

    def __init__(self, inputs: Mapping[str, Array], together: bool = False) -> None:
        self._inputs = {id: iter(array) for id, array in inputs.items()}
        self._whole, self._together = inputs, together
        self.outputs: dict[str, list[Array]] = {}

    def read(self, stream: Stream) -> Array:
        whole: Array = self._whole[stream.id]
        return whole if stream.shape == whole.shape else next(self._inputs[stream.id])

    def write(self, stream: Stream, value: Array) -> None:
        rows = value if value.shape == stream.shape and stream.shape else [value]
        self.outputs.setdefault(stream.id, []).extend(np.array(row) for row in rows)

    def are_contiguous(self, inputs: Iterable[Stream], outputs: Iterable[Stream]) -> bool:
        return self._together


def request(plan: StepPlan, outputs: tuple[str, ...] = ("loss",)) -> Request:
    rule = plan.rule(SGD(learning_rate=Scalar(0.5)), mean=True)
    return Request(outputs, rule, variables=True, loss="loss", tensors={"x", "t", "w", "y", "loss"})


class Trained:
    """One step of a plan: its outputs, and the weights after it."""

    def __init__(
        self,
        plan: StepPlan,
        data: Mapping[str, Array],
        backend: str = "reference",
        kept: ReturnPolicy | None = None,
        together: bool = False,
    ) -> None:
        document = parse(NET)
        self.program = program = Program(document.module, document.weights, request(plan))
        engine = Engine(program)
        engine.compile((backend, 1))
        host = HostWeights(program.initial_values)
        assert engine.executable is not None
        host.send(engine.executable)
        steps = Steps(program, {"loss": kept or ReturnPolicy()}, StepShard(plan, plan))
        self.arrays = Arrays(data, together)
        self.runs = StepRunner(engine, steps, SequentialReplicas(plan, (), (), draws=False), {})
        self.runs.step(self.arrays)
        host.fetch(engine.executable, lambda found: found)
        self.w = host.fetched()["w"]


def random_inputs(plan: StepPlan) -> dict[str, Array]:
    shapes = {"x": (ROWS, 3), "t": (ROWS, 2)}
    return {id: RNG.normal(size=(plan.runs, *one)).astype(np.float32) for id, one in shapes.items()}


def by_hand(plan: StepPlan, data: Mapping[str, Array]) -> Array:
    """The weights after a step: each update takes the mean gradient of its micro-batches."""
    w = np.array([[0.1, 0.2], [0.3, -0.4], [-0.5, 0.6]])
    size = plan.accumulate * plan.replicas
    for start in range(0, plan.runs, size):
        x = data["x"][start : start + size].reshape(-1, 3)
        t = data["t"][start : start + size].reshape(-1, 2)
        y = np.tanh(x @ w)
        w = w - 0.5 * x.T @ (2 * (y - t) * (1 - y * y)) / y.size
    return w


@pytest.mark.parametrize("accumulate", [1, 3])
@pytest.mark.parametrize("replicas", [1, 2])
@pytest.mark.parametrize("backend", ["reference", "c"])
def test_a_step_updates_once_for_each_batch(accumulate: int, replicas: int, backend: str) -> None:
    plan = StepPlan(accumulate=accumulate, replicas=replicas, batches=BATCHES)
    data = random_inputs(plan)
    found = Trained(plan, data, backend)
    np.testing.assert_allclose(found.w, by_hand(plan, data), rtol=1e-5, atol=1e-6)
    assert len(found.arrays.outputs["loss"]) == plan.runs


@pytest.mark.parametrize(
    "kept", [ReturnPolicy(), ReturnPolicy(3), ReturnPolicy(last=True), ReturnPolicy(summed=True)]
)
def test_one_call_for_all_micro_batches_is_one_for_each(kept: ReturnPolicy) -> None:
    plan = StepPlan(accumulate=3, batches=BATCHES)
    data = random_inputs(plan)
    whole, single = (Trained(plan, data, "c", kept, together) for together in (True, False))
    np.testing.assert_array_equal(whole.w, single.w)
    outputs = [np.array(one.arrays.outputs["loss"]) for one in (whole, single)]
    np.testing.assert_array_equal(*outputs)
    assert len(outputs[0]) == len(kept.of(plan.micro_batches))


def test_a_trainer_computes_the_same_bits() -> None:
    plan = StepPlan(accumulate=3)
    data = random_inputs(plan)
    batch = {id: rows.reshape(-1, rows.shape[-1]) for id, rows in data.items()}
    how: dict[str, Any] = {"steps": 1, "batch": 12, "shuffle": False, "accumulate": 3}
    trainer = popgraph.train(NET, batch, "loss", "SGD(0.5)", **how)
    np.testing.assert_array_equal(dict(trainer.weights())["w"], Trained(plan, data, "c").w)


def test_unknown_outputs_are_named() -> None:
    document = parse(NET)
    with pytest.raises(UnknownOutputError, match="no output 'z'") as raised:
        Program(document.module, document.weights, request(StepPlan(), ("loss", "z")))
    assert raised.value.id == "z" and "y" in raised.value.known
