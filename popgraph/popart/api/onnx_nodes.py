"""ONNX nodes as PopART accepts them, including forms that ONNX does not have."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from xdsl.dialects.builtin import ArrayAttr, TensorType
from xdsl.ir import Attribute
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects import element_types
from popgraph.dialects.onnx import Graph, op_class
from popgraph.dialects.onnx.attributeproto import from_python
from popgraph.dialects.onnx.attributes import ValueInfoAttr
from popgraph.dialects.onnx.types import static_shape
from popgraph.dialects.program import WeightStore
from popgraph.dialects.value_types import set_type
from popgraph.popart.exceptions import popart_exception
from popgraph.support import dtypes, shapes
from popgraph.support.shapes import Shape

_INDEXED = frozenset(["Gather", "GatherElements", "Scatter", "ScatterElements"])
"""Operators whose second operand is an index tensor."""

_UNSIGNED = element_types.to_ir(dtypes.BY_POPART["UINT32"])
_INT64 = dtypes.BY_POPART["INT64"]

SCANS_OF_POPART = (9, 10, 11)
"""PopART's opsets with its own semantics of Scan; later opsets follow ONNX."""


class NodeWriter(Protocol):
    """The part of a builder that writes nodes."""

    @property
    def aiOnnx(self) -> Any: ...

    def type_of(self, id: str) -> Attribute: ...

    def plain_node(
        self,
        op_type: str,
        args: Sequence[str],
        attributes: Mapping[str, object],
        outputs: int,
        debugContext: object,
    ) -> list[str]: ...


def popart_node(
    builder: NodeWriter,
    version: int | None,
    op_type: str,
    args: Sequence[str],
    attributes: Mapping[str, Any],
    outputs: int,
    context: object,
) -> list[str]:
    """Adds the node of an `aiOnnx` method of this version."""
    if op_type in _INDEXED:
        args = _with_signed_indices(builder, args, context)
        if op_type.startswith("Scatter"):
            args = _with_updates_of_indices(builder, version, args, context)
    elif op_type == "ConvTranspose":
        return _transposed_convolution(builder, args, attributes, context)
    elif op_type == "Loop":
        return _loop(builder, args, attributes, outputs, context)
    elif op_type == "Scan" and version in SCANS_OF_POPART:
        return _scan(builder, args, attributes, outputs, context)
    return builder.plain_node(op_type, args, attributes, outputs, context)


def _with_signed_indices(
    builder: NodeWriter, args: Sequence[str], context: object
) -> Sequence[str]:
    """Casts UINT32 indices, which PopART allows and ONNX does not."""
    type_ = builder.type_of(args[1]) if len(args) > 1 else None
    if not isinstance(type_, TensorType) or type_.element_type != _UNSIGNED:
        return args
    (signed,) = builder.plain_node("Cast", [args[1]], {"to": _INT64.onnx}, 1, context)
    return [args[0], signed, *args[2:]]


def _with_updates_of_indices(
    builder: NodeWriter, version: int | None, args: Sequence[str], context: object
) -> Sequence[str]:
    """Slices updates to the shape of the indices: PopART ignores the rest, ONNX rejects it."""
    if len(args) != 3:
        return args
    indices, updates = (static_shape(builder.type_of(id)) for id in args[1:])
    if indices is None or updates is None or len(indices) != len(updates):
        return args
    if indices == updates or any(map(operator.lt, updates, indices)):
        return args
    piece: dict[str, Any] = {"starts": [0] * len(indices), "ends": list(indices)}
    if version is not None and version < SLICE_HAS_INPUTS:
        (cut,) = builder.plain_node("Slice", [args[2]], piece, 1, context)
        return [*args[:2], cut]
    ends = [
        builder.plain_node("Constant", [], {"value": np.array(piece[name])}, 1, context)[0]
        for name in ("starts", "ends")
    ]
    (cut,) = builder.plain_node("Slice", [args[2], *ends], {}, 1, context)
    return [*args[:2], cut]


SLICE_HAS_INPUTS = 10
"""The version of ai.onnx in which the bounds of Slice became inputs."""


def _transposed_convolution(
    builder: NodeWriter, args: Sequence[str], attributes: Mapping[str, Any], context: object
) -> list[str]:
    """Drops an `output_shape` with batch and channels if it only repeats the inferred shape."""
    told = list(attributes.get("output_shape") or ())
    shape = static_shape(builder.type_of(args[0])) if args else None
    if shape is None or len(told) != len(shape):
        return builder.plain_node("ConvTranspose", args, attributes, 1, context)
    rest = {name: value for name, value in attributes.items() if name != "output_shape"}
    results = builder.plain_node("ConvTranspose", args, rest, 1, context)
    made = static_shape(builder.type_of(results[0]))
    if made is not None and list(made) != told:
        raise popart_exception(
            f"ConvTranspose has the output_shape {shapes.text(told)}, and its pads make "
            f"{shapes.text(made)}",
            hint="give an output_shape of the spatial sizes alone, and the pads follow from it",
        )
    return results


_COUNTS = ("INT32", "INT64", "UINT32", "UINT64")


