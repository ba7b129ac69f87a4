"""Tests `recompute`: the same numbers, with fewer values kept for gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from xdsl.ir import Operation, SSAValue

from popgraph.backends.reference import evaluate, signature
from popgraph.compiler import lower
from popgraph.compiler.loading import load
from popgraph.dialects.tile.program.ops import ProgramOp
from popgraph.passes.analysis.graph import only_graph
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.recompute import Copies, Recompute
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.optimizer_spec import SGD
from popgraph.passes.options import Options, Training
from popgraph.testing import Network, assert_close, build_network, random_inputs, training_networks
from tests.checking import check_ir

LOSS = "loss"


def check(network: Network, chosen: list[bool] | None) -> None:
    """
    Results and gradients are unchanged if nodes are recomputed by name, or by the standard choice.
    """
    compilation = Compilation()
    module = build_network(network, compilation.weights, last=LOSS)
    lower(module, compilation, Options(training=Training(LOSS, SGD())), until="onnx-to-graphcore")
    Autodiff.towards(LOSS, SGD()).run(compilation, module)
    before = module.clone()
    locations = [op.location for op in only_graph(module).block.ops]
    names = sorted({str(one.desc.data) for one in locations if hasattr(one, "desc")})
    named = tuple(name for name, one in zip(names, (chosen or []) * 9, strict=False) if one)
    made = Recompute("standard") if chosen is None else Recompute("nodes", named)
    made.run(compilation, module)
    check_ir(module)
    inputs = random_inputs(signature(before))
    wanted = evaluate(before, inputs, compilation.weights)
    found = evaluate(module, inputs, compilation.weights)
    for given_, like in zip(found, wanted, strict=True):
        assert given_.keys() == like.keys()
        for name, value in like.items():
            assert_close(given_[name], value, 0, name)
    text = str(module)
    made.run(compilation, module)
    assert str(module) == text


CHOSEN = st.none() | st.lists(st.booleans(), min_size=2, max_size=6)


@given(training_networks(max_nodes=9, dtype="f64"), CHOSEN)
def test_fuzz_recomputation_computes_the_same(network: Network, chosen: list[bool] | None) -> None:
    check(network, chosen)


def _wrong_value(again: Callable[..., SSAValue]) -> Callable[..., SSAValue]:
    """Reads another recomputed value of the same type, if there is one."""

    def wrong(self: Any, value: SSAValue, after: SSAValue, before: Operation) -> SSAValue:
        others = [v for v in self.copies.values() if v.type == value.type]
        return others[0] if others else again(self, value, after, before)

    return wrong


def test_fuzz_kills() -> None:
    @settings(max_examples=600, phases=[Phase.generate], report_multiple_bugs=False)
    @given(training_networks(max_nodes=9, dtype="f64"), st.lists(st.booleans(), min_size=2))
    def holds(network: Network, chosen: list[bool]) -> None:
        check(network, chosen)

    with (
        patch.object(Copies, "later", _wrong_value(Copies.later)),
        pytest.raises(AssertionError),
    ):
        holds()


LAYERS = 12
NET = "\n".join(
    [
        "graph net(x: f32[512, 32]) -> (loss: f32[]) {",
        "    h0 = x",
        *(f"    weight w{at}: f32[32, 32] = glorot_uniform" for at in range(LAYERS)),
        *(f"    h{at + 1} = Tanh(h{at} @ w{at})" for at in range(LAYERS)),
        f"    loss = ReduceSum(h{LAYERS} * h{LAYERS}, keepdims=0)",
        "}",
    ]
)


def arena(**asked: Any) -> int:
    """Bytes of the arena of a training step."""
    module, compilation = load(NET)
    lower(module, compilation, Options(training=Training("loss", SGD()), **asked))
    programs = [op for op in module.walk() if isinstance(op, ProgramOp)]
    return max(op.arena.value.data for op in programs)


def test_recomputation_shrinks_the_arena() -> None:
    layer = 512 * 32 * 4
    plain = arena()
    assert plain >= LAYERS * layer
    assert arena(recompute="standard") < 0.65 * plain
    with patch.object(Copies, "later", lambda copies, v, *_: copies.copies.get(v, v)):
        # Without `later`, cse merges the copies again.
        assert arena(recompute="standard") > 0.9 * plain
