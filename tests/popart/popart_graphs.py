"""PopART's IR of small models, as `_serializeIr` writes it."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

import popgraph.popart as popart
from popgraph.popart.api.builder import Builder

Graphs = dict[str, list[dict[str, Any]]]


def ir_of(session: Any) -> Graphs:
    found: Graphs = json.loads(session._serializeIr(popart.IrSerializationFormat.JSON))
    return found


def types(graphs: Graphs, graph: str = "maingraph") -> list[str]:
    return [op["type"] for op in graphs[graph]]


def options(**given: object) -> popart.SessionOptions:
    made = popart.SessionOptions()
    made.enableOutlining = made.enableMergeExchange = False
    for name, value in given.items():
        setattr(made, name, value)
    return made


def minimal(*more: str) -> popart.Patterns:
    """PopART's minimal patterns, and `more`."""
    found = popart.Patterns(popart.PatternsLevel.Minimal)
    for name in more:
        found.enablePattern(name, True)
    return found


def weight(builder: Builder, *shape: int, name: str = "w") -> str:
    return str(builder.addInitializedInputTensor(np.ones(shape, np.float32), name))


def trained(
    builder: Builder,
    loss: str,
    *anchors: str,
    optimizer: Any = None,
    patterns: popart.Patterns | None = None,
    given: popart.SessionOptions | None = None,
    device: Any = None,
) -> Graphs:
    session = popart.TrainingSession(
        builder.getModelProto(),
        popart.DataFlow(1, [loss, *anchors]),
        loss,
        optimizer or popart.ConstSGD(0.1),
        device,
        patterns=patterns,
        userOptions=given or options(),
    )
    return ir_of(session)


def inferred(
    builder: Builder,
    *anchors: str,
    patterns: popart.Patterns | None = None,
    given: popart.SessionOptions | None = None,
    device: Any = None,
) -> Graphs:
    session = popart.InferenceSession(
        builder.getModelProto(),
        popart.DataFlow(1, list(anchors)),
        device,
        patterns=patterns,
        userOptions=given or options(),
    )
    return ir_of(session)


def layers(builder: Builder, count: int) -> str:
    """Adds `count` dense layers and a loss; the name of the loss."""
    value = builder.addInputTensor("FLOAT", [8, 4], "x")
    labels = builder.addInputTensor("INT32", [8], "labels")
    for number in range(count):
        matrix = weight(builder, 4, 4, name=f"w{number}")
        value = builder.aiOnnx.relu([builder.aiOnnx.matmul([value, matrix])])
    return str(builder.aiGraphcore.nllloss([builder.aiOnnx.softmax([value], 1), labels]))
