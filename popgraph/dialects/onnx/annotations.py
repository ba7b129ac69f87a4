"""Node attributes outside of schemas, such as PopART's `__ipu_number`."""

from __future__ import annotations

from collections.abc import Mapping

from onnx import NodeProto
from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute

from popgraph.dialects.onnx.attributeproto import read_attribute, write_attribute
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.types import NamesAttr
from popgraph.dialects.program import BytesAttr, WeightStore
from popgraph.support.errors import UnsupportedError

NOTE = "__"
"""What the name of a note begins with."""

IPU = "__ipu_number"
STAGE = "__pipeline_stage"
PHASE = "__execution_phase"
RECOMPUTE = "__recompute_output_in_backward_pass"
PRIORITY = "__schedule_priority"
LOCATION = "__output_tensor_location"
MEMORY = "__available_memory"
PARTIALS = "__partials_type"
EXCLUDED = "__exclude_patterns"
DITHERING = "__enable_conv_dithering"


def all_attributes(op: OnnxOp, store: WeightStore) -> dict[str, Attribute]:
    """A node's own attributes and its notes."""
    notes = {one.name: read_attribute(one, store) for one in _rest(op).attribute}
    return {**op.onnx_attributes(), **{k: v for k, v in notes.items() if k.startswith(NOTE)}}


def set_attribute(op: OnnxOp, name: str, value: Attribute | None, store: WeightStore) -> None:
    """Gives a node an attribute or a note; None takes it away."""
    if name.startswith(NOTE) and not isinstance(op, Custom):
        _set_note(op, name, value, store)
        return
    values = {key: held for key, held in op.onnx_attributes().items() if key != name}
    if value is not None:
        values[name] = value
    _set_own(op, values)


def _rest(op: OnnxOp) -> NodeProto:
    held = op.attributes.get("rest")
    return NodeProto.FromString(held.data if isinstance(held, BytesAttr) else b"")


def _set_note(op: OnnxOp, name: str, value: Attribute | None, store: WeightStore) -> None:
    rest = _rest(op)
    kept = [one for one in rest.attribute if one.name != name]
    rest.ClearField("attribute")
    rest.attribute.extend(kept)
    if value is not None:
        rest.attribute.append(write_attribute(name, value, store))
    op.attributes.pop("rest", None)
    if held := rest.SerializeToString():
        op.attributes["rest"] = BytesAttr(held)


def _set_own(op: OnnxOp, values: Mapping[str, Attribute]) -> None:
    if isinstance(op, Custom):
        if op.graphs():
            raise UnsupportedError("attributes of a call cannot change", op.where())
        op.properties["attribute_names"] = NamesAttr.of(list(values))
        op.properties["attribute_list"] = ArrayAttr(values.values())
        return
    for name in op.onnx_attributes():
        del op.properties[name]
    op.properties.update(values)
