"""Fuzzes every pass with random networks, and checks that planted bugs are found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis.strategies import SearchStrategy
from xdsl.dialects.builtin import ModuleOp
from xdsl.utils.exceptions import VerifyException

from popgraph.dialects.tile.structured.fused import LineBuffer
from popgraph.ipu.machine import MK2, Ipu
from popgraph.ipu.map_to_tiles import on_ipus
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.onnx.to_graphcore import lowering
from popgraph.passes.optimizer_spec import SGD, Scalar
from popgraph.passes.options import FLOAT, INT8, Options, Training
from popgraph.passes.order import check_promises
from popgraph.passes.pipeline import check_needs, planned
from popgraph.passes.structured.fusion import fuse_channels
from popgraph.passes.structured.fusion.fuse_channels import FuseChannels
from popgraph.passes.structured.schedule.cost import Estimate
from popgraph.support.errors import PopgraphError
from popgraph.support.machine import AVX2, DOTPROD, Machine
from popgraph.support.tuning import Tuning
from popgraph.testing import (
    Constant,
    Network,
    Node,
    aliased,
    assert_same_meaning,
    attentions,
    block_products,
    build_network,
    clamps,
    controlled,
    half_products,
    integer_products,
    learning_convolutions,
    lookups,
    narrow_products,
    networks,
    products,
    quantized_products,
    roundings,
    scaled_weights,
    selections,
    separable_convolutions,
    single_products,
    training_controlled,
    training_networks,
    volumes,
    wide_convolutions,
)
from tests.checking import check_ir
from tests.passes.claims import (
    LOSS,
    assert_all_typed,
    assert_gradients,
    assert_gradients_everywhere,
    assert_indices_checked,
    assert_trains,
    forget_types,
)
from tests.passes.mutants import MUTANTS, Mutant
from tests.passes.prefetch_claims import assert_prefetched
from tests.passes.sharing import THREADS, sharing_all

IPU = replace(MK2.of(tiles=7), least_tile_bytes=8)
"""Seven tiles, a prime: even small tensors fill them and leave remainders."""
L2 = Machine().l2_bytes
TOLERANCE = 1e-8
"""Relative to the largest value, in f64: allows reordered sums, but no bug."""
RULE = SGD(
    learning_rate=Scalar(0.125),
    momentum=Scalar(0.75),
    weight_decay=Scalar(0.25),
    dampening=Scalar(0.5),
    velocity_scaling=Scalar(2.0),
    loss_scaling=Scalar(4.0),
)
"""Every number differs from its default and is exact in binary."""

TRAINED = {
    "onnx-to-graphcore",
    "autodiff",
    "add-optimizer",
    "fuse-softmax-loss",
    "fold-constants",
    "canonicalize",
    "expand",
    "dce",
    "graphcore-to-structured",
    "fuse-epilogue",
    "merge-maps",
    "map-to-tiles",
    "assign-layouts",
    "assign-halos",
    "use-winograd",
    "fuse-rows",
    "hoist-constants",
    "move-updates",
    "structured-to-loops",
    "split-loops",
    "interchange-loops",
    "vectorize-loops",
    "unroll-loops",
    "prefetch-panels",
    "plan-memory",
}
"""Passes that meet new operations in training; other passes would repeat the inference tests."""

PORTABLE = {"fuse-products", "settle-loops"}
"""Passes that only portable programs have, or that differ there."""

ROUNDS = "round-activations"
"""The pass that only programs with rounded activations have."""

LOOPS = (
    *("structured-to-loops", "split-loops", "interchange-loops", "vectorize-loops"),
    *("unroll-loops", "prefetch-panels"),
)
"""Passes that write or change the loops of kernels."""

TRUSTED = {
    "assign-halos",
    "fuse-attention",
    "fuse-channels",
    "schedule-contractions",
    "parallelize-loops",
    "alternate-chunks",
    "structured-to-loops",
}
"""Passes whose schedules, layouts or permissions are only used by later passes."""


SMALL = Tuning(
    least_products=32,
    streamed_l2=64 / L2,
    prefetched_elements=8,
    least_strip_results=1,
    chain_terms=8,
    chain_terms_f64=8,
    partial_sums=2,
    k_outer_totals_l2=512 / L2,
    alternating_l2=64 / L2,
    least_channels=2,
    winograd_gain=0,
    least_shared_blocks=3,
    max_tiles_in_registers=2,
    attention_scores_l2=0,
    attention_rows_l2=512 / L2,
    channel_image_l2=3072 / L2,
    least_rows=2,
    shortest_row=2,
    most_statements=1,
    least_block_terms=2,
    least_piece=2,
    paired_cost=9.0,
    least_moved_columns=1,
    least_packed_extent=1,
    least_folded_channels=1,
)
"""Thresholds so low that small networks are scheduled and fused."""


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Cost estimates that vary almost randomly, as no threshold has an effect in small networks."""
    monkeypatch.setattr(Estimate, "l2_reload_cycles", late)
    monkeypatch.setattr(fuse_channels.Pair, "_splits", two_parts)
    monkeypatch.setattr(FuseChannels, "of", lambda options: FuseChannels(target=options.target))


