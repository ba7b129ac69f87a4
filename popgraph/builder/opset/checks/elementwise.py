"""What PopART asks of operators that compute element by element, of products and random numbers."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from popgraph.builder.opset.checks.node import Node, spaced
from popgraph.builder.opset.checks.rules import Complaints, partials, product_partials
from popgraph.dialects.onnx.annotations import SERIALIZED, SERIALIZED_FACTOR
from popgraph.support import dtypes, shapes
from popgraph.support.shapes import Shape

BROADCASTING = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
"""Operators of two inputs that stretch to one shape."""

RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
VARIADIC = ("Max", "Mean", "Min", "Sum")


def broadcasting(node: Node) -> Complaints:
    yield from _stretched(node, (0, 1), mixed=_promoted(node))


def choice(node: Node) -> Complaints:
    """What is chosen is stretched to the shape of the condition, and the other way round."""
    yield from _stretched(node, (1, 2), node.shape(0))


def all_broadcast(node: Node) -> Complaints:
    yield from _stretched(node, range(len(node.inputs)))


def _stretched(
    node: Node, places: Iterable[int], start: Shape | None = (), *, mixed: bool = False
) -> Complaints:
    """Operands are stretched to one shape, one after the other, and are of one type."""
    frame, type_ = start, None
    for place in places:
        shape, element = node.shape(place), node.element(place)
        if frame is None or shape is None or element is None:
            return
        if type_ not in (None, element) and not mixed:
            yield (
                f"np broadcasting failed on Op {node.numbered}, incompatible types "
                f"{type_.popart} and {element.popart} (shapes {spaced(frame)} and {spaced(shape)})"
            )
        for said in _unaligned(node, frame, shape):
            yield said
            return
        frame, type_ = np.broadcast_shapes(frame, shape), type_ or element


def _unaligned(node: Node, first: Shape, second: Shape) -> Complaints:
    pairs = zip(reversed(first), reversed(second), strict=False)
    if any(1 not in pair and pair[0] != pair[1] for pair in pairs):
        yield (
            f"np broadcasting failed on 'Op {node.numbered}', frames {[*first]} and {[*second]} "
            "are not aligned"
        )


def _promoted(node: Node) -> bool:
    """Whether a scalar of FLOAT takes the type of a tensor of FLOAT16."""
    for place in (0, 1):
        scalar, other = node.element(place), node.element(1 - place)
        if (scalar, other) == (_SINGLE, _HALF) and shapes.prod(node.shape(place) or ()) == 1:
            return True
    return False


def matmul(node: Node) -> Complaints:
    lhs, rhs = node.shape(), node.shape(1)
    for place, (side, shape) in enumerate((("lhs", lhs), ("rhs", rhs))):
        if shape == ():
            name = node.inputs[place]
            yield f"{node} doesn't support scalar tensor {name} as the {side} input"
    for frames in [(lhs[:-2], rhs[:-2])] if lhs and rhs else []:
        yield from _unaligned(node, *frames)
    if lhs and rhs and lhs[-1] != rhs[-2:][0]:
        yield (
            f"{node} contracting dimensions unequal: lhs '{node.inputs[0]}' {spaced(lhs)}, "
            f"rhs '{node.inputs[1]}' {spaced(rhs)}"
        )


_SERIALISED = {
    "input_channels": (0, -2, "input channels dim"),
    "reducing_dim": (0, -1, "reducing dimension"),
    "output_channels": (1, -1, "output channels dim"),
}
"""What a serialised product is cut along: an operand, its axis, and PopART's words for that."""


def serialised(node: Node) -> Complaints:
    mode = str(node.attributes.get(SERIALIZED, "none"))
    factor = node.attributes.get(SERIALIZED_FACTOR, 0)
    if mode not in _SERIALISED or not isinstance(factor, int):
        return
    if factor == 0:
        yield (
            "Invalid serialisation factor 0. Serialisation factor must be a non-zero positive "
            "integer."
        )
        return
    operand, axis, words = _SERIALISED[mode]
    shape = node.shape(operand)
    if shape is not None and len(shape) >= -axis and shape[axis] % factor:
        yield (
            f"Invalid serialisation factor {factor} for {words} {shape[axis]}. {mode} dim should "
            "be a multiple of the serialisation factor "
        )


def alike(node: Node) -> Complaints:
    """Before opset 8, sums and means do not broadcast."""
    if node.version < 8:
        if len(set(node.types)) > 1:
            yield f"Inputs to {node.id} do not all the same type & shape, with opid.version = 6"
    else:
        yield from all_broadcast(node)


def bounds(node: Node) -> Complaints:
    for place, word in ((1, "min"), (2, "max")):
        if place in node.streamed:
            yield (
                f"Op {node.name}({node.id}), inputs=[{node.inputs[0]}] currently only supports "
                f"constant min/max parameters. Input '{word}' ({node.inputs[place]}) has no data."
            )


def dropped(node: Node) -> Complaints:
    ratio = node.attributes.get("ratio", 0.5)
    if isinstance(ratio, int | float) and not 0 <= ratio < 1:
        yield (
            f"{node.id} ratio value {ratio:g} is not valid. Please use a value in the interval "
            "[0,1)"
        )


_SINGLE, _HALF = dtypes.BY_POPART["FLOAT"], dtypes.BY_POPART["FLOAT16"]
_DOUBLE = dtypes.BY_POPART["DOUBLE"]


def random(node: Node) -> Complaints:
    """PopART seeds all random operators of a session together."""
    if node.attributes.get("seed") is not None:
        yield (
            f"{node.id}: Optional seed attribute is not supported. "
            "Use session::setRandomSeed instead."
        )
    if node.attributes.get("dtype") == _DOUBLE.onnx:
        yield "The data type DOUBLE is not supported in Poplar"
    like = node.op_type.endswith("Like") and node.attributes.get("dtype") is None
    if like and (element := node.element()) not in (None, _SINGLE, _HALF):
        yield f"{node.id} : Unsupported data type requested: {element.popart}"


ROWS = {
    "Clip": (bounds,),
    "Dropout": (dropped,),
    "MatMul": (partials(product_partials), matmul, serialised),
    "PRelu": (all_broadcast,),
    "Where": (choice,),
    **dict.fromkeys(BROADCASTING, (broadcasting,)),
    **dict.fromkeys(VARIADIC, (alike,)),
    **dict.fromkeys(RANDOM, (random,)),
}
