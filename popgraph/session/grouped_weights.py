"""Weights of which groups of replicas have values of their own, as `VariableSettings` say."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from popgraph.builder.onnx.stacked_weights import StackedModel
from popgraph.builder.opset.enums import (
    MeanReductionStrategy,
    ReductionType,
    VariableRetrievalMode,
)
from popgraph.builder.opset.exceptions import popart_exception, popart_unsupported_exception
from popgraph.builder.popart.builder import Builder
from popgraph.builder.popart.replication_notes import GROUPS, grouped_weights
from popgraph.builder.popart.variable_settings import VariableSettings
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.session.options import SessionOptions
from popgraph.support.arrays import Array


@dataclass(frozen=True)
class GroupedWeight:
    """A weight that not all replicas share, or of which more than one value comes back."""

    settings: VariableSettings
    replicas: int
    first: Array
    """The values that groups begin with, one after the other; of a single group its value."""

    @property
    def groups(self) -> list[list[int]]:
        """The replicas of each group."""
        return self.settings.groups(self.replicas)

    @property
    def is_stacked(self) -> bool:
        """Whether arrays hold one value after the other."""
        return len(self.groups) > 1

    @property
    def returned(self) -> list[int]:
        """The group of each value that comes back; none where only the one of all does."""
        if self.settings.getRetrievalMode() is not VariableRetrievalMode.AllReplicas:
            return []
        held = {replica: at for at, group in enumerate(self.groups) for replica in group}
        return [held[replica] for replica in range(self.replicas)]


Grouped = Mapping[str, GroupedWeight]


def take_groups(source: Any, options: SessionOptions | None) -> tuple[Any, Grouped]:
    """
    A model in which weights are those of the first group, and the weights of all groups.

    Arrays in a model have an axis for the groups, of which its nodes know nothing.
    """
    replicas = options.getGlobalReplicationFactor() if isinstance(options, SessionOptions) else 1
    content = _noted(source) if replicas > 1 else b""
    if not content:
        return source, {}
    model = StackedModel(content)
    settings = {
        id: one for id, one in grouped_weights(model.notes).items() if _matters(id, one, replicas)
    }
    found = {}
    for id, array in model.arrays(settings).items():
        settings[id].shapeOnReplica(array.shape, replicas, id)
        found[id] = GroupedWeight(settings[id], replicas, array)
    return model.with_firsts([id for id, one in found.items() if one.is_stacked]), found


def check_groups(grouped: Grouped, options: SessionOptions, rule: OptimizerSpec | None) -> None:
    """Refuses what would make other numbers of weights of groups than PopART's."""
    apart = [id for id, one in grouped.items() if one.is_stacked]
    if rule is None or not apart:
        return
    if any(not one.weights or not set(one.weights).isdisjoint(apart) for one in rule.clip):
        raise popart_unsupported_exception(
            f"gradients cannot be clipped together where replicas differ in {apart[0]}",
            "clip_norm_settings",
            "each replica would have a norm of its own: leave clipping out, or the groups",
        )
    mean = options.accumulationAndReplicationReductionType is ReductionType.Mean
    strategy = options.meanAccumulationAndReplicationReductionStrategy
    if mean and strategy is MeanReductionStrategy.Running:
        raise popart_unsupported_exception(
            f"running means of gradients are not implemented where replicas differ in {apart[0]}",
            "SessionOptions.meanAccumulationAndReplicationReductionStrategy",
            "take MeanReductionStrategy.Post, which divides by the number of all replicas",
        )


def _matters(id: str, settings: VariableSettings, replicas: int) -> bool:
    """Whether a weight is not simply all replicas' own, of which one value comes back."""
    if settings.getRetrievalMode() is VariableRetrievalMode.AllReduceReplicas:
        raise popart_unsupported_exception(
            f"the weight {id} is to come back reduced over replicas",
            "VariableRetrievalMode.AllReduceReplicas",
            "PopART does not support it either: take OnePerGroup or AllReplicas",
        )
    try:
        return settings.numReplicasReturningVariable(replicas) > 1
    except popart_exception as error:
        error.add_note(f"  at: the weight {id}")
        raise


def _noted(source: Any) -> bytes:
    """A model that says something of groups; nothing of any other."""
    if isinstance(source, Builder):
        source = source.getModelProto()
    elif isinstance(source, str | Path) and Path(source).is_file():
        source = Path(source).read_bytes()
    elif not isinstance(source, bytes) and hasattr(source, "SerializeToString"):
        source = source.SerializeToString()
    return source if isinstance(source, bytes) and GROUPS.encode() in source else b""
