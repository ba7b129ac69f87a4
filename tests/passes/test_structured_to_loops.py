"""Tests `structured-to-loops`: kernels keep the meaning of structured operations."""

from __future__ import annotations

from dataclasses import fields
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from xdsl.dialects import arith, func, scf
from xdsl.dialects.builtin import UNKNOWN_LOC, FloatAttr, ModuleOp, f32, f64
from xdsl.ir import Block, Operation, Region, SSAValue

from popgraph.backends.reference import evaluate
from popgraph.backends.reference.meaning import assert_same_meaning
from popgraph.dialects.program import WeightStore
from popgraph.dialects.tile import LaunchOp, MapOp
from popgraph.dialects.tile.loops.soundness import called
from popgraph.dialects.unchecked import create_unchecked
from popgraph.passes.base import Compilation
from popgraph.passes.structured.analysis.parallel_loops import ParallelLoops
from popgraph.passes.structured.parallel.parallelize_loops import ParallelizeLoops, best_parts
from popgraph.passes.structured.to_loops import StructuredToLoops
from popgraph.passes.structured.to_loops.copy import copies
from popgraph.support.tuning import Target, Tuning
from popgraph.testing.blocks import BlockSpec, block_sums
from popgraph.testing.structured import (
    AssembleSpec,
    ContractSpec,
    MapSpec,
    Operand,
    PackSpec,
    ReduceSpec,
    Spec,
    TopKSpec,
    assembles,
    choices,
    contracts,
    maps,
    packs,
    reduces,
    scatters,
)
from tests.checking import check_ir
from tests.passes.sharing import THREADS, sharing_all


def small(vector_bytes: int, grain: int, terms: int = 256) -> Target:
    """A target that splits even small tensors into chunks for threads, and sums into chunks."""
    return sharing_all(grain, vector_bytes, Tuning(partial_sums=max(2, terms)))


class Kernel(NamedTuple):
    """The launch of a kernel, and its function."""

    launch: LaunchOp
    function: func.FuncOp


def check(spec: Spec | BlockSpec, target: Target, tolerance: float) -> Kernel:
    before = spec.module()
    check_ir(before)
    after = before.clone()
    ParallelizeLoops(THREADS, target).run(Compilation(), after)
    StructuredToLoops(target).run(Compilation(), after)
    check_ir(after)
    assert_same_meaning(before, after, WeightStore(), tolerance=tolerance, steps=1)
    launch = next(op for op in after.walk() if isinstance(op, LaunchOp))
    function = called(launch, launch.callee)
    assert function is not None
    return Kernel(launch, function)


grains = st.sampled_from([8, 64, 16384])
vectors = st.sampled_from([16, 64])
terms = st.sampled_from([1, 3, 256])


@given(maps(), vectors, grains)
def test_loops_of_maps(spec: MapSpec, vector_bytes: int, grain: int) -> None:
    check(spec, small(vector_bytes, grain), 1e-6)


@given(reduces(), vectors, grains, terms)
def test_loops_of_reductions(spec: ReduceSpec, vector_bytes: int, grain: int, terms: int) -> None:
    check(spec, small(vector_bytes, grain, terms), 1e-6)


@given(contracts(), vectors, grains, terms)
def test_loops_of_contractions(
    spec: ContractSpec, vector_bytes: int, grain: int, terms: int
) -> None:
    check(spec, small(vector_bytes, grain, terms), 1e-6)


@given(block_sums(), vectors, grains)
def test_loops_of_block_sums_without_a_schedule(
    spec: BlockSpec, vector_bytes: int, grain: int
) -> None:
    """Without a schedule, sums of blocks are in memory."""
    check(spec, small(vector_bytes, grain), 1e-6)


@given(assembles() | scatters | choices | packs, vectors, grains)
def test_loops_of_other_operations(spec: Spec, vector_bytes: int, grain: int) -> None:
    check(spec, small(vector_bytes, grain), 1e-6)


