"""Bounds of the index inputs of ONNX operators, and the checks that enforce them."""

from __future__ import annotations

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, IntegerType, TensorType, i64
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.onnx.custom import CHECK_INDICES, Custom
from popgraph.dialects.onnx.inference import Inference
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.record import record_of
from popgraph.dialects.onnx.view import NodeView
from popgraph.dialects.program import BytesAttr, WeightStore
from popgraph.operators.record import Bounds
from popgraph.passes.analysis.replace import insert_made_for


def bounds_of(op: OnnxOp, store: WeightStore) -> list[Bounds]:
    """The bounds of all index inputs of a node whose shapes are known."""
    record = record_of(op.domain, op.op_type)
    if record is None or record.bounds is None:
        return []
    node = NodeView(op, store=store)
    return [found for found in record.bounds(node) if node.static_shape_of(found.input) is not None]


def insert_checks(op: OnnxOp, inference: Inference) -> bool:
    """Inserts nodes that check a node's indices; returns whether it has index inputs."""
    found = bounds_of(op, inference.store)
    for bounds in found:
        value = op.input_values()[bounds.input]
        if value is not None and _holds_integers(value) and not _is_check(value.owner):
            number = sum(one is not None for one in op.input_values()[: bounds.input])
            op.operands[number] = _checked(op, value, bounds, inference)
    return bool(found)


def _holds_integers(value: SSAValue) -> bool:
    """Whether a value can hold indices; the operator itself reports other types."""
    return isinstance(value.type, TensorType) and isinstance(value.type.element_type, IntegerType)


def _is_check(owner: object) -> bool:
    return isinstance(owner, Custom) and owner.is_check


def _checked(op: OnnxOp, value: SSAValue, bounds: Bounds, inference: Inference) -> SSAValue:
    name = f"{next(filter(None, op.output_names), '')}/{bounds.what} {bounds.input}"
    attributes: dict[str, Attribute] = {
        "what": BytesAttr.of(bounds.what),
        "place": BytesAttr.of(op.where()),
        "low": DenseArrayBase.from_list(i64, bounds.low),
        "last": DenseArrayBase.from_list(i64, bounds.last),
    }
    if bounds.ignored is not None:
        attributes["ignored"] = IntegerAttr(bounds.ignored, i64)
    made = Custom.make(*CHECK_INDICES, [value], attributes, [name], [value.type], {})
    insert_made_for(op, made)
    inference.take(made.values[0], value)
    return made.values[0]
