"""Data-parallel training on several ranks: each takes its rows of every batch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from popgraph.dialects.graphcore.random import SEED
from popgraph.engine.plan import StepPlan
from popgraph.engine.replicas import derive_seed
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError
from popgraph.support.memo import cached_property
from popgraph.support.ranks.communicator import ALL_REDUCE, Communicator, Exchange, SingleRank
from popgraph.support.ranks.world import world
from popgraph.support.warnings import DoubtfulTrainingWarning
from popgraph.training.history import Row
from popgraph.training.loss_reduction import SUM, reduction_of
from popgraph.training.programs import TrainingSteps
from popgraph.training.samples import Batch, Order, Source
from popgraph.training.task import Task
from popgraph.training.totals import Totals


@dataclass(frozen=True)
class Ranks:
    """The ranks of a job, as one of them sees them."""

    communicator: Communicator

    @classmethod
    def current(cls) -> Ranks:
        """The ranks of this job."""
        return cls(world())

    @cached_property
    def size(self) -> int:
        return self.communicator.size

    def planned(self, plan: StepPlan) -> StepPlan:
        """The plan of one process, distributed to these ranks."""
        return plan.on_rank(self.communicator.rank, self.size)

    @cached_property
    def are_several(self) -> bool:
        return self.size > 1

    @property
    def is_first(self) -> bool:
        """Whether this rank writes files and reports to the user."""
        return self.communicator.is_first

    def task(self, task: Task, plan: StepPlan, *, even: bool) -> Task:
        """The task of a rank, which computes its share of the gradients; see `StepPlan.rule`."""
        assert task.rule is not None, "a program that trains has an update rule"
        parts = plan.micro_batches_per_update
        if parts == 1:
            return task
        reduction = reduction_of(task, task.loss)
        if reduction is None and self.is_first:
            kind = "ranks" if plan.runs == 1 else "micro-batches"
            warnings.warn(
                f"{task.loss!r} is neither a mean nor a sum over equally weighted samples, judging "
                f"by its operators: its gradients are averaged over {parts} {kind}",
                DoubtfulTrainingWarning,
                stacklevel=2,
            )
        mean = reduction != SUM
        return replace(task, rule=plan.rule(task.rule, mean=mean, even=even))

    # data

    def shared(self, source: Source) -> Source:
        """This rank's rows of the data."""
        return Shard(source, self.communicator) if self.are_several else source

    def rows(self, batch: int) -> int:
        """The rows of a batch of `batch` samples that this rank takes."""
        if batch % self.size:
            raise RunError(
                f"a batch of {batch} samples cannot be divided among {self.size} ranks",
                "batch",
                f"a multiple of {self.size}",
            )
        return batch // self.size

    # agreement among ranks

    def of_whole_batches(self, outputs: dict[str, Array], task: Task) -> dict[str, Array]:
        """Scales outputs that are sums over samples from this rank's rows to all ranks' rows."""
        if not self.are_several:
            return outputs
        names = (task.loss, *task.terms)
        sums = [name for name in names if reduction_of(task, name) == SUM]
        return {**outputs, **{name: outputs[name] * self.size for name in sums}}

    def agreed(self, numbers: Row, flags: Sequence[float]) -> tuple[Row, list[float]]:
        """All-reduces numbers to their mean over the ranks, and flags to their maximum."""
        if not self.are_several:
            return numbers, list(flags)
        own = np.array([*numbers.values()], np.float64)
        whole = Exchange(ALL_REDUCE, 1, self.size)
        means = self.communicator.exchange(whole, own) / self.size if own.size else own
        largest = self.communicator.exchange(
            replace(whole, combine="Max"), np.array(flags, np.float64)
        )
        return dict(zip(numbers, means.tolist(), strict=True)), largest.tolist()

    def first_text(self, text: str) -> str:
        """The first nonempty text of any rank, on all ranks."""
        return next(filter(None, self.communicator.gather(text)), "")

    def total(self, totals: Totals) -> Totals:
        """Totals over the batches of all ranks."""
        if not self.are_several:
            return totals
        whole = Totals(list(totals.sums), totals.metrics)
        for one in self.communicator.gather((totals.samples, totals.sums, totals.counts)):
            whole.take(*one)
        return whole

    def broadcast_statistics(self, steps: TrainingSteps, task: Task) -> None:
        """Broadcasts the running statistics of the first rank."""
        names = task.selection.statistics
        if self.are_several and names:
            values = {name: steps.executable.read(name) for name in names}
            steps.write(self.communicator.broadcast(values))

    def derive_own_seed(self, steps: TrainingSteps) -> None:
        """Gives this rank a seed of its own, derived from that of the first rank."""
        if not self.is_first and SEED in steps.executable.variables:
            state = steps.executable.read(SEED)
            steps.write({SEED: derive_seed(state, self.communicator.rank)})


ALONE = Ranks(SingleRank())


class Shard(Source):
    """This rank's rows of each batch; all ranks get equally many, so a remainder is dropped."""

    def __init__(self, source: Source, communicator: Communicator) -> None:
        self._source, self._communicator = source, communicator
        self.count = source.count

    @property
    def is_single_pass(self) -> bool:
        return self._source.is_single_pass

    def first(self, size: int) -> Batch:
        return self._source.first(size)

    def epoch(self, order: Order, number: int, start: int) -> Iterator[Batch]:
        for batch in self._source.epoch(order, number, start):
            rows = len(next(iter(batch.values()))) // self._communicator.size
            begin = rows * self._communicator.rank
            if rows:
                yield {name: array[begin : begin + rows] for name, array in batch.items()}

    def steps(self, order: Order) -> int | None:
        return self._source.steps(order)
