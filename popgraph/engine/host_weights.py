"""The host's copies of weights and optimizer states."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from popgraph.backends.base import Executable
from popgraph.engine.errors import (
    UnknownWeightError,
    WeightBytesError,
    WeightShapeError,
    WeightTypeError,
)
from popgraph.engine.grouped_weights import Grouped, GroupedWeight
from popgraph.passes.optimizer_spec import OptimizerSpec
from popgraph.passes.replication import Replication, belongs, without_group
from popgraph.support.arrays import Array
from popgraph.support.ranks.communicator import ALL_GATHER, Exchange
from popgraph.support.ranks.world import world
from popgraph.support.shapes import Shape


@dataclass(frozen=True)
class WeightBinding:
    """The first value of a weight or state, and the program variables that hold it."""

    array: Array
    variables: tuple[str, ...]
    """One variable, or one per group of replicas."""
    rows: tuple[int, ...] = ()
    """For each variable, the row of `array` with its value; empty if the array is one value."""
    returned: tuple[int, ...] = ()
    """The group of each returned value; empty if the array is returned unchanged."""
    shard_size: int = 0
    """Elements per rank of a flattened array that is sharded; 0: not sharded."""

    @property
    def stacked(self) -> bool:
        """Whether the array holds one value per group."""
        return bool(self.rows)

    def of_group(self, group: int) -> Array:
        return np.asarray(self.array[group] if self.stacked else self.array)

    def by_variable(self, array: Array) -> Iterator[tuple[str, Array]]:
        """Yields each variable with its part of the array."""
        if self.shard_size:
            yield self.variables[0], self._own_shard(array)
            return
        for place, name in enumerate(self.variables):
            yield name, np.asarray(array[self.rows[place]]) if self.stacked else array

    def read_from(self, executable: Executable) -> Array:
        """Reads the array from the program; a collective operation if ranks hold parts of it."""
        if self.shard_size:
            everybody = Exchange(ALL_GATHER, 1, world().size)
            row = world().exchange(everybody, executable.read(self.variables[0]))
            return row[: self.array.size].reshape(self.array.shape)
        if self.stacked:
            held = dict(zip(reversed(self.rows), reversed(self.variables), strict=True))
            found = {row: executable.read(name) for row, name in held.items()}
            if len(found) < len(self.array):
                for other in world().gather(found):
                    found = other | found
            return np.stack([found[row] for row in range(len(self.array))])
        return executable.read(self.variables[0])

    def _own_shard(self, array: Array) -> Array:
        row = np.zeros(self.shard_size * world().size, array.dtype)
        row[: array.size] = array.reshape(-1)
        return row[self.shard_size * world().rank :][: self.shard_size]

    def to_user_form(self, array: Array) -> Array:
        """Expands the array to the form that users get: one row per replica, if replicas differ."""
        if not self.returned:
            return array
        found: Array = np.stack([array[at] if self.stacked else array for at in self.returned])
        return found

    def to_stored_form(self, array: Array) -> Array:
        """Converts an array from the users' form, or from the stored form, to the stored form."""
        if not self.returned or array.size == self.array.size:
            return array
        rows = array.reshape(len(self.returned), -1)
        groups = dict(zip(reversed(self.returned), reversed(range(len(rows))), strict=True))
        found: Array = rows[[groups[at] for at in sorted(groups)]]
        return found


