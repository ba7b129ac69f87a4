"""The tuner: measures candidate schedules in the model, and picks the fastest."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xdsl.dialects.builtin import ModuleOp, NameLoc, StringAttr, UnknownLoc

from popgraph import compiler
from popgraph.backends.registry import DEFAULT, backend_named
from popgraph.backends.tools import UNKNOWN, Profile
from popgraph.dialects import tile
from popgraph.dialects.locations import source
from popgraph.dialects.tile.structured.schedule_override import Override, ScheduleSpec
from popgraph.measure.alternatives import before_scheduling, contraction_candidates_of
from popgraph.measure.timing import at_least, random_model_inputs
from popgraph.passes.base import Compilation
from popgraph.passes.options import Options
from popgraph.passes.pipeline import earlier
from popgraph.passes.structured.alternatives import ContractionCandidates
from popgraph.passes.structured.winograd.use_winograd import UseWinograd

LEAST_GAIN = 1.02
"""Another schedule must be faster by this factor; a smaller gain may be noise."""

PRUNING_FACTOR = 4.0
"""Schedules estimated slower than the best by this factor are not tried."""

ROUNDS = 3
"""Minimal number of rounds."""


@dataclass
class TunedContraction:
    """Identical contractions of a model, and the schedules that are tried."""

    candidates: ContractionCandidates
    specs: list[ScheduleSpec]
    times: list[int]
    """The fastest time of each schedule, summed over these contractions, in nanoseconds."""
    best: int = 0

    @property
    def spec(self) -> ScheduleSpec:
        return self.specs[self.best]

    @property
    def before(self) -> int:
        return self.times[0]

    @property
    def after(self) -> int:
        return self.times[self.best]

    def row(self) -> dict[str, Any]:
        """The row in a schedule file."""
        times = {str(spec): ns / 1e3 for spec, ns in zip(self.specs, self.times, strict=True)}
        return {
            "contraction": self.candidates.text,
            "ops": self.candidates.names,
            "schedule": str(self.spec),
            "microseconds": times,
        }


def shortlist(found: ContractionCandidates, most_schedules: int) -> list[ScheduleSpec]:
    """
    The current schedule, the best one of each Winograd tile size, then the best of the others.
    """
    costs = dict(found.specs)
    limit = PRUNING_FACTOR * min(costs.values())
    first, *others = costs
    others = [spec for spec in sorted(others, key=costs.__getitem__) if costs[spec] <= limit]
    tiles = {spec.size: spec for spec in reversed(others) if spec.size not in (0, first.size)}
    rest = [spec for spec in others if spec not in tiles.values()]
    return [first, *tiles.values(), *rest][:most_schedules]


class Tuner:
    """A model, compiled once for each rank in its lists of schedules."""

    def __init__(
        self,
        module: ModuleOp,
        compilation: Compilation,
        options: Options,
        threads: int,
        most_schedules: int,
    ) -> None:
        self._compilation, self._threads = compilation, threads
        self._module = before_scheduling(module, compilation, options)
        done = frozenset(step.pass_class.name for step in earlier(UseWinograd) if step.optional)
        self._options = replace(options, disabled=options.disabled | done)
        self.contractions: list[TunedContraction] = []
        for found in contraction_candidates_of(self._module, options):
            specs = shortlist(found, most_schedules)
            self.contractions.append(TunedContraction(found, specs, [UNKNOWN] * len(specs)))
        self._number_contractions()
        most = max((len(each.specs) for each in self.contractions), default=1)
        self._programs = [self._program(self.contractions, rank) for rank in range(most)]
        self.before = self.after = 0
        self.is_slower = False
        """Whether the fastest schedules did not make the whole model faster."""

    def _number_contractions(self) -> None:
        """Names every contraction by its number in the list, which kernel calls inherit."""
        ops = [op for op in self._module.walk() if tile.is_contraction(op)]
        for op in self._module.walk():
            op.location = UnknownLoc()
        for number, each in enumerate(self.contractions):
            for place in each.candidates.places:
                ops[place].location = NameLoc(StringAttr(str(number)), UnknownLoc())

    @staticmethod
    def _rank(each: TunedContraction, rank: int) -> int:
        return rank if rank < len(each.specs) else 0

    def _program(
        self, contractions: Sequence[TunedContraction], rank: int | None = None
    ) -> Profile:
        """The model with the schedules of one rank, or with the best ones."""
        ranks = [each.best if rank is None else self._rank(each, rank) for each in contractions]
        pairs = zip(contractions, ranks, strict=True)
        overrides = tuple(
            str(Override(one.candidates.text, one.specs[rank])) for one, rank in pairs
        )
        module = self._module.clone()
        compiler.lower(module, self._compilation, replace(self._options, schedules=overrides))
        tools = backend_named(DEFAULT).tools
        return tools.profile(module, self._compilation.weights, self._threads)

    def measure(self, seconds: float) -> None:
        """Runs all programs in interleaved rounds."""
        _race(self._programs, seconds)
        for rank, program in enumerate(self._programs):
            for number, taken in _times(program):
                each = self.contractions[number]
                at = self._rank(each, rank)
                each.times[at] = min(each.times[at], taken)

    def decide(self, seconds: float) -> None:
        """
        Chooses the fastest schedules, unless the whole model gets slower with them.

        Contractions without a time of their own, because they are fused into another kernel, stay
        undecided.
        """
        self.contractions = [each for each in self.contractions if UNKNOWN not in each.times]
        for each in self.contractions:
            fastest = min(range(len(each.specs)), key=each.times.__getitem__)
            each.best = fastest if each.times[fastest] * LEAST_GAIN < each.before else 0
        programs = [self._program(self.contractions, 0), self._program(self.contractions)]
        _race(programs, seconds, call_by_call=False)
        self.before, self.after = (program.total for program in programs)
        if self.after > self.before:
            self.is_slower = True
            for each in self.contractions:
                each.best = 0


def _race(programs: Sequence[Profile], seconds: float, *, call_by_call: bool = True) -> None:
    inputs = random_model_inputs(programs[0].executable.inputs)
    for _ in at_least(ROUNDS, seconds):
        for program in programs:
            program.measure(inputs, 1, call_by_call=call_by_call)


def _times(program: Profile) -> Iterator[tuple[int, int]]:
    """
    Yields (number of contender, total time of its calls), also for calls in loops and branches.
    """
    totals: dict[int, int] = {}
    for call in program.traced:
        for kernel in call.kernels():
            name = source(kernel.op.location)
            if name and kernel.count:
                totals[int(name)] = totals.get(int(name), 0) + kernel.nanoseconds
    yield from totals.items()
