"""Random inputs of a model with static shapes."""

from __future__ import annotations

from xdsl.dialects.builtin import ModuleOp, TensorType

from popgraph.backends.reference import signature
from popgraph.dialects.element_types import from_ir, is_number
from popgraph.dialects.onnx.types import describe, static_shape
from popgraph.measure.timing import random_model_inputs
from popgraph.support.arrays import Array
from popgraph.support.errors import RunError


def random_inputs(module: ModuleOp) -> dict[str, Array]:
    """Random arrays; RunError if an input is not a numeric tensor or has unknown sizes."""
    types = {}
    for name, type_ in signature(module).items():
        if not isinstance(type_, TensorType) or not is_number(type_.element_type):
            raise RunError(
                f"input {name!r} is {describe(type_)}: only numeric tensors can be generated",
                hint="run the model from Python, where inputs of all kinds can be given",
            )
        if static_shape(type_) is None:
            raise RunError(
                f"input {name!r} is {describe(type_)}: its sizes are unknown",
                hint="give the sizes of symbolic dimensions",
            )
        types[name] = from_ir(type_.element_type), type_.get_shape()
    return random_model_inputs(types)
