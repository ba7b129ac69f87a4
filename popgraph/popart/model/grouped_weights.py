"""Weights of which groups of replicas have values of their own, as `VariableSettings` say."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from popgraph.builder.onnx.stacked_weights import StackedModel
from popgraph.builder.opset.enums import (
    VariableRetrievalMode,
)
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.passes.replication import Replication
from popgraph.popart.api.builder import Builder
from popgraph.popart.api.options import SessionOptions
from popgraph.popart.api.step_shape import StepShape
from popgraph.popart.api.variable_settings import GROUPS, VariableSettings, grouped_weights
from popgraph.popart.exceptions import popart_exception, popart_unsupported_exception
from popgraph.support.arrays import Array
from popgraph.support.replicas import Grouping


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
        every = self.settings.getRetrievalMode() is VariableRetrievalMode.AllReplicas
        return self.held if every else []

    @property
    def held(self) -> list[int]:
        """The group of each replica."""
        found = {replica: at for at, group in enumerate(self.groups) for replica in group}
        return [found[replica] for replica in range(self.replicas)]


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


def replication_of(
    grouped: Grouped,
    shape: StepShape,
    shared: Iterable[str],
    weights: Collection[str],
    rule: OptimizerSpec | None,
) -> Replication:
    """
    The replicas of one program, which is that of a rank.

    Where gradients are clipped together whose groups are not the same, each replica has a norm of
    its own, and so a copy of its own of these weights.
    """
    groups, told = {}, {}
    for id, one in grouped.items():
        grouping = one.settings.getReplicaGrouping(one.replicas)
        groups[id], told[id] = _parted(grouping.stride, grouping.groupSize, shape, id)
    everyone = (1, shape.replicas)
    added: dict[str, tuple[int, int]] = {}
    for clip in rule.clip if rule is not None else ():
        together = {id: groups.get(id, everyone) for id in clip.weights or weights}
        if len(set(together.values())) > 1:
            added |= together
    own = groups | dict.fromkeys(added, (1, 1))
    return Replication(
        shape.replicas,
        tuple(sorted(shared)),
        tuple((id, *pair) for id, pair in sorted(own.items())),
        tuple((id, *pair) for id, pair in sorted(added.items())),
        shape.ranks,
        shape.rank,
        tuple((id, *pair) for id, pair in sorted(told.items())) if shape.ranks > 1 else (),
    )


def _parted(stride: int, size: int, shape: StepShape, id: str) -> tuple[Grouping, Grouping]:
    """Groups of replicas as those within a process, and those of the processes."""
    local = shape.replicas
    if local % (stride * size) == 0:
        return (stride, size), (1, 1)
    if local % stride == 0 and stride * size % local == 0:
        return (stride, local // stride), (1, stride * size // local)
    if stride % local == 0:
        return (1, 1), (stride // local, size)
    raise popart_unsupported_exception(
        f"groups of {size} replicas that are {stride} apart do not take the same part of every "
        f"process of {local} replicas",
        f"the weight {id}",
        "a number of replicas in each process that the groups divide, or that divides them",
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