@pytest.mark.parametrize("count", [0, 1, 2, 5, 15, 16, 40])
@pytest.mark.parametrize("most", [16, 1024])
def test_loops_of_top_k(count: int, most: int) -> None:
    """By a heap, by a heap whose entries are sorted by their bytes, and of whole rows."""
    target = sharing_all(8, 64, Tuning(least_distributed=16, most_distributed=most))
    for size in {40, max(1, count)}:
        kernel = check(TopKSpec("f32", 3, size, count, True), target, 0)
        assert ("memref<40xi64>" in str(kernel.function)) == (count == 40 <= most)
    check(TopKSpec("i32", 0, 3, 2, False), target, 0)


def test_chunks_of_a_row_are_whole_vectors() -> None:
    """No vector crosses into the next chunk, or past the end."""
    spec = AssembleSpec("f64", (3, 13), 0, 1, (0, 0), (2, 0), (1, 1), 0)
    assert check(spec, small(32, 32), 0).launch.chunks.value.data > 1


IDENTITY = Operand(((1, 0, 0), (0, 1, 0)))
ROW = Operand(((0, 1, 0),))


@pytest.mark.parametrize("sizes", [(0, 3), (3, 0), (0, 0)])
def test_loops_of_empty_domains(sizes: tuple[int, int]) -> None:
    """Empty domains write nothing; an empty reduction gives its initial value."""
    empty = Operand(((0, 0, 0),))
    check(MapSpec("f32", sizes, (empty,), ("sum",)), Target.of(64), 0)
    check(ReduceSpec("f32", sizes, 1, (empty,), (), "sum", ("sum",)), Target.of(64), 0)
    check(ContractSpec("f32", sizes, 1, empty, empty), Target.of(64), 0)


def test_a_whole_tensor_is_one_loop() -> None:
    """Elementwise work on a tensor of any rank is one loop over vectors."""
    kernel = check(MapSpec("f32", (5, 32), (IDENTITY, IDENTITY), ("sum",)), Target.of(64), 1e-6)
    loops = [op for op in kernel.function.walk() if op.name == "scf.for"]
    assert len(loops) == 1
    assert sum(op.name == "vector.load" for op in kernel.function.walk()) == 2
    assert kernel.launch.inplace.data == (0, 0, 1, 0)


def test_a_broadcast_row_does_not_run_in_place() -> None:
    kernel = check(MapSpec("f32", (5, 16), (ROW, IDENTITY), ("sum",)), Target.of(64), 1e-6)
    assert kernel.launch.inplace.data == (1, 0)


class OfOne(MapSpec):
    """A map whose operands are all its first tensor."""

    def module(self) -> ModuleOp:
        module = super().module()
        (op,) = (op for op in module.walk() if isinstance(op, MapOp))
        for place in range(1, len(op.operands)):
            op.operands[place] = op.operands[0]
        return module


def test_an_operand_read_twice_is_one_memory() -> None:
    columns = Operand(((0, 1, 0), (1, 0, 0)))
    spec = OfOne("f32", (5, 5), (IDENTITY, columns, IDENTITY), ("sum",))
    kernel = check(spec, Target.of(64), 1e-6)
    assert len(kernel.launch.inputs) == 1
    assert kernel.launch.inplace.data == (), "an element is read after that beside it is written"


@pytest.mark.parametrize("grain", [8, 16384])
@pytest.mark.parametrize("short", [2, 3, 4, 5, 8, 9])
def test_transposes_of_few_rows_are_interleaved(short: int, grain: int) -> None:
    """A transpose of a few rows (a channel shuffle) stores whole vectors."""
    columns = Operand(((0, 1, 0), (1, 0, 0)))
    spec = MapSpec("f32", (21, short), (columns, Operand(((1, 0, 0),))), ("relu", "sum"))
    names = [op.name for op in check(spec, small(16, grain), 0).function.walk()]
    # Two results. More rows are transposed in blocks, with log2(lanes) shuffles a row.
    assert (names.count("vector.shuffle") == 2 * short * (short - 1)) == (short <= 8)


