"""Forests as tables: branches that compare a feature with a threshold, leaves with weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError

Numbers: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.int64]

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
"""How a branch compares, as TreeEnsemble numbers it."""

MODES = {
    "BRANCH_LEQ": LEQ,
    "BRANCH_LT": LT,
    "BRANCH_GTE": GTE,
    "BRANCH_GT": GT,
    "BRANCH_EQ": EQ,
    "BRANCH_NEQ": NEQ,
}
LEAF = "LEAF"


@dataclass(frozen=True)
class Branch:
    """A node that is no leaf, as a model has it: nodes are known by numbers."""

    feature: int
    mode: int
    values: Sequence[float]
    """What the feature is compared with; members of a set are several."""
    yes: int
    no: int
    missing_is_yes: bool
    """Whether NaN goes where a comparison that holds leads."""


@dataclass(frozen=True)
class Forest:
    """
    Trees whose branches all ask `feature <= threshold`, numbered before the leaves.

    Other comparisons are made of these: with the number before the threshold, with the answers
    exchanged, or several in a row.
    """

    features: Places
    thresholds: Array
    """Of the element type in which features are compared."""
    following: Places
    """[branches, 2]: where the answer yes leads, and where no does."""
    missing: NDArray[np.bool_]
    """Whether NaN goes where yes leads."""
    roots: Places
    leaves: int
    depth: int
    """How many branches there are at most on the way from a root to a leaf."""

    @property
    def branches(self) -> int:
        return len(self.features)


@dataclass
class Planting:
    """A forest as it grows, from nodes of a model by their numbers."""

    branches: Mapping[int, Branch]
    leaves: Mapping[int, int]
    """The number of each leaf, by its number among the nodes."""
    dtype: np.dtype[np.generic]
    rows: list[tuple[int, float, int, int, bool]] = field(default_factory=list)
    _numbers: dict[int, int] = field(default_factory=dict)

    def forest(self, roots: Sequence[int]) -> Forest:
        """The forest with these nodes as roots."""
        self._numbers = {node: place for place, node in enumerate(self.branches)}
        self.rows = [(0, 0.0, 0, 0, False)] * len(self.branches)
        for node, branch in self.branches.items():
            self._plant(self._numbers[node], branch)
        count = len(self.rows)
        columns = [list(column) for column in zip(*self.rows, strict=True)] or [[]] * 5
        # A leaf is known by a negative number until all branches are there.
        following = np.array([columns[2], columns[3]], np.int64).reshape(2, -1).T
        starts = np.array([self._place(root) for root in roots], np.int64)
        following, starts = (np.where(a < 0, count - 1 - a, a) for a in (following, starts))
        return Forest(
            np.array(columns[0], np.int64),
            np.array(columns[1], np.float64).astype(self.dtype),
            following,
            np.array(columns[4], np.bool_),
            starts,
            len(self.leaves),
            _depth(following, starts),
        )

    def _place(self, node: int) -> int:
        """The row of a branch; of a leaf a negative number."""
        return -1 - self.leaves[node] if node in self.leaves else self._numbers[node]

    def _plant(self, place: int, branch: Branch) -> None:
        yes, no = self._place(branch.yes), self._place(branch.no)
        value = float(branch.values[0]) if branch.values else np.nan
        missing = branch.missing_is_yes
        match branch.mode:
            case 0:
                self.rows[place] = (branch.feature, value, yes, no, missing)
            case 1:
                self.rows[place] = (branch.feature, self._before(value), yes, no, missing)
            case 2:
                self.rows[place] = (branch.feature, self._before(value), no, yes, not missing)
            case 3:
                self.rows[place] = (branch.feature, value, no, yes, not missing)
            case 4 | 6:
                self._search(place, branch, yes, no, missing)
            case _:  # NaN differs from every number.
                self._search(place, branch, no, yes, False)

    def _before(self, value: float) -> float:
        """The largest number below another one; NaN if there is none: nothing is below it."""
        if value == -np.inf:
            return np.nan
        narrow = np.array(value).astype(self.dtype)
        return float(np.nextafter(narrow, np.array(-np.inf).astype(self.dtype)))

    def _search(self, place: int, branch: Branch, yes: int, no: int, missing: bool) -> None:
        """A search for a feature among values: of the ranges between bounds, every other one."""
        values = np.unique(np.array(branch.values, np.float64).astype(self.dtype).astype(float))
        values = values[~np.isnan(values)]
        bounds: list[float] = []
        targets = [no]
        for value in values.tolist():
            before = self._before(value)
            if not bounds or before != bounds[-1]:
                bounds.append(before)
                targets += [yes, no]
            else:
                targets[-1] = yes
                targets.append(no)
            bounds.append(value)
        if not bounds:
            bounds, targets = [np.nan], [no, no]
        wanted = yes if missing else no
        nan_range = targets.index(wanted) if wanted in targets else 0
        self._bisect(place, branch.feature, bounds, targets, nan_range)

    def _bisect(
        self, place: int, feature: int, bounds: Sequence[float], targets: Sequence[int], nan: int
    ) -> None:
        """Fills a row with the comparison in the middle, and rows behind with the others."""
        middle = len(bounds) // 2
        halves = (
            (bounds[:middle], targets[: middle + 1], nan),
            (bounds[middle + 1 :], targets[middle + 1 :], nan - middle - 1),
        )
        ends = [self._half(feature, *half) for half in halves]
        self.rows[place] = (feature, bounds[middle], ends[0], ends[1], nan <= middle)

    def _half(self, feature: int, bounds: Sequence[float], targets: Sequence[int], nan: int) -> int:
        if not bounds:
            return targets[0]
        place = len(self.rows)
        self.rows.append((0, 0.0, 0, 0, False))
        self._bisect(place, feature, bounds, targets, nan)
        return place


def _depth(following: Places, roots: Places) -> int:
    """How far it is from the roots to the last leaf."""
    here, depth = np.unique(roots[roots < len(following)]), 0
    while len(here):
        depth += 1
        after = np.unique(following[here])
        here = after[after < len(following)]
        if depth > len(following):
            raise TypeMismatchError(
                "a tree has a branch that leads back to itself",
                hint="no branch of a tree is among those that follow it",
            )
    return depth
