"""Node attributes outside of schemas, such as PopART's `__ipu_number`."""

from __future__ import annotations

from onnx import NodeProto
from xdsl.dialects.builtin import ArrayAttr
from xdsl.ir import Attribute

from popgraph.dialects.onnx.attributeproto import read_attribute, write_attribute
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.schema_op import SchemaOp
from popgraph.dialects.onnx.types import NamesAttr
from popgraph.dialects.program import BytesAttr, WeightStore

NOTE = "__"
"""The prefix of the names of notes; `KEPT` lists notes without it."""

KEPT = "popgraph.kept"
"""A node's metadata key that lists further notes, one name per line, unknown to its schema."""

IPU = "__ipu_number"
STAGE = "__pipeline_stage"
PHASE = "__execution_phase"
RECOMPUTE = "__recompute_output_in_backward_pass"
SERIALIZED = "__serialize_matmul_mode"
SERIALIZED_FACTOR = "__serialize_matmul_factor"
SERIALIZED_PRECISION = "__serialize_matmul_precision"
PRIORITY = "__schedule_priority"
LOCATION = "__output_tensor_location"
MEMORY = "__available_memory"
PARTIALS = "__partials_type"
EXCLUDED = "__exclude_patterns"
DITHERING = "__enable_conv_dithering"
GROUP = "__collectiveCommGroup"
IN_PLACE = "__inplace_op_names"
IN_PLACE_PRIORITIES = "__inplace_op_priorities"


def is_note(op: OnnxOp, name: str) -> bool:
    """Whether an attribute of this name is a note: it is unknown to the operator's schema."""
    if not isinstance(op, SchemaOp):
        return False
    return name.startswith(NOTE) or not (name in op.KINDS or name in op.GRAPHS)


def kept_names(node: NodeProto) -> set[str]:
    """
    The names of notes that were set on a node on purpose, though its schema does not know them.

    Readers of models report any other unknown name as an error.
    """
    return {n for one in node.metadata_props if one.key == KEPT for n in one.value.splitlines()}


def notes_in(op: OnnxOp, store: WeightStore) -> dict[str, Attribute]:
    """The notes of a node, such as PopART's `__ipu_number`."""
    held = _rest(op).attribute
    return {one.name: read_attribute(one, store) for one in held if is_note(op, one.name)}


def all_attributes(op: OnnxOp, store: WeightStore) -> dict[str, Attribute]:
    """The attributes of a node, with its notes."""
    return {**op.onnx_attributes(), **notes_in(op, store)}


def set_attribute(op: OnnxOp, name: str, value: Attribute | None, store: WeightStore) -> None:
    """Sets an attribute or a note of a node; None removes it."""
    if is_note(op, name):
        _set_note(op, name, value, store)
    elif isinstance(op, Custom):
        _set_custom(op, name, value)
    elif value is None:
        del op.properties[name]
    else:
        op.properties[name] = value


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
    if not name.startswith(NOTE):
        _keep(rest, name, value is not None)
    op.attributes.pop("rest", None)
    if held := rest.SerializeToString():
        op.attributes["rest"] = BytesAttr(held)


def _keep(rest: NodeProto, name: str, here: bool) -> None:
    names = kept_names(rest) | {name} if here else kept_names(rest) - {name}
    others = [one for one in rest.metadata_props if one.key != KEPT]
    rest.ClearField("metadata_props")
    rest.metadata_props.extend(others)
    if names:
        rest.metadata_props.add(key=KEPT, value="\n".join(sorted(names)))


def _set_custom(op: Custom, name: str, value: Attribute | None) -> None:
    """Sets an attribute that is not a graph; graphs of the node stay."""
    values = {key: held for key, held in op.entries() if key != name}
    if value is not None:
        values[name] = value
    op.properties["attribute_names"] = NamesAttr.of(list(values))
    op.properties["attribute_list"] = ArrayAttr(values.values())
