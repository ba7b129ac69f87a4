"""Fuzzes programs whose loops end at a size of the call, and checks that planted bugs are found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis.strategies import SearchStrategy
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.reference.executable import run
from popgraph.backends.registry import backend_named
from popgraph.compiler.generalize import STRUCTURED, probes_of, prove
from popgraph.dialects.program import WeightStore
from popgraph.dialects.program.sizes import set_sizes, sizes_of
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.pipeline import planned
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError, UnsizedError
from popgraph.testing import assert_close, attentions, lookups, products, separable_convolutions
from tests.checking import check_ir
from tests.passes.sharing import THREADS, sharing_all
from tests.passes.mutants import Mutant
from tests.passes.sized_networks import (
    BOUND,
    NAME,
    SizedNetwork,
    grown_networks,
    sized_networks,
    with_size,
)
from tests.passes.test_fuzz import SMALL

TOLERANCE = 1e-8
"""For float64, relative to the largest value: what reordered sums may cost, and no mistake."""
SIZES = (1, 2, 7, BOUND - 1, BOUND)
RUNS = {
    "bind-sizes": (2, BOUND),
    "structured-to-loops": (7,),
    "split-kernels": (1, BOUND - 1),
}
"""The passes after which a module is run by the reference, and for which sizes."""
UNREAD, UNWRITTEN = np.nan, 1e3
"""Garbage after the end of inputs: it shows in what reads it, or in what writes after the end."""
LEAST_SHARE = 0.6
"""So many of the networks have one program for all sizes; of 500, 0.8 had."""


def options(threads: int = THREADS) -> Options:
    target = sharing_all(32, 32, SMALL)
    return Options(machine=target.machine, tuning=target.tuning, threads=threads, indices="nearest")


def bound(network: SizedNetwork, threads: int) -> Iterator[tuple[str, ModuleOp, Compilation]]:
    """The module of all sizes after each pass from `bind-sizes` on."""
    compilation = Compilation()
    module = network.module(BOUND, compilation.weights)
    set_sizes(module, [network.size])
    steps = [made for _, made in planned(options(threads))]
    names = [made.name for made in steps]
    proven, running = names.index(STRUCTURED) + 1, names.index("bind-sizes")
    for made in steps[:proven]:
        made.run(compilation, module)
    prove(module, compilation.weights, *probe(network, steps[:proven]))
    for made in steps[proven:running]:
        made.run(compilation, module)
    for made in steps[running:]:
        made.run(compilation, module)
        yield made.name, module, compilation


def probe(network: SizedNetwork, steps: Sequence[Pass]) -> tuple[ModuleOp, WeightStore]:
    """The network of another size, with which that of the bound is compared."""
    compilation = Compilation()
    try:
        module = network.module(probes_of({NAME: BOUND})[NAME], compilation.weights)
        for made in steps:
            made.run(compilation, module)
    except PopgraphError as error:
        raise UnsizedError("the probe is no legal size") from error
    return module, compilation.weights


def exact(network: SizedNetwork, size: int, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """What the network of just this size computes."""
    compilation = Compilation()
    module = network.module(size, compilation.weights)
    for _, made in planned(options(1), "onnx", "graphcore"):
        made.run(compilation, module)
        if made.name == "onnx-to-graphcore":
            break
    return run(module, network.fronts(inputs, size), compilation.weights, None)[0]


def fronts(module: ModuleOp, outputs: Mapping[str, Array], number: int) -> dict[str, Array]:
    """What of outputs is in front of the end."""
    found = dict(outputs)
    for size in sizes_of(module):
        for place in size.outputs:
            end = slice(0, place.factor * number)
            found[place.tensor] = found[place.tensor][(slice(None),) * place.axis + (end,)]
    return found


def check(network: SizedNetwork, threads: int = THREADS) -> None:
    """The program of all sizes computes what those of each size do; or `UnsizedError`."""
    for name, module, compilation in bound(network, threads):
        if name == "bind-sizes":
            check_ir(module)
        for size in RUNS.get(name, ()):
            assert_runs(network, module, compilation, size)
            if name != "split-kernels":  # Where other values were in the same memory before.
                assert_nothing_after(network, module, compilation, size)


def assert_runs(
    network: SizedNetwork, module: ModuleOp, compilation: Compilation, size: int
) -> None:
    """What is in front of the end is right, whatever is after it."""
    inputs = network.inputs(size, UNREAD)
    found, _ = run(module, inputs | {NAME: np.array(size)}, compilation.weights, None)
    expected = exact(network, size, inputs)
    for name, array in fronts(module, found, size).items():
        assert_close(array, expected[name], TOLERANCE, f"{name} for {size}")


def assert_nothing_after(
    network: SizedNetwork, module: ModuleOp, compilation: Compilation, size: int
) -> None:
    """Nothing is written after the end."""
    inputs = network.inputs(size, UNWRITTEN)
    found, _ = run(module, inputs | {NAME: np.array(size)}, compilation.weights, None)
    for array in fronts(module, found, size).values():
        array[...] = UNWRITTEN
    for name, array in found.items():
        assert (np.isnan(array) | (array == UNWRITTEN)).all(), f"{name} for {size}"


def run_all(drawn: SearchStrategy[SizedNetwork], check: Callable[[SizedNetwork], None]) -> float:
    """Checks networks, and gives the share of them that have one program for all sizes."""
    counts = Counter[bool]()

    @given(drawn)
    def runs(network: SizedNetwork) -> None:
        try:
            check(network)
            counts[True] += 1
        except UnsizedError:
            counts[False] += 1

    runs()
    return counts[True] / counts.total()


@pytest.mark.budget(30)
def test_reference_runs_to_sizes() -> None:
    assert run_all(sized_networks(), check) >= LEAST_SHARE


@pytest.mark.budget(30)
@pytest.mark.parametrize("threads", [1, THREADS])
def test_c_runs_to_sizes(threads: int) -> None:
    def check(network: SizedNetwork) -> None:
        *_, (_, module, compilation) = bound(network, threads)
        program = backend_named("c").build(module, compilation.weights, threads=threads)
        for size in SIZES:
            inputs = network.inputs(size, UNREAD)
            found = program.run(network.fronts(inputs, size))
            for name, expected in exact(network, size, inputs).items():
                assert_close(found[name], expected, TOLERANCE, f"{name} for {size}")

    assert run_all(sized_networks(), check) >= LEAST_SHARE
