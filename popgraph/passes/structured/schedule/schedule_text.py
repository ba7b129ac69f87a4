"""Specs of candidates, and the search for the candidate that a spec describes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

from popgraph.dialects import tile
from popgraph.dialects.tile.attributes import ScheduleAttr
from popgraph.dialects.tile.structured.schedule_override import ScheduleSpec
from popgraph.passes.structured.schedule.cost import Candidate
from popgraph.passes.structured.schedule.reduction_order import orders
from popgraph.support.tuning import Target

FREE = ("mr", "kc", "k_outer", "n_inner")
"""Fields of a schedule that do not depend on the layouts of operands."""

ALIKE = 2
"""Candidates listed of each family, whose members differ in vectors and blocks only."""


def spec_of(op: tile.ReduceOp, candidate: Candidate, target: Target) -> ScheduleSpec:
    """The spec of a candidate."""
    order = list(orders(op, target)).index(candidate.order)
    packed = candidate.layout is not None
    return ScheduleSpec(
        factor=candidate.factor,
        packed=packed,
        scalars=candidate.scalars is not None,
        order=order,
        schedule=str(candidate.schedule),
    )


def matching_candidate(
    op: tile.ReduceOp, spec: ScheduleSpec, found: Iterable[Candidate], target: Target
) -> Candidate:
    """The candidate that a spec describes; ValueError says why there is none."""
    wanted = ScheduleAttr.of_text(spec.schedule).numbers
    alike = replace(spec, schedule="")
    for candidate in found:
        numbers = candidate.numbers
        same = all(wanted[name] == numbers[name] for name in numbers if name not in FREE)
        if same and replace(spec_of(op, candidate, target), schedule="") == alike:
            _check_free(wanted, numbers, in_blocks=op.block is not None)
            return replace(candidate, numbers=wanted)
    raise ValueError("the contraction has no such loops or layout on this machine")


def _check_free(wanted: Mapping[str, int], possible: Mapping[str, int], *, in_blocks: bool) -> None:
    """Raises ValueError for fields that the loops cannot follow."""
    if in_blocks and wanted["k_outer"]:
        raise ValueError("sums of blocks join totals in registers, so k_outer must be 0")
    most = possible["mr"]
    if wanted["mr"] > most:
        raise ValueError(f"mr must be at most {most}, the rows that registers hold")
    # A block of several lines holds whole ones, so that its rows are two loops.
    if wanted["m_outer_dim"] >= 0 and wanted["mr"] != most:
        raise ValueError(f"mr must be {most}: a block with m_outer_dim holds whole lines")
    if wanted["kc"] < 0 or not {wanted["k_outer"], wanted["n_inner"]} <= {0, 1}:
        raise ValueError("kc must be at least 0, k_outer and n_inner 0 or 1")


def diverse(found: Iterable[Candidate]) -> list[Candidate]:
    """The cheapest candidates first, at most `ALIKE` of each family."""
    kept: list[Candidate] = []
    seen: dict[Hashable, int] = {}
    for candidate in sorted(found, key=lambda candidate: candidate.rank):
        family = _family(candidate)
        seen[family] = seen.get(family, 0) + 1
        if seen[family] <= ALIKE:
            kept.append(candidate)
    return kept


def _family(candidate: Candidate) -> Hashable:
    numbers = candidate.numbers
    dims = tuple(numbers[name] for name in ("n_dim", "m_dim", "m_outer_dim", "window_panels"))
    packed = candidate.layout is not None, candidate.scalars is not None
    return candidate.order, candidate.factor, packed, dims


def with_loops_interchanged(candidate: Candidate) -> Candidate:
    """Interchanges the loops over panels and over blocks of rows."""
    # Listed for the tuner: the cost model decides `n_inner` by sizes alone.
    numbers = {**candidate.numbers, "n_inner": 1 - candidate.numbers["n_inner"], "window_panels": 0}
    return replace(candidate, numbers=numbers)
