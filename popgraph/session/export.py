"""Export of a trained model with its weights, and the import of weights from another model."""

from __future__ import annotations

from collections.abc import Mapping

from popgraph.builder.onnx.write import export_model
from popgraph.dialects.onnx import model_of
from popgraph.dialects.onnx.attributes import TensorAttr
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.session.model import SessionModel, Source, open_model
from popgraph.support.arrays import Array
from popgraph.training.trained_weights import put_weights


def weights_of(source: Source) -> dict[str, Array]:
    """The weights in a model, by name."""
    module, weights = open_model(source)
    initializers = weights_by_name(model_of(module).graph)
    return {name: op.array(weights) for name, op in initializers.items()}


def model_with_weights(model: SessionModel, weights: Mapping[str, Array]) -> bytes:
    """
    The model with these weights; what it has no tensor for (optimizer state) is added.

    Their numbers stand in typed fields, such as `float_data`, where PopART's programs look.
    """
    module = model.module.clone()
    put_weights(module, weights, model.weights)
    held = weights_by_name(model_of(module).graph)
    for name in weights:
        tensor = held[name].properties["value"]
        assert isinstance(tensor, TensorAttr)
        held[name].properties["value"] = tensor.typed()
    return bytes(export_model(module, model.weights).SerializeToString())
