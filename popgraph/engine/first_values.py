"""The weights and the optimizer's states before the first step, as the host holds them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from popgraph.engine.grouped_weights import Grouped, GroupedWeight
from popgraph.engine.host_weights import Held
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.passes.replication import Replication, belongs, without_group
from popgraph.support.arrays import Array


@dataclass(frozen=True)
class FirstValues:
    """Knows the weights of a model; finds what the variables of its program begin with."""

    weights: Mapping[str, Array]
    grouped: Grouped
    """Weights that replicas do not have in common."""
    replicas: Replication
    rule: OptimizerSpec | None

    def held(self, variables: Mapping[str, Array]) -> dict[str, Held]:
        """By weight or state, whatever variables of groups it is."""
        firsts = {
            id: self.grouped[id].first if id in self.grouped else array
            for id, array in self.weights.items()
        }
        values: dict[str, dict[str, Array]] = {id: {} for id in firsts}
        for name, array in variables.items():
            values.setdefault(without_group(name), {})[name] = array
        return {id: self._held(id, firsts.get(id), own) for id, own in values.items()}

    def _held(self, id: str, first: Array | None, values: dict[str, Array]) -> Held:
        group = next((self.grouped[one] for one in self.grouped if belongs(id, one)), None)
        value = next(iter(values.values())) if first is None else first
        rows: tuple[int, ...] = ()
        if group is not None and group.is_stacked and values:
            places = held_groups(group, self.replicas)
            held = dict(zip(self.replicas.states(id), places, strict=True))
            values, rows = {name: values[name] for name in held}, tuple(held.values())
            parts = {row: values[name] for name, row in reversed(held.items())}
            if first is None:  # states of other processes begin as one of these
                some = next(iter(parts.values()))
                value = np.stack([parts.get(row, some) for row in range(len(group.groups))])
        returned = tuple(group.returned) if group else ()
        weight = next((one for one in self.weights if belongs(id, one)), None)
        part = next(iter(values.values()), value)
        whole = None if weight is None else self._whole(id, part, self.weights[weight])
        if whole is None:
            return Held(value, tuple(values), rows, returned)
        return Held(whole, tuple(values), rows, returned, part.size)

    def _whole(self, id: str, first: Array, weight: Array) -> Array | None:
        """What of which each rank has a share, as one of the whole weight; None of any other."""
        rule = self.rule
        if rule is None or not rule.shares(weight.size):
            return None
        if first.shape != (-(-weight.size // rule.ranks),):
            return None  # what is added up before it is told is whole
        if id in self.weights:
            return weight
        return np.full(weight.shape, first[0], first.dtype)


def held_groups(weight: GroupedWeight, replicas: Replication) -> list[int]:
    """The group of each replica of this process."""
    return weight.held[replicas.first : replicas.first + replicas.count]
