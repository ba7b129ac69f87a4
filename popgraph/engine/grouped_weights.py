"""Grouped weights, whose values differ between groups of replicas, and their update rules."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from popgraph.engine.plan import StepPlan
from popgraph.passes.optimizer_spec import ClipNorm, OptimizerSpec, Scalar, Specific
from popgraph.passes.replication import Replication
from popgraph.support.arrays import Array
from popgraph.support.errors import UnsupportedError
from popgraph.support.replicas import Grouping, grouped


@dataclass(frozen=True)
class GroupedWeight:
    """A weight that not all replicas share, or that returns more than one value."""

    first: Array
    """The initial values, stacked by group; not stacked for a single group."""
    replicas: int
    grouping: Grouping
    """The stride between replicas of a group, and the group's size."""
    of_each: bool = False
    """Whether the values of all replicas are returned."""

    @property
    def groups(self) -> list[list[int]]:
        """The replicas of each group."""
        return grouped(self.replicas, *self.grouping)

    @property
    def is_stacked(self) -> bool:
        """Whether arrays hold one value per group."""
        return len(self.groups) > 1

    @property
    def returned(self) -> list[int]:
        """The group of each returned value; empty if a single value is returned."""
        return self.held if self.of_each else []

    @property
    def held(self) -> list[int]:
        """The group of each replica."""
        found = {replica: at for at, group in enumerate(self.groups) for replica in group}
        return [found[replica] for replica in range(self.replicas)]


Grouped = Mapping[str, GroupedWeight]


def replication_of(
    weights_of_groups: Grouped,
    plan: StepPlan,
    shared: Iterable[str],
    weights: Collection[str],
    rule: OptimizerSpec | None,
) -> Replication:
    """
    The replicas of the program of one rank.

    Gradients that are clipped together but belong to different groups give each replica a norm of
    its own, so each replica gets its own copy of these weights.
    """
    groups, of_processes = {}, {}
    for id, one in weights_of_groups.items():
        groups[id], of_processes[id] = _split_grouping(*one.grouping, plan, id)
    everyone = (1, plan.replicas)
    added: dict[str, tuple[int, int]] = {}
    for clip in rule.clip if rule is not None else ():
        together = {id: groups.get(id, everyone) for id in clip.weights or weights}
        if len(set(together.values())) > 1:
            added |= together
    own = groups | dict.fromkeys(added, (1, 1))
    return Replication(
        plan.replicas,
        tuple(sorted(shared)),
        tuple((id, *pair) for id, pair in sorted(own.items())),
        tuple((id, *pair) for id, pair in sorted(added.items())),
        plan.ranks,
        plan.rank,
        tuple((id, *pair) for id, pair in sorted(of_processes.items())) if plan.ranks > 1 else (),
    )


def _split_grouping(stride: int, size: int, plan: StepPlan, id: str) -> tuple[Grouping, Grouping]:
    """Splits groups of replicas into groups within a process and groups of processes."""
    local = plan.replicas
    if local % (stride * size) == 0:
        return (stride, size), (1, 1)
    if local % stride == 0 and stride * size % local == 0:
        return (stride, local // stride), (1, stride * size // local)
    if stride % local == 0:
        return (1, 1), (stride // local, size)
    raise UnsupportedError(
        f"groups of {size} replicas with stride {stride} do not divide evenly among processes of "
        f"{local} replicas",
        f"the weight {id}",
        "a number of replicas per process that divides the groups, or is a multiple of them",
    )


def rule_of_replicas(
    rule: OptimizerSpec, replicas: Replication, weights: Collection[str]
) -> OptimizerSpec:
    """Extends the settings of each weight to the variables of its groups."""
    for id, stride, ranks in replicas.told:
        for name in dict.fromkeys(replicas.variables(id)):
            numbers = {"ranks": ranks, "rank_stride": stride}
            own = (Specific(name, key, Scalar(float(one))) for key, one in numbers.items())
            rule = replace(rule, specific=(*rule.specific, *own))
    if replicas.count == 1:
        return rule
    specific = [
        replace(one, weight=name)
        for one in rule.specific
        for name in dict.fromkeys(replicas.variables(one.weight))
    ]
    for id in weights if rule.keeps_means else ():
        size = Scalar(len(replicas.adding(id)[0]))
        names = dict.fromkeys(replicas.variables(id))
        specific += [Specific(name, "at_once", size) for name in names]
    clip = [part for one in rule.clip for part in _clipped_together(one, replicas, weights)]
    return replace(
        rule, specific=tuple(specific), clip=tuple(clip), at_once=replicas.count, in_turn=1
    )


def _clipped_together(
    clip: ClipNorm, replicas: Replication, weights: Collection[str]
) -> Iterator[ClipNorm]:
    """One clipping rule per replica, for its copies of the clipped weights."""
    names = sorted(clip.weights or weights)
    copies = zip(*(replicas.variables(id) for id in names), strict=True)
    for own in dict.fromkeys(copies):
        yield replace(clip, weights=own)
