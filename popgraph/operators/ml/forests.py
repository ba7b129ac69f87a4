"""
Decision forests as tables, read from the attributes of nodes.

A branch compares a feature with a threshold; a leaf has weights.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from popgraph.operators.ml.scores import computed_in, reals
from popgraph.operators.node import Node
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError

Numbers: TypeAlias = NDArray[np.float64]
Places: TypeAlias = NDArray[np.int64]

LEQ, LT, GTE, GT, EQ, NEQ, MEMBER = range(7)
"""The comparisons of branches, in TreeEnsemble's numbering."""

MODES = {f"BRANCH_{word}": at for at, word in enumerate(("LEQ", "LT", "GTE", "GT", "EQ", "NEQ"))}
LEAF = "LEAF"
TRACKS = "nodes_missing_value_tracks_true"


@dataclass(frozen=True)
class Branch:
    """An inner node of a model; `yes` and `no` are numbers of nodes."""

    feature: int
    mode: int
    values: Sequence[float]
    """The threshold, or the members of a set."""
    yes: int
    no: int
    missing_is_yes: bool
    """Whether NaN takes the `yes` branch."""


@dataclass(frozen=True)
class Forest:
    """
    Trees whose branches are all `feature <= threshold`, numbered before the leaves.

    Other comparisons are rewritten to these: x < t is x <= predecessor(t), x > t swaps the
    branches, and sets are binary searches.
    """

    features: Places
    thresholds: Array
    """In the element type of the comparison."""
    following: Places
    """[branches, 2]: the successors for yes and no."""
    missing: NDArray[np.bool_]
    """Whether NaN takes the yes branch."""
    roots: Places
    leaves: int
    depth: int
    """The largest number of branches on a path from a root to a leaf."""

    @property
    def branches(self) -> int:
        return len(self.features)


@dataclass
class Planting:
    """The construction of a forest from the nodes of a model."""

    branches: Mapping[int, Branch]
    leaves: Mapping[int, int]
    """The index of each leaf, by its number among the nodes."""
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
        # Leaves have negative numbers until the number of branches is final.
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
        """The row of a branch, or -1 - index of a leaf."""
        return -1 - self.leaves[node] if node in self.leaves else self._numbers[node]

    def _plant(self, place: int, branch: Branch) -> None:
        yes, no = self._place(branch.yes), self._place(branch.no)
        value = float(branch.values[0]) if branch.values else np.nan
        missing = branch.missing_is_yes
        if branch.mode in (EQ, MEMBER):
            self._search(place, branch, yes, no, missing)
        elif branch.mode in (LEQ, LT, GTE, GT):
            if branch.mode in (GTE, GT):
                yes, no, missing = no, yes, not missing
            bound = value if branch.mode in (LEQ, GT) else self._before(value)
            self.rows[place] = (branch.feature, bound, yes, no, missing)
        else:  # NaN differs from every number.
            self._search(place, branch, no, yes, False)

    def _before(self, value: float) -> float:
        """The predecessor of a float; NaN for -inf, so that the comparison is never true."""
        if value == -np.inf:
            return np.nan
        narrow = np.array(value).astype(self.dtype)
        return float(np.nextafter(narrow, np.array(-np.inf).astype(self.dtype)))

    def _search(self, place: int, branch: Branch, yes: int, no: int, missing: bool) -> None:
        """
        A binary search for membership in a set of values.

        The bounds (predecessor(v), v) of each value split the line into ranges; a feature is a
        member in every other range.
        """
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
        """Fills a row with the middle comparison, and new rows with both halves."""
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
    """The largest number of branches on a path from a root to a leaf."""
    here, depth = np.unique(roots[roots < len(following)]), 0
    while len(here):
        depth += 1
        after = np.unique(following[here])
        here = after[after < len(following)]
        if depth > len(following):
            raise TypeMismatchError(
                "a tree has a cycle", hint="no branch may lead to one of its ancestors"
            )
    return depth


# Ensembles in the attributes of nodes


@dataclass(frozen=True)
class Ensemble:
    """A forest, and the weights of its leaves for each target."""

    forest: Forest
    leaves: Places
    targets: Places
    weights: Array
    """`leaves`, `targets` and `weights` are parallel; a leaf may have several entries."""
    count: int
    """The number of targets."""


def numbers_of(node: Node, name: str) -> Array:
    """A list attribute of floats, or its f64 tensor variant `*_as_tensor`."""
    if node.has(f"{name}_as_tensor"):
        found = np.asarray(node.value(f"{name}_as_tensor")).reshape(-1)
        if found.size:
            return found
    return reals(node, name)


