"""Fuzzes programs whose loops end at a size of the call, and finds planted bugs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from hypothesis.strategies import SearchStrategy
from xdsl.dialects import arith
from xdsl.dialects.builtin import ModuleOp

from popgraph.backends.reference.executable import run
from popgraph.backends.registry import backend_named
from popgraph.compiler.generalize import (
    GRAPHCORE,
    STRUCTURED,
    check_agreement,
    probes_of,
    prove_generality,
)
from popgraph.dialects.program import WeightStore
from popgraph.dialects.program.sizes import set_sizes, sizes_of
from popgraph.passes.base import Compilation, Pass
from popgraph.passes.options import Options
from popgraph.passes.pipeline import planned
from popgraph.passes.structured.to_loops.emit.access import Span
from popgraph.passes.structured.to_loops.emit.index import Index
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError, UnsizedError
from popgraph.support.shapes import prod
from popgraph.support.sizes import leading_slices
from popgraph.testing import assert_close, products
from tests.checking import check_ir
from tests.passes.mutants import Mutant
from tests.passes.sharing import THREADS, sharing_all
from tests.passes.sized_networks import (
    BOUND,
    NAME,
    SizedNetwork,
    grown_networks,
    inner_rows,
    long_products,
    sized_networks,
    with_size,
)
from tests.passes.test_fuzz import SMALL

TOLERANCE = 1e-8
"""Relative error in f64 that reordered sums may have, and no bug."""
SIZES = (1, 2, 7, BOUND - 1, BOUND)
RUNS = {
    "bind-sizes": (2, BOUND),
    "structured-to-loops": (7,),
    "split-kernels": (1, BOUND - 1),
}
"""The passes after which the reference runs a module, with the sizes."""
UNREAD, UNWRITTEN = np.nan, 1e3
"""Garbage after the end of inputs: it reveals reads, or writes after the end of outputs."""
LEAST_SHARE = 0.65
"""The minimal fraction of networks with one program for all sizes.

