"""Accumulators and statistics that each replica has for itself."""

from __future__ import annotations

from popgraph.passes.graphcore.training.loss_scale import COUNTS, OF_REPLICA, STATISTICS
from popgraph.passes.graphcore.training.weight_context import ACCUMULATED
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.passes.options import GRADIENT


def adds_up(id: str, rule: OptimizerSpec | None) -> bool:
    """Whether each replica accumulates micro-batches in the state of this name."""
    if rule is None or not rule.accumulates:
        return False
    if id == ACCUMULATED + STATISTICS:
        return rule.scale_period > 0
    prefix, mark, weight = id.partition("___")
    return prefix + mark == rule.for_weight(weight).accumulator


def is_of_replica(id: str, rule: OptimizerSpec | None) -> bool:
    """Whether an output that is not a tensor of the model differs between replicas."""
    return adds_up(id, rule) or id in OF_REPLICA or counts_gradient(id, rule)


def counts_gradient(id: str, rule: OptimizerSpec | None) -> bool:
    """Whether an output counts the large elements of a gradient, for loss scaling."""
    follows = rule is not None and rule.scale_period > 0
    return follows and id.startswith(GRADIENT) and id.endswith(COUNTS)


def is_accumulated(id: str, rule: OptimizerSpec | None) -> bool:
    """False for an accumulator that the update rule does not have."""
    return not id.startswith(ACCUMULATED) or adds_up(id, rule)
