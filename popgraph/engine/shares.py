"""The share of a step that each rank runs, when ranks split the replicas of one script."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from popgraph.engine.plan import StepPlan
from popgraph.support.arrays import Array
from popgraph.support.memo import cached_property
from popgraph.support.ranks.communicator import RankError
from popgraph.support.ranks.world import world

_splits = False


def split_steps() -> None:
    """
    From now on, each rank runs only some of the replicas of a step.

    Its script still passes the data of all replicas and gets their outputs.
    """
    global _splits
    _splits = world().size > 1


def steps_are_split() -> bool:
    """Whether ranks split the replicas, or the devices, of one step."""
    return _splits


@dataclass(frozen=True)
class StepShard:
    """The part of a step that a rank runs: all of it, unless steps are split."""

    whole: StepPlan
    """The step as the script describes it."""
    own: StepPlan
    """The part that this rank runs."""

    @classmethod
    def of(cls, plan: StepPlan) -> StepShard:
        if not _splits or plan.ranks > 1 or plan.replicas == 1:
            return cls(plan, plan)
        here = world()
        if plan.replicas % here.size:
            raise RankError(
                f"{plan.replicas} replicas cannot be divided among {here.size} ranks",
                "replicas",
                "a number of ranks that divides the number of replicas",
            )
        local = plan.replicas // here.size
        return cls(plan, replace(plan, replicas=local).on_rank(here.rank, here.size))

    @cached_property
    def is_partial(self) -> bool:
        """Whether other ranks run the rest."""
        return self.whole != self.own

    @property
    def writes(self) -> bool:
        """Whether this rank writes the files of the script."""
        return not _splits or world().is_first

    def own_inputs(self, replicas: Sequence[Mapping[str, Array]]) -> Sequence[Mapping[str, Array]]:
        """Selects this rank's inputs from the inputs of all replicas."""
        if not self.is_partial:
            return replicas
        first = self.own.rank * self.own.replicas
        return replicas[first : first + self.own.replicas]

    def gather_results(
        self, results: Sequence[Mapping[str, Array]]
    ) -> Sequence[Mapping[str, Array]]:
        """Gathers the results of all replicas."""
        if not self.is_partial:
            return results
        return [one for rank in world().gather(list(results)) for one in rank]

    def broadcast(self, values: Mapping[str, Array]) -> Mapping[str, Array]:
        """Broadcasts the values of the first replica, if each has its own."""
        return world().broadcast(dict(values)) if self.is_partial else values

    def check(self, exchanges: str) -> None:
        """RankError unless the job has the ranks of the plan, and all have the same program."""
        if self.own.ranks == 1:
            return
        here, plan = world(), self.own
        if (here.size, here.rank) != (plan.ranks, plan.rank):
            raise RankError(
                f"the step is planned for rank {plan.rank} of {plan.ranks}; this process is rank "
                f"{here.rank} of {here.size}",
                "ranks",
                f"mpirun -n {plan.ranks} python ...; the first of the {plan.replicas} replicas of "
                f"each process is number rank * {plan.replicas}",
            )
        programs = here.gather(exchanges)
        if len(set(programs)) > 1:
            other = next(rank for rank, one in enumerate(programs) if one != programs[0])
            raise RankError(
                f"the programs of ranks 0 and {other} do not communicate the same tensors",
                "compilation",
                "all ranks need the same model, optimizer and options",
            )
