"""Weights with one value per group of replicas, as `VariableSettings` define the groups."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from popgraph.builder.onnx.stacked_weights import StackedModel
from popgraph.builder.opset.enums import VariableRetrievalMode
from popgraph.engine.grouped_weights import GroupedWeight
from popgraph.popart.api.builder import Builder
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.variable_settings import GROUPS, VariableSettings, grouped_weights
from popgraph.popart.exceptions import popart_exception, popart_unsupported_exception
from popgraph.support.arrays import Array


@dataclass(frozen=True)
class GroupedVariable(GroupedWeight):
    """A grouped weight with the settings that define its groups."""

    settings: VariableSettings = field(kw_only=True)

    @staticmethod
    def of(settings: VariableSettings, replicas: int, first: Array) -> GroupedVariable:
        grouping = settings.getReplicaGrouping(replicas)
        every = settings.getRetrievalMode() is VariableRetrievalMode.AllReplicas
        pair = grouping.stride, grouping.groupSize
        return GroupedVariable(first, replicas, pair, every, settings=settings)


Grouped = Mapping[str, GroupedVariable]


def take_groups(source: Any, options: SessionOptions | None) -> tuple[Any, Grouped]:
    """
    A model in which weights have the value of the first group, and {weight: values of all groups}.

    Arrays in the given model have a leading axis for groups, which its nodes do not expect.
    """
    replicas = options.getGlobalReplicationFactor() if isinstance(options, SessionOptions) else 1
    content = _bytes_with_groups(source) if replicas > 1 else b""
    if not content:
        return source, {}
    model = StackedModel(content)
    settings = {
        id: one
        for id, one in grouped_weights(model.notes).items()
        if _is_grouped(id, one, replicas)
    }
    found = {}
    for id, array in model.arrays(settings).items():
        settings[id].shapeOnReplica(array.shape, replicas, id)
        found[id] = GroupedVariable.of(settings[id], replicas, array)
    return model.with_firsts([id for id, one in found.items() if one.is_stacked]), found


def _is_grouped(id: str, settings: VariableSettings, replicas: int) -> bool:
    """Whether a weight has more than one group, or is returned once per replica."""
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


def _bytes_with_groups(source: Any) -> bytes:
    """The bytes of a model that defines groups; b"" for any other."""
    if isinstance(source, Builder):
        source = source.getModelProto()
    elif isinstance(source, str | Path) and Path(source).is_file():
        source = Path(source).read_bytes()
    elif not isinstance(source, bytes) and hasattr(source, "SerializeToString"):
        source = source.SerializeToString()
    return source if isinstance(source, bytes) and GROUPS.encode() in source else b""