def two_parts(_: object, geometry: LineBuffer, panels: int) -> int:
    """Line buffers are split in two wherever the number of steps allows."""
    return 2 - geometry.steps % 2


def late(estimate: Estimate, *_: object) -> float:
    """Reload cycles so high that long sums with an odd number of terms have K outermost."""
    return 1e6 * (estimate.terms % 2) * (estimate.terms > estimate.tuning.chain_terms)


@dataclass(frozen=True)
class Place:
    """A step of the pipeline; passes that run twice are tested at both places."""

    index: int
    training: bool
    name: str
    portable: bool = False

    def __str__(self) -> str:
        ways = "-training" * self.training + "-portable" * self.portable
        return f"{self.index:02}-{self.name}{ways}"

    @property
    def threads(self) -> int:
        """Several threads would leave nothing to alternate."""
        return 1 if self.name == "alternate-chunks" else THREADS

    @property
    def ipu(self) -> Ipu | None:
        """The IPU of map-to-tiles, which replaces all later passes."""
        return IPU if self.name == "map-to-tiles" else None

    def networks(self, *, slow: bool = True) -> SearchStrategy[Network]:
        """
        Networks for this pass, a third with aliases.

        `slow` adds networks of many channels, and of branches and loops; few bugs need them.
        """
        if self.name == ROUNDS:  # rounding changes other numbers
            return scaled_weights(dtype="f64", even=True)
        return aliased(self._distinct_networks(slow))

    def _distinct_networks(self, slow: bool) -> SearchStrategy[Network]:
        """Without PopART's loss, which ONNX's reference cannot run."""
        if self.name in ("evaluate-constants", "select-known"):  # no other networks need Python
            return selections(dtype="f64")
        if self.name == "fuse-attention":  # few other networks have softmax between two matmuls
            return attentions(dtype="f64")
        # few other networks have depthwise convolutions of many channels
        if self.name == "fuse-channels":
            return separable_convolutions(dtype="f64")
        if self.name == "alternate-chunks":
            return controlled(dtype="f64")
        if self.name == "contract-in-floats":  # no other networks contract integers
            return integer_products(dtype="f64")
        if self.name in ("contract-in-words", "view-words"):
            drawn = integer_products(dtype="f64") | quantized_products(dtype="f64")
            drawn |= half_products(dtype="f64") | single_products(dtype="f64")
            return drawn | block_products(dtype="f64")
        if self.name == "lower-precision":  # rounding changes other numbers
            return single_products(dtype="f64")
        if self.name == "sum-in-blocks":
            return block_products(dtype="f64")
        if self.name == "contract-quantized":
            return quantized_products(dtype="f64")
        if self.name == "round-cheaply":  # few other networks quantize
            return roundings(dtype="f64")
        if self.name == "scale-sums":  # no other networks have weights of few bits
            return scaled_weights(dtype="f64")
        if self.name == "skip-padding":  # few other networks have padding of several elements
            return wide_convolutions(dtype="f64")
        if self.name == "fold-depth":  # no other networks have three spatial axes
            return volumes(dtype="f64")
        if self.name == "read-narrow":
            return narrow_products(dtype="f64") | block_products(dtype="f64")
        if self.name == "canonicalize" and not self.training and slow:
            drawn = networks(dtype="f64") | controlled(dtype="f64") | clamps(dtype="f64")
            drawn |= roundings(dtype="f64")  # few other networks quantize
            return drawn | attentions(dtype="f64")  # few other networks scale a factor of a matmul
        if self.name == "check-indices":  # no other networks have indices that are not constant
            return lookups(dtype="f64")
        if self.name in LOOPS and not self.training:
            drawn = networks(dtype="f64") | products(dtype="f64")
            return drawn | separable_convolutions(dtype="f64") if slow else drawn
        if self.training:
            nll = self.name != "onnx-to-graphcore"
            drawn = training_networks(dtype="f64", nll=nll)
            if not nll:  # onnx's reference normalizes by running statistics, training by a batch's
                drawn = drawn.filter(_normalizes_no_batch)
            if not slow:
                return drawn
            learns = self.name in {
                *("assign-layouts", "use-winograd"),
                *("structured-to-loops", "split-loops", "interchange-loops"),
                *("vectorize-loops", "unroll-loops"),
            }
            drawn = drawn | learning_convolutions(dtype="f64") if learns else drawn
            return drawn | training_controlled(dtype="f64", nll=nll)
        return networks(dtype="f64") | controlled(dtype="f64") if slow else networks(dtype="f64")