@pytest.mark.parametrize("sizes", [(40, 33), (20, 70), (9, 12)])
def test_maps_of_transposed_operands_are_vectorized(sizes: tuple[int, int]) -> None:
    """A transposed operand is loaded in vectors, and transposed after the body."""
    columns = Operand(((0, 1, 0), (1, 0, 0)))
    kernel = check(MapSpec("f32", sizes, (columns,), ("relu",)), Target.of(64), 0)
    names = [op.name for op in kernel.function.walk()]
    assert {"vector.shuffle", "vector.load"} <= set(names)


COLUMNS = Operand(((0, 1, 0), (1, 0, 0)))
BIAS = Operand(((1, 0, 0),))
ACROSS = Operand(((0, 1, 0),))


@pytest.mark.parametrize(
    ("operands", "columns", "sizes", "grain"),
    [
        ((COLUMNS, BIAS), False, (37, 21), 64),
        ((COLUMNS, ACROSS), False, (18, 70), 16384),
        ((COLUMNS, COLUMNS), False, (37, 21), 16384),
        ((COLUMNS, IDENTITY), True, (18, 70), 64),
        ((COLUMNS, BIAS, COLUMNS, IDENTITY), True, (37, 21), 16384),
    ],
)
def test_maps_of_some_transposed_operands_run_in_blocks(
    operands: tuple[Operand, ...], columns: bool, sizes: tuple[int, int], grain: int
) -> None:
    """A block is computed by columns where an operand is contiguous along results only."""
    spec = MapSpec("f64", sizes, operands, ("sum",))
    target = sharing_all(grain, 32, Tuning(transposed_l2=1 / 256))
    kernel = check(spec, target, 1e-6)
    names = [op.name for op in kernel.function.walk()]
    # Sums of columns follow the shuffles of all operands, those of rows precede the only ones.
    sums = [at for at, name in enumerate(names) if name == "arith.addf"]
    first = names.index("vector.shuffle")
    assert (sums[0] > first) == columns
    assert (kernel.launch.chunks.value.data > 1) == (grain == 64)


@pytest.mark.parametrize(
    ("sizes", "results"),
    [((49152, 576), False), ((576, 49152), True), ((1024, 784), False), ((784, 1024), True)],
)
def test_blocks_continue_along_rows_that_are_far_from_each_other(
    sizes: tuple[int, int], results: bool
) -> None:
    """The innermost loop of blocks continues along the side whose rows are a page apart."""
    module = MapSpec("f32", sizes, (COLUMNS,), ("sum",)).module()
    StructuredToLoops(Target.of(64)).run(Compilation(), module)
    function = next(op for op in module.walk() if isinstance(op, func.FuncOp))
    *_, innermost = (op for op in function.walk() if isinstance(op, scf.ForOp))
    index = innermost.body.block.args[0]
    stored = [op for op in function.walk() if op.name == "vector.store"]
    # Along results, the counter itself is an offset in them; along operands, a multiple is.
    direct = any(index in sum_of(op.operands[2]) for op in stored)
    assert direct == results


def sum_of(index: SSAValue) -> set[SSAValue]:
    """The terms of an index."""
    if isinstance(index.owner, arith.AddiOp):
        return sum_of(index.owner.lhs) | sum_of(index.owner.rhs)
    return {index}


def test_large_maps_are_partitioned_among_threads() -> None:
    kernel = check(MapSpec("f32", (257, 256), (IDENTITY,), ("relu",)), Target.of(64), 1e-6)
    assert kernel.launch.chunks.value.data >= 2


