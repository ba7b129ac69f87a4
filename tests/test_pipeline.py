"""Tests the whole pipeline: C against the reference on random networks."""

from __future__ import annotations

import itertools
import warnings
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import sampled_from

from popgraph.backends.c.build_program import build as build_c
from popgraph.backends.reference import evaluate, signature
from popgraph.builder.pgraph import parse
from popgraph.compiler import compile, lower
from popgraph.dialects.levels import LEVELS
from popgraph.passes.base import Compilation
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import BALANCED, SIZE, Options, Training
from popgraph.passes.pipeline import PASSES, PIPELINE
from popgraph.support.errors import PassError
from popgraph.support.tuning import Tuning
from popgraph.testing import (
    Network,
    Node,
    assert_close,
    build_network,
    controlled,
    networks,
    random_inputs,
    training_controlled,
    training_networks,
)

SMALL = {"f32": 2e-5, "f64": 1e-9}


def compare(network: Network, options: Options, threads: int, last: str | None = None) -> None:
    """Compares two steps of a network in C with the reference at the onnx or graphcore level."""
    compilation = Compilation()
    module = build_network(network, compilation.weights, last)
    inputs = random_inputs(signature(module))
    lower(module, compilation, options, level="graphcore")
    state = None
    compiled = module.clone()
    # The training is in the graph already.
    lower(compiled, compilation, replace(options, training=None))
    executable = build_c(compiled, compilation.weights, threads=threads)
    for step in range(2):
        expected, state = evaluate(module, inputs, compilation.weights, state)
        found = executable.run(inputs)
        assert found.keys() == expected.keys()
        for name, array in expected.items():
            assert_close(found[name], array, SMALL[network.dtype], f"step {step}, {name}")
    for name, array in (state or {}).items():
        assert_close(executable.read(name), array, SMALL[network.dtype], name)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_fuzz_c_equals_reference(dtype: str, threads: int) -> None:
    @given(networks(dtype=dtype))
    def same(network: Network) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compare(network, Options(), threads)

    same()


@given(networks(dtype="f32"), sampled_from([SIZE, BALANCED]))
def test_fuzz_small_programs_equal_the_reference(network: Network, optimize: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Small networks have few products: with the usual threshold, all loops are plain.
        compare(network, Options(optimize=optimize, tuning=Tuning(least_products=64)), 1)


@given(controlled(dtype="f64"))
def test_fuzz_branches_and_loops_in_c_equal_the_reference(network: Network) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(network, Options(), 2)


@given(training_networks(dtype="f64", max_nodes=4) | training_controlled(dtype="f64"))
def test_fuzz_training_in_c_equals_reference(network: Network) -> None:
    rule = SGD(learning_rate=Scalar(0.1, constant=False), momentum=Scalar(0.5))
    names = tuple(network.name(number, "loss") for number in network.gradients)
    compare(network, Options(Training("loss", rule, names), extra_outputs=names), 1, "loss")


def test_levels_of_passes_are_in_order() -> None:
    order = [LEVELS.index(step.level) for step in PIPELINE]
    assert order == sorted(order)
    for step, following in itertools.pairwise(PIPELINE):
        assert step.result == following.level


def test_every_pass_has_a_description() -> None:
    for name, made in PASSES.items():
        assert (made.__doc__ or "").strip(), f"{name} has no docstring"


def test_stopping_after_an_unknown_pass_is_an_error() -> None:
    compilation = Compilation()
    network = Network(((2,),), (Node("Relu", (0,)),))
    module = build_network(network, compilation.weights)
    with pytest.raises(PassError, match="the pass 'nonsense' is not in this pipeline"):
        lower(module, compilation, until="nonsense")


def test_stopping_after_a_pass_leaves_its_level() -> None:
    compilation = Compilation()
    module = build_network(Network(((2,),), (Node("Relu", (0,)),)), compilation.weights)
    lower(module, compilation, until="graphcore-to-structured")
    assert "tile.map" in str(module)
    np.testing.assert_array_equal(
        evaluate(module, {"x0": np.array([-1, 2], np.float32)}, compilation.weights)[0]["v0"],
        [0, 2],
    )


JOINED = """opset 21
graph g(x: f64[4, 14]) -> joined {
    weight w: f64[14, 1] = normal(seed=1)
    first = Reshape(x @ w, [4])
    both = Concat(Relu(first), first, axis=0)
    joined = Relu(both)
}
"""


def test_parts_of_an_output_share_its_memory_at_every_level(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POPGRAPH_CHECK", "1")
    document = parse(JOINED)
    x = np.random.default_rng(0).standard_normal((4, 14))
    found = compile(document.module)({"x": x})
    expected = compile(document.module, backend="reference")({"x": x})
    assert_close(found["joined"], expected["joined"], 1e-9, "joined")
