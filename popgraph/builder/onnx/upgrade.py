"""Converts models to a later operator set."""

from __future__ import annotations

from onnx import ModelProto, helper, version_converter

from popgraph.support.errors import ModelError


def upgraded(model: ModelProto, opset: int) -> ModelProto:
    """The model with the standard operators of at least this version, and a fitting IR version."""
    current = {one.domain: one.version for one in model.opset_import}.get("", 1)
    made = model
    if current < opset:
        try:
            made = version_converter.convert_version(model, opset)
        except Exception as error:  # The converter raises RuntimeError and its own errors.
            raise ModelError(
                f"the model has operator set {current}, and its conversion to {opset} failed",
                "onnx.version_converter",
                f"export it with opset {opset} or later ({error})",
            ) from error
    oldest = helper.find_min_ir_version_for(list(made.opset_import), ignore_unknown=True)
    made.ir_version = max(made.ir_version, oldest)
    return made
