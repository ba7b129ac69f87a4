"""Runs on every rank: trains once for each task and prints the weights and the history."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

import popgraph
from popgraph.support.ranks.world import world

NLL = "nll(y, labels)"
SUM = 'ai.graphcore.nllloss(y, labels, reduction="Sum")'

TEXT = """
opset 21

graph net(x: f32[N, 6]) -> (y: f32[N, 3]) {
    weight w1: f32[6, 8] = glorot_uniform(seed=1)
    weight w2: f32[8, 3] = glorot_uniform(seed=2)
    h = Tanh(x @ w1)
    y = Softmax(h @ w2, axis=-1)
}
"""


def killing_at(step: int) -> Callable[[int], float]:
    """A schedule that kills the last rank at this step."""

    def factor(at: int) -> float:
        if step and at == step and world().rank == world().size - 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return 1.0

    return factor


def trained(
    *,
    loss: str = NLL,
    epochs: int = 3,
    checkpoint: str = "",
    dies: int = 0,
    accumulate: int = 1,
    clip: float | None = None,
) -> dict[str, Any]:
    """The weights and the history of a training that may be interrupted and resumed from a file."""
    random = np.random.default_rng(0)
    x = random.normal(size=(50, 6)).astype(np.float32)
    labels = (x[:, :3].argmax(axis=1)).astype(np.int32)
    trainer = popgraph.Trainer(
        TEXT,
        loss,
        "SGD(0.2, momentum=0.9)",
        schedule=killing_at(dies),
        metrics="accuracy",
        accumulate=accumulate,
        clip=clip,
        backend="reference",
    )
    trainer.fit(
        {"x": x, "labels": labels},
        epochs=epochs,
        batch=12,
        drop_last=True,
        validation={"x": x[:7], "labels": labels[:7]},
        checkpoint=checkpoint or None,
        every=3 if checkpoint else None,
        resume=bool(checkpoint),
    )
    return {
        "weights": {name: one.tolist() for name, one in trainer.weights().items()},
        "rows": [
            {k: v for k, v in row.items() if k != "seconds"} for row in trainer.history.epochs
        ],
        "steps": [row["step"] for row in trainer.history.steps],
    }


if __name__ == "__main__":
    for task in sys.argv[1:]:
        result = json.dumps(trained(**json.loads(task)))
        if world().is_first:
            print(result, flush=True)
