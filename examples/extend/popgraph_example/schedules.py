"""A pass that chooses schedules of contractions without packing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import ModuleOp

from popgraph.dialects.tile import ReduceOp
from popgraph.extend import (
    Candidate,
    Compilation,
    Pass,
    Target,
    add_pass,
    choose_schedules,
)


@add_pass(before="schedule-contractions")
@dataclass(frozen=True)
class PreferUnpacked(Pass):
    """Choose, of each contraction's schedules that pack nothing, the cheapest by estimate."""

    name = "prefer-unpacked"
    TOLERANCE = 1e-5
    target: Target = Target()

    def run(self, compilation: Compilation, module: ModuleOp) -> None:
        choose_schedules(module, _cheapest_unpacked, self.target)


def _cheapest_unpacked(op: ReduceOp, possible: Sequence[Candidate]) -> Candidate | None:
    unpacked = [one for one in possible if one.layout is None and one.scalars is None]
    return min(unpacked, key=lambda one: one.rank, default=None)
