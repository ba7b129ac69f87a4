"""What matrix products, and elementwise operators of several operands, ask of their shapes."""

from __future__ import annotations

from popgraph.dialects.onnx.record import Complaints
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.complaints import (
    at_least,
    differ,
    of_rank,
    one_element,
    shown,
    stretches,
)
from popgraph.operators.record import requires
from popgraph.support.equations import EquationError, parse


@requires("Gemm")
def gemm(node: NodeView) -> Complaints:
    yield from of_rank(node, 0, 2)
    yield from of_rank(node, 1, 2)
    left, right = node.shape_of(0), node.shape_of(1)
    if left and right and node.version >= 7:
        rows = left[1 if node.integer("transA") else 0]
        columns = right[0 if node.integer("transB") else 1]
        yield from stretches(node, 2, (rows, columns))


@requires("MatMul")
def matmul(node: NodeView) -> Complaints:
    yield from at_least(node, 0, 1)
    yield from at_least(node, 1, 1)


@requires("Det")
def det(node: NodeView) -> Complaints:
    shape = node.shape_of(0)
    yield from at_least(node, 0, 2)
    if shape is not None and differ(shape[-2], shape[-1]):
        yield TypeConflict(f"the matrices of {shown(shape)} are not square", "both sizes are equal")


@requires("Einsum")
def einsum(node: NodeView) -> Complaints:
    shapes = [node.shape_of(index) for index in range(len(node))]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return
    try:
        equation = parse(node.text("equation"), [len(shape) for shape in known])
        equation.sizes([tuple(d if isinstance(d, int) else 1 for d in shape) for shape in known])
    except EquationError as error:
        yield TypeConflict(f"`equation` is {node.text('equation')!r}: {error.what}", error.hint)


@requires("PRelu")
def parametric_relu(node: NodeView) -> Complaints:
    if node.version >= 7:
        yield from stretches(node, 1, node.shape_of(0))


@requires("Clip")
def clip(node: NodeView) -> Complaints:
    yield from one_element(node, 1)
    yield from one_element(node, 2)


@requires("Celu")
def celu(node: NodeView) -> Complaints:
    held = node.op.attribute_values().get("alpha", 1.0)
    if held == 0:
        yield TypeConflict("`alpha` is 0", "the formula divides by it")
