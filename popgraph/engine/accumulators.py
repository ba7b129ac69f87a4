"""Anchors of accumulators, in which each replica adds up gradients of its own."""

from __future__ import annotations

from popgraph.passes.graphcore.training.weight_context import ACCUMULATED
from popgraph.passes.optimizer_spec import OptimizerSpec


def adds_up(id: str, rule: OptimizerSpec | None) -> bool:
    """Whether micro-batches are added up in a state of this name, by each replica on its own."""
    if rule is None or not rule.accumulates:
        return False
    prefix, mark, weight = id.partition("___")
    return prefix + mark == rule.for_weight(weight).accumulator


def is_accumulated(id: str, rule: OptimizerSpec | None) -> bool:
    """Whether an accumulator is there, if it is one."""
    return not id.startswith(ACCUMULATED) or adds_up(id, rule)
