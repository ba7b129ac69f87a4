"""Tests `separate_update`: micro-batches plus a separate update equal the whole program."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.reference import evaluate, first_state, signature
from popgraph.compiler import lower
from popgraph.dialects.graphcore import AddOp, MatMulOp
from popgraph.passes.analysis.graph import only_graph
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.training import micro_batches
from popgraph.passes.graphcore.training.micro_batches import separate_update, specialize_micro_batch
from popgraph.passes.optimizer_spec import SGD, Adam, ClipNorm, OptimizerSpec
from popgraph.passes.options import Options, Training
from popgraph.support.arrays import Array
from popgraph.testing import (
    Constant,
    Network,
    Node,
    build_network,
    random_inputs,
    training_networks,
)
from tests.checking import check_ir

LOSS = "loss"
PERIOD, BATCHES = 3, 6
Batch = Mapping[str, Array]


@dataclass(frozen=True)
class Drawn:
    """A network and its training."""

    network: Network
    rule: OptimizerSpec
    rounds: bool

    def trained(self, compilation: Compilation, after_step: tuple[str, ...] = ()) -> ModuleOp:
        """The program that counts micro-batches."""
        module = build_network(self.network, compilation.weights, last=LOSS)
        training = Training(LOSS, self.rule, after_step=after_step)
        options = Options(training=training, stochastic_rounding=self.rounds)
        end = "round-stochastically" if self.rounds else "canonicalize"
        return lower(module, compilation, options, until=end)


@st.composite
def drawn(draw: st.DrawFn) -> Drawn:
    network = draw(training_networks(dtype=draw(st.sampled_from(["f32", "f16"])), nll=False))
    clip = (ClipNorm(0.5),) if draw(st.booleans()) else ()
    kind = draw(st.sampled_from([SGD, Adam]))
    return Drawn(network, kind(clip=clip, accumulation=PERIOD), draw(st.booleans()))


def in_turn(
    modules: list[ModuleOp], compilation: Compilation, state: dict[str, Array], batch: Batch
) -> dict[str, Array]:
    """Runs programs in order; returns the results of the first."""
    results = []
    for module in modules:
        held = {**first_state(module, compilation.weights), **state}
        inputs = {name: batch[name] for name in signature(module)}
        found, after = evaluate(module, inputs, compilation.weights, held)
        state |= {op.variable.text: after[op.variable.text] for op in only_graph(module).updates()}
        results.append(dict(found))
    return results[0]


def check(one: Drawn) -> None:
    compilation = Compilation()
    whole = one.trained(compilation)
    update = separate_update(whole, compilation.weights)
    assert update is not None
    check_ir(update)
    assert not signature(update)
    adding = whole.clone()
    specialize_micro_batch(adding, compilation.weights, last=False)
    state: dict[str, Array] = dict(first_state(whole, compilation.weights))
    apart: dict[str, Array] = {}
    for number in range(BATCHES):
        batch = random_inputs(signature(whole), number)
        due = (number + 1) % PERIOD == 0
        wanted = in_turn([whole], compilation, state, batch)
        found = in_turn([adding, update] if due else [adding], compilation, apart, batch)
        for name, value in wanted.items():
            np.testing.assert_array_equal(found[name], value, name)
        for name, value in apart.items():
            np.testing.assert_array_equal(value, state[name], name)


@given(drawn())
def test_fuzz_separate_update_computes_the_same(one: Drawn) -> None:
    check(one)


def test_fuzz_kills_random_numbers_of_another_step() -> None:
    @settings(max_examples=400, phases=[Phase.generate], database=None)
    @given(drawn())
    def holds(one: Drawn) -> None:
        check(replace(one, rounds=True))

    with (
        patch.object(micro_batches, "SubOp", AddOp),
        pytest.raises((AssertionError, ExceptionGroup)),
    ):
        holds()


NETWORK = Network(
    ((4, 3),),
    (
        Node("MatMul", (0, Constant((3, 2), "f32")), ()),
        Node("ReduceMean", (1,), (("keepdims", 0),)),
    ),
    "f32",
)


def test_the_separate_update_has_no_operations_of_the_network() -> None:
    compilation = Compilation()
    whole = Drawn(NETWORK, Adam(accumulation=PERIOD), rounds=False).trained(compilation)
    update = separate_update(whole, compilation.weights)
    assert update is not None
    assert any(isinstance(op, MatMulOp) for op in whole.walk())
    assert not any(isinstance(op, MatMulOp) for op in update.walk())


def test_outputs_of_the_update_prevent_its_separation() -> None:
    compilation = Compilation()
    one = Drawn(NETWORK, SGD(accumulation=PERIOD), rounds=False)
    weight = one.trained(Compilation())
    (name,) = [
        op.variable.text for op in only_graph(weight).updates() if "___" not in op.variable.text
    ]
    observed = one.trained(compilation, after_step=("UpdatedVar___" + name,))
    assert separate_update(observed, compilation.weights) is None
    observed = one.trained(compilation, after_step=(name,))
    assert separate_update(observed, compilation.weights) is not None
