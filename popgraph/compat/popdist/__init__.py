"""PopDist's module `popdist`: which part of a distributed job this process is."""

from __future__ import annotations

from collections.abc import Callable, Collection
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from popgraph.compat.popdist.processes import job, sessions_are_split
from popgraph.support.ranks.launched import is_launched

if TYPE_CHECKING:
    from popgraph.compat.popdist import popart as popart

__all__ = [
    "barrier",
    "checkNumIpusPerReplica",
    "execute_on_instances",
    "getDeviceId",
    "getGlobalReplicaOffset",
    "getInstanceIndex",
    "getNumInstances",
    "getNumIpusPerReplica",
    "getNumLocalReplicas",
    "getNumTotalReplicas",
    "getReplicaIndexOffset",
    "init",
    "isPopdistEnvSet",
    "popart",
    "synchronize",
]

Given = ParamSpec("Given")
Result = TypeVar("Result")


def __getattr__(name: str) -> ModuleType:
    if name != "popart":
        raise AttributeError(f"module 'popdist' has no attribute {name!r}")
    return import_module(f"{__name__}.popart")


def init() -> None:
    """Finds the other processes."""
    job()


def isPopdistEnvSet() -> bool:
    """Whether the process was started as one of several that know of each other."""
    return is_launched() and not sessions_are_split()


def getNumInstances() -> int:
    """How many processes there are."""
    return job().size


def getInstanceIndex() -> int:
    """The number of this one."""
    return job().rank


def getNumTotalReplicas() -> int:
    """How many replicas all processes have: one each."""
    return job().size


def getNumLocalReplicas() -> int:
    """How many replicas this process has."""
    return 1


def getReplicaIndexOffset() -> int:
    """The number that the first replica of this process has among all."""
    return job().rank


getGlobalReplicaOffset = getReplicaIndexOffset


def getNumIpusPerReplica() -> int:
    """How many IPUs a replica has; this machine stands for as many as are wanted."""
    return 1


def checkNumIpusPerReplica(numIpus: int) -> bool:
    """Whether a replica may have so many IPUs."""
    return numIpus > 0


def getDeviceId(numIpusPerReplica: int = 1) -> int:
    """The device of this process; each has one of its own."""
    return 0


def execute_on_instances(
    instances: Collection[int],
    function: Callable[Given, Result],
    *args: Given.args,
    **named: Given.kwargs,
) -> Result | None:
    """What a function gives on some of the processes, while all others wait; on these, None."""
    result = function(*args, **named) if getInstanceIndex() in instances else None
    barrier()
    return result


def barrier() -> None:
    """Waits for all processes."""
    job().barrier(patient=True)


synchronize = barrier
