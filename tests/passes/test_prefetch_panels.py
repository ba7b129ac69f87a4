"""Tests `prefetch-panels`: every line is requested once, before it is read."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from xdsl.dialects.builtin import ModuleOp, TensorType, f32
from xdsl.ir.affine import AffineMap
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.backends.reference.bodies import Scope, Step
from popgraph.backends.reference.kernels import KERNEL
from popgraph.backends.reference.meaning import assert_same_meaning
from popgraph.dialects.program import WeightStore
from popgraph.dialects.tile import PackOp, PrefetchOp, is_contraction
from popgraph.dialects.tile.attributes import LayoutAttr, ScheduleAttr
from popgraph.passes.base import Compilation
from popgraph.passes.loops.interchange_loops import InterchangeLoops
from popgraph.passes.loops.prefetch_panels import PrefetchPanels
from popgraph.passes.loops.prefetching import Inserter
from popgraph.passes.loops.split_loops import SplitLoops
from popgraph.passes.loops.unroll_loops import UnrollLoops
from popgraph.passes.loops.vectorize_loops import VectorizeLoops
from popgraph.passes.structured.to_loops import StructuredToLoops
from popgraph.support.machine import Machine
from popgraph.support.tuning import Target, Tuning
from popgraph.testing.structured import ContractSpec, Operand
from tests.passes.prefetch_claims import assert_prefetched


def product(rows: int, terms: int, chunk: int) -> ModuleOp:
    """A contraction whose right factor is packed in three panels of 32 columns."""
    lhs, rhs = Operand(((1, 0, 0, 0), (0, 0, 1, 0))), Operand(((0, 1, 0, 0), (0, 0, 1, 0)))
    module = ContractSpec("f32", (rows, 96, terms), 2, lhs, rhs).module()
    (op,) = (op for op in module.walk() if is_contraction(op))
    layout = AffineMap.from_callable(lambda n, k: (n // 32, k, n % 32))
    type_ = TensorType(f32, [96, terms], LayoutAttr.of(layout, [3, terms, 32]))
    pack = PackOp(op.rhs, type_)
    Rewriter.insert_op(pack, InsertPoint.before(op))
    op.operands[1] = pack.output
    op.properties["schedule"] = ScheduleAttr.of(
        n_dim=1, n_vectors=2, m_dim=0, mr=14, kc=chunk, lanes=16
    )
    return module


def prefetched_lines(before: ModuleOp, tuning: Tuning) -> list[int]:
    """Lines of the packed factor that a contraction prefetches, in order."""
    target, after = Target(tuning=tuning), before.clone()
    loops = (SplitLoops(target), InterchangeLoops(), VectorizeLoops(), UnrollLoops(target))
    for step in (StructuredToLoops(target), *loops):
        step.run(Compilation(), after)
    marked = after.clone()
    PrefetchPanels(target).run(Compilation(), after)
    assert_prefetched(marked, after, WeightStore())
    lines: list[int] = []

    def recorded(op: PrefetchOp, scope: Scope) -> Step:
        slot = scope.slot(op.index)
        return lambda frame: lines.append(frame[slot] // 16)

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(KERNEL, PrefetchOp, recorded)  # type: ignore[misc]
        assert_same_meaning(before, after, WeightStore(), tolerance=1e-6, steps=1)
    return lines


def assert_next_is_prefetched(rows: int, terms: int, chunk: int) -> None:
    """
    Blocks of rows partition the lines of the next panel or chunk, and request no earlier ones.
    """
    lines = set(prefetched_lines(product(rows, terms, chunk), Tuning(prefetched_elements=0)))
    first = min(chunk, terms) * 2
    wanted = set(range(first, 3 * terms * 2))
    assert len(lines & wanted) >= 0.9 * len(wanted)
    assert min(lines) >= first


@pytest.mark.parametrize(("terms", "chunk"), [(24, 256), (24, 8), (23, 8)])
def test_blocks_of_rows_partition_the_next_section(terms: int, chunk: int) -> None:
    assert_next_is_prefetched(40, terms, chunk)


@pytest.mark.parametrize("rows", [14, 1000])
def test_small_factors_are_not_prefetched(rows: int) -> None:
    """A single block reads a small factor once; of many blocks, the first one caches it."""
    assert not prefetched_lines(product(rows, 24, 8), Tuning(prefetched_elements=0))


@pytest.mark.parametrize("chunk", [256, 8])
def test_one_block_of_rows_prefetches_ahead(chunk: int) -> None:
    """Each line once, in order, across panels."""
    lines = prefetched_lines(product(14, 24, chunk), Tuning(streamed_l2=0))
    distance = Machine().prefetch_bytes // Machine().line_bytes
    assert lines == list(range(distance, distance + 3 * 24 * 2))


def in_steps(original: Callable[..., Any]) -> Callable[..., Any]:
    """
    The offset in the next section is that of this section, so all blocks request the same lines.
    """

    def wrong(inserter: Inserter, inner: Any, here: Any, recipe: Any) -> Any:
        del inserter, inner
        return here + recipe["elements"]

    return wrong


def without_loops_around(original: Callable[..., Any]) -> Callable[..., Any]:
    """The loops over blocks of rows are ignored."""
    return lambda loop: [loop]


@pytest.mark.parametrize(
    ("target", "wrong"),
    [("Inserter._in_next", in_steps), ("enclosing", without_loops_around)],
)
def test_planted_bugs_of_prefetches_are_found(
    target: str, wrong: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both bugs keep all distances, so only the union of lines over all blocks shows them."""
    module = "popgraph.passes.loops.prefetching"
    owner = Inserter if target.startswith("Inserter") else __import__(module, fromlist=["_"])
    name = target.rpartition(".")[2]
    monkeypatch.setattr(owner, name, wrong(getattr(owner, name)))
    with pytest.raises(AssertionError):
        assert_next_is_prefetched(40, 24, 256)
