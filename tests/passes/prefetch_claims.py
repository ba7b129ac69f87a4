"""The claim about prefetches, which change no result: each is close to the access it is for."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from xdsl.dialects import func, memref, scf, vector
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from popgraph.backends.reference import evaluate, signature
from popgraph.backends.reference.bodies import Scope, Step
from popgraph.backends.reference.kernels import KERNEL
from popgraph.dialects.program import WeightStore
from popgraph.dialects.tile import PrefetchAheadAttr, PrefetchNextAttr, PrefetchOp
from popgraph.dialects.tile.loops.recipes import PREFETCH, argument_of
from popgraph.testing import random_inputs

LOADS = (memref.LoadOp, vector.LoadOp)
STORES = (memref.StoreOp, vector.StoreOp)
LINE = 64
"""Most elements of a cache line."""


def assert_prefetched(before: ModuleOp, after: ModuleOp, weights: WeightStore) -> None:
    """
    Marked loops prefetch the memory of their mark; other loops prefetch nothing.

    Fixed distances equal the recipe's. Prefetches of the next section are less than two sections
    ahead, which also bounds indices outside of the memory.
    """
    distances = distances_of(after, weights)
    expected = set[PrefetchOp]()
    for marked, loop in zip(loops_of(before), loops_of(after), strict=True):
        assert PREFETCH not in loop.attributes
        if PREFETCH in marked.attributes:
            expected |= check_loop(loop, marked.attributes[PREFETCH], distances)
    assert expected == distances.keys(), "a prefetch is in a loop without a mark"


def check_loop(
    loop: scf.ForOp, recipe: object, distances: dict[PrefetchOp, set[int]]
) -> set[PrefetchOp]:
    """The prefetches of a loop, after a check against its recipe."""
    assert isinstance(recipe, PrefetchAheadAttr | PrefetchNextAttr)
    memory = kernel_of(loop).body.block.args[argument_of(recipe)]
    inside = loop.walk() if isinstance(recipe, PrefetchAheadAttr) else loop.body.block.ops
    ops = list(inside)
    found = [op for op in ops if isinstance(op, PrefetchOp) and op.memory is memory]
    accessed = {op.parent for op in ops if isinstance(op, LOADS) and op.operands[0] is memory}
    stores = [op for op in ops if isinstance(op, STORES) and op.operands[1] is memory]
    assert accessed <= {op.parent for op in found if not op.written}, f"missing: {recipe}"
    if isinstance(recipe, PrefetchAheadAttr):
        assert len(stores) == len([op for op in found if op.written]), f"missing: {recipe}"
        low, high = recipe.by.data, 1 << 62
    else:
        assert len(found) == recipe["lines"] * len(accessed), f"wrong number of lines: {recipe}"
        low, high = 1, 2 * recipe["elements"] + LINE * (recipe["lines"] - 1)
    for op in found:
        wrong = [number for number in distances[op] if not low <= number < high]
        assert not wrong, f"prefetches {wrong} elements from the access beside it: {recipe}"
        assert not op.written or distances[op] <= {low}
    return set(found)


def distances_of(module: ModuleOp, weights: WeightStore) -> dict[PrefetchOp, set[int]]:
    """Distances of each prefetch from its access, in a run on random inputs."""
    found = {op: set[int]() for op in module.walk() if isinstance(op, PrefetchOp)}

    def recorded(op: PrefetchOp, scope: Scope) -> Step:
        slot, at = scope.slot(op.index), scope.slot(index_beside(op))
        return lambda frame: found[op].add(int(frame[slot] - frame[at]))

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KERNEL, PrefetchOp, recorded)  # type: ignore[misc]
        if found:
            evaluate(module, random_inputs(signature(module)), weights)
    return found


def index_beside(op: PrefetchOp) -> SSAValue:
    """The index of the access that a prefetch is for: the store before it, or the load after it."""
    beside: Operation | None = op
    kinds, place = (STORES, 1) if op.written else (LOADS, 0)
    while beside is not None:
        if isinstance(beside, kinds) and beside.operands[place] is op.memory:
            return beside.operands[place + 1]
        beside = beside.prev_op if op.written else beside.next_op
    raise AssertionError(f"no access of its memory is in the block of {op}")


def loops_of(module: ModuleOp) -> Iterator[scf.ForOp]:
    for op in module.walk():
        if isinstance(op, scf.ForOp):
            yield op


def kernel_of(op: Operation) -> func.FuncOp:
    """The function around an operation."""
    while not isinstance(op, func.FuncOp):
        parent = op.parent_op()
        assert parent is not None
        op = parent
    return op
