"""Tests the whole pipeline: C against the reference on random networks."""

from __future__ import annotations

import gc
import itertools
import warnings
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis.strategies import sampled_from
from xdsl.dialects.func import FuncOp

from popgraph.backends.c.build_program import build as build_c
from popgraph.backends.reference import evaluate, signature
from popgraph.builder.pgraph import parse
from popgraph.compiler import compile, lower
from popgraph.dialects.levels import LEVELS
from popgraph.passes.base import Compilation
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import BALANCED, SIZE, Options, Training
from popgraph.passes.order import Step, disorders, unmet
from popgraph.passes.pipeline import PASSES, PIPELINE, planned
from popgraph.passes.properties import EXPANDED, PROPERTIES
from popgraph.support.errors import PassError
from popgraph.support.garbage import without_collection
from popgraph.support.tuning import Tuning
from popgraph.testing import (
    Network,
    Node,
    aliased,
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


def test_builds_free_their_ir_while_the_c_compiler_runs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("POPGRAPH_CACHE_DIR", str(tmp_path))

    def alive() -> int:
        return sum(type(one) is FuncOp for one in gc.get_objects())

    gc.collect()
    before, modules = alive(), []
    with without_collection():
        for size in (3, 5):
            text = f"graph g(x: f32[{size}]) -> (y: f32[{size}]) {{ y = Exp(x) * {size} }}"
            document = parse(text)
            compilation = Compilation(document.weights)
            modules.append(lower(document.module, compilation))
            assert alive() > before
            build_c(document.module, compilation.weights, consumes=True)
            assert alive() == before


def test_a_quick_build_leaves_its_ir_to_the_next_build(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It ages its IR; where other objects are frozen, which would thaw, it frees its IR."""
    monkeypatch.setenv("POPGRAPH_CACHE_DIR", str(tmp_path))
    frozen, seen = [0], list[str]()
    monkeypatch.setattr(gc, "get_freeze_count", lambda: frozen[0])
    monkeypatch.setattr(gc, "freeze", lambda: seen.append("freeze"))
    monkeypatch.setattr(gc, "unfreeze", lambda: seen.append("unfreeze"))
    monkeypatch.setattr(gc, "collect", lambda generation: seen.append(f"collect {generation}"))

    def built(size: int, *, soon: bool) -> list[str]:
        seen.clear()
        document = parse(f"graph g(x: f32[{size}]) -> (y: f32[{size}]) {{ y = Exp(x) * {size} }}")
        compilation = Compilation(document.weights)
        lower(document.module, compilation)
        build_c(document.module, compilation.weights, consumes=True, soon=soon)
        return seen

    assert built(3, soon=True) == ["freeze", "unfreeze"]
    assert built(4, soon=False) == ["collect 2"]
    assert built(5, soon=False) == ["collect 0"]
    frozen[0] = 1
    assert built(6, soon=True) == ["collect 0"]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", ["f32", "f64"])
def test_fuzz_c_equals_reference(dtype: str, threads: int) -> None:
    @given(aliased(networks(dtype=dtype)))
    def same(network: Network) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            compare(network, Options(), threads)

    same()


def test_passes_have_the_target_and_the_threads_of_the_options() -> None:
    options = Options(tuning=Tuning(least_products=77), threads=3)
    held = {"target": options.target, "tuning": options.tuning, "threads": 3}
    found = []
    for kind in PASSES.values():
        made = kind.of(options)
        found += [(name, getattr(made, name)) for name in held if hasattr(made, name)]
    assert len(found) > 20 and all(value == held[name] for name, value in found)


@given(aliased(networks(dtype="f32")), sampled_from([SIZE, BALANCED]))
def test_fuzz_small_programs_equal_the_reference(network: Network, optimize: str) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        # Small networks have few products: with the usual threshold, all loops are plain.
        compare(network, Options(optimize=optimize, tuning=Tuning(least_products=64)), 1)


@given(aliased(controlled(dtype="f64")))
def test_fuzz_branches_and_loops_in_c_equal_the_reference(network: Network) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        compare(network, Options(), 2)


@given(aliased(training_networks(dtype="f64", max_nodes=4) | training_controlled(dtype="f64")))
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


def faults(steps: Sequence[Step]) -> list[str]:
    """The declarations that an order of steps contradicts."""
    return [*map(str, unmet(steps)), *map(str, disorders(steps))]


def test_the_order_is_as_passes_declare() -> None:
    assert not faults(PIPELINE)


FREE = {
    ("infer-shapes", "normalize"): "normalize infers types itself",
    ("bucket-exchanges", "fuse-softmax-loss"): "exchanges are of gradients of weights",
    ("fuse-softmax-loss", "contract-quantized"): "no operation in common",
    ("return-appended", "round-stochastically"): "concatenations are not rounded",
    ("cse", "dce"): "cse erases the operations that it merges",
    ("dce", "skip-padding"): "dead convolutions are erased, whole or in parts",
    ("contract-in-floats", "check-indices"): "no operation in common",
    ("assign-halos", "sum-in-blocks"): "sums of blocks read matrices, which have no padding",
    ("sum-in-blocks", "use-winograd"): "no contraction in common",
    ("use-winograd", "fuse-rows"): "fuse-rows takes no contractions",
    ("fuse-rows", "settle-loops"): "fuse-rows takes no contractions",
    ("settle-loops", "read-narrow"): "each looks through the views of the other",
    ("fuse-attention", "fuse-channels"): "softmax is no convolution",
    ("fuse-channels", "hoist-invariants"): "loops rarely hold a pair of convolutions",
    ("move-updates", "view-words"): "a view is an operation without memory, before and after",
    ("view-words", "fuse-products"): "maps, and bodies of contractions",
    ("fuse-products", "bind-sizes"): "bodies of contractions, and ends of loops",
    ("parallelize-loops", "alternate-chunks"): "for several threads, and for one",
}
"""Neighbours whose order makes no difference, with the reason."""


def test_swapped_neighbours_are_refused_unless_they_are_free() -> None:
    free = set()
    for place, (first, second) in enumerate(itertools.pairwise(PIPELINE)):
        swapped = [*PIPELINE[:place], second, first, *PIPELINE[place + 2 :]]
        if first.result == first.level == second.result and not faults(swapped):
            free.add((first.name, second.name))
    assert free == FREE.keys()


GIVERS = [step for step in PIPELINE if step.pass_class.GIVES]


@pytest.mark.parametrize("step", GIVERS, ids=lambda step: step.name)
def test_a_step_that_gives_properties_always_runs(step: Step) -> None:
    assert not step.optional
    assert "None" not in str(step.pass_class.of.__annotations__["return"]) or (
        "of" not in vars(step.pass_class)
    )
    assert faults([one for one in PIPELINE if one is not step]), "nothing needs it"
    assert faults([replace(one, optional=True) if one is step else one for one in PIPELINE])


def test_a_pass_that_loses_a_property_is_refused_where_a_later_pass_needs_it() -> None:
    loses = type("Loses", (PASSES["dce"],), {"name": "loses", "LOSES": (EXPANDED,)})
    names = [step.name for step in PIPELINE]
    start, end = names.index("expand"), names.index("graphcore-to-structured")
    for place in range(end - 6, end + 6):
        level = PIPELINE[place].level
        lost = Step(level, loses, "", optional=True)
        found = list(unmet([*PIPELINE[:place], lost, *PIPELINE[place:]]))
        assert [(one.step.name, one.loser) for one in found] == (
            [("graphcore-to-structured", lost)] if start < place <= end else []
        )


def test_steps_that_settle_nodes_come_first() -> None:
    place = [step.name for step in PIPELINE].index("normalize")
    settles = replace(PIPELINE[place], settles=True)
    assert faults([*PIPELINE[:place], settles, *PIPELINE[place + 1 :]]) == [
        "normalize must run before infer-shapes"
    ]


def test_declarations_name_passes_and_properties_of_their_level() -> None:
    for step in PIPELINE:
        made = step.pass_class
        assert {*made.AFTER, *made.BEFORE, *step.after, *step.before} <= PASSES.keys()
        assert {one.level for one in (*made.NEEDS, *made.LOSES)} <= {step.level}
        assert {one.level for one in made.GIVES} <= {step.result}


def test_each_property_is_given_and_needed() -> None:
    classes = PASSES.values()
    assert {one for made in classes for one in made.GIVES} == {*PROPERTIES}
    assert {one for made in classes for one in made.NEEDS} == {*PROPERTIES}
    assert len({one.name for one in PROPERTIES}) == len(PROPERTIES)


@pytest.mark.parametrize(
    ("passes", "message"),
    [
        (
            "check-indices before spread-replicas",
            """spread-replicas needs the property unreported-indices (no output reports an index \
that is out of range)
  at: Options.passes
  try: check-indices may end it: it must not run between onnx-to-graphcore, which gives it, and \
spread-replicas""",
        ),
        (
            "fuse-epilogue after cse",
            """fuse-epilogue needs the property unscheduled (no contraction has a schedule, which \
refers to loops by number and depends on the epilogue)
  at: Options.passes
  try: graphcore-to-structured gives it: fuse-epilogue must run after graphcore-to-structured""",
        ),
    ],
)
def test_a_pass_whose_needs_cannot_hold_is_refused(passes: str, message: str) -> None:
    with pytest.raises(PassError) as caught:
        list(planned(Options(passes=(passes,))))
    assert str(caught.value) == message


def test_passes_that_are_left_out_lose_nothing() -> None:
    added = "fuse-epilogue after use-winograd"
    with pytest.raises(PassError, match="use-winograd may end it"):
        list(planned(Options(passes=(added,))))
    left_out = Options(passes=(added,), disabled=frozenset({"use-winograd"}))
    found = [made.name for _, made in planned(left_out)]
    assert found.count("fuse-epilogue") == 2


@pytest.mark.parametrize(
    ("name", "message"),
    [
        (
            "expand",
            "the pass expand cannot be left out: graphcore-to-structured needs the property "
            "expanded (no composite is left, such as softmax: each operation has a kind that "
            "lowering knows), which only expand gives",
        ),
        ("autodiff", "the pass autodiff cannot be left out: results depend on it"),
        ("exspand", "there is no pass 'exspand'"),
    ],
)
def test_only_optional_passes_can_be_left_out(name: str, message: str) -> None:
    with pytest.raises(PassError) as caught:
        list(planned(Options(disabled=frozenset({name}))))
    assert (caught.value.what, caught.value.where) == (message, "Options.disabled")


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


def test_models_of_unknown_sizes_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POPGRAPH_CHECK", "1")
    document = parse("graph g(x: f32[N, 3]) -> y { y = Relu(x) }")
    found = compile(document.module)({"x": np.ones((2, 3), np.float32)})
    np.testing.assert_array_equal(found["y"], np.ones((2, 3)))
