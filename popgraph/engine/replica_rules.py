"""Update rules for several replicas, where each group of a weight is a separate variable."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import replace

from popgraph.passes.optimizer_spec import ClipNorm, OptimizerSpec, Scalar, Specific
from popgraph.passes.replication import Replication


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
