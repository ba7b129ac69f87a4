"""PopDist's module `popdist`: which part of a distributed job this process is."""

from __future__ import annotations

from popgraph.compat.popdist import popart
from popgraph.support.ranks.launched import is_launched
from popgraph.support.ranks.world import world

__all__ = [
    "barrier",
    "getGlobalReplicaOffset",
    "getInstanceIndex",
    "getNumInstances",
    "getNumIpusPerReplica",
    "getNumLocalReplicas",
    "getNumTotalReplicas",
    "init",
    "isPopdistEnvSet",
    "popart",
]


def init() -> None:
    """Finds the other processes."""
    world()


def isPopdistEnvSet() -> bool:
    """Whether the process was started as one of several."""
    return is_launched()


def getNumInstances() -> int:
    """How many processes there are."""
    return world().size


def getInstanceIndex() -> int:
    """The number of this one."""
    return world().rank


def getNumTotalReplicas() -> int:
    """How many replicas all processes have: one each."""
    return world().size


def getNumLocalReplicas() -> int:
    """How many replicas this process has."""
    return 1


def getGlobalReplicaOffset() -> int:
    """The number that the first replica of this process has among all."""
    return world().rank


def getNumIpusPerReplica() -> int:
    """How many IPUs a replica has; this machine stands for as many as are wanted."""
    return 1


def barrier() -> None:
    """Waits for all processes."""
    world().barrier()