def of_lists(node: Node, prefix: str, ids: str, count: int) -> Ensemble:
    """The ensemble of a classifier or regressor, from lists of nodes and of leaf weights."""
    keys = _pairs(node, "nodes_treeids", "nodes_nodeids")
    number = {key: place for place, key in enumerate(keys)}
    if len(number) < len(keys):
        raise TypeMismatchError(
            f"duplicate node in a tree of {node.op.op_type}",
            hint="give every node of a tree its own number",
        )
    modes = node.texts("nodes_modes")
    branches = _branches(node, keys, number)
    ends = [place for place, mode in enumerate(modes) if mode == LEAF]
    leaves = {place: at for at, place in enumerate(ends)}
    forest = Planting(branches, leaves, computed_in(node).numpy).forest(_roots(keys, branches))
    return Ensemble(forest, *_entries(node, prefix, ids, number, leaves, count), count)


def _branches(
    node: Node, keys: Sequence[tuple[int, int]], number: Mapping[tuple[int, int], int]
) -> dict[int, Branch]:
    """The inner nodes, by their indices in the lists."""
    _check_lengths(node, len(keys))
    values = numbers_of(node, "nodes_values")
    yes, no = node.integers("nodes_truenodeids"), node.integers("nodes_falsenodeids")
    missing = node.integers(TRACKS) or (0,) * len(keys)
    features = node.integers("nodes_featureids")

    def mode(word: str) -> int:
        if word not in MODES:
            raise node.unsupported(f"the mode {word!r}", f"use one of {', '.join([*MODES, LEAF])}")
        return MODES[word]

    def child(place: int, name: int) -> int:
        found = number.get((keys[place][0], name))
        if found is None:
            raise TypeMismatchError(
                f"tree {keys[place][0]} of {node.op.op_type} has no node {name}",
                hint="branches must lead to nodes of their tree",
            )
        return found

    return {
        place: Branch(
            features[place],
            mode(word),
            [float(values[place])],
            child(place, yes[place]),
            child(place, no[place]),
            bool(missing[place]),
        )
        for place, word in enumerate(node.texts("nodes_modes"))
        if word != LEAF
    }


def _entries(
    node: Node,
    prefix: str,
    ids: str,
    number: Mapping[tuple[int, int], int],
    leaves: Mapping[int, int],
    count: int,
) -> tuple[Places, Places, Array]:
    """Parallel arrays of leaves, targets and weights."""
    entries = _pairs(node, f"{prefix}_treeids", f"{prefix}_nodeids")
    if strangers := [key for key in entries if key not in number]:
        raise TypeMismatchError(
            f"tree {strangers[0][0]} of {node.op.op_type} has no node {strangers[0][1]}",
            hint="weights must belong to leaves of the trees",
        )
    found = [number[key] for key in entries]
    kept = [at for at, place in enumerate(found) if place in leaves]
    targets = np.array(node.integers(ids), np.int64)
    weights = numbers_of(node, f"{prefix}_weights")
    if not len(found) == len(targets) == len(weights):
        raise TypeMismatchError(
            f"{node.op.op_type} has {len(weights)} weights for {len(targets)} entries of leaves",
            hint=f"lists whose names begin with `{prefix}_` must have the same length",
        )
    _check_targets(node, targets, count)
    places = np.array([leaves[found[at]] for at in kept], np.int64)
    return places, targets[kept], weights[kept]


def _pairs(node: Node, first: str, second: str) -> list[tuple[int, int]]:
    firsts, seconds = node.integers(first), node.integers(second)
    if len(firsts) != len(seconds):
        raise TypeMismatchError(
            f"`{first}` has {len(firsts)} elements, `{second}` {len(seconds)}",
            hint="give one of each per node",
        )
    return list(zip(firsts, seconds, strict=True))


def _check_lengths(node: Node, count: int) -> None:
    """Every list of nodes has one entry per node; an optional list may be empty."""
    of_integers = ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", TRACKS)
    lists: dict[str, Sized] = {
        "nodes_modes": node.texts("nodes_modes"),
        "nodes_values": numbers_of(node, "nodes_values"),
        **{name: node.integers(name) for name in of_integers},
    }
    for name, given in lists.items():
        if len(given) != count and (len(given) or name != TRACKS):
            raise TypeMismatchError(
                f"`{name}` of {node.op.op_type} has {len(given)} entries for {count} nodes",
                hint="lists whose names begin with `nodes_` must have one per node and leaf",
            )


