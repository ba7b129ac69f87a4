"""What elementwise operators of several operands, and draws, ask of their shapes."""

from __future__ import annotations

from popgraph.dialects.onnx.record import Complaints
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.view import NodeView
from popgraph.operators.complaints import (
    of_rank,
    one_element,
    positive,
    stretches,
)
from popgraph.operators.record import requires


@requires("PRelu")
def parametric_relu(node: NodeView) -> Complaints:
    if node.version >= 7:
        yield from stretches(node, 1, node.shape_of(0))


@requires("Clip")
def clip(node: NodeView) -> Complaints:
    yield from one_element(node, 1)
    yield from one_element(node, 2)


@requires("Dropout")
def dropout(node: NodeView) -> Complaints:
    yield from one_element(node, 1)
    yield from one_element(node, 2)
    ratio = node.elements_of(1)
    if ratio is not None and ratio.size and not 0 <= float(ratio.reshape(-1)[0]) < 1:
        yield TypeConflict(f"`ratio` is {ratio.reshape(-1)[0]}", "it is 0 or more, and less than 1")


@requires("Celu")
def celu(node: NodeView) -> Complaints:
    held = node.op.attribute_values().get("alpha", 1.0)
    if held == 0:
        yield TypeConflict("`alpha` is 0", "the formula divides by it")


@requires("Multinomial")
def multinomial(node: NodeView) -> Complaints:
    """A row of weights of classes for each draw."""
    yield from of_rank(node, 0, 2)
    yield from positive(node, "sample_size")
