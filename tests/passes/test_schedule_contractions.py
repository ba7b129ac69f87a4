"""Tests `schedule-contractions`: every schedule gives the values of plain loops."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from xdsl.dialects.builtin import ModuleOp
from xdsl.ir.affine import AffineMap

from popgraph.backends.reference.meaning import assert_same_meaning
from popgraph.dialects.program import WeightStore
from popgraph.dialects.tile import ReduceOp, is_contraction
from popgraph.dialects.tile.attributes import LayoutAttr, ScheduleAttr
from popgraph.passes.base import Compilation
from popgraph.passes.structured.parallel.parallelize_loops import ParallelizeLoops
from popgraph.passes.structured.schedule import schedule_contractions as scheduling
from popgraph.passes.structured.schedule.cost import Candidate, Estimate
from popgraph.passes.structured.schedule.schedule_contractions import (
    Packed,
    ScheduleContractions,
)
from popgraph.passes.structured.to_loops import StructuredToLoops
from popgraph.passes.structured.to_loops.contraction.contract import ContractLoops
from popgraph.support.tuning import Target, Tuning
from popgraph.testing.blocks import BlockSpec, block_sums
from popgraph.testing.structured import ContractSpec, Operand, channelwise, contracts
from tests.checking import check_ir
from tests.passes.sharing import THREADS, sharing_all

kinds = st.sampled_from(["f32", "f64"])
floats = contracts(kinds)


def contraction(module: ModuleOp) -> ReduceOp:
    (found,) = (op for op in module.walk() if is_contraction(op))
    return found


def check_kernels(before: ModuleOp, scheduled: ModuleOp, target: Target) -> None:
    check_ir(scheduled)
    assert_same_meaning(before, scheduled, WeightStore(), tolerance=1e-6, steps=1)
    after = scheduled.clone()
    ParallelizeLoops(THREADS, target).run(Compilation(), after)
    StructuredToLoops(target).run(Compilation(), after)
    check_ir(after)
    assert_same_meaning(before, after, WeightStore(), tolerance=1e-6, steps=1)


@given(floats, st.sampled_from([16, 32]), st.sampled_from([8, 64, 16384]), st.data())
def test_every_schedule_of_contractions(
    spec: ContractSpec, vector_bytes: int, grain: int, data: st.DataObject
) -> None:
    """Any possible schedule, not only the best one by estimate."""
    check_any(spec, all_candidates(spec, vector_bytes), vector_bytes, grain, data)


@given(block_sums(), st.sampled_from([16, 64]), st.sampled_from([8, 64, 16384]), st.data())
def test_every_schedule_of_block_sums(
    spec: BlockSpec, vector_bytes: int, grain: int, data: st.DataObject
) -> None:
    """
    Sums of blocks are added to totals in registers; parts of packed elements are read in place.
    """
    check_any(spec, all_candidates(spec, vector_bytes), vector_bytes, grain, data)


@given(channelwise(kinds), st.sampled_from([8, 64, 16384]), st.data())
def test_every_schedule_of_channelwise_windows(
    spec: ContractSpec, grain: int, data: st.DataObject
) -> None:
    """With any stride, along channels (any number of panels at a time) or pixels."""
    found = [
        candidate for candidate in all_candidates(spec, 16) if candidate.numbers["window_panels"]
    ]
    check_any(spec, found, 16, grain, data)


def all_candidates(spec: ContractSpec | BlockSpec, vector_bytes: int) -> list[Candidate]:
    """All possible schedules of the contraction."""
    op = contraction(spec.module())
    width = vector_bytes // (4 if spec.kind == "f32" else 8)
    target = Target.of(vector_bytes, 16, Tuning(chain_terms=24))
    return [
        candidate
        for reads in scheduling.operand_layouts(op, target)
        for dim in range(spec.parallel)
        for layout in scheduling._layouts(reads, dim, width)
        for candidate in Estimate(reads, False, dim, layout, width).candidates()
    ]


def check_any(
    spec: ContractSpec | BlockSpec,
    found: Sequence[Candidate],
    vector_bytes: int,
    grain: int,
    data: st.DataObject,
) -> None:
    """Checks one of these schedules, with any chunk length."""
    assume(found)
    before = spec.module()
    module = before.clone()
    op = contraction(module)
    candidate = data.draw(st.sampled_from(found))
    chunk = data.draw(st.sampled_from([0, 1, 3, 256]))
    fields = {**candidate.numbers, "kc": chunk, "n_inner": data.draw(st.integers(0, 1))}
    fields["k_outer"] = data.draw(st.integers(0, 1)) if chunk and op.block is None else 0
    if fields["window_panels"]:
        along_channels = candidate.numbers["n_inner"]
        panels = data.draw(st.integers(1, 3)) if along_channels else 1
        fields |= {"n_inner": along_channels, "window_panels": panels}
    elif fields["m_outer_dim"] < 0:
        fields["mr"] = data.draw(st.integers(1, fields["mr"]))
    scheduling._apply(op, replace(candidate, numbers=fields), Packed())
    tuning = Tuning(
        partial_sums=data.draw(st.sampled_from([2, 32])),
        prefetched_elements=data.draw(st.sampled_from([1, 4096])),
        k_outer_totals_l2=data.draw(st.sampled_from([0, 0.5])),
    )
    check_kernels(before, module, sharing_all(grain, vector_bytes, tuning))


@given(
    st.tuples(st.integers(2, 3), st.integers(2, 9), st.integers(9, 20), st.integers(9, 24)),
    st.sampled_from([(4, 8), (3, 5), (14, 7)]),
    st.sampled_from([8, 64, 16384]),
)
@example((2, 9, 20, 24), (3, 5), 64)
def test_distant_rows_share_chunks_of_a_panel(
    sizes: tuple[int, ...], steps: tuple[int, int], grain: int
) -> None:
    """Two loops over rows process a panel together, one chunk after the other."""
    check_packed(sizes, steps, grain)


@pytest.mark.parametrize("terms", [3, 9, 24, 61])
@pytest.mark.parametrize("share", [0, 0.5])
def test_k_outermost_chunks_of_any_length(terms: int, share: float) -> None:
    """Totals of chunks are stored next to the results if they fit in L2, else per tile."""
    check_packed((2, 5, 20, terms), (3, 4), 64, k_outer=1, totals_l2=share)


def check_packed(
    sizes: tuple[int, ...],
    steps: tuple[int, int],
    grain: int,
    k_outer: int = 0,
    totals_l2: float = 0.5,
) -> None:
    """Checks a contraction with one packed factor; two chunks form a chunk of the next level."""
    lhs = Operand(((2, 0, 0, 0, 0), (0, 1, 0, 0, 0), (0, 0, 0, 1, 0)))
    rhs = Operand(((0, 0, 1, 0, 0), (0, 0, 0, 1, 0)))
    before = ContractSpec("f32", sizes, 3, lhs, rhs).module()
    after = before.clone()
    op = contraction(after)
    panels = AffineMap.from_callable(lambda n, k: (n // 8, k, n % 8))
    layout = LayoutAttr.of(panels, [-(-sizes[2] // 8), sizes[3], 8])
    block, chunk = steps
    op.operands[1] = Packed().of(op, op.rhs, layout)
    op.properties["schedule"] = ScheduleAttr.of(
        n_dim=2, n_vectors=2, m_dim=1, mr=block, kc=chunk, lanes=4, k_outer=k_outer
    )
    tuning = Tuning(partial_sums=2, k_outer_totals_l2=totals_l2)
    check_kernels(before, after, sharing_all(grain, 16, tuning))


@pytest.mark.parametrize("rows", [1, 2, 4])
def test_blocks_of_rows_with_panels_of_their_own(rows: int) -> None:
    """Each block of rows has its own panels, so blocks do not share a panel."""
    lhs = Operand(((0, 0, 0, 0), (0, 0, 1, 0)))
    rhs = Operand(((0, 0, 1, 0), (1, 0, 0, 0), (0, 1, 0, 0)))
    before = ContractSpec("f32", (4, 24, 40), 2, lhs, rhs).module()
    after = before.clone()
    op = contraction(after)
    panels = AffineMap.from_callable(lambda k, p, n: (p, n // 8, k, n % 8))
    op.operands[1] = Packed().of(op, op.rhs, LayoutAttr.of(panels, [4, 3, 40, 8]))
    op.properties["schedule"] = ScheduleAttr.of(
        n_dim=1, n_vectors=2, m_dim=0, mr=rows, kc=16, lanes=4
    )
    check_kernels(before, after, sharing_all(64, 16, Tuning(prefetched_elements=1)))


@pytest.mark.parametrize(("near", "apart", "packs"), [(None, 9, 1), (4, 4, 1), (4, 5, 2)])
def test_packed_factors_are_shared_by_nearby_contractions(
    near: int | None, apart: int, packs: int
) -> None:
    """With limited memory, packed factors are shared only by nearby contractions."""
    lhs, rhs = Operand(((1, 0, 0), (0, 0, 1))), Operand(((0, 0, 1), (0, 1, 0)))
    op = contraction(ContractSpec("f32", (3, 16, 5), 2, lhs, rhs).module())
    panels = AffineMap.from_callable(lambda k, n: (n // 8, k, n % 8))
    layout, packed = LayoutAttr.of(panels, [2, 5, 8]), Packed(near)
    made = {packed.of(op, op.rhs, layout)}
    for _ in range(apart):
        packed.begin()
    made.add(packed.of(op, op.rhs, layout))
    assert len(made) == packs


@pytest.mark.parametrize("careless", [False, True])
def test_vectors_end_at_the_end_of_a_factor(
    careless: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The memory ends after the results of the last row, so vectors must not read past it."""
    lhs, rhs = Operand(((1, 0, 0), (0, 0, 1))), Operand(((0, 0, 1), (0, 1, 0)))
    before = ContractSpec("f32", (3, 11, 5), 2, lhs, rhs).module()
    after = before.clone()
    contraction(after).properties["schedule"] = ScheduleAttr.of(
        n_dim=1, n_vectors=2, m_dim=0, mr=3, kc=256, lanes=8
    )
    if careless:
        monkeypatch.setattr(ContractLoops, "_may_read_on", lambda _: True)
    with pytest.raises(AssertionError) if careless else nullcontext():
        check_kernels(before, after, Target.of(32))


@given(floats, st.sampled_from([16, 64]))
def test_the_chosen_schedule_computes_the_same(spec: ContractSpec, vector_bytes: int) -> None:
    before = spec.module()
    after = before.clone()
    target = Target.of(vector_bytes, tuning=Tuning(least_products=1))
    ScheduleContractions(target).run(Compilation(), after)
    check_kernels(before, after, target)
