"""The plan of a session's steps, from its options."""

from __future__ import annotations

from popgraph.engine.plan import StepPlan
from popgraph.popart.api.options import SessionOptions


def plan_of(batches: int, options: SessionOptions) -> StepPlan:
    """The plan of a step of `batches` batches."""
    accumulate = options.accumulationFactor if options.enableGradientAccumulation else 1
    replicas = options.replicatedGraphCount if options.enableReplicatedGraphs else 1
    plan = StepPlan(accumulate=accumulate, replicas=replicas, batches=batches)
    if not options.enableDistributedReplicatedGraphs:
        return plan
    ranks = options.globalReplicationFactor // replicas
    return plan.on_rank(options.globalReplicaOffset // replicas, ranks)
