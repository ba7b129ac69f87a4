"""Ensembles of trees as their nodes write them: lists or tensors, read into one form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Sized
from dataclasses import dataclass

import numpy as np

from popgraph.operators.forests import (
    LEAF,
    MEMBER,
    MODES,
    Branch,
    Forest,
    Places,
    Planting,
)
from popgraph.operators.node import Node
from popgraph.operators.scores import computed_in
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError

TRACKS = "nodes_missing_value_tracks_true"


@dataclass(frozen=True)
class Ensemble:
    """A forest, and for each of its leaves what it adds to each target."""

    forest: Forest
    leaves: Places
    targets: Places
    weights: Array
    """Of each entry, its leaf, its target and its weight: a leaf may have several."""
    count: int
    """How many targets there are."""


def numbers_of(node: Node, name: str) -> Array:
    """A list of numbers, which may be a tensor of double precision instead."""
    if node.has(f"{name}_as_tensor"):
        found = np.asarray(node.value(f"{name}_as_tensor")).reshape(-1)
        if found.size:
            return found
    return np.array(node.reals(name), np.float32)


def of_lists(node: Node, prefix: str, ids: str, count: int) -> Ensemble:
    """The ensemble of a classifier or regressor: lists of nodes, and of weights of leaves."""
    keys = _pairs(node, "nodes_treeids", "nodes_nodeids")
    number = {key: place for place, key in enumerate(keys)}
    if len(number) < len(keys):
        raise TypeMismatchError(
            f"a node of {node.op.op_type} stands twice",
            hint="a tree number and a node number name one node",
        )
    modes = node.texts("nodes_modes")
    branches = _branches(node, keys, number)
    leaf_places = [place for place, mode in enumerate(modes) if mode == LEAF]
    leaves = {place: at for at, place in enumerate(leaf_places)}
    forest = Planting(branches, leaves, computed_in(node).numpy).forest(_roots(keys, branches))
    return Ensemble(forest, *_entries(node, prefix, ids, number, leaves, count), count)


def _branches(
    node: Node, keys: Sequence[tuple[int, int]], number: Mapping[tuple[int, int], int]
) -> dict[int, Branch]:
    """The nodes that are no leaves, by their places in the lists."""
    _check_lengths(node, len(keys))
    values = numbers_of(node, "nodes_values")
    yes, no = node.integers("nodes_truenodeids"), node.integers("nodes_falsenodeids")
    missing = node.integers(TRACKS) or (0,) * len(keys)
    features = node.integers("nodes_featureids")

    def child(place: int, name: int) -> int:
        found = number.get((keys[place][0], name))
        if found is None:
            raise TypeMismatchError(
                f"tree {keys[place][0]} of {node.op.op_type} has no node {name}",
                hint="branches lead to nodes of their tree",
            )
        return found

    return {
        place: Branch(
            features[place],
            _mode(node, mode),
            [float(values[place])],
            child(place, yes[place]),
            child(place, no[place]),
            bool(missing[place]),
        )
        for place, mode in enumerate(node.texts("nodes_modes"))
        if mode != LEAF
    }


def _entries(
    node: Node,
    prefix: str,
    ids: str,
    number: Mapping[tuple[int, int], int],
    leaves: Mapping[int, int],
    count: int,
) -> tuple[Places, Places, Array]:
    """Of each weight of a leaf, the leaf, the target and the weight."""
    entries = _pairs(node, f"{prefix}_treeids", f"{prefix}_nodeids")
    if strangers := [key for key in entries if key not in number]:
        raise TypeMismatchError(
            f"tree {strangers[0][0]} of {node.op.op_type} has no node {strangers[0][1]}",
            hint="weights are of leaves of the trees",
        )
    found = [number[key] for key in entries]
    kept = [at for at, place in enumerate(found) if place in leaves]
    targets = np.array(node.integers(ids), np.int64)
    weights = numbers_of(node, f"{prefix}_weights")
    if not len(found) == len(targets) == len(weights):
        raise TypeMismatchError(
            f"{node.op.op_type} has {len(weights)} weights for {len(targets)} entries of leaves",
            hint=f"the lists whose names begin with `{prefix}_` have the same length",
        )
    _check_targets(node, targets, count)
    places = np.array([leaves[found[at]] for at in kept], np.int64)
    return places, targets[kept], weights[kept]


def _mode(node: Node, word: str) -> int:
    if word not in MODES:
        raise node.unsupported(f"the mode {word!r}", f"one of {', '.join([*MODES, LEAF])}")
    return MODES[word]


def _pairs(node: Node, first: str, second: str) -> list[tuple[int, int]]:
    firsts, seconds = node.integers(first), node.integers(second)
    if len(firsts) != len(seconds):
        raise TypeMismatchError(
            f"`{first}` has {len(firsts)} numbers, `{second}` {len(seconds)}",
            hint="both have one for each node",
        )
    return list(zip(firsts, seconds, strict=True))


def _check_lengths(node: Node, count: int) -> None:
    """Every list of nodes has an entry for each; what may be absent may be empty."""
    lists: dict[str, Sized] = {"nodes_modes": node.texts("nodes_modes")}
    lists["nodes_values"] = numbers_of(node, "nodes_values")
    for name in ("nodes_featureids", "nodes_truenodeids", "nodes_falsenodeids", TRACKS):
        lists[name] = node.integers(name)
    for name, given in lists.items():
        if len(given) != count and (len(given) or name != TRACKS):
            raise TypeMismatchError(
                f"`{name}` of {node.op.op_type} has {len(given)} entries for {count} nodes",
                hint="lists whose names begin with `nodes_` have one for each, leaves as well",
            )


def _roots(keys: Sequence[tuple[int, int]], branches: dict[int, Branch]) -> list[int]:
    """For each tree, in their order, the node to which no branch leads."""
    inner = {place for one in branches.values() for place in (one.yes, one.no)}
    roots: dict[int, list[int]] = {tree: [] for tree, _ in keys}
    for place, (tree, _) in enumerate(keys):
        if place not in inner:
            roots[tree].append(place)
    for tree, found in roots.items():
        if len(found) != 1:
            raise TypeMismatchError(
                f"tree {tree} has {len(found)} nodes to which no branch leads",
                hint="that is the root, and there is one in each tree",
            )
    starts = [place for (place,) in roots.values()]
    if len(_reached(starts, branches)) < len(keys):
        raise TypeMismatchError(
            "a tree has a branch that leads back to itself",
            hint="no branch of a tree is among those that follow it",
        )
    return starts


def _reached(starts: Sequence[int], branches: dict[int, Branch]) -> set[int]:
    """The nodes to which branches lead from these, and these."""
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
            hint="targets and classes are counted from 0",
        )


def of_tensors(node: Node) -> Ensemble:
    """The ensemble of TreeEnsemble: branches lead to branches or leaves, as flags say."""
    modes = np.asarray(node.value("nodes_modes")).reshape(-1)
    splits = np.asarray(node.value("nodes_splits")).reshape(-1)
    weights = np.asarray(node.value("leaf_weights")).reshape(-1)
    count = len(modes)
    ends = {
        side: _ends(node, node.integers(f"nodes_{side}nodeids"), f"nodes_{side}leafs", count)
        for side in ("true", "false")
    }
    features, members = node.integers("nodes_featureids"), _members(node, modes)
    missing = node.integers(TRACKS) or (0,) * count
    for name, given in (
        ("nodes_featureids", features),
        ("nodes_splits", splits),
        (TRACKS, missing),
    ):
        if len(given) != count:
            raise TypeMismatchError(
                f"`{name}` of TreeEnsemble has {len(given)} entries for {count} nodes",
                hint="lists whose names begin with `nodes_` have one for each node",
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
            "a branch or a root of TreeEnsemble is none of its nodes",
            hint="nodes and leaves are counted from 0",
        )
    # A tree of one leaf is written as a branch that leads to it either way.
    forest = Planting(branches, leaves, computed_in(node).numpy).forest(node.integers("tree_roots"))
    targets = np.array(node.integers("leaf_targetids"), np.int64)
    if len(targets) != len(weights):
        raise TypeMismatchError(
            f"TreeEnsemble has {len(targets)} targets for {len(weights)} leaves",
            hint="`leaf_targetids` has one for each of `leaf_weights`",
        )
    n_targets = node.integer("n_targets", 1)
    _check_targets(node, targets, n_targets)
    return Ensemble(forest, np.arange(len(weights)), targets, weights, n_targets)


def _ends(node: Node, places: Sequence[int], flags: str, count: int) -> list[int]:
    """Where branches lead: leaves are counted behind the branches."""
    are_leaves = node.integers(flags)
    if not len(places) == len(are_leaves) == count:
        raise TypeMismatchError(
            f"`{flags}` of TreeEnsemble has {len(are_leaves)} entries for {count} nodes",
            hint="lists whose names begin with `nodes_` have one entry for each node",
        )
    return [count + at if leaf else at for at, leaf in zip(places, are_leaves, strict=True)]


def _members(node: Node, modes: Array) -> dict[int, list[float]]:
    """The sets of branches that ask for membership: lists that end with NaN."""
    places = np.flatnonzero(modes == MEMBER).tolist()
    if not places:
        return {}
    values = np.asarray(node.value("membership_values")).reshape(-1).astype(float)
    sets: list[list[float]] = [[]]
    for value in values.tolist():
        if np.isnan(value):
            sets.append([])
        else:
            sets[-1].append(value)
    if not sets[-1]:
        sets.pop()
    if len(sets) < len(places):
        raise TypeMismatchError(
            f"TreeEnsemble has {len(sets)} sets for {len(places)} branches that ask for members",
            hint="`membership_values` has a set for each, with NaN behind it",
        )
    return dict(zip(places, sets, strict=False))
