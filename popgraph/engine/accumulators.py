"""Outputs of accumulators and statistics, of which each replica has its own."""

from __future__ import annotations

from popgraph.passes.graphcore.training.loss_scale import COUNTS, OF_REPLICA, STATISTICS
from popgraph.passes.graphcore.training.weight_context import ACCUMULATED
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.passes.options import GRADIENT


def adds_up(id: str, rule: OptimizerSpec | None) -> bool:
    """Whether micro-batches are added up in a state of this name, by each replica on its own."""
    if rule is None or not rule.accumulates:
        return False
    if id == ACCUMULATED + STATISTICS:
        return rule.scale_period > 0
    prefix, mark, weight = id.partition("___")
    return prefix + mark == rule.for_weight(weight).accumulator


def is_of_replica(id: str, rule: OptimizerSpec | None) -> bool:
    """Whether an output that is no tensor of the model differs from replica to replica."""
    return adds_up(id, rule) or id in OF_REPLICA or counts_gradient(id, rule)


def counts_gradient(id: str, rule: OptimizerSpec | None) -> bool:
    """Whether it says how many elements of a gradient are large, if that one is tracked."""
    follows = rule is not None and rule.scale_period > 0
    return follows and id.startswith(GRADIENT) and id.endswith(COUNTS)


def is_accumulated(id: str, rule: OptimizerSpec | None) -> bool:
    """Whether an accumulator is there, if it is one."""
    return not id.startswith(ACCUMULATED) or adds_up(id, rule)
