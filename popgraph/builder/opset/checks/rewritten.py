"""What PopART asks of operators that it writes as others: what it asks of these."""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from popgraph.builder.opset.checks.elementwise import broadcasting, matmul
from popgraph.builder.opset.checks.node import Node
from popgraph.builder.opset.checks.rules import Complaints, chosen
from popgraph.builder.opset.checks.shaped import elements_stay, transpose
from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.support.shapes import Shape


def _on_the_way(node: Node, number: int) -> str:
    """What PopART calls the tensors on the way to a result, which may not have a name yet."""
    result = node.outputs[0] if node.outputs else node.op_type
    return f"{result}_onnxtoonnxd_{number}"


def _written(node: Node, op_type: str, version: int, **parts: object) -> Node:
    """The operator that PopART writes in place of a node, with other operands or results."""
    return replace(node, op_type=op_type, version=version, **parts)  # type: ignore[arg-type]


def gemm(node: Node) -> Complaints:
    """A product of two matrices, each of which may be transposed first, and a sum."""
    names, types = list(node.inputs), list(node.types)
    before = 0
    for place, attribute in enumerate(("transA", "transB")):
        if not node.number(attribute) or not node.has(place):
            continue
        yield from transpose(_turned(node, place))
        names[place] = _on_the_way(node, before)
        before += 1
        shape = node.shape(place)
        types[place] = _of_shape(node, place, None if shape is None else shape[::-1])
    product = _written(
        node,
        "MatMul",
        9 if node.version >= 9 else 1,
        inputs=names[:2],
        types=types[:2],
        outputs=[_on_the_way(node, before)],
    )
    yield from matmul(product)
    if node.has(2):
        yield from _sum(node, product)


def _turned(node: Node, place: int) -> Node:
    inputs, types = [node.inputs[place]], [node.types[place]]
    attributes = {"perm": [1, 0]}
    return _written(node, "Transpose", 1, inputs=inputs, types=types, attributes=attributes)


def _sum(node: Node, product: Node) -> Complaints:
    a, b = product.shape(0), product.shape(1)
    if a is None or b is None or min(len(a), len(b)) != 2:
        return
    inputs = [product.outputs[0], node.inputs[2]]
    types = [_of_shape(node, 0, (a[0], b[1])), node.types[2]]
    yield from broadcasting(_written(node, "Add", 7, inputs=inputs, types=types))


def _of_shape(node: Node, place: int, shape: Shape | None) -> Attribute:
    """The type of an operand, in another shape."""
    type_ = node.types[place]
    if not isinstance(type_, TensorType) or shape is None:
        return type_
    return TensorType(type_.element_type, shape)


MODES = ("DCR", "CRD")


def _depth_parts(shape: Shape, block: int, mode: str) -> Shape:
    parts = (block, block, shape[1] // block**2)
    parts = parts if mode == MODES[0] else (parts[2], *parts[:2])
    return (shape[0], *parts, *shape[2:])


def _space_parts(shape: Shape, block: int) -> Shape:
    n, c, h, w = shape
    return n, c, h // block, block, w // block, block


def blocks(node: Node) -> Complaints:
    """Elements are moved by Reshape, Transpose and Reshape, so blocks are whole."""
    shape, block = node.shape(), node.number("blocksize")
    if shape is None or len(shape) != 4 or block < 1:
        return
    if node.op_type == "SpaceToDepth":
        parts = _space_parts(shape, block)
    else:
        parts = _depth_parts(shape, block, node.word("mode", MODES[0]))
    outputs = [_on_the_way(node, 0)]
    moved = _written(node, "Reshape", 1, domain=DOMAIN, outputs=outputs)
    if (said := elements_stay(moved, parts)) is not None:
        yield said


DEPTH = (chosen("mode", MODES, "Unrecognised DepthToSpaceMode {value}"), blocks)
ROWS = {"DepthToSpace": DEPTH, "Gemm": (gemm,), "SpaceToDepth": (blocks,)}
