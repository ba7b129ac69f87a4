"""Converts trained models to inference form: running statistics, no dropout."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from xdsl.dialects.builtin import IntegerAttr, ModuleOp, i64
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.onnx import SchemaOp, model_of
from popgraph.dialects.onnx.schemas import op_class
from popgraph.dialects.onnx.types import UNKNOWN

RUNNING = (3, 4, 3, 4)
"""BatchNormalization: the input that replaces each output after the first."""
TRAINING_MODE_ATTRIBUTE = 14
"""The opset from which BatchNormalization has the attribute `training_mode`."""
TRAINING_MODE_INPUT = 12
"""The opset from which Dropout has the input `training_mode`."""
WITHOUT_IS_TEST = 7
"""The opset from which neither operator has the attribute `is_test`."""


def to_inference(module: ModuleOp) -> None:
    """Puts BatchNormalization and Dropout of a model at the onnx level into inference form."""
    for op in list(model_of(module).walk()):
        if isinstance(op, SchemaOp) and op.domain == "":
            if op.op_type == "BatchNormalization":
                _use_running_statistics(op)
            elif op.op_type == "Dropout":
                _disable_dropout(op)


def _use_running_statistics(op: SchemaOp) -> None:
    """Keeps only the first output; readers of the others get the running statistics."""
    attributes = dict(op.onnx_attributes())
    if op.since_version < WITHOUT_IS_TEST:
        attributes["is_test"] = IntegerAttr(1, i64)
    if op.since_version >= TRAINING_MODE_ATTRIBUTE:
        attributes["training_mode"] = IntegerAttr(0, i64)
    inputs = op.input_values()
    pairs = zip(op.output_names[1:], op.output_values()[1:], RUNNING, strict=False)
    for name, value, index in pairs:
        source = inputs[index]
        if value is not None and value.uses and source is not None:
            _copy(op, source, name, value)
    _replace(op, inputs, attributes, op.output_names[:1])


def _copy(op: SchemaOp, source: SSAValue, name: str, value: SSAValue) -> None:
    """Inserts `Identity` of a value, under the name of an output that nothing computes any more."""
    version = 1 if op.since_version < TRAINING_MODE_ATTRIBUTE else TRAINING_MODE_ATTRIBUTE
    made = op_class("Identity", version).make([source], {}, {}, [name], [source.type], {})
    block = op.parent
    assert block is not None, "a node is in a graph"
    block.insert_op_before(made, op)
    value.replace_all_uses_with(made.results[0])


def _disable_dropout(op: SchemaOp) -> None:
    attributes, inputs = dict(op.onnx_attributes()), op.input_values()
    if op.since_version < WITHOUT_IS_TEST:
        attributes["is_test"] = IntegerAttr(1, i64)
    if op.since_version >= TRAINING_MODE_INPUT:
        inputs = inputs[:2]
    _replace(op, inputs, attributes, op.output_names)


def _replace(
    op: SchemaOp,
    inputs: Sequence[SSAValue | None],
    attributes: Mapping[str, Attribute],
    names: Sequence[str],
) -> None:
    """Replaces a node by one with other inputs and attributes, and fewer outputs."""
    values = op.output_values()[: len(names)]
    types = [UNKNOWN if value is None else value.type for value in values]
    extra = {key: held for key, held in op.attributes.items() if key != "outputs"}
    made = type(op).make(inputs, attributes, {}, names, types, extra)
    made.location = op.location
    block = op.parent
    assert block is not None, "a node is in a graph"
    block.insert_op_before(made, op)
    for old, new in zip(values, made.output_values(), strict=False):
        if old is not None and new is not None:
            new.name_hint = old.name_hint
            old.replace_all_uses_with(new)
    op.detach()
    op.erase()