@dataclass(frozen=True)
class InitialValues:
    """Finds the initial values of a program's variables from the weights of the model."""

    weights: Mapping[str, Array]
    grouped: Grouped
    """Weights whose values differ between replicas."""
    replicas: Replication
    rule: OptimizerSpec | None

    def bindings(self, variables: Mapping[str, Array]) -> dict[str, WeightBinding]:
        """The initial values by weight or state; variables of its groups are merged."""
        firsts = {
            id: self.grouped[id].first if id in self.grouped else array
            for id, array in self.weights.items()
        }
        values: dict[str, dict[str, Array]] = {id: {} for id in firsts}
        for name, array in variables.items():
            values.setdefault(without_group(name), {})[name] = array
        return {id: self._binding(id, firsts.get(id), own) for id, own in values.items()}

    def _binding(self, id: str, first: Array | None, values: dict[str, Array]) -> WeightBinding:
        group = next((self.grouped[one] for one in self.grouped if belongs(id, one)), None)
        value = next(iter(values.values())) if first is None else first
        rows: tuple[int, ...] = ()
        if group is not None and group.is_stacked and values:
            places = groups_of_variables(group, self.replicas)
            held = dict(zip(self.replicas.states(id), places, strict=True))
            values, rows = {name: values[name] for name in held}, tuple(held.values())
            parts = {row: values[name] for name, row in reversed(held.items())}
            if first is None:  # states of other processes begin as one of these
                some = next(iter(parts.values()))
                value = np.stack([parts.get(row, some) for row in range(len(group.groups))])
        returned = tuple(group.returned) if group else ()
        weight = next((one for one in self.weights if belongs(id, one)), None)
        part = next(iter(values.values()), value)
        whole = None if weight is None else self._unsharded(id, part, self.weights[weight])
        if whole is None:
            return WeightBinding(value, tuple(values), rows, returned)
        return WeightBinding(whole, tuple(values), rows, returned, part.size)

    def _unsharded(self, id: str, first: Array, weight: Array) -> Array | None:
        """The full-size initial value of a sharded weight or state; None if it is not sharded."""
        rule = self.rule
        if rule is None or not rule.shares(weight.size):
            return None
        if first.shape != (-(-weight.size // rule.ranks),):
            return None  # gradients that are accumulated before they are exchanged are not sharded
        if id in self.weights:
            return weight
        return np.full(weight.shape, first[0], first.dtype)


def groups_of_variables(weight: GroupedWeight, replicas: Replication) -> list[int]:
    """The group of each replica of this process."""
    return weight.held[replicas.first : replicas.first + replicas.count]


class HostWeights:
    """
    Two copies of weights and optimizer state: the values to send, and the last values fetched.

    They are independent: reading never fetches, writing never sends.
    """

    def __init__(self, first: Mapping[str, WeightBinding]) -> None:
        self._bindings = dict(first)
        self._values = {id: one.array.copy() for id, one in first.items()}
        self._fetched: Mapping[str, Array] | None = None
        self.in_sync = False
        """Whether the device holds the values to send."""

    def __contains__(self, id: str) -> bool:
        return id in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def values(self) -> Mapping[str, Array]:
        """The values to send."""
        return self._values

    def send(self, executable: Executable) -> None:
        for id, held in self._bindings.items():
            for name, array in held.by_variable(self._values[id]):
                if name in executable.variables:
                    executable.write(name, array)
        self.in_sync = True

    def fetch(
        self, executable: Executable, unify: Callable[[Mapping[str, Array]], Mapping[str, Array]]
    ) -> None:
        """Fetches all values; `unify` unifies values that every rank has."""
        found = {
            id: self._bindings[id].read_from(executable) if self._is_in(executable, id) else array
            for id, array in self._values.items()
        }
        self._fetched = unify(found)

    def _is_in(self, executable: Executable, id: str) -> bool:
        names = self._bindings[id].variables
        return bool(names) and executable.variables.keys() >= set(names)

    def keep_fetched(self) -> None:
        """Makes the fetched values the values to send."""
        self._values = {id: array.copy() for id, array in self.fetched().items()}
        self.in_sync = True

    def take(self, values: Mapping[str, Array]) -> None:
        """Takes the values of the same weights from another rank."""
        assert values.keys() == self._values.keys(), "programs are alike on all ranks"
        self._values, self.in_sync = dict(values), False

    def fetched(self) -> Mapping[str, Array]:
        return self._values if self._fetched is None else self._fetched

    def read(self, targets: Mapping[str, Array]) -> None:
        """Copies fetched values into arrays; ids that are not weights are ignored."""
        for id, target in targets.items():
            if id not in self:
                continue
            source = self._bindings[id].to_user_form(self.fetched()[id])
            if source.nbytes != target.nbytes:
                raise WeightBytesError(id, source.nbytes, target.nbytes)
            target.reshape(-1)[...] = source.reshape(-1)

    def write(self, sources: Mapping[str, Array]) -> None:
        """Sets the values to send."""
        for id, source in sources.items():
            if id in self:
                if not self._bindings[id].returned:
                    self._check_shape(id, source.shape)
                source = self._bindings[id].to_stored_form(source)
                self._replace(id, source, source.size == self._values[id].size)

    def reset(self, sources: Mapping[str, Array], ignore_unknown: bool) -> None:
        """Sets the values of another model, whose tensors must have the same shapes."""
        for id, source in sources.items():
            if id in self:
                self._replace(id, source, source.shape == self._values[id].shape)
            elif not ignore_unknown:
                raise UnknownWeightError(id)

    def _check_shape(self, id: str, shape: Shape) -> None:
        wanted = self._values[id].shape
        if shape != wanted:
            raise WeightShapeError(id, wanted, shape)

    def _replace(self, id: str, array: Array, fits: bool) -> None:
        held = self._values[id]
        if not fits or array.dtype != held.dtype:
            raise WeightTypeError(id)
        self._values[id] = array.reshape(held.shape).copy()
        self.in_sync = False
