"""PopDist's module `popdist.popart`: sessions of a distributed job."""

from __future__ import annotations

from popgraph.compat.popdist.processes import job
from popgraph.popart.api.devices import DeviceInfo, DeviceManager
from popgraph.popart.api.options import SessionOptions


def configureSessionOptions(options: SessionOptions) -> None:
    """Configures this process as one replica of the job."""
    here = job()
    options.enableDistributedReplicatedGraphs = here.size > 1
    options.enableReplicatedGraphs, options.replicatedGraphCount = False, 1
    options.globalReplicationFactor, options.globalReplicaOffset = here.size, here.rank


def getDevice(numIpus: int = 1) -> DeviceInfo:
    """IPUs emulated by this machine."""
    return DeviceManager().acquireAvailableDevice(numIpus)
