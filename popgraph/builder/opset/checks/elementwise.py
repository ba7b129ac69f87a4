"""PopART's rules of elementwise operators, matmuls and random operators."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from popgraph.builder.opset.checks.node import Node, spaced
from popgraph.builder.opset.checks.rules import (
    Conflicts,
    aligned,
    checks,
    known,
    partials,
    product_partials,
    unsupported,
)
from popgraph.dialects.onnx.annotations import SERIALIZED, SERIALIZED_FACTOR
from popgraph.support import dtypes, shapes
from popgraph.support.shapes import Shape

BROADCASTING = ("Add", "And", "Div", "Equal", "Greater", "Less", "Mul", "Or", "Pow", "Sub", "Xor")
"""Binary operators that broadcast."""
_OWN = ("Atan2", "BitwiseAnd", "BitwiseOr", "BitwiseXnor", "BitwiseXor", "Fmod", "Remainder")

RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike")
VARIADIC = ("Max", "Mean", "Min", "Sum")

_SINGLE, _HALF = dtypes.BY_POPART["FLOAT"], dtypes.BY_POPART["FLOAT16"]
_DOUBLE = dtypes.BY_POPART["DOUBLE"]


@checks(*BROADCASTING, own=_OWN)
def broadcasting(node: Node) -> Conflicts:
    promoted = any(  # a scalar of FLOAT takes the type of a tensor of FLOAT16
        (node.element(index), node.element(1 - index)) == (_SINGLE, _HALF)
        and shapes.prod(node.shape(index)) == 1
        for index in (0, 1)
    )
    yield from _stretched(node, (0, 1), mixed=promoted)


@checks("Where")
def choice(node: Node) -> Conflicts:
    yield from _stretched(node, (1, 2), node.shape(0))


@checks("PRelu")
def all_broadcast(node: Node) -> Conflicts:
    yield from _stretched(node, range(len(node.inputs)))


@checks(*VARIADIC)
def variadic(node: Node) -> Conflicts:
    if node.version >= 8:
        yield from all_broadcast(node)
    elif len(set(node.types)) > 1:
        yield f"Inputs to {node.id} do not all the same type & shape, with opid.version = 6"


def _stretched(
    node: Node, indices: Iterable[int], frame: Shape = (), *, mixed: bool = False
) -> Conflicts:
    """Operands are broadcast to a frame in order, and have the same type."""
    type_ = None
    for index in indices:
        shape, element = node.shape(index), node.element(index)
        if type_ not in (None, element) and not mixed:
            yield (
                f"np broadcasting failed on Op {node.numbered}, incompatible types "
                f"{type_.popart} and {element.popart} (shapes {spaced(frame)} and {spaced(shape)})"
            )
        yield from _unaligned(node, frame, shape)
        frame, type_ = np.broadcast_shapes(frame, shape), type_ or element


def _unaligned(node: Node, first: Shape, second: Shape) -> Conflicts:
    if not aligned(first, second):
        yield (
            f"np broadcasting failed on 'Op {node.numbered}', frames {[*first]} and {[*second]} "
            "are not aligned"
        )


@checks("MatMul")
def product(node: Node) -> Conflicts:
    yield from partials(node, product_partials)
    yield from matmul(node)
    yield from _serialised(node)


def matmul(node: Node) -> Conflicts:
    for index, side in enumerate(("lhs", "rhs")):
        if node.known_shape(index) == ():
            yield f"{node} doesn't support scalar tensor {node.inputs[index]} as the {side} input"
    lhs, rhs = node.shape(), node.shape(1)
    yield from _unaligned(node, lhs[:-2], rhs[:-2])
    if lhs[-1] != rhs[-2:][0]:
        yield (
            f"{node} contracting dimensions unequal: lhs '{node.inputs[0]}' {spaced(lhs)}, "
            f"rhs '{node.inputs[1]}' {spaced(rhs)}"
        )


_SERIALISED = {
    "input_channels": (0, -2, "input channels dim"),
    "reducing_dim": (0, -1, "reducing dimension"),
    "output_channels": (1, -1, "output channels dim"),
}
"""Operand, axis and PopART's name of the dimension that a serialized matmul splits."""


def _serialised(node: Node) -> Conflicts:
    mode = str(node.attributes.get(SERIALIZED, "none"))
    factor = node.attributes.get(SERIALIZED_FACTOR, 0)
    if mode not in _SERIALISED or not isinstance(factor, int):
        return
    about = f"Invalid serialisation factor {factor}"
    if factor == 0:
        yield f"{about}. Serialisation factor must be a non-zero positive integer."
    operand, axis, words = _SERIALISED[mode]
    shape = node.shape(operand)
    if len(shape) >= -axis and shape[axis] % factor:
        yield (
            f"{about} for {words} {shape[axis]}. {mode} dim should be a multiple of the "
            "serialisation factor "
        )


@checks("Clip")
def clip(node: Node) -> Conflicts:
    for index, word in ((1, "min"), (2, "max")):
        yield from known(
            node,
            "Op {node.name}({node.id}), inputs=[{node.inputs[0]}] currently only supports constant "
            f"min/max parameters. Input '{word}' ({{}}) has no data.",
            index,
        )


@checks("Dropout", own=("ShapedDropout",))
def dropout(node: Node) -> Conflicts:
    if not 0 <= (ratio := node.real("ratio", 0.5)) < 1:
        yield (
            f"{node.id} ratio value {ratio:g} is not valid. Please use a value in the interval "
            "[0,1)"
        )


@checks(*RANDOM)
def random(node: Node) -> Conflicts:
    optional = "Optional seed attribute is not supported. Use session::setRandomSeed instead."
    yield from unsupported(node, f"{{node.id}}: {optional}", "seed")
    named = node.attributes.get("dtype")
    if named == _DOUBLE.onnx:
        yield "The data type DOUBLE is not supported in Poplar"
    like = node.op_type.endswith("Like") and named is None
    if like and (element := node.element()) not in (_SINGLE, _HALF):
        yield f"{node.id} : Unsupported data type requested: {element.popart}"