def _loop(
    builder: NodeWriter,
    args: Sequence[str],
    attributes: Mapping[str, Any],
    outputs: int,
    context: object,
) -> list[str]:
    """A Loop with an INT64 trip count and body counter, as ONNX requires."""
    type_ = builder.type_of(args[0]) if args and args[0] else None
    if isinstance(type_, TensorType):
        row = element_types.from_ir(type_.element_type)
        if row.popart not in _COUNTS:
            raise popart_exception(f"[LoopOp] unsupported trip count data type {row.popart}")
        if row.popart != _INT64.popart:
            turns = builder.plain_node("Cast", [args[0]], {"to": _INT64.onnx}, 1, context)
            args = [*turns, *args[1:]]
    body = attributes.get("body")
    if isinstance(body, Graph):
        _count_widely(body, builder.aiOnnx.version)
    return builder.plain_node("Loop", args, attributes, outputs, context)


def _count_widely(body: Graph, opset: int) -> None:
    """Gives the body an i64 counter, cast to the type that its nodes expect."""
    counter = body.block.args[0] if body.block.args else None
    if counter is None or not isinstance(counter.type, TensorType):
        return
    narrow = element_types.from_ir(counter.type.element_type)
    if narrow.popart not in _COUNTS or narrow.popart == _INT64.popart:
        return
    declared, *others = body.inputs
    name = f"{declared.text}__narrow"
    wide = TensorType(element_types.to_ir(_INT64), counter.type.get_shape())
    to = from_python("to", narrow.onnx, "INT", WeightStore())
    cast = op_class("Cast", opset).make([counter], {"to": to}, {}, [name], [counter.type], {})
    counter.replace_all_uses_with(cast.results[0])
    cast.operands[0] = counter
    set_type(counter, wide)
    Rewriter.insert_op(cast, InsertPoint.at_start(body.block))
    body.properties["inputs"] = ArrayAttr([ValueInfoAttr.of(declared.text, wide), *others])


def _scan(
    builder: NodeWriter,
    args: Sequence[str],
    attributes: Mapping[str, Any],
    outputs: int,
    debugContext: object,
) -> list[str]:
    """
    A Scan with PopART's semantics, expressed by ONNX's.

    A scanned vector yields slices of one element, where ONNX yields scalars. PopART concatenates
    results along an existing axis, where ONNX inserts a new axis.
    """
    states = len(args) - int(attributes["num_scan_inputs"])
    scanned = [_with_an_axis(builder, id) for id in args[states:]]
    made = builder.plain_node(
        "Scan", [*args[:states], *scanned], _from_front(attributes), outputs, debugContext
    )
    axes = dict(enumerate(attributes.get("scan_output_axes") or ()))
    rows = enumerate(made[states:])
    return [*made[:states], *(_joined(builder, id, axes.get(at, 0)) for at, id in rows)]


def _from_front(attributes: Mapping[str, Any]) -> dict[str, object]:
    """The attributes of Scan for ONNX, whose stacked results have one more axis."""
    axes = attributes.get("scan_output_axes") or ()
    if any(axis < 0 for axis in axes):
        raise popart_exception(
            f"the axes {list(axes)} of the results of Scan are negative",
            hint="use non-negative axes: the rank is not known yet",
        )
    return dict(attributes)


def _with_an_axis(builder: NodeWriter, id: str) -> str:
    shape = _known(builder, id)
    if len(shape) != 1:
        return id
    return _reshaped(builder, id, (shape[0], 1))


def _joined(builder: NodeWriter, id: str, axis: int) -> str:
    """Merges the stacked axis into the next one; scalars become a vector."""
    shape = static_shape(builder.type_of(id))
    if shape is None:
        return _joined_unseen(builder, id, axis)
    if axis + 1 >= len(shape):
        return id
    length = shape[axis] * shape[axis + 1]
    return _reshaped(builder, id, (*shape[:axis], length, *shape[axis + 2 :]))


def _joined_unseen(builder: NodeWriter, id: str, axis: int) -> str:
    """Does the same with a runtime shape, if the static one is unknown."""
    onnx = builder.aiOnnx
    shape = onnx.shape([id])
    before = [_places(onnx, shape, 0, axis)] if axis else []
    joined = onnx.constant(np.array([-1], np.int64))
    behind = _places(onnx, shape, axis + 2, 2**31 - 1)
    return str(onnx.reshape([id, onnx.concat([*before, joined, behind], 0)]))


def _places(onnx: Any, shape: str, start: int, end: int) -> str:
    """A slice of a shape, with the Slice of the opset."""
    if onnx.version < 10:
        return str(onnx.slice([shape], ends=[end], starts=[start], axes=[0]))
    bounds = [onnx.constant(np.array([at], np.int64)) for at in (start, end, 0)]
    return str(onnx.slice([shape, *bounds]))


def _reshaped(builder: NodeWriter, id: str, shape: Shape) -> str:
    held = builder.aiOnnx.constant(np.array(shape, np.int64))
    return str(builder.aiOnnx.reshape([id, held]))


def _known(builder: NodeWriter, id: str) -> Shape:
    shape = static_shape(builder.type_of(id))
    if shape is None:
        raise popart_exception(
            f"the shape of {id} is not known, and Scan depends on it",
            "Scan",
            "give the inputs of the model whole shapes",
        )
    return shape
