"""Data-parallel replicas of a program: their number, and the inputs and variables they share."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from urllib.parse import quote, unquote

from popgraph.support.errors import PassError
from popgraph.support.replicas import grouped

REPLICA, GROUP = "@replica", "@group"


@dataclass(frozen=True)
class Replication:
    """
    Replicas as plain data.

    Each of `ranks` processes has `count` replicas; this process is number `rank`. All replicas get
    the same inputs in `shared`. All replicas share a variable, unless `groups` has the stride and
    size of the groups that share it. Gradients of a variable are summed over the replicas that
    share it, unless `added` has other groups. If only some processes share a variable, `told` has
    the stride and size of their groups.
    """

    count: int = 1
    shared: tuple[str, ...] = ()
    groups: tuple[tuple[str, int, int], ...] = ()
    added: tuple[tuple[str, int, int], ...] = ()
    ranks: int = 1
    rank: int = 0
    told: tuple[tuple[str, int, int], ...] = ()

    def __post_init__(self) -> None:
        if not 0 <= self.rank < self.ranks:
            raise ValueError(f"rank {self.rank} is not among {self.ranks} ranks")
        pairs = [pair for _, *pair in (*self.groups, *self.added, *self.told)]
        numbers = (self.count, *(number for pair in pairs for number in pair))
        if min(numbers) < 1:
            raise ValueError("replicas, strides and sizes must be at least 1")

    @property
    def is_one(self) -> bool:
        """Whether there is a single replica in all processes."""
        return self.count == self.ranks == 1

    @property
    def total(self) -> int:
        """The number of replicas in all processes."""
        return self.count * self.ranks

    @property
    def first(self) -> int:
        """The global index of this process's first replica."""
        return self.rank * self.count

    def groups_of(self, stride: int, size: int) -> list[list[int]]:
        """The replicas of each group of `size` at distance `stride`."""
        if self.count % (stride * size):
            raise PassError(
                f"{self.count} replicas cannot be taken in groups of {size} at stride {stride}"
            )
        return grouped(self.count, stride, size)

    def with_own(self, names: Collection[str]) -> Replication:
        """Gives each replica its own copy of these variables, unless groups share them."""
        known = {name for name, _, _ in self.groups}
        own = tuple((name, 1, 1) for name in sorted(set(names) - known))
        return replace(self, groups=self.groups + own)

    def copies(self, name: str) -> list[str]:
        """The names of a tensor on each replica; a single replica keeps the name."""
        if self.count == 1:
            return [name]
        return [f"{name}{REPLICA}{replica}" for replica in range(self.count)]

    def inputs(self, name: str) -> list[str]:
        """The names of an input on each replica: the same name if it is shared."""
        return [name] * self.count if name in self.shared else self.copies(name)

    def variables(self, name: str) -> list[str]:
        """The names of a variable, or of its optimizer state, on each replica."""
        groups = self._groups(name, self.groups)
        if len(groups) == 1:
            return [name] * self.count
        found = {replica: place for place, group in enumerate(groups) for replica in group}
        return [f"{name}{GROUP}{found[replica]}" for replica in range(self.count)]

    def adding(self, name: str) -> list[list[int]]:
        """The groups of replicas over which a variable's gradients are summed."""
        return self._groups(name, (*self.added, *self.groups))

    def _groups(self, name: str, groups: Sequence[tuple[str, int, int]]) -> list[list[int]]:
        everyone = [list(range(self.count))]
        found = (self.groups_of(stride, size) for own, stride, size in groups if own == name)
        return next(found, everyone)

    def states(self, name: str) -> list[str]:
        """The names of an optimizer state, such as `Accl___w`, or of a weight, on each replica."""
        weights = (one for one, _, _ in self.groups if belongs(name, one))
        weight = next(weights, name)
        return [name.removesuffix(weight) + copy for copy in self.variables(weight)]

    # The text form, for pass options: `4 rank=0/2 shared=x,y groups=w:1:2 added=v:1:4`.

    def __str__(self) -> str:
        words = [str(self.count)]
        if self.ranks > 1:
            words.append(f"rank={self.rank}/{self.ranks}")
        if self.shared:
            words.append("shared=" + ",".join(quote(name, safe="") for name in self.shared))
        for key in ("groups", "added", "told"):
            pairs = getattr(self, key)
            named = [f"{quote(name, safe='')}:{step}:{size}" for name, step, size in pairs]
            words += [f"{key}={','.join(named)}"] if named else []
        return " ".join(words)

    @staticmethod
    def parse(text: str) -> Replication:
        """Parses the text form; raises a PassError if it is not valid."""
        count, *words = text.split() or [""]
        given = dict(word.partition("=")[::2] for word in words)
        try:
            if unknown := given.keys() - {"shared", "groups", "added", "told", "rank"}:
                raise ValueError(f"unknown key {sorted(unknown)[0]!r}")
            shared = tuple(unquote(name) for name in _listed(given, "shared"))
            rank, _, ranks = given.get("rank", "0/1").partition("/")
            return Replication(
                int(count),
                shared,
                _groups(given, "groups"),
                _groups(given, "added"),
                int(ranks),
                int(rank),
                _groups(given, "told"),
            )
        except ValueError as error:
            raise PassError(
                f"{text!r} is not a valid description of replicas",
                hint="4 rank=0/2 shared=x,y groups=w:1:2 (name:stride:size, all at least 1)",
            ) from error


def _groups(given: Mapping[str, str], key: str) -> tuple[tuple[str, int, int], ...]:
    words = [one.split(":") for one in _listed(given, key)]
    return tuple((unquote(name), int(step), int(size)) for name, step, size in words)


def _listed(given: Mapping[str, str], key: str) -> Sequence[str]:
    return given[key].split(",") if given.get(key) else []


def without_group(name: str) -> str:
    """The name of a variable without the suffix of its group."""
    base, mark, number = name.rpartition(GROUP)
    return base if mark and number.isdigit() else name


def belongs(name: str, weight: str) -> bool:
    """Whether a variable is the weight itself or its optimizer state."""
    return name == weight or name.endswith(f"___{weight}")
