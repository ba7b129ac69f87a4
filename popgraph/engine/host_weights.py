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
class Held:
    """The first value of a weight or a state, and the variables of the program that hold it."""

    array: Array
    variables: tuple[str, ...]
    """One, or several, of which groups of replicas have one each."""
    rows: tuple[int, ...] = ()
    """For each of them, its value in an array that has one after the other; none: it has one."""
    returned: tuple[int, ...] = ()
    """The group of each value that comes back; none: the array does as it is."""
    share: int = 0
    """How many of its elements, in one row, each rank holds; 0: all of them."""

    @property
    def stacked(self) -> bool:
        """Whether the array has one value after the other."""
        return bool(self.rows)

    def of_group(self, group: int) -> Array:
        return np.asarray(self.array[group] if self.stacked else self.array)

    def sent(self, array: Array) -> Iterator[tuple[str, Array]]:
        """What each variable gets of an array."""
        if self.share:
            yield self.variables[0], self._own_share(array)
            return
        for place, name in enumerate(self.variables):
            yield name, np.asarray(array[self.rows[place]]) if self.stacked else array

    def fetched(self, executable: Executable) -> Array:
        """The array, as the program holds it; all ranks ask for it where each holds a part."""
        if self.share:
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

    def _own_share(self, array: Array) -> Array:
        row = np.zeros(self.share * world().size, array.dtype)
        row[: array.size] = array.reshape(-1)
        return row[self.share * world().rank :][: self.share]

    def handed_out(self, array: Array) -> Array:
        """What users get of an array."""
        if not self.returned:
            return array
        found: Array = np.stack([array[at] if self.stacked else array for at in self.returned])
        return found

    def taken(self, array: Array) -> Array:
        """An array as users hand it in, or as they got it."""
        if not self.returned or array.size == self.array.size:
            return array
        rows = array.reshape(len(self.returned), -1)
        groups = dict(zip(reversed(self.returned), reversed(range(len(rows))), strict=True))
        found: Array = rows[[groups[at] for at in sorted(groups)]]
        return found


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


class HostWeights:
    """
    Weights and optimizer state, twice: what will be sent, and what was fetched last.

    They are separate: reading never fetches, writing never sends.
    """

    def __init__(self, first: Mapping[str, Held]) -> None:
        self._held = dict(first)
        self._values = {id: one.array.copy() for id, one in first.items()}
        self._fetched: Mapping[str, Array] | None = None
        self.in_sync = False
        """They are those of the device."""

    def __contains__(self, id: str) -> bool:
        return id in self._values

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[str]:
        return iter(self._values)

    def values(self) -> Mapping[str, Array]:
        """What will be sent."""
        return self._values

    def send(self, executable: Executable) -> None:
        for id, held in self._held.items():
            for name, array in held.sent(self._values[id]):
                if name in executable.variables:
                    executable.write(name, array)
        self.in_sync = True

    def fetch(
        self, executable: Executable, agreed: Callable[[Mapping[str, Array]], Mapping[str, Array]]
    ) -> None:
        """Fetches all; `agreed` is what all ranks then have for what each of them has."""
        found = {
            id: self._held[id].fetched(executable) if self._is_in(executable, id) else array
            for id, array in self._values.items()
        }
        self._fetched = agreed(found)

    def _is_in(self, executable: Executable, id: str) -> bool:
        names = self._held[id].variables
        return bool(names) and executable.variables.keys() >= set(names)

    def keep_fetched(self) -> None:
        """What was fetched is what will be sent."""
        self._values = {id: array.copy() for id, array in self.fetched().items()}
        self.in_sync = True

    def take(self, values: Mapping[str, Array]) -> None:
        """Takes what the same weights are on another rank."""
        assert values.keys() == self._values.keys(), "programs are alike on all ranks"
        self._values, self.in_sync = dict(values), False

    def fetched(self) -> Mapping[str, Array]:
        return self._values if self._fetched is None else self._fetched

    def read(self, targets: Mapping[str, Array]) -> None:
        """Copies what was fetched into arrays; ids that are no weights are passed over."""
        for id, target in targets.items():
            if id not in self:
                continue
            source = self._held[id].handed_out(self.fetched()[id])
            if source.nbytes != target.nbytes:
                raise WeightBytesError(id, source.nbytes, target.nbytes)
            target.reshape(-1)[...] = source.reshape(-1)

    def write(self, sources: Mapping[str, Array]) -> None:
        """Takes new values."""
        for id, source in sources.items():
            if id in self:
                if not self._held[id].returned:
                    self._check_shape(id, source.shape)
                source = self._held[id].taken(source)
                self._replace(id, source, source.size == self._values[id].size)

    def reset(self, sources: Mapping[str, Array], ignore_unknown: bool) -> None:
        """Takes the values of another model, whose tensors must be like these."""
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