def _roots(keys: Sequence[tuple[int, int]], branches: dict[int, Branch]) -> list[int]:
    """The root of each tree, in order: the node to which no branch leads."""
    inner = {place for one in branches.values() for place in (one.yes, one.no)}
    roots: dict[int, list[int]] = {tree: [] for tree, _ in keys}
    for place, (tree, _) in enumerate(keys):
        if place not in inner:
            roots[tree].append(place)
    for tree, found in roots.items():
        if len(found) != 1:
            raise TypeMismatchError(
                f"tree {tree} has {len(found)} nodes to which no branch leads",
                hint="a tree must have one such node, its root",
            )
    starts = [place for (place,) in roots.values()]
    if len(_reached(starts, branches)) < len(keys):
        raise TypeMismatchError(
            "a tree has a cycle", hint="no branch may lead to one of its ancestors"
        )
    return starts


def _reached(starts: Sequence[int], branches: dict[int, Branch]) -> set[int]:
    """The nodes reachable from `starts`, including these."""
    pending, seen = list(starts), set(starts)
    while pending:
        branch = branches.get(pending.pop())
        ends = set() if branch is None else {branch.yes, branch.no} - seen
        seen |= ends
        pending += ends
    return seen


def _check_targets(node: Node, targets: Array, count: int) -> None:
    if targets.size and not 0 <= targets.min() <= targets.max() < count:
        raise TypeMismatchError(
            f"a leaf of {node.op.op_type} has target {int(targets.max())} of {count}",
            hint=f"use targets and classes from 0 to {count - 1}",
        )


def of_tensors(node: Node) -> Ensemble:
    """The ensemble of TreeEnsemble, where flags mark branches that lead to leaves."""
    modes, splits, weights = (
        np.asarray(node.value(name)).reshape(-1)
        for name in ("nodes_modes", "nodes_splits", "leaf_weights")
    )
    count = len(modes)
    ends = {
        side: _ends(node, node.integers(f"nodes_{side}nodeids"), f"nodes_{side}leafs", count)
        for side in ("true", "false")
    }
    features, members = node.integers("nodes_featureids"), _members(node, modes)
    missing = node.integers(TRACKS) or (0,) * count
    lists = {"nodes_featureids": features, "nodes_splits": splits, TRACKS: missing}
    for name, given in lists.items():
        if len(given) != count:
            raise TypeMismatchError(
                f"`{name}` of TreeEnsemble has {len(given)} entries for {count} nodes",
                hint="lists whose names begin with `nodes_` must have one entry per node",
            )
    branches = {
        place: Branch(
            features[place],
            int(modes[place]),
            members.get(place, [float(splits[place])]),
            ends["true"][place],
            ends["false"][place],
            bool(missing[place]),
        )
        for place in range(count)
    }
    leaves = {count + at: at for at in range(len(weights))}
    strangers = {end for side in ends.values() for end in side} - {*branches, *leaves}
    if strangers or {*node.integers("tree_roots")} - {*branches}:
        raise TypeMismatchError(
            "a branch or a root of TreeEnsemble is not one of its nodes",
            hint="nodes and leaves are numbered from 0",
        )
    # Single-leaf trees need no special case: they are written as a branch to that leaf twice.
    forest = Planting(branches, leaves, computed_in(node).numpy).forest(node.integers("tree_roots"))
    targets = np.array(node.integers("leaf_targetids"), np.int64)
    if len(targets) != len(weights):
        raise TypeMismatchError(
            f"TreeEnsemble has {len(targets)} targets for {len(weights)} leaves",
            hint="give one element of `leaf_targetids` per element of `leaf_weights`",
        )
    n_targets = node.integer("n_targets", 1)
    _check_targets(node, targets, n_targets)
    return Ensemble(forest, np.arange(len(weights)), targets, weights, n_targets)


def _ends(node: Node, places: Sequence[int], flags: str, count: int) -> list[int]:
    """The successors of branches; leaves are numbered after the branches."""
    are_leaves = node.integers(flags)
    if not len(places) == len(are_leaves) == count:
        raise TypeMismatchError(
            f"`{flags}` of TreeEnsemble has {len(are_leaves)} entries for {count} nodes",
            hint="lists whose names begin with `nodes_` must have one entry for each node",
        )
    return [count + at if leaf else at for at, leaf in zip(places, are_leaves, strict=True)]


def _members(node: Node, modes: Array) -> dict[int, list[float]]:
    """The sets of MEMBER branches: runs of `membership_values`, each terminated by NaN."""
    places = np.flatnonzero(modes == MEMBER).tolist()
    if not places:
        return {}
    values = np.asarray(node.value("membership_values")).reshape(-1).astype(float)
    after = np.flatnonzero(np.isnan(values)) + 1
    sets = [part[~np.isnan(part)].tolist() for part in np.split(values, after)]
    if not sets[-1]:
        sets.pop()
    if len(sets) < len(places):
        raise TypeMismatchError(
            f"TreeEnsemble has {len(sets)} sets for {len(places)} branches of mode MEMBER",
            hint="give `membership_values` one set per such branch, each followed by NaN",
        )
    return dict(zip(places, sets, strict=False))
