"""Tests `fuse-rows`: which operations become one nest, and the values."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from xdsl.builder import ImplicitBuilder
from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.ir import Operation, SSAValue
from xdsl.ir.affine import AffineMap
from xdsl.utils.exceptions import VerifyException

from popgraph import compile as compile_module
from popgraph.backends.reference.meaning import assert_same_meaning
from popgraph.dialects import graphcore as gc
from popgraph.dialects import tile
from popgraph.dialects.graphcore.base import Operand, shape_of
from popgraph.dialects.program import GraphOp, IntsAttr, ReturnOp, WeightStore
from popgraph.dialects.tile.structured.ops import maps_attribute
from popgraph.passes.base import Compilation
from popgraph.passes.graphcore.expand import Expand
from popgraph.passes.graphcore.to_structured import GraphcoreToStructured
from popgraph.passes.structured.fusion.fuse_elementwise import FuseElementwise
from popgraph.passes.structured.fusion.fuse_epilogue import FuseEpilogue
from popgraph.passes.structured.fusion.fuse_rows import FuseRows
from popgraph.passes.structured.parallel.parallelize_loops import ParallelizeLoops
from popgraph.passes.structured.to_loops import StructuredToLoops
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target, Tuning
from tests.checking import check_ir
from tests.passes.sharing import THREADS, sharing_all

Build = Callable[[SSAValue], Operand]


def fused(build: Build, *shape: int, tuning: Tuning | None = None) -> tuple[ModuleOp, ModuleOp]:
    """The structured level of a graph, before and after the pass."""
    graph = GraphOp("main", ["x"], [TensorType(f32, shape)])
    with ImplicitBuilder(graph.block):
        result = SSAValue.get(build(graph.block.args[0]))
        ReturnOp([result], ["y"])
    module = ModuleOp([graph])
    for made in (Expand(), GraphcoreToStructured(), FuseElementwise(), FuseEpilogue()):
        made.run(Compilation(), module)
    before = module.clone()
    FuseRows(Target(tuning=tuning or Tuning())).run(Compilation(), module)
    check_ir(module)
    assert_same_meaning(before, module, WeightStore(), tolerance=0)
    return before, module


def nests(module: ModuleOp) -> list[tile.FusedOp]:
    return [op for op in module.walk() if isinstance(op, tile.FusedOp)]


def work(module: ModuleOp) -> list[Operation]:
    """Operations that become kernels."""
    (graph,) = (op for op in module.ops if isinstance(op, GraphOp))
    return [op for op in graph.block.ops if isinstance(op, tile.FusedOp | tile.Structured)]


def softmax(x: Operand) -> Operand:
    return gc.SoftmaxOp(x, axis=len(shape_of(SSAValue.get(x))) - 1)


def centred(x: Operand) -> Operand:
    return gc.SubOp(x, gc.ReduceMeanOp(x, axes=(1,), keepdims=True))


@pytest.mark.parametrize(
    ("build", "shape", "domain"),
    [
        (softmax, (16, 12), (16,)),
        (softmax, (2, 3, 5, 12), (2, 3, 5)),
        (lambda x: gc.LogSoftmaxOp(x, axis=1), (16, 12), (16,)),
        (lambda x: gc.SoftmaxOp(x, axis=1), (16, 12, 3), (16,)),
        (lambda x: gc.SoftmaxGradOp(x, x, axis=1), (16, 12), (16,)),
        (centred, (16, 12), (16,)),
        (lambda x: softmax(centred(x)), (16, 12), (16,)),
    ],
)
def test_rows_are_fused_into_one_nest(
    build: Build, shape: tuple[int, ...], domain: tuple[int, ...]
) -> None:
    _, module = fused(build, *shape)
    (nest,) = work(module)
    assert isinstance(nest, tile.FusedOp)
    assert nest.sizes == domain


@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (lambda x: gc.SoftmaxOp(x, axis=0), (16, 12)),
        (lambda x: gc.SoftmaxOp(x, axis=0), (16, 12, 3)),
        (softmax, (16, 4)),
        (softmax, (2, 12000)),
        (lambda x: gc.ReduceSumOp(gc.ReluOp(x), axes=(1,), keepdims=False), (16, 12)),
        (
            lambda x: gc.AddOp(
                x, gc.BroadcastOp(gc.ReduceSumOp(x, axes=(0, 1), keepdims=True), shape=(16, 12))
            ),
            (16, 12),
        ),
    ],
)
def test_other_operations_are_not_fused_into_nests(build: Build, shape: tuple[int, ...]) -> None:
    """Columns, short rows, few long rows, and no shared rows."""
    assert not nests(fused(build, *shape)[1])


def test_pools_are_not_fused_into_nests() -> None:
    """Windows of a pool overlap, so its pixels are not rows of a nest."""

    def build(x: SSAValue) -> Operand:
        pooled = gc.MaxPoolOp(
            x, kernel=(3, 3), strides=(2, 2), dilations=(1, 1), pads=(0, 0, 0, 0), sizes=(4, 4)
        )
        return gc.MulOp(gc.ExpOp(pooled), pooled)

    _, module = fused(build, 2, 8, 9, 9)
    assert not nests(module)


def test_nests_respect_the_limit_of_local_memory() -> None:
    """Without local memory, everything that a nest computes is a result."""
    found = nests(fused(softmax, 16, 12, tuning=Tuning(row_buffer_l1=0, row_buffer_l2=0))[1])
    assert found
    assert all(len(nest.members) == len(nest.outputs) for nest in found)


def test_distant_operations_are_not_fused_into_nests() -> None:
    assert not nests(fused(softmax, 16, 12, tuning=Tuning(most_distance=0))[1])


def test_nests_respect_the_limit_of_operations() -> None:
    _, module = fused(softmax, 16, 12, tuning=Tuning(most_row_operations=2))
    assert all(len(nest.members) == 2 for nest in nests(module))


def test_readers_of_a_result_follow_the_nest() -> None:
    """The maximum is read by the nest and by another sum, which is not part of the rows."""

    def build(x: SSAValue) -> Operand:
        largest = gc.ReduceMaxOp(x, axes=(1,), keepdims=True)
        beside = gc.ReduceSumOp(gc.ExpOp(largest), axes=(0,), keepdims=True)
        return gc.AddOp(gc.SubOp(x, largest), beside)

    _, module = fused(build, 16, 12)
    check_ir(module)


@pytest.mark.parametrize("step", [1, 2, 3, 4, 16])
@pytest.mark.parametrize("threads", [False, True])
@pytest.mark.parametrize(
    ("build", "shape"),
    [
        (softmax, (7, 20)),
        (softmax, (2, 7, 19)),
        (lambda x: gc.SoftmaxOp(x, axis=1), (7, 6, 5)),
        (lambda x: softmax(centred(x)), (13, 33)),
    ],
)
def test_loops_of_nests(
    build: Build,
    shape: tuple[int, ...],
    step: int,
    threads: bool,
) -> None:
    """Kernels with any number of rows per iteration mean what the nest means."""
    before, module = fused(build, *shape)
    (nest,) = nests(module)
    sizes = nest.sizes
    step = min(step, sizes[-1])
    nest.properties["steps"] = IntsAttr.of((*[1] * (len(sizes) - 1), step))
    check_ir(module)
    target = sharing_all(64 if threads else 10**9, 32)
    ParallelizeLoops(THREADS, target).run(Compilation(), module)
    StructuredToLoops(target).run(Compilation(), module)
    check_ir(module)
    (kernel,) = (op for op in module.walk() if isinstance(op, tile.LaunchOp))
    assert (kernel.chunks.value.data > 1) == (threads and step < prod(sizes))
    assert_same_meaning(before, module, WeightStore(), tolerance=1e-6)


def test_results_of_nests_may_overwrite_their_rows() -> None:
    """The softmax reads a row for the last time before it writes it, so both may share memory."""
    _, module = fused(softmax, 16, 12)
    StructuredToLoops(Target.of(32)).run(Compilation(), module)
    (kernel,) = (op for op in module.walk() if isinstance(op, tile.LaunchOp))
    assert kernel.inplace.data == (0, 0)


def test_rows_with_later_readers_are_not_overwritten() -> None:
    _, module = fused(lambda x: gc.MulOp(centred(softmax(x)), x), 16, 12)
    StructuredToLoops(Target.of(32)).run(Compilation(), module)
    (kernel,) = (op for op in module.walk() if isinstance(op, tile.LaunchOp))
    assert kernel.inplace.data == (0, 0)
    _, module = fused(lambda x: gc.MulOp(centred(x), gc.SliceOp(x, **FIRST_ROWS)), 16, 12)
    StructuredToLoops(Target.of(32)).run(Compilation(), module)
    (kernel,) = (op for op in module.walk() if isinstance(op, tile.LaunchOp))
    assert kernel.inplace.data == ()


FIRST_ROWS = {"starts": (15, 0), "sizes": (16, 12), "steps": (-1, 1)}


def broken(change: Callable[[tile.FusedOp], None]) -> tile.FusedOp:
    (nest,) = nests(fused(softmax, 16, 12)[1])
    nest.verify()
    change(nest)
    return nest


def read_backwards(nest: tile.FusedOp) -> None:
    op = next(op for op in nest.members if isinstance(op, tile.MapOp) and len(op.inputs) == 2)
    backwards = AffineMap.from_callable(lambda row, _: (row * -1 + 15,))
    op.properties["maps"] = maps_attribute([op.input_maps[0], backwards])


def other_domain(nest: tile.FusedOp) -> None:
    nest.properties["domain"] = IntsAttr.of([15])


def too_many_loops(nest: tile.FusedOp) -> None:
    nest.properties["domain"] = IntsAttr.of([16, 12])
    nest.properties["steps"] = IntsAttr.of([1, 1])


def too_few_steps(nest: tile.FusedOp) -> None:
    nest.properties["steps"] = IntsAttr.of([])


def several_of_an_outer_loop(nest: tile.FusedOp) -> None:
    nest.properties["domain"] = IntsAttr.of([16, 12])
    nest.properties["steps"] = IntsAttr.of([2, 1])


def yields_its_input(nest: tile.FusedOp) -> None:
    assert nest.body.block.last_op is not None
    nest.body.block.last_op.operands[0] = nest.body.block.args[0]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (read_backwards, "reads elements of another iteration"),
        (other_domain, "must have the loops of tile.fused"),
        (too_many_loops, "must have the loops of tile.fused"),
        (too_few_steps, "steps must be at least 1, one for each shared loop"),
        (
            several_of_an_outer_loop,
            "steps must be 1 for all leading loops except the last",
        ),
        (yields_its_input, "the body must compute each result, and yield it once"),
    ],
)
def test_illegal_nests_do_not_verify(change: Callable[[tile.FusedOp], None], message: str) -> None:
    with pytest.raises(VerifyException, match=message):
        broken(change).verify()


def test_a_nest_keeps_nan() -> None:
    """A compiled softmax of nothing but -inf is NaN, as in NumPy."""
    x = np.full((16, 12), -np.inf, np.float32)
    x[1:] = np.random.default_rng(0).standard_normal((15, 12))
    exponentials = np.exp(x[1:] - x[1:].max(1, keepdims=True))
    wanted = exponentials / exponentials.sum(1, keepdims=True)
    module = fused(softmax, 16, 12)[1]
    found = compile_module(module)(x=x)["y"]
    assert np.isnan(found[0]).all()
    np.testing.assert_allclose(found[1:], wanted, rtol=1e-6)
