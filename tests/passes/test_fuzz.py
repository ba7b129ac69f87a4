"""Does every pass keep the meaning of random networks, and would this test notice if it did not?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import Phase, given, settings
from xdsl.dialects.builtin import ModuleOp

from popgraph.passes.base import Compilation, Pass
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.pipeline import Options, Training, planned
from popgraph.testing import Network, Node, assert_same_meaning, build_network, check_ir, networks
from tests.passes.mutants import MUTANTS, Mutant

TOLERANCE = 1e-8
"""For float64, relative to the largest value: what reordered sums may cost, and no mistake."""
LOSS = "loss"


@dataclass(frozen=True)
class Place:
    """One line of the pipeline; passes that run twice are tested at both places."""

    index: int
    training: bool
    name: str

    def __str__(self) -> str:
        return f"{self.index:02}-{self.name}{'-training' if self.training else ''}"


def options(training: bool) -> Options:
    """Small vectors, so that small networks have full ones and remainders."""
    rule = SGD(learning_rate=Scalar(0.1), momentum=Scalar(0.9))
    return Options(
        training=Training(LOSS, rule) if training else None, vector_bytes=32, registers=16
    )


def places() -> Iterator[Place]:
    for training in (False, True):
        for index, (_, made) in enumerate(planned(options(training))):
            if not training or made.name in TRAINED:
                yield Place(index, training, made.name)


TRAINED = {"onnx-to-graphcore", "autodiff", "add-optimizer", "fuse-softmax-loss", "plan-memory"}
"""Passes that meet something new in training; the others would only repeat themselves."""


def with_loss(network: Network) -> Network:
    """The network, ending in a number: the mean of its last value."""
    last = len(network.inputs) + len(network.nodes) - 1
    return Network(
        network.inputs,
        (*network.nodes, Node("ReduceMean", (last,), (("keepdims", 0),))),
        network.dtype,
        network.outputs,
    )


def before(place: Place, network: Network) -> tuple[Compilation, ModuleOp, Pass]:
    """The network as the pass at this place finds it, and the pass."""
    compilation = Compilation()
    module = build_network(
        with_loss(network) if place.training else network,
        compilation.weights,
        last=LOSS if place.training else None,
    )
    steps = [made for _, made in planned(options(place.training))]
    for earlier in steps[: place.index]:
        earlier.run(compilation, module)
    return compilation, module, steps[place.index]


def check(place: Place, network: Network) -> None:
    """The claim about every pass."""
    compilation, module, made = before(place, network)
    original = module.clone()
    made.run(compilation, module)
    check_ir(module)
    if made.name == "add-optimizer":  # the one pass whose job is to change what happens next
        assert_same_meaning(original, module, compilation.weights, tolerance=TOLERANCE, steps=1)
        return
    assert_same_meaning(original, module, compilation.weights, tolerance=TOLERANCE)
    if made.name != "autodiff":  # whose second run would differentiate again, rightly
        text = str(module)
        made.run(compilation, module)
        assert str(module) == text, "a second run changes something"


@pytest.mark.parametrize("place", list(places()), ids=str)
def test_fuzz(place: Place) -> None:
    @given(networks(dtype="f64"))
    def keeps_meaning(network: Network) -> None:
        check(place, network)

    keeps_meaning()


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_fuzz_kills(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a bug in the pass, the same claim fails within a bounded number of networks."""
    place = next(place for place in places() if place.name == mutant.pass_name)
    mutant.plant(monkeypatch)

    @settings(max_examples=1000, phases=[Phase.generate])
    @given(networks(dtype="f64"))
    def keeps_meaning(network: Network) -> None:
        check(place, network)

    with pytest.raises(BaseException):  # noqa: B017, PT011 - whatever the bug breaks
        keeps_meaning()


def test_every_pass_has_a_mutant() -> None:
    assert {place.name for place in places()} == {mutant.pass_name for mutant in MUTANTS}
