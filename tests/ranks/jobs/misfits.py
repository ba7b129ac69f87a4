"""Run on every rank: sessions that do not fit the ranks that there are, or each other."""

from __future__ import annotations

import popgraph.session as popart
from popgraph.support.ranks.world import world
from tests.ranks.jobs.sessions import network

RANK = world().rank


def prepared(total: int, message_type: str = "") -> None:
    """Says why a session for so many replicas cannot be prepared."""
    model, loss = network()
    options = popart.SessionOptions()
    options.enableDistributedReplicatedGraphs, options.exchangeType = True, message_type
    options.globalReplicationFactor, options.globalReplicaOffset = total, RANK
    flow, device = popart.DataFlow(1, [loss]), popart.DeviceManager().createCpuDevice()
    session = popart.TrainingSession(
        model, flow, loss, popart.ConstSGD(0.1), device, userOptions=options
    )
    try:
        session.prepareDevice()
    except popart.popart_exception as error:
        print(str(error).replace(f"rank {RANK} of", "rank 0 of"), flush=True)


prepared(4)
prepared(2, "f16" if RANK else "")