def _normalizes_no_batch(network: Network) -> bool:
    return all(node.op != "BatchNormalization" for node in network.nodes)


def options(
    training: bool,
    gradients: tuple[str, ...] = (),
    threads: int = THREADS,
    ipu: Ipu | None = None,
    *,
    portable: bool = False,
    activations: str = FLOAT,
) -> Options:
    """Small vectors, so that small networks have full vectors and remainders."""
    target = sharing_all(32, 32, SMALL)
    found = Options(
        training=Training(LOSS, RULE, gradients) if training else None,
        extra_outputs=gradients,
        machine=replace(target.machine, words=(*AVX2, "bf16")),
        tuning=target.tuning,
        threads=threads,
        indices="error",
        precision="bf16",
        activations=activations,
        determinism="portable" if portable else "machine",
    )
    return found if ipu is None else on_ipus(found, ipu)


def places() -> Iterator[Place]:
    for training in (False, True):
        for index, (_, made) in enumerate(planned(options(training))):
            if not training or made.name in TRAINED:
                yield Place(index, training, made.name)
        for index, (_, made) in enumerate(planned(options(training, portable=True))):
            if made.name in PORTABLE:
                yield Place(index, training, made.name, portable=True)
        if not training:
            names = [step.name for _, step in planned(options(training, activations=INT8))]
            yield Place(names.index(ROUNDS), training, ROUNDS)
        *before_mapping, (_, mapping) = planned(options(training, ipu=IPU))
        yield Place(len(before_mapping), training, mapping.name)


def steps(place: Place, network: Network) -> list[Pass]:
    names = tuple(network.name(number, LOSS) for number in network.gradients)
    wanted = options(
        place.training,
        names,
        place.threads,
        place.ipu,
        portable=place.portable,
        activations=INT8 if place.name == ROUNDS else FLOAT,
    )
    if place.name == "contract-in-words" and len(network.nodes) % 2:
        wanted = replace(wanted, machine=replace(wanted.machine, words=DOTPROD))
    if place.name == "scale-sums":  # a table lookup by four bits needs sixteen lanes
        wanted = replace(wanted, machine=wanted.machine.with_vectors(64, 32))
    return [made for _, made in planned(wanted)]


def before(place: Place, network: Network) -> tuple[Compilation, ModuleOp]:
    """The network as the pass at this place receives it."""
    compilation = Compilation()
    module = build_network(network, compilation.weights, last=LOSS if place.training else None)
    if place.name == "infer-shapes":
        forget_types(module)
    with pytest.MonkeyPatch.context() as patch:
        if place.name in (
            "fold-constants",
            "scale-sums",
            ROUNDS,
        ):  # lowering would fold all constants
            patch.setattr(lowering, "fold_small", lambda ops, weights, tuning: {})
        for earlier in steps(place, network)[: place.index]:
            taken = place.name == "contract-in-floats" and earlier.name == "contract-in-words"
            # contract-in-words would contract nearly all integers
            if earlier.name != place.name and not taken:
                earlier.run(compilation, module)
    return compilation, module


def check(place: Place, network: Network, mutant: Mutant | None = None) -> None:
    """Checks the claim about a pass, with a bug planted if one is given."""
    compilation, module = before(place, network)
    original, made = module.clone(), steps(place, network)[place.index]
    check_needs(made, original)
    with mutant.planted() if mutant else nullcontext():
        made.run(compilation, module)
        check_ir(module)
        check_promises(made, original, module)
        once = module.clone()
        if made.name != "autodiff":  # a second run would differentiate again, rightly
            made.run(compilation, module)
            assert str(module) == str(once), "a second run changes something"
    claim(place, network, original, once, compilation)


