"""PopART's error messages for nodes whose inputs do not fit."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from popgraph.builder.popart.windows import spaced
from popgraph.dialects import element_types
from popgraph.dialects.onnx.types import static_shape
from popgraph.support.errors import TypeMismatchError
from popgraph.support.shapes import Shape

REFUSED = "popgraph.refused"
"""The property of a model with a node that a session is to refuse."""

BROADCASTING = frozenset(
    ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
)
"""Operators of two inputs that stretch to one shape."""


@dataclass(frozen=True)
class Refused:
    """A node that ONNX does not accept, by its names and the types of its inputs."""

    op_type: str
    version: int
    name: str
    inputs: Sequence[str]
    outputs: Sequence[str]
    types: Sequence[Attribute]
    attributes: Mapping[str, object]

    def __str__(self) -> str:
        shown = f"{self.name} (ai.onnx.{self.op_type}:{self.version})" if self.name else ""
        shown = shown or f"ai.onnx.{self.op_type}:{self.version}"
        inputs, outputs = ", ".join(self.inputs), ", ".join(self.outputs)
        return f"Op({shown}, inputs=[{inputs}], outputs=[{outputs}])"


def refusal_note(error: TypeMismatchError) -> dict[str, str]:
    """What a model says of the first of its nodes that does not take its inputs."""
    return {REFUSED: json.dumps([error.what, error.where, error.hint])}


def check_notes(notes: Iterable[tuple[str, str]]) -> None:
    """Raises the error that a model brings along."""
    for key, value in notes:
        if key == REFUSED:
            raise TypeMismatchError(*json.loads(value))


def words(node: Refused, reason: str) -> str | None:
    """PopART's message, where it has one of its own; `reason` is ONNX's."""
    if node.op_type == "Reshape" and "multiple -1" in reason:
        return "shape input to ReshapeOp can only use -1 to specify one unknown dimension"
    if node.op_type == "Expand" and "Incompatible dimensions" in reason:
        return f"{node} corresponding dimensions must have the same value or one of them must be 1"
    shapes = [static_shape(type_) for type_ in node.types]
    if (said := _of_one_operator(node, shapes, reason)) is not None:
        return said
    if node.op_type.startswith("Reduce") and shapes and shapes[0] is not None:
        return _axis_out_of_range(node, len(shapes[0]))
    if node.op_type == "Transpose" and shapes and shapes[0] is not None:
        return _permutation(node, shapes[0])
    if len(shapes) != 2 or shapes[0] is None or shapes[1] is None:
        return None
    if node.op_type == "MatMul":
        return _matmul(node, shapes[0], shapes[1])
    if node.op_type in BROADCASTING:
        return _broadcasting(node, shapes[0], shapes[1])
    return None


def _of_one_operator(node: Refused, shapes: Sequence[Shape | None], reason: str) -> str | None:
    if node.op_type == "Tile" and len(shapes) == 2:
        return _repeats(node, shapes, reason)
    if node.op_type == "Resize" and len(node.inputs) > 3 and node.inputs[2]:
        return BOTH_SCALES_AND_SIZES
    if node.op_type == "BatchNormalization":
        return _statistics(node, shapes)
    return None


def _statistics(node: Refused, shapes: Sequence[Shape | None]) -> str | None:
    """Scale, shift and statistics have one number for each channel, or for each element."""
    if not shapes or shapes[0] is None or len(shapes[0]) < 2:
        return None
    x = shapes[0]
    spatial = bool(node.attributes.get("spatial", 1))
    wanted = x[1:2] if spatial else x[1:]
    match = "dimension 1" if spatial else "all but the first dimension"
    for name, shape in zip(("scale", "B", "mean", "var"), shapes[1:], strict=False):
        if shape is not None and shape != wanted:
            return (
                f"expected shape of batch norm input tensor {name} ({spaced(shape)}) to be "
                f"{spaced(wanted)} to match {match} of X ({spaced(x)})"
            )
    return None


BOTH_SCALES_AND_SIZES = (
    "Resize op has inputs for `sizes` and `scales`. Only one of these tensors should be present. "
    "If `sizes` is needed, please pass an empty string as the name of `scales` in the input list "
    "( resize([X, roi, '', sizes]) ). If the proto is not generated from the PopART Builder, "
    "please confirm that only one of the two tensors shall have data."
)


def _repeats(node: Refused, shapes: Sequence[Shape | None], reason: str) -> str | None:
    data, repeats = shapes[:2]
    if data is not None and repeats is not None and repeats != (len(data),):
        return (
            f"'Repeats' tensor `{node.inputs[1]}' should have one element for each dimension of "
            "the data tensor"
        )
    if "`repeats` is" in reason or "stand at axis" in reason:
        return f"{node}: Values must be non-negative in each shape dimension"
    return None


def _axis_out_of_range(node: Refused, rank: int) -> str | None:
    axes = node.attributes.get("axes")
    for axis in axes if isinstance(axes, list | tuple) else ():
        if not -rank <= axis < rank:
            return f"Axis {axis} is out of acceptable range [{-rank}, {rank - 1}]"
    return None


def _permutation(node: Refused, shape: Shape) -> str | None:
    order = node.attributes.get("perm")
    if not isinstance(order, list | tuple) or len(order) == len(shape):
        return None
    return (
        f"Rank of permutation tensor {spaced(order)}, rank {len(order)} must be equal to rank of "
        f"input tensor, shape {spaced(shape)}, rank {len(shape)}."
    )


def _matmul(node: Refused, lhs: Shape, rhs: Shape) -> str | None:
    for side, shape in (("lhs", lhs), ("rhs", rhs)):
        if not shape:
            return f"{node} doesn't support scalar tensor input as the {side} input"
    if lhs[-1] == rhs[-2:][0]:
        return None
    first, second = node.inputs
    return (
        f"{node} contracting dimensions unequal: lhs '{first}' {spaced(lhs)}, "
        f"rhs '{second}' {spaced(rhs)}"
    )


def _broadcasting(node: Refused, lhs: Shape, rhs: Shape) -> str:
    first, second = (
        element_types.from_ir(type_.element_type).popart
        for type_ in node.types
        if isinstance(type_, TensorType)
    )
    if first != second:
        return (
            f"{node} incompatible types {first} and {second} "
            f"(shapes {spaced(lhs)} and {spaced(rhs)})"
        )
    return f"np broadcasting failed on '{node}', frames {[*lhs]} and {[*rhs]} are not aligned"
