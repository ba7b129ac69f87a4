"""The shape of a step: how often it runs the model, and how its runs stand in users' arrays."""

from __future__ import annotations

from dataclasses import dataclass

from popgraph.popart.api.options import SessionOptions
from popgraph.support.shapes import Shape


@dataclass(frozen=True)
class StepShape:
    """
    The axes that stand before those of a tensor in the arrays of a step.

    A step is `batches` updates of the weights; each adds up the gradients of `accumulation`
    micro-batches on each of the `replicas`. Arrays hold the runs in this order, replicas last.
    Others are on other `ranks`, with arrays of their own; this is number `rank`.
    """

    batches: int
    accumulation: int = 1
    replicas: int = 1
    ranks: int = 1
    rank: int = 0

    @classmethod
    def of(cls, batches: int, options: SessionOptions) -> StepShape:
        accumulation = options.accumulationFactor if options.enableGradientAccumulation else 1
        replicas = options.replicatedGraphCount if options.enableReplicatedGraphs else 1
        if not options.enableDistributedReplicatedGraphs:
            return cls(batches, accumulation, replicas)
        ranks = options.globalReplicationFactor // replicas
        return cls(batches, accumulation, replicas, ranks, options.globalReplicaOffset // replicas)

    @property
    def micro_batches(self) -> int:
        """How many micro-batches each replica gets in a step."""
        return self.batches * self.accumulation

    @property
    def runs(self) -> int:
        """How often a step runs the model."""
        return self.micro_batches * self.replicas

    @property
    def all_replicas(self) -> int:
        """How many replicas all ranks have."""
        return self.replicas * self.ranks

    @property
    def updated_by(self) -> int:
        """How many micro-batches, of all ranks, an update is made of."""
        return self.accumulation * self.all_replicas

    def every(self, period: int) -> Shape:
        """The axes of an anchor that comes back every so many micro-batches; none has size 1."""
        return _without_ones(self.batches // period, self.accumulation, self.replicas)

    @property
    def once(self) -> Shape:
        """The axes of an anchor that each replica returns once in a step."""
        return _without_ones(self.replicas)


def _without_ones(*sizes: int) -> Shape:
    return tuple(size for size in sizes if size != 1)
