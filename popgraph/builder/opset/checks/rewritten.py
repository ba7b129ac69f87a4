"""PopART's rules of operators that it rewrites to others, whose rules then apply."""

from __future__ import annotations

from dataclasses import replace

from xdsl.dialects.builtin import TensorType
from xdsl.ir import Attribute

from popgraph.builder.opset.checks.elementwise import broadcasting, matmul
from popgraph.builder.opset.checks.node import Node
from popgraph.builder.opset.checks.rules import Conflicts, checks, chosen
from popgraph.builder.opset.checks.shaped import elements_stay, transpose
from popgraph.builder.opset.graphcore_operator import DOMAIN
from popgraph.dialects.onnx.types import static_shape
from popgraph.support.shapes import Shape


def _intermediate_name(node: Node, number: int) -> str:
    """PopART's name of an intermediate tensor of a result, which may not have a name yet."""
    result = node.outputs[0] if node.outputs else node.op_type
    return f"{result}_onnxtoonnxd_{number}"


@checks("Gemm")
def gemm(node: Node) -> Conflicts:
    """Gemm(a, b, c) -> Add(MatMul(Transpose(a), Transpose(b)), c)."""
    names, types = list(node.inputs), list(node.types)
    before = 0
    for index, attribute in enumerate(("transA", "transB")):
        if not node.number(attribute) or not node.has(index):
            continue
        inputs, perm = [names[index]], {"perm": [1, 0]}
        turned = replace(node, inputs=inputs, types=[types[index]], attributes=perm)
        yield from transpose(turned)
        names[index] = _intermediate_name(node, before)
        before += 1
        if (shape := static_shape(types[index])) is not None:
            types[index] = _of_shape(types[index], shape[::-1])
    product = replace(
        node,
        op_type="MatMul",
        version=9 if node.version >= 9 else 1,
        inputs=names[:2],
        types=types[:2],
        outputs=[_intermediate_name(node, before)],
    )
    yield from matmul(product)
    if node.has(2) and min(product.rank(0), product.rank(1)) == 2:
        shape = (product.shape(0)[0], product.shape(1)[1])
        yield from broadcasting(
            replace(
                node,
                op_type="Add",
                version=7,
                inputs=[product.outputs[0], node.inputs[2]],
                types=[_of_shape(types[0], shape), types[2]],
            )
        )


def _of_shape(type_: Attribute, shape: Shape) -> Attribute:
    return TensorType(type_.element_type, shape) if isinstance(type_, TensorType) else type_


@checks("DepthToSpace", "SpaceToDepth", own=("DepthToSpace",))
def blocks(node: Node) -> Conflicts:
    """Implemented as Reshape, Transpose, Reshape, so sizes must be multiples of the block."""
    spreads, block = node.op_type == "SpaceToDepth", node.number("blocksize")
    if not spreads:
        yield from chosen(node, "mode", "Unrecognised DepthToSpaceMode {}")
    if node.rank() != 4 or block < 1:
        return
    n, c, h, w = node.shape()
    parts: Shape
    if spreads:
        parts = (n, c, h // block, block, w // block, block)
    elif node.word("mode", "DCR") == "DCR":
        parts = (n, block, block, c // block**2, h, w)
    else:
        parts = (n, c // block**2, block, block, h, w)
    outputs = [_intermediate_name(node, 0)]
    moved = replace(node, op_type="Reshape", version=1, domain=DOMAIN, outputs=outputs)
    yield from elements_stay(moved, parts)
