"""Tests `split_backward`: a forward and a backward pass together compute what their graph does."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, repeat
from unittest.mock import patch

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from xdsl.builder import Builder, ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp
from xdsl.rewriter import InsertPoint

from popgraph.backends.reference import evaluate, signature
from popgraph.compiler import lower
from popgraph.dialects.graphcore import MulOp
from popgraph.dialects.graphcore.base import is_float
from popgraph.dialects.program.ops import names_attribute
from popgraph.passes.analysis.cheapest_cut import CheapestCut
from popgraph.passes.analysis.graph import only_graph, set_outputs
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.assign_roles import assign_roles
from popgraph.passes.graphcore.training.autodiff import Autodiff
from popgraph.passes.optimizer_spec import SGD
from popgraph.passes.options import GRADIENT, Options, Training
from popgraph.passes.structured import split_backward as splitting
from popgraph.passes.structured.split_backward import split_backward
from popgraph.testing import (
    Network,
    Node,
    assert_close,
    build_network,
    random_inputs,
    training_networks,
)
from tests.checking import check_ir

LOSS, SCALED, COTANGENT = "loss", "scaled", "dy"
TOLERANCE = 1e-8

networks = training_networks(max_nodes=6, dtype="f64")

pytestmark = pytest.mark.filterwarnings("ignore:no gradient of the loss")


def differentiated(network: Network) -> tuple[ModuleOp, Compilation]:
    """The gradients of loss * dy, where dy is an input, once layouts are assigned."""
    compilation = Compilation()
    module = build_network(network, compilation.weights, last=LOSS)
    options = Options(training=Training(LOSS, SGD()))
    lower(module, compilation, options, until="onnx-to-graphcore")
    graph = only_graph(module)
    names, loss = list(graph.inputs), graph.outputs[LOSS]
    argument = graph.block.insert_arg(loss.type, len(graph.block.args))
    graph.properties["input_names"] = names_attribute([*names, COTANGENT])
    with ImplicitBuilder(Builder(InsertPoint.before(graph.return_op))):
        scaled = MulOp(loss, argument)
    set_outputs(graph, {**graph.outputs, SCALED: scaled.result})
    floats = tuple(name for name, value in graph.inputs.items() if is_float(value))
    replace(Autodiff.towards(SCALED, SGD()), tracked=floats).run(compilation, module)
    outputs = graph.outputs
    set_outputs(graph, {name: outputs[name] for name in outputs if name != SCALED})
    passed = {op.variable.text for op in graph.variables()}
    assign_roles(module, compilation.weights, variables=[], inputs=passed)
    lower(module, compilation, until="assign-layouts", level="structured")
    return module, compilation


def check(network: Network) -> int:
    """Compares both halves with the whole; returns the number of residuals."""
    module, compilation = differentiated(network)
    halves = split_backward(module, [COTANGENT])
    check_ir(halves.forward)
    check_ir(halves.backward)
    weights, given_ = compilation.weights, random_inputs(signature(module), 1)
    wanted, _ = evaluate(module, given_, weights, {})
    first = {name: given_[name] for name in signature(halves.forward)}
    forward, _ = evaluate(halves.forward, first, weights, {})
    known = {**given_, **forward}
    second = {name: known[name] for name in signature(halves.backward)}
    backward, _ = evaluate(halves.backward, second, weights, {})
    assert {name for name in wanted if name.startswith(GRADIENT)} == backward.keys()
    for name, value in wanted.items():
        assert_close({**forward, **backward}[name], value, TOLERANCE, name)
    return len(halves.residuals)


@given(networks)
def test_fuzz_forward_and_backward_pass_compute_the_same(network: Network) -> None:
    check(network)


def test_fuzz_kills_residuals_of_one_name() -> None:
    @settings(max_examples=200, phases=[Phase.generate], database=None)
    @given(networks)
    def holds(network: Network) -> None:
        check(network)

    wrong = patch.object(splitting, "count", lambda: repeat(0))
    with wrong, pytest.raises((AssertionError, ValueError, ExceptionGroup)):
        holds()


def chain(*kinds: str) -> Network:
    nodes = tuple(Node(kind, (at,), ()) for at, kind in enumerate(kinds))
    return Network(
        ((3, 2),), (*nodes, Node("ReduceMean", (len(nodes),), (("keepdims", 0),))), "f64"
    )


def test_cheap_values_are_recomputed() -> None:
    """|x| and its sign are computed again from the input; tanh is kept."""
    assert check(chain("Abs", "Neg", "Abs")) == 0
    assert check(chain("Tanh", "Abs", "Neg")) == 1


@st.composite
def graphs(draw: st.DrawFn) -> CheapestCut[int]:
    size = draw(st.integers(2, 7))
    costs = {at: draw(st.integers(1, 5)) for at in range(size)}
    readers = {
        at: draw(st.lists(st.integers(at + 1, size - 1), max_size=3)) if at + 1 < size else []
        for at in range(size)
    }
    some = st.lists(st.integers(0, size - 1), min_size=1, max_size=2)
    return CheapestCut(costs, readers, draw(some), draw(some))


def separates(cut: CheapestCut[int], removed: set[int]) -> bool:
    reached = set(cut.sources) - removed
    for at in cut.costs:
        if at in reached:
            reached.update(set(cut.readers[at]) - removed)
    return reached.isdisjoint(cut.sinks)


@given(graphs())
def test_fuzz_no_cut_is_cheaper(cut: CheapestCut[int]) -> None:
    removed = set(cut.removed())
    assert separates(cut, removed)
    subsets = (set(one) for n in range(len(cut.costs) + 1) for one in combinations(cut.costs, n))
    best = min(sum(cut.costs[at] for at in one) for one in subsets if separates(cut, one))
    assert sum(cut.costs[at] for at in removed) == best


def test_equal_cuts_are_near_the_sinks() -> None:
    line: CheapestCut[int] = CheapestCut(
        {0: 2, 1: 1, 2: 1, 3: 2}, {0: [1], 1: [2], 2: [3]}, [0], [3]
    )
    assert line.removed() == [2]