def claim(
    place: Place,
    network: Network,
    original: ModuleOp,
    module: ModuleOp,
    compilation: Compilation,
) -> None:
    """Checks a module after a pass against the module before."""
    weights = compilation.weights
    if place.name == "add-optimizer":  # the only pass that changes the next step on purpose
        assert_trains(original, module, weights, RULE, TOLERANCE)
        return
    assert_same_meaning(original, module, weights, tolerance=TOLERANCE)
    if place.name == "autodiff":
        assert_gradients(original, module, weights, LOSS, RULE.loss_scaling.value)
    if place.name == "infer-shapes":
        assert_all_typed(module, weights)
    if place.name == "check-indices":
        assert_indices_checked(original, module, weights)
    if place.name == "prefetch-panels":
        assert_prefetched(original, module, weights)
    if place.name in TRUSTED:
        for later in steps(place, network)[place.index + 1 :]:
            later.run(compilation, module)
        assert_same_meaning(original, module, weights, tolerance=TOLERANCE)


@pytest.mark.budget(30)
@pytest.mark.parametrize("place", list(places()), ids=str)
def test_fuzz(place: Place) -> None:
    @given(place.networks())
    def keeps_meaning(network: Network) -> None:
        check(place, network)

    keeps_meaning()


@pytest.mark.parametrize("name", ["add-optimizer", "plan-memory"])
def test_a_trained_weight_that_is_an_output_has_its_value_before_the_step(name: str) -> None:
    weight = Constant((2, 2), "f64", seed=1)
    nodes = (Node("Mul", (0, weight)), Node("ReduceSum", (1,), (("keepdims", 0),)))
    network = Network(((2, 2),), nodes, "f64", shared=(weight,), again=(weight,))
    check(next(one for one in places() if one.training and one.name == name), network)


NO_NUMBER_INSIDE = Network(
    ((2, 2),),
    (
        Node("Pow", (0, 0)),
        Node("ThresholdedRelu", (1,), (("alpha", 0.25),)),
        Node("Mul", (2, Constant((), "f64", fill=0.5))),
        Node("ReduceSum", (3,), (("keepdims", 0),)),
    ),
    "f64",
)
"""NaN inside, at powers of negative numbers, but below every threshold: the loss is finite."""

NO_SLOPE_INSIDE = Network(
    ((2, 2),),
    (
        Node("Mul", (0, Constant((), "f64", fill=0.5))),
        Node("Sub", (1, 1)),
        Node("Pow", (0, 2)),
        Node("ReduceSum", (3,), (("keepdims", 0),)),
    ),
    "f64",
)
"""Powers of negative numbers whose exponent is 0 for any input."""


@given(
    aliased(training_networks(dtype="f64", nll=False) | training_controlled(dtype="f64", nll=False))
)
@example(NO_NUMBER_INSIDE)
@example(NO_SLOPE_INSIDE)
def test_fuzz_gradients_everywhere(network: Network) -> None:
    """
    At every value, not only weights; without PopART's loss, whose gradient is clamped differently.
    """
    assert_gradients_everywhere(network)


@pytest.mark.budget(30)
@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_fuzz_kills(mutant: Mutant) -> None:
    """With a bug in the pass, the claim fails within a bounded number of networks."""
    place = place_of(mutant)
    drawn = aliased(mutant.shows_in(dtype="f64")) if mutant.shows_in else place.networks(slow=False)

    @settings(max_examples=9000, phases=[Phase.generate], report_multiple_bugs=False)
    @given(drawn)
    def keeps_meaning(network: Network) -> None:
        if not mutant.needs <= {node.op for node in network.nodes}:
            return
        if mutant.inner:
            with mutant.planted():
                assert_gradients_everywhere(network)
        else:
            # Requested gradients keep values separate, and many bugs need them merged.
            check(place, replace(network, gradients=()), mutant)

    with pytest.raises((AssertionError, PopgraphError, VerifyException)):
        keeps_meaning()


def place_of(mutant: Mutant) -> Place:
    """The first place of the pass that has the bug."""
    wanted = mutant.pass_name, mutant.training
    return next(place for place in places() if (place.name, place.training) == wanted)


PLANTED_ELSEWHERE = {
    *("alternate-chunks", "bind-sizes", "fold-indices", "hand-numbers", "spread-replicas")
}
"""
Passes whose bugs show in few random networks, or none.

They are planted in tests/backends/test_control.py, test_sizes_fuzz.py, test_fold_indices.py,
tests/backends/test_kernel_parameters.py and test_spread_replicas.py.
"""


def test_every_pass_has_a_mutant() -> None:
    planted = {mutant.pass_name for mutant in MUTANTS}
    assert {place.name for place in places()} == planted | PLANTED_ELSEWHERE
