"""PopDist's module `popdist`: the position of this process in a distributed job."""

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
    """Whether the process was started as part of a distributed job."""
    return is_launched() and not sessions_are_split()


def getNumInstances() -> int:
    """The number of processes."""
    return job().size


def getInstanceIndex() -> int:
    """The index of this process."""
    return job().rank


def getNumTotalReplicas() -> int:
    """The number of replicas of all processes: one each."""
    return job().size


def getNumLocalReplicas() -> int:
    """The number of replicas of this process."""
    return 1


def getReplicaIndexOffset() -> int:
    """The global index of this process's first replica."""
    return job().rank


getGlobalReplicaOffset = getReplicaIndexOffset


def getNumIpusPerReplica() -> int:
    """The number of IPUs per replica; any number is accepted."""
    return 1


def checkNumIpusPerReplica(numIpus: int) -> bool:
    """Whether a replica may have this number of IPUs."""
    return numIpus > 0


def getDeviceId(numIpusPerReplica: int = 1) -> int:
    """The device of this process."""
    return 0


def execute_on_instances(
    instances: Collection[int],
    function: Callable[Given, Result],
    *args: Given.args,
    **named: Given.kwargs,
) -> Result | None:
    """Runs a function on some processes while all others wait; returns None on these."""
    result = function(*args, **named) if getInstanceIndex() in instances else None
    barrier()
    return result


def barrier() -> None:
    """Waits for all processes."""
    job().barrier(patient=True)


synchronize = barrier