Of 300 networks of `grown`, 233 had one, and 222 of 300 of all kinds.
"""


def options(threads: int = THREADS) -> Options:
    target = sharing_all(32, 32, SMALL)
    return Options(machine=target.machine, tuning=target.tuning, threads=threads, indices="nearest")


def agreed(network: SizedNetwork) -> None:
    """Raises `UnsizedError` unless the graphs of small sizes equal that of the bound."""
    whole, *smaller = (graphcore(network, size) for size in (BOUND, 2, 1))
    for number, found in zip((2, 1), smaller, strict=True):
        check_agreement(whole[0], whole[1], *found, number)


def graphcore(network: SizedNetwork, size: int) -> tuple[ModuleOp, WeightStore]:
    """The graphcore module of a size."""
    compilation = Compilation()
    try:
        module = network.module(size, compilation.weights)
        set_sizes(module, [replace(network.size, bound=size)])
        for _, made in planned(options(1)):
            made.run(compilation, module)
            if made.name == GRAPHCORE:
                return module, compilation.weights
    except PopgraphError as error:
        raise UnsizedError(f"{size} is not a legal size", "") from error
    raise AssertionError


def bound(network: SizedNetwork, threads: int) -> Iterator[tuple[str, ModuleOp, Compilation]]:
    """The module for all sizes after each pass from `bind-sizes` on."""
    agreed(network)
    compilation = Compilation()
    module = network.module(BOUND, compilation.weights)
    set_sizes(module, [network.size])
    steps = [made for _, made in planned(options(threads))]
    names = [made.name for made in steps]
    proven, running = names.index(STRUCTURED) + 1, names.index("bind-sizes")
    for made in steps[:proven]:
        made.run(compilation, module)
    prove_generality(module, compilation.weights, *probe(network, steps[:proven]))
    for made in steps[proven:running]:
        made.run(compilation, module)
    for made in steps[running:]:
        made.run(compilation, module)
        yield made.name, module, compilation


def probe(network: SizedNetwork, steps: Sequence[Pass]) -> tuple[ModuleOp, WeightStore]:
    """The network of another size, for comparison with that of the bound."""
    compilation = Compilation()
    try:
        number = probes_of({NAME: BOUND})[NAME]
        module = network.module(number, compilation.weights)
        set_sizes(module, [replace(network.size, bound=number)])
        for made in steps:
            made.run(compilation, module)
    except PopgraphError as error:
        raise UnsizedError("the probe is not a legal size") from error
    return module, compilation.weights


def exact(network: SizedNetwork, size: int, inputs: Mapping[str, Array]) -> dict[str, Array]:
    """The results of the network compiled for exactly this size."""
    compilation = Compilation()
    module = network.module(size, compilation.weights)
    for _, made in planned(options(1), "onnx", "graphcore"):
        made.run(compilation, module)
        if made.name == "onnx-to-graphcore":
            break
    return run(module, network.leading_slices(inputs, size), compilation.weights, None)[0]


def in_front(module: ModuleOp, outputs: Mapping[str, Array], number: int) -> dict[str, Array]:
    """The part of outputs before the end."""
    (size,) = sizes_of(module)
    return leading_slices(outputs, size.outputs, number)


def check(network: SizedNetwork, threads: int = THREADS) -> None:
    """Compares the program for all sizes with those of each size; may raise `UnsizedError`."""
    for name, module, compilation in bound(network, threads):
        if name == "bind-sizes":
            check_ir(module)
        for size in RUNS.get(name, ()):
            assert_runs(network, module, compilation, size)
            if name != "split-kernels":  # After splitting, other values shared the memory before.
                assert_nothing_after(network, module, compilation, size)


def assert_runs(
    network: SizedNetwork, module: ModuleOp, compilation: Compilation, size: int
) -> None:
    """Checks outputs before the end, with garbage after it."""
    inputs = network.inputs(size, UNREAD)
    found, _ = run(module, inputs | {NAME: np.array(size)}, compilation.weights, None)
    expected = exact(network, size, inputs)
    for name, array in in_front(module, found, size).items():
        assert_close(array, expected[name], TOLERANCE, f"{name} for {size}")


def assert_nothing_after(
    network: SizedNetwork, module: ModuleOp, compilation: Compilation, size: int
) -> None:
    """Checks that nothing is written after the end."""
    inputs = network.inputs(size, UNWRITTEN)
    found, _ = run(module, inputs | {NAME: np.array(size)}, compilation.weights, None)
    copies = {name: np.array(array) for name, array in found.items()}
    for array in in_front(module, copies, size).values():
        array[...] = UNWRITTEN
    for name, array in copies.items():
        # The reference resets integers to 0, and their poison is -1.
        forgotten = np.isnan(array) if array.dtype.kind == "f" else np.isin(array, (0, -1))
        assert (forgotten | (array == UNWRITTEN)).all(), f"{name} for {size}"


def run_all(drawn: SearchStrategy[SizedNetwork], check: Callable[[SizedNetwork], None]) -> float:
    """Checks networks, and returns the fraction with one program for all sizes."""
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
            found = program.run(network.leading_slices(inputs, size))
            for name, expected in exact(network, size, inputs).items():
                assert_close(found[name], expected, TOLERANCE, f"{name} for {size}")

    assert run_all(sized_networks(), check) >= LEAST_SHARE


def to_the_bound(original: Any) -> Any:
    return lambda writer, group, sizes: group.extent


def past_the_end(original: Any) -> Any:
    """Plants a bug: the last step may exceed the end."""
    return lambda writer, lower, upper, width: writer.bound(upper)


def without_rest(original: Any) -> Any:
    """Plants a bug: the remainder after whole steps is skipped."""
    return lambda writer, part, middle: part.upper if part.static_extent is None else middle


def blocks_only(original: Any) -> Any:
    """Plants a bug: rows that do not fill a block are skipped."""

    def rows(self: Any, group: Any, part: Any, across: int, emit: Any) -> None:
        def whole(count: int, rows: Any, first: Any) -> None:
            if count > across or self.schedule.mr.data <= across:
                emit(count, rows, first)

        original(self, group, part, across, whole)

    return rows


def joined(original: Any) -> Any:
    """Plants a bug: a loop that ends at a size is merged into the outer one."""

    def group_loops(
        dims: Any, sizes: Any, forms: Any, separate: Any = frozenset(), running: Any = None
    ) -> Any:
        found = []
        for group in original(dims, sizes, forms, separate):
            for dim in {*group.dims} & {*(running or {})}:
                inside = prod(sizes[at] for at in group.dims if at > dim)
                group = replace(group, running=running[dim].scaled(inside))
            found.append(group)
        return found

    return group_loops


def rounded_down(original: Any) -> Any:
    """Plants a bug: the chunk size is rounded down."""

    def part(writer: Any, group: Any, count: int, number: Any, size: Any) -> Any:
        found, running = original(writer, group, 1, number.scaled(0), size), group.running
        steps = writer.once(arith.DivSIOp(size, writer.constant(count)))
        start = writer.once(arith.MuliOp(writer.value(number), steps))
        end = writer.value(Index.of(start) + Index.of(steps))
        lower, upper = (writer.times(one, running.factor) for one in (start, end))
        return replace(found, lower=lower, upper=upper)

    return part


def parts_of_the_bound(original: Any) -> Any:
    def part(writer: Any, group: Any, count: int, number: Any, size: Any) -> Any:
        return original(writer, group, count, number, writer.constant(BOUND))

    return part


def factor_forgotten(original: Any) -> Any:
    return lambda extent, by: extent


def nothing_forgotten(original: Any) -> Any:
    return lambda op, results, sizes: results


def terms_to_the_bound(original: Any) -> Any:
    return lambda writer, group, base=None: Span(0, group.extent, base or Index())


def chunks_past_the_end(original: Any) -> Any:
    def span(writer: Any, number: Any, end: Any, size: int) -> Any:
        start = number.scaled(size)
        return Span(writer.value(start), writer.value(start + size))

    return span


def whole_vectors_only(original: Any) -> Any:
    """Plants a bug: lanes that do not fill a vector are skipped."""

    def lanes(self: Any, count: Any, emit: Any) -> None:
        def whole(columns: Any) -> None:
            if columns[0].lanes == self.schedule.lanes.data:
                emit(columns)

        original(self, count, whole)

    return lanes


def all_terms(original: Any) -> Any:
    return lambda op, sizes: original(op, dict.fromkeys(sizes, BOUND))


BIND = "popgraph.passes.structured.bind_sizes"
LOOPS = "popgraph.passes.structured.to_loops"


@dataclass(frozen=True)
class Bug:
    """A planted bug, and the networks that reveal it."""

    bug: str
    target: str
    wrong: Callable[[Any], Any]
    shows_in: SearchStrategy[SizedNetwork]

    def __str__(self) -> str:
        return self.bug

    @property
    def mutant(self) -> Mutant:
        return Mutant("bind-sizes", self.bug, self.target, self.wrong)


GROWN = grown_networks()
PRODUCTS = with_size(products("f64"))
LONG_PRODUCTS = long_products()
BUGS = (
    Bug("loops run to the bound", f"{LOOPS}.emit.access:_end", to_the_bound, GROWN),
    Bug("steps go past the end", f"{LOOPS}.emit.vectors:whole_steps", past_the_end, GROWN),
    Bug("the rest of steps is not done", f"{LOOPS}.emit.vectors:_after", without_rest, GROWN),
    Bug(
        "rows that make no block are not computed",
        f"{LOOPS}.contraction.tile_nest:TileNest._running_rows",
        blocks_only,
        PRODUCTS,
    ),
    Bug(
        "blocks of rows go past the end",
        f"{LOOPS}.contraction.tile_nest:whole_steps",
        past_the_end,
        PRODUCTS,
    ),
    Bug("a loop is joined", f"{LOOPS}.elementwise.maps:group_loops", joined, inner_rows()),
    Bug("the last part is short", f"{LOOPS}.emit.access:_running_part", rounded_down, GROWN),
    Bug("parts of the bound", f"{LOOPS}.emit.access:_running_part", parts_of_the_bound, GROWN),
    Bug(
        "a factor is forgotten",
        "popgraph.dialects.tile.running:Extent.scaled",
        factor_forgotten,
        GROWN,
    ),
    Bug(
        "sums run to the bound",
        f"{LOOPS}.reduction.accumulation:whole",
        terms_to_the_bound,
        GROWN,
    ),
    Bug(
        "products are added up to the bound",
        f"{LOOPS}.contraction.microkernel:whole",
        terms_to_the_bound,
        LONG_PRODUCTS,
    ),
    Bug("chunks go past the end", f"{LOOPS}.emit.chunks:_span", chunks_past_the_end, GROWN),
    Bug(
        "lanes that fill no vector are not computed",
        f"{LOOPS}.contraction.tile_nest:TileNest._lanes",
        whole_vectors_only,
        LONG_PRODUCTS,
    ),
    Bug(
        "the reference adds up to the bound",
        "popgraph.backends.reference.graph:with_fewer_terms",
        all_terms,
        GROWN,
    ),
    Bug(
        "the reference computes what is after the end",
        "popgraph.backends.reference.graph:up_to_ends",
        nothing_forgotten,
        GROWN,
    ),
)


@pytest.mark.budget(30)
@pytest.mark.parametrize("bug", BUGS, ids=str)
def test_fuzz_kills(bug: Bug) -> None:
    """A planted bug is found within 1000 networks."""

    @settings(max_examples=1000, phases=[Phase.generate], report_multiple_bugs=False)
    @given(bug.shows_in)
    def runs(network: SizedNetwork) -> None:
        with bug.mutant.planted(), suppress(UnsizedError):
            check(network)

    with pytest.raises(AssertionError):
        runs()
