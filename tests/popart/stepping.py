"""One training step, for tests of gradients and losses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import popgraph.popart as popart
from popgraph.popart.api.losses import Loss
from popgraph.support.arrays import Array


def one_step(
    builder: popart.Builder, loss: str | Loss, wanted: Sequence[str], inputs: Mapping[str, Array]
) -> Mapping[str, Array]:
    """The anchors of a step on the reference backend, with learning rate 0.5."""
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, list(wanted)),
        loss,
        popart.ConstSGD(0.5),
        popart.DeviceManager().createCpuDevice(backend="reference"),
    )
    session.prepareDevice()
    session.weightsFromHost()
    anchors = session.initAnchorArrays()
    session.run(popart.PyStepIO(dict(inputs), anchors))
    return anchors
