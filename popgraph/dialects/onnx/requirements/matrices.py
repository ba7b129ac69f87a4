"""What matrix products, and elementwise operators of several operands, ask of their shapes."""

from __future__ import annotations

from popgraph.dialects.onnx.requirements.frame import (
    Complaints,
    Seen,
    asks,
    at_least,
    differ,
    of_rank,
    one_element,
    positive,
    shown,
    stretches,
)
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.support.equations import EquationError, parse


@asks("Gemm")
def gemm(node: Seen) -> Complaints:
    yield from of_rank(node, 0, 2)
    yield from of_rank(node, 1, 2)
    left, right = node.shape(0), node.shape(1)
    if left and right and node.version >= 7:
        rows = left[1 if node.integer("transA") else 0]
        columns = right[0 if node.integer("transB") else 1]
        yield from stretches(node, 2, (rows, columns))


@asks("MatMul")
def matmul(node: Seen) -> Complaints:
    yield from at_least(node, 0, 1)
    yield from at_least(node, 1, 1)


@asks("Det")
def det(node: Seen) -> Complaints:
    shape = node.shape(0)
    yield from at_least(node, 0, 2)
    if shape is not None and differ(shape[-2], shape[-1]):
        yield TypeConflict(f"the matrices of {shown(shape)} are not square", "both sizes are equal")


@asks("Einsum")
def einsum(node: Seen) -> Complaints:
    shapes = [node.shape(index) for index in range(len(node))]
    known = [shape for shape in shapes if shape is not None]
    if len(known) < len(shapes):
        return
    try:
        equation = parse(node.text("equation"), [len(shape) for shape in known])
        equation.sizes([tuple(d if isinstance(d, int) else 1 for d in shape) for shape in known])
    except EquationError as error:
        yield TypeConflict(f"`equation` is {node.text('equation')!r}: {error.what}", error.hint)


@asks("PRelu")
def parametric_relu(node: Seen) -> Complaints:
    if node.version >= 7:
        yield from stretches(node, 1, node.shape(0))


@asks("Clip")
def clip(node: Seen) -> Complaints:
    yield from one_element(node, 1)
    yield from one_element(node, 2)


@asks("Dropout")
def dropout(node: Seen) -> Complaints:
    yield from one_element(node, 1)
    yield from one_element(node, 2)
    ratio = node.array(1)
    if ratio is not None and ratio.size and not 0 <= float(ratio.reshape(-1)[0]) < 1:
        yield TypeConflict(f"`ratio` is {ratio.reshape(-1)[0]}", "it is 0 or more, and less than 1")


@asks("Celu")
def celu(node: Seen) -> Complaints:
    held = node.op.attribute_values().get("alpha", 1.0)
    if held == 0:
        yield TypeConflict("`alpha` is 0", "the formula divides by it")


@asks("Multinomial")
def multinomial(node: Seen) -> Complaints:
    """A row of weights of classes for each draw."""
    yield from of_rank(node, 0, 2)
    yield from positive(node, "sample_size")
