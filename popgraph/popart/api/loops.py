"""PopART's Loop, which counts its turns in whole numbers of any kind, written as ONNX's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from xdsl.dialects.builtin import ArrayAttr, TensorType
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import element_types
from popgraph.dialects.onnx import Graph, op_class
from popgraph.dialects.onnx.attributeproto import from_python
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.program import WeightStore
from popgraph.dialects.value_types import set_type
from popgraph.popart.api.scans import NodeWriter
from popgraph.popart.exceptions import popart_exception
from popgraph.support import dtypes

_ROW = dtypes.BY_POPART["INT64"]
_COUNTS = ("INT32", "INT64", "UINT32", "UINT64")


def loop(
    builder: NodeWriter,
    args: Sequence[str],
    attributes: Mapping[str, Any],
    outputs: int,
    context: object,
) -> list[str]:
    """A Loop whose trip count and whose body's counter are INT64, as ONNX has them."""
    type_ = builder.type_of(args[0]) if args and args[0] else None
    if isinstance(type_, TensorType):
        row = element_types.from_ir(type_.element_type)
        if row.popart not in _COUNTS:
            raise popart_exception(f"[LoopOp] unsupported trip count data type {row.popart}")
        if row.popart != _ROW.popart:
            turns = builder.plain_node("Cast", [args[0]], {"to": _ROW.onnx}, 1, context)
            args = [*turns, *args[1:]]
    body = attributes.get("body")
    if isinstance(body, Graph):
        _count_widely(body, builder.aiOnnx.version)
    return builder.plain_node("Loop", args, attributes, outputs, context)


def _count_widely(body: Graph, opset: int) -> None:
    """Gives the body its counter in 64 bits, cast to the type that its nodes expect."""
    counter = body.block.args[0] if body.block.args else None
    if counter is None or not isinstance(counter.type, TensorType):
        return
    narrow = element_types.from_ir(counter.type.element_type)
    if narrow.popart not in _COUNTS or narrow.popart == _ROW.popart:
        return
    declared, *others = body.inputs
    name = f"{declared.text}__narrow"
    wide = TensorType(element_types.to_ir(_ROW), counter.type.get_shape())
    to = from_python("to", narrow.onnx, "INT", WeightStore())
    cast = op_class("Cast", opset).make([counter], {"to": to}, {}, [name], [counter.type], {})
    counter.replace_all_uses_with(cast.results[0])
    cast.operands[0] = counter
    set_type(counter, wide)
    Rewriter.insert_op(cast, InsertPoint.at_start(body.block))
    body.properties["inputs"] = ArrayAttr([ValueInfoAttr.of(declared.text, wide), *others])
