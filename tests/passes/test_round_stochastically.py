"""
Tests `round-stochastically`: programs keep their meaning up to the rounding of each operation.
"""

from __future__ import annotations

from collections.abc import Callable
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import InsertPoint

from popgraph.backends.reference import evaluate, first_state, signature
from popgraph.compiler import lower
from popgraph.compiler.loading import load
from popgraph.dialects.check import check_ir
from popgraph.dialects.graphcore import SEED, AddOp
from popgraph.dialects.graphcore.rounding import RoundStochasticallyOp
from popgraph.dialects.program import (
    ConstantOp,
    UpdateOp,
    VariableOp,
    WeightStore,
    graphs_of,
)
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore import round_stochastically as the_pass
from popgraph.passes.graphcore.round_stochastically import RoundStochastically
from popgraph.passes.options import Options
from popgraph.support.arrays import Array
from popgraph.support.warnings import PopgraphWarning
from popgraph.testing import Network, assert_close, build_network, networks, random_inputs

LAST = 5
"""Number of roundings in a row after which halves are not compared any more."""


def nearest(op: RoundStochasticallyOp, x: Array, state: Array) -> tuple[Array, ...]:
    with np.errstate(all="ignore"):
        return (x.astype(np.float16),)


def draw_at_the_end(module: ModuleOp, weights: WeightStore) -> None:
    """Draws from a seed after all other operations, as when only the last operator is random."""
    (graph,) = graphs_of(module)
    with ImplicitBuilder(Builder(InsertPoint.before(graph.return_op))):
        state = VariableOp(SEED, weights.attribute(np.zeros(2, np.int64))).result
        one = ConstantOp(weights.attribute(np.array([0, 1], np.int64)))
        UpdateOp(SEED, AddOp(state, one).result)


def check(network: Network, *, draws: bool) -> None:
    compilation = Compilation()
    module = build_network(network, compilation.weights)
    lower(module, compilation, until="onnx-to-graphcore")
    if draws:
        draw_at_the_end(module, compilation.weights)
    before = module.clone()
    RoundStochastically().run(compilation, module)
    check_ir(module)
    roundings = [op for op in module.walk() if isinstance(op, RoundStochasticallyOp)]
    streams = {op.stream.value.data for op in roundings}
    assert len(streams) == len(roundings)
    inputs = random_inputs(signature(before))
    wanted, _ = evaluate(before, inputs, compilation.weights)
    with patch.object(RoundStochasticallyOp, "evaluate", nearest):
        found, following = evaluate(module, inputs, compilation.weights)
    for name, value in wanted.items() if len(roundings) <= LAST else ():
        assert_close(found[name], value, 2e-2, name)
    if roundings or draws:
        np.testing.assert_array_equal(first_state(module, compilation.weights)[SEED], [0, 0])
        assert SEED in following
        np.testing.assert_array_equal(following[SEED], [0, 1])
    again = str(module)
    RoundStochastically().run(compilation, module)
    assert str(module) == again


@given(networks(dtype="f16"), st.booleans())
def test_fuzz_operations_on_halves_are_rounded_f32_operations(
    network: Network, draws: bool
) -> None:
    check(network, draws=draws)


def test_bodies_round_to_nearest_with_a_warning() -> None:
    text = """
    graph net(x: f16[4, 2]) -> (y: f16[2]) {
        y = loop row in x with y = x[0] {
            y = y * row
        }
    }
    """
    module, compilation = load(text)
    with pytest.warns(PopgraphWarning, match="are rounded to the nearest, not stochastically"):
        lower(module, compilation, Options(stochastic_rounding=True), level="graphcore")


BUGS: dict[str, tuple[str, Callable[..., object]]] = {
    "all roundings have one random stream": ("count", lambda start: iter(lambda: start, None)),
    "the seed is not advanced by steps": ("UpdateOp", lambda *_: None),
}


@pytest.mark.parametrize("name", BUGS)
def test_fuzz_kills(name: str) -> None:
    """Planted bugs fail the same claim within a bounded number of networks."""

    @settings(max_examples=400, phases=[Phase.generate], report_multiple_bugs=False)
    @given(networks(dtype="f16"))
    def holds(network: Network) -> None:
        check(network, draws=False)

    target, wrong = BUGS[name]
    with patch.object(the_pass, target, wrong), pytest.raises(AssertionError):
        holds()
