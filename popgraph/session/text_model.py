"""Sessions from `.pgraph` texts: the model, and its `train` section."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from popgraph.builder.onnx.write import export_model
from popgraph.builder.opset.exceptions import as_popart_errors, popart_exception
from popgraph.builder.pgraph import Schedule, load
from popgraph.session.optimizer_text import popart_optimizer, rule_of
from popgraph.session.optimizers import Optimizer


@dataclass(frozen=True)
class TextTraining:
    """What the `train` section of a text says."""

    model: bytes
    """The graph with its loss, as ONNX."""
    loss: str
    optimizer: Optimizer | None
    schedule: Schedule | None


def is_text(source: Any) -> bool:
    """Whether a model is a `.pgraph` file."""
    return isinstance(source, str | Path) and Path(source).suffix == ".pgraph"


def model_of_text(source: str | Path) -> bytes:
    """The first graph of a text, as ONNX."""
    document = load(source)
    return bytes(export_model(document.module, document.weights).SerializeToString())


def training_of_text(source: str | Path) -> TextTraining:
    """How a text says that its first graph is trained."""
    with as_popart_errors():
        document = load(source)
        section = document.training
        if section is None:
            raise popart_exception(
                "this text does not say how it is trained",
                str(source),
                "`train (labels: i32[N]) { loss = nll(y, labels) }`, or give loss and optimizer",
            )
        model = export_model(section.module, document.weights).SerializeToString()
        optimizer = None
        if section.optimizer is not None:
            optimizer = popart_optimizer(rule_of(section.optimizer, section.schedule))
    return TextTraining(model, section.loss, optimizer, section.schedule)
