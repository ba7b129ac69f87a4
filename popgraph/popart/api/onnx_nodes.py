"""Nodes of ONNX as PopART takes them: it knows forms that ONNX's own operators do not."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from xdsl.dialects.builtin import TensorType

from popgraph.dialects import element_types
from popgraph.dialects.onnx.types import static_shape
from popgraph.popart.api.loops import loop
from popgraph.popart.api.scans import SCANS_OF_POPART, NodeWriter, scan
from popgraph.popart.exceptions import popart_exception
from popgraph.support import dtypes, shapes

_INDEXED = frozenset(["Gather", "GatherElements", "Scatter", "ScatterElements"])
"""Operators that find places by their second operand."""

_UNSIGNED = element_types.to_ir(dtypes.BY_POPART["UINT32"])
_SIGNED = dtypes.BY_POPART["INT64"]


def popart_node(
    builder: NodeWriter,
    version: int | None,
    op_type: str,
    args: Sequence[str],
    attributes: Mapping[str, Any],
    outputs: int,
    context: object,
) -> list[str]:
    """Adds what the methods of `aiOnnx` of this version ask for."""
    if op_type in _INDEXED:
        args = _with_signed_indices(builder, args, context)
        if op_type.startswith("Scatter"):
            args = _with_updates_of_indices(builder, version, args, context)
    elif op_type == "ConvTranspose":
        return _transposed_convolution(builder, args, attributes, context)
    elif op_type == "Loop":
        return loop(builder, args, attributes, outputs, context)
    elif op_type == "Scan" and version in SCANS_OF_POPART:
        return scan(builder, args, attributes, outputs, context)
    return builder.plain_node(op_type, args, attributes, outputs, context)


def _with_signed_indices(
    builder: NodeWriter, args: Sequence[str], context: object
) -> Sequence[str]:
    """PopART's indices may be UINT32, which ONNX's are never."""
    type_ = builder.type_of(args[1]) if len(args) > 1 else None
    if not isinstance(type_, TensorType) or type_.element_type != _UNSIGNED:
        return args
    (signed,) = builder.plain_node("Cast", [args[1]], {"to": _SIGNED.onnx}, 1, context)
    return [args[0], signed, *args[2:]]


def _with_updates_of_indices(
    builder: NodeWriter, version: int | None, args: Sequence[str], context: object
) -> Sequence[str]:
    """PopART scatters as many updates as there are indices; ONNX wants no more to be given."""
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
"""The version of ai.onnx since which the bounds of Slice are inputs, no attributes."""


def _transposed_convolution(
    builder: NodeWriter, args: Sequence[str], attributes: Mapping[str, Any], context: object
) -> list[str]:
    """An `output_shape` with batch and channels only repeats what the pads make of the input."""
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
