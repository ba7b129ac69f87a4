"""Tests `cut`: batches that pass through the stages of a pipeline get the same results."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.reference import evaluate, first_state, signature
from popgraph.compiler import lower
from popgraph.dialects.graphcore.base import shape_of
from popgraph.passes.analysis.graph import only_graph
from popgraph.passes.analysis.stage_notes import note_stage
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.canonicalize import Canonicalize
from popgraph.passes.graphcore.dce import EliminateDeadCode
from popgraph.passes.graphcore.stages.parts import Cut, Part, cut, cut_micro_batches
from popgraph.passes.graphcore.stages.places import (
    Pipeline,
    Place,
    UncutError,
)
from popgraph.passes.graphcore.training.add_optimizer import AddOptimizer
from popgraph.passes.graphcore.training.autodiff import DELAYED, Autodiff
from popgraph.passes.graphcore.training.micro_batches import specialize_micro_batch
from popgraph.passes.optimizer_spec import Adam, ClipNorm, OptimizerSpec
from popgraph.passes.options import Options, Training
from popgraph.support.arrays import Array
from popgraph.testing import (
    Constant,
    Network,
    Node,
    assert_close,
    build_network,
    random_inputs,
    training_networks,
)
from tests.checking import check_ir

LOSS = "loss"
BATCHES, PERIOD, TOLERANCE = 6, 3, 1e-8
Batch = Mapping[str, Array]


@dataclass(frozen=True)
class Drawn:
    """A network in stages, and its training."""

    network: Network
    ends: tuple[float, ...]
    """Ends of the stages, as fractions of the operations up to the loss."""
    accumulates: bool
    clips: bool

    @property
    def last(self) -> int:
        return len(self.ends)

    @property
    def rule(self) -> OptimizerSpec:
        clip = (ClipNorm(0.5),) if self.clips else ()
        return Adam(clip=clip, accumulation=PERIOD if self.accumulates else 1)

    def pipeline(self, delays: Mapping[str, int]) -> Pipeline:
        back = {stage: 2 * self.last - stage for stage in range(self.last + 1)}
        homes = {stage: min(stage, 2 * self.last - stage) for stage in range(2 * self.last + 1)}
        return Pipeline(homes, back, delays)


@st.composite
def staged(draw: st.DrawFn) -> Drawn:
    network = draw(training_networks(max_nodes=9, dtype="f64"))
    ends = draw(st.lists(st.sampled_from([0.2, 0.4, 0.6, 0.8]), min_size=1, max_size=3))
    return Drawn(network, tuple(sorted(ends)), draw(st.booleans()), draw(st.booleans()))


@dataclass
class Trained:
    """The module of a training with stages on its operations, and its compilation."""

    module: ModuleOp
    compilation: Compilation
    delays: dict[str, int]

    @classmethod
    def of(cls, drawn: Drawn) -> Trained:
        compilation = Compilation()
        module = build_network(drawn.network, compilation.weights, last=LOSS)
        options = Options(training=Training(LOSS, drawn.rule))
        lower(module, compilation, options, until="onnx-to-graphcore")
        graph = only_graph(module)
        ops = list(graph.block.ops)
        stages = {op: sum(at >= end * len(ops) for end in drawn.ends) for at, op in enumerate(ops)}
        stages[graph.outputs[LOSS].owner] = drawn.last  # type: ignore[index]
        for op, stage in stages.items():
            note_stage(op, stage)
        firsts = {
            op.variable.text: min(stages[use.operation] for use in op.result.uses)
            for op in graph.variables()
        }
        delays = {name: 2 * (drawn.last - first) for name, first in firsts.items()}
        delays = {} if drawn.accumulates else {name: d for name, d in delays.items() if d}
        made = Autodiff.towards(LOSS, drawn.rule)
        replace(made, delayed=tuple(delays)).run(compilation, module)
        AddOptimizer.by(drawn.rule).run(compilation, module)
        return cls(module, compilation, delays)

    def batches(self) -> list[Batch]:
        types = signature(self.module)
        return [random_inputs(types, seed) for seed in range(BATCHES)]

    def in_turn(self) -> tuple[list[Batch], Batch]:
        """Results of all batches and the final variables, without stages."""
        state = dict(first_state(self.module, self.compilation.weights))
        past: dict[str, deque[Array]] = {n: deque(maxlen=d + 1) for n, d in self.delays.items()}
        results = []
        for batch in self.batches():
            for name, values in past.items():
                values.append(state[name])
                state[DELAYED + name] = values[0]
            found, state = evaluate(self.module, batch, self.compilation.weights, state)
            state = dict(state)
            results.append(found)
        return results, state

    def routes(self, pipeline: Pipeline, accumulates: bool) -> list[Sequence[Part]]:
        """The parts that each batch passes through."""
        if not accumulates:
            return [cut(self.module, pipeline).parts] * BATCHES
        turns = []
        for last in (False, True):
            module = self.module.clone()
            specialize_micro_batch(module, self.compilation.weights, last=last)
            Canonicalize().run(self.compilation, module)
            EliminateDeadCode().run(self.compilation, module)
            turns.append(module)
        others, last_one = cut_micro_batches(turns[0], turns[1], pipeline)
        return [(others, last_one)[(at + 1) % PERIOD == 0].parts for at in range(BATCHES)]

    def through(
        self, routes: Sequence[Sequence[Part]], accumulates: bool
    ) -> tuple[list[Batch], Batch]:
        """The same in stages; each device has variables of its own."""
        weights, batches = self.compilation.weights, self.batches()
        held: list[dict[str, Array]] = [dict(batch) for batch in batches]
        devices: dict[int, dict[str, Array]] = {}
        moved: dict[str, Array] = {}
        size = PERIOD if accumulates else BATCHES  # an update waits for all batches in flight
        steps = (range(first, first + size) for first in range(0, BATCHES, size))
        for at, part in chain.from_iterable(_in_cycles(routes, step) for step in steps):
            state = devices.setdefault(part.place.device, {})
            first = {**first_state(part.module, weights)}
            before = {name: state.get(name, first[name]) for name in first}
            given_ = {name: held[at][name] for name in signature(part.module)}
            found, after = evaluate(part.module, given_, weights, before)
            held[at] |= found
            updated = {op.variable.text for op in only_graph(part.module).updates()}
            state |= {name: after[name] for name in updated}
            moved |= {name: after[name] for name in updated}
        return held, moved


def _in_cycles(
    routes: Sequence[Sequence[Part]], batches: Sequence[int]
) -> Iterator[tuple[int, Part]]:
    """In cycle c, each stage s runs the part of batch c - s, oldest batch first."""
    last = max(part.place.stage for parts in routes for part in parts)
    for cycle in range(batches[0], batches[-1] + last + 1):
        for at in reversed(batches):
            yield from ((at, part) for part in routes[at] if part.place.stage == cycle - at)


def check(drawn: Drawn) -> bool:
    """Compares the stages with the whole; returns False if the network cannot be cut."""
    trained = Trained.of(drawn)
    try:
        routes = trained.routes(drawn.pipeline(trained.delays), drawn.accumulates)
    except UncutError:
        return False
    for parts in routes:
        for part in parts:
            check_ir(part.module)
    wanted, state = trained.in_turn()
    found, moved = trained.through(routes, drawn.accumulates)
    for one, like in zip(found, wanted, strict=True):
        for name, value in like.items():
            assert_close(one[name], value, TOLERANCE, name)
    for name, value in moved.items():
        assert_close(value, state[name], TOLERANCE, name)
    return True


@given(staged())
def test_fuzz_pipeline_stages_compute_the_same(drawn: Drawn) -> None:
    check(drawn)


def test_most_networks_have_pipeline_stages() -> None:
    """Checks that the fuzz above is not vacuous."""
    done = []

    @settings(max_examples=30, phases=[Phase.generate], database=None)
    @given(staged())
    def count(drawn: Drawn) -> None:
        done.append(check(drawn))

    count()
    assert sum(done) > len(done) / 2


def _kills(wrong: Any, **always: bool) -> None:
    @settings(max_examples=400, phases=[Phase.generate], database=None)
    @given(staged())
    def holds(drawn: Drawn) -> None:
        check(replace(drawn, **always))

    with wrong, pytest.raises((AssertionError, ExceptionGroup)):
        holds()


def test_fuzz_kills_variables_read_from_everywhere() -> None:
    _kills(patch.object(Cut, "is_direct", lambda self, name, place: True))


def test_fuzz_kills_late_updates() -> None:
    wrong = patch.object(Cut, "check_delay", lambda self, name, place: None)
    _kills(wrong, accumulates=False, clips=True)


def test_operations_for_gradients_are_in_backward_stages() -> None:
    """1 - tanh(x)^2 is computed in the backward stage, so it is not kept until then."""
    nodes = (
        Node("Tanh", (0,), ()),
        Node("Mul", (1, Constant((), "f64")), ()),
        Node("Tanh", (2,), ()),
        Node("ReduceMean", (3,), (("keepdims", 0),)),
    )
    drawn = Drawn(Network(((3, 2),), nodes, "f64"), (0.7,), False, False)
    trained = Trained.of(drawn)
    first = cut(trained.module, drawn.pipeline(trained.delays)).parts[0]
    assert first.place == Place(0, 0)
    ops = list(only_graph(first.module).block.ops)
    assert any(op.name == "graphcore.tanh" for op in ops)
    assert not [op for op in ops if op.name == "graphcore.sub" and shape_of(op.results[0])]