def test_selections_are_vectorized() -> None:
    """The gradient of relu is a vector comparison and a vector selection."""
    kernel = check(MapSpec("f32", (5, 16), (IDENTITY,), ("select",)), Target.of(64), 0)
    names = [op.name for op in kernel.function.walk()]
    assert names.count("tile.compare") == names.count("tile.select") == 1
    assert "arith.cmpf" not in names


@pytest.mark.parametrize("windows", [4, 16, 21, 71])
def test_windows_with_stride_two_are_vectorized(windows: int) -> None:
    """Even elements are extracted from two vectors that end at the end of the memory."""
    every_other = Operand(((2, 1, 0),))
    spec = ReduceSpec("f32", (windows, 3), 1, (every_other,), (), "max", ("sum",))
    names = [op.name for op in check(spec, Target.of(16), 0).function.walk()]
    assert "vector.shuffle" in names


@pytest.mark.parametrize(("terms", "accurate"), [(256, True), (10**9, False)])
def test_long_sums_are_accumulated_in_chunks(terms: int, accurate: bool) -> None:
    """100000 equal numbers lose precision in a single f32 chain, not in chunks."""
    module = ReduceSpec("f32", (100_003,), 0, (Operand(((1, 0),)),), (), "sum", ("sum",)).module()
    StructuredToLoops(small(16, 16384, terms)).run(Compilation(), module)
    inputs = {"x0": np.full(100_003, 0.1, np.float32)}
    (found,) = evaluate(module, inputs, WeightStore(), None)[0].values()
    element = float(np.float32(0.1) * np.float32(3) + np.float32(2))
    expected = 1 + 100_003 * element
    assert (abs(float(found) / expected - 1) < 1e-6) == accurate


@pytest.mark.parametrize("sizes", [(3, 16, 9), (2, 33, 15), (16, 16, 9), (1, 32, 12), (4, 40, 8)])
def test_packs_of_short_rows_are_transposed_in_registers(sizes: tuple[int, int, int]) -> None:
    """
    Vectors read past the end of rows longer than half their lanes, but never past the memory.

    In the last rows, and for shorter rows, the transposed tiles are smaller.
    """
    kernel = check(PackSpec("f32", sizes, 16, 0), Target.of(64), 0)
    assert any(op.name == "vector.shuffle" for op in kernel.function.walk())


@pytest.mark.parametrize("extent", range(9, 70))
def test_chunks_of_packs_end_between_pairs_of_vectors(extent: int) -> None:
    """Steps over vector loads are two vectors wide; no chunk boundary may fall inside one."""
    target = sharing_all(8, 32)
    loops = copies.loops_of_box([0], (extent, 12), f64, target, loaded=[0])
    for part in best_parts(ParallelLoops(tuple(loops), 12 * extent), {}, THREADS, target):
        assert part.size % (target.machine.lines_together * 4) == 0


@pytest.mark.parametrize("kind", [*arith.Arith.operations, *scf.Scf.operations])
def test_unchecked_operations_equal_those_of_their_class(kind: type[Operation]) -> None:
    """All fields of an operation, with defaults, so that nothing xDSL reads later is missing."""
    given = Block(arg_types=[f32, f32]).args
    properties = {"own": FloatAttr(1.5, f32)}
    made = create_unchecked(kind, *given, types=(f32,), regions=(Region(Block()),), **properties)
    usual = kind.create(
        operands=given,
        result_types=[f32],
        properties=properties,
        regions=[Region(Block())],
        location=UNKNOWN_LOC,
    )
    assert made.is_structurally_equivalent(usual)
    for name in (each.name for each in fields(usual)):
        if name not in ("results", "regions", "_operand_uses"):
            assert getattr(made, name) == getattr(usual, name), name
    assert [use.operation for value in given for use in value.uses].count(made) == 2
    assert (made.results[0].op, made.regions[0].parent) == (made, made)
    other = create_unchecked(kind, *given, types=(f32,), regions=(Region(Block()),))
    assert other.properties is not made.properties and other.attributes is not made.attributes
