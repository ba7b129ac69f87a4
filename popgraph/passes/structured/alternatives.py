"""Candidate schedules of every contraction of a module, with estimated cycles."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects import tile
from popgraph.dialects.tile.structured.schedule_override import ScheduleSpec
from popgraph.passes.structured.analysis.constants import Constants
from popgraph.passes.structured.schedule.overrides import contraction_text, name_of
from popgraph.passes.structured.schedule.read_narrow import read_packed
from popgraph.passes.structured.schedule.schedule_contractions import candidates, plain_cycles
from popgraph.passes.structured.schedule.schedule_text import (
    diverse,
    spec_of,
    with_loops_interchanged,
)
from popgraph.passes.structured.schedule.settle_loops import settle_loops
from popgraph.passes.structured.winograd.use_winograd import (
    UseWinograd,
    best_schedule_cycles,
    transforms_pay,
)
from popgraph.support.shapes import prod
from popgraph.support.tuning import Target


@dataclass
class ContractionCandidates:
    """The schedules of all contractions with one text; the first is the cost model's choice."""

    text: str
    """The text of `contraction_text`."""
    names: list[str] = field(default_factory=list)
    """The user's names of these contractions."""
    places: list[int] = field(default_factory=list)
    """Their numbers among all contractions of the module, in order."""
    specs: list[tuple[ScheduleSpec, float]] = field(default_factory=list)
    """(spec, estimated cycles)."""
    reason: str = "taking the fewest cycles by estimate"
    """Why the cost model chooses the first one."""


def contraction_candidates(
    module: ModuleOp,
    target: Target,
    *,
    winograd: bool = True,
    settle: bool = True,
    narrow: bool = True,
) -> list[ContractionCandidates]:
    """
    The contractions of a module that is ready for `use-winograd`, with their candidates.

    Contractions of constants are skipped, as they run once, at load. Mutates the module:
    contractions get the loops that `settle` and `narrow` give them.
    """
    found: dict[str, ContractionCandidates] = {}
    constants = Constants()
    best = best_schedule_cycles(target, None)
    place = -1
    for op in list(module.walk()):
        if tile.is_contraction(op):
            place += 1
            fixed = constants.factors(op)
            pass_ = UseWinograd(target)
            tiles = pass_.candidates(op, fixed, target) if winograd else []
            transforms = [(candidate.spec, candidate.cycles) for candidate in tiles]
            faster = bool(tiles) and transforms_pay(tiles[0], best.of(op, fixed), target)
            if settle:
                settle_loops(op, fixed, target)
            if narrow:
                read_packed(op, target)
            text = contraction_text(op, fixed)
            if text not in found and not all(fixed):
                others = list(_schedules(op, fixed, target))
                specs = transforms + others if faster else others + transforms
                found[text] = ContractionCandidates(text, specs=specs)
                if not faster and _is_small(op, target):
                    least = target.tuning.least_products
                    found[text].reason = f"having fewer than {least:,} multiplications"
            if text in found:
                found[text].places.append(place)
                if name_of(op) and name_of(op) not in found[text].names:
                    found[text].names.append(name_of(op))
        constants.note(op)
    return list(found.values())


def _schedules(
    op: tile.ReduceOp, fixed: tuple[bool, bool], target: Target
) -> Iterator[tuple[ScheduleSpec, float]]:
    """Yields schedules and the plain loop, the choice of `schedule-contractions` first."""
    chosen = diverse(candidates(op, fixed, target))
    plain = (
        [(ScheduleSpec("plain"), plain_cycles(op, target))]
        if chosen
        else [(ScheduleSpec("plain"), 0.0)]
    )
    specs = [(spec_of(op, candidate, target), candidate.cycles) for candidate in chosen]
    specs[1:1] = [
        (spec_of(op, with_loops_interchanged(candidate), target), candidate.cycles)
        for candidate in chosen[:1]
    ]
    small = _is_small(op, target)
    yield from plain + specs if small or not specs or specs[0][1] > plain[0][1] else specs + plain


def _is_small(op: tile.ReduceOp, target: Target) -> bool:
    """Whether a contraction is too small to be scheduled."""
    return prod(op.sizes) < target.tuning.least_products
