"""Accumulators and statistics that each replica has for itself."""

from __future__ import annotations

from popgraph.passes.graphcore.training.loss_scale import COUNTS, OF_REPLICA, STATISTICS
from popgraph.passes.graphcore.training.weight_context import ACCUMULATED
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.passes.options import GRADIENT


def is_accumulator(id: str, rule: OptimizerSpec | None) -> bool:
    """Whether each replica accumulates micro-batches in the state of this name."""
    if rule is None or not rule.accumulates:
        return False
    if id == ACCUMULATED + STATISTICS:
        return rule.scale_period > 0
    prefix, mark, weight = id.partition("___")
    return prefix + mark == rule.for_weight(weight).accumulator


def differs_between_replicas(id: str, rule: OptimizerSpec | None) -> bool:
    """Whether an output that is not a tensor of the model differs between replicas."""
    return is_accumulator(id, rule) or id in OF_REPLICA or counts_large_gradients(id, rule)


def counts_large_gradients(id: str, rule: OptimizerSpec | None) -> bool:
    """Whether an output counts the large elements of a gradient, for loss scaling."""
    follows = rule is not None and rule.scale_period > 0
    return follows and id.startswith(GRADIENT) and id.endswith(COUNTS)


def is_known_state(id: str, rule: OptimizerSpec | None) -> bool:
    """False for an accumulator that the update rule does not have."""
    return not id.startswith(ACCUMULATED) or is_accumulator(id, rule)
