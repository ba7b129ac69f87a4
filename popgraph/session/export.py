"""Export of a trained model with its weights, and the import of weights from another model."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.rewriter import Rewriter

from popgraph.builder.onnx.write import export_model
from popgraph.dialects.onnx import Initializer, model_of
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.session.model import SessionModel, Source, open_model
from popgraph.support.arrays import Array


def weights_of(source: Source) -> dict[str, Array]:
    """The weights in a model, by name."""
    module, weights = open_model(source)
    initializers = model_of(module).graph.initializers
    return {op.value_name.text: op.array(weights) for op in initializers}


def model_with_weights(model: SessionModel, weights: Mapping[str, Array]) -> bytes:
    """The model with these weights; what it has no tensor for (optimizer state) is added."""
    module = model.module.clone()
    block = model_of(module).graph.block
    held = {op.value_name.text: op for op in model_of(module).graph.initializers}
    first = block.first_op
    assert first is not None, "a graph ends with onnx.Yield"
    for name, array in weights.items():
        old = held.get(name)
        place = 0 if old is None or old.place is None else old.place.value.data
        value = from_value(array, model.weights)
        new = Initializer(name, value, None if old is None else old.input, place)
        block.insert_op_before(new, first if old is None else old)
        if old is not None:
            old.result.replace_all_uses_with(new.result)
            Rewriter.erase_op(old)
            first = new if old is first else first
    return bytes(export_model(module, model.weights).SerializeToString())
