"""PopART's Scan, written as ONNX's: pieces keep the axis of a vector, and results are joined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

import numpy as np
from xdsl.ir import Attribute

from popgraph.dialects.onnx.types import static_shape
from popgraph.popart.exceptions import popart_exception
from popgraph.support.shapes import Shape

SCANS_OF_POPART = (9, 10, 11)
"""The opsets of PopART that have the operator; those of later opsets mean what ONNX means."""


class NodeWriter(Protocol):
    """What writing nodes needs of a builder."""

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


def scan(
    builder: NodeWriter,
    args: Sequence[str],
    attributes: Mapping[str, Any],
    outputs: int,
    debugContext: object,
) -> list[str]:
    """
    A Scan as PopART means it, by an operator whose meaning is ONNX's.

    A scanned vector gives pieces of one element, where ONNX gives scalars. What the body makes of
    the pieces is joined along its own scanned axis, where ONNX puts a new axis before it.
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
    """With axes of ONNX's results, which have one axis more than the body's: none is negative."""
    axes = attributes.get("scan_output_axes") or ()
    if any(axis < 0 for axis in axes):
        raise popart_exception(
            f"the axes {list(axes)} of the results of Scan are counted from behind",
            hint="count them from the front: how many axes there are is not known yet",
        )
    return dict(attributes)


def _with_an_axis(builder: NodeWriter, id: str) -> str:
    shape = _known(builder, id)
    if len(shape) != 1:
        return id
    return _reshaped(builder, id, (shape[0], 1))


def _joined(builder: NodeWriter, id: str, axis: int) -> str:
    """The results of all turns behind one another along an axis, those of scalars as a vector."""
    shape = static_shape(builder.type_of(id))
    if shape is None:
        return _joined_unseen(builder, id, axis)
    if axis + 1 >= len(shape):
        return id
    length = shape[axis] * shape[axis + 1]
    return _reshaped(builder, id, (*shape[:axis], length, *shape[axis + 2 :]))


def _joined_unseen(builder: NodeWriter, id: str, axis: int) -> str:
    """The same by what the shape will be: results of graphs are not always known here."""
    onnx = builder.aiOnnx
    shape = onnx.shape([id])
    before = [_places(onnx, shape, 0, axis)] if axis else []
    joined = onnx.constant(np.array([-1], np.int64))
    behind = _places(onnx, shape, axis + 2, 2**31 - 1)
    return str(onnx.reshape([id, onnx.concat([*before, joined, behind], 0)]))


def _places(onnx: Any, shape: str, start: int, end: int) -> str:
    """Some numbers of a shape, by the Slice of the opset."""
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
