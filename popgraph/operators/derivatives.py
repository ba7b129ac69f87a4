"""Gradient (ai.onnx.preview.training): a copy of its function, and autodiff through the copy."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.ir import Block, SSAValue

from popgraph.dialects.building import building_detached
from popgraph.dialects.graphcore.base import is_float
from popgraph.dialects.onnx.custom import GRADIENT
from popgraph.dialects.onnx.record import Conflicts
from popgraph.dialects.onnx.type_errors import TypeConflict
from popgraph.dialects.onnx.types import describe
from popgraph.dialects.onnx.view import NodeView
from popgraph.dialects.program import YieldOp
from popgraph.operators.bodies import discard, given_tensor
from popgraph.operators.node import Node
from popgraph.operators.record import Lowered, lowers, requires
from popgraph.support.errors import DifferentiationError, PopgraphError, TypeMismatchError


@requires(GRADIENT[1], domain=GRADIENT[0])
def names_of_tensors(node: NodeView) -> Conflicts:
    xs, zs = node.texts("xs"), node.texts("zs")
    if len({*xs, *zs}) < len(xs) + len(zs):
        yield TypeConflict("`xs` and `zs` list a tensor twice", "list every tensor once")
    if len(node) != len(xs) + len(zs) or not all(map(node.has, range(len(node)))):
        yield TypeConflict(
            f"{sum(map(node.has, range(len(node))))} inputs for {len(xs) + len(zs)} names",
            "give one input for each name in `xs`, then one for each in `zs`",
        )
    if node.output_count > len(xs):
        yield TypeConflict(
            f"{node.output_count} outputs for {len(xs)} names",
            "there is one output for each name in `xs`",
        )


@lowers(GRADIENT[1], domain=GRADIENT[0])
def gradient(node: Node) -> Lowered:
    """
    Lowers the function's nodes a second time, and differentiates them.

    `cse` merges the copies with the originals. Values of `zs` may be constants that decide shapes;
    values of `xs` are block arguments until the gradients are built.
    """
    names = node.texts("xs")
    independent = node.inputs[: len(names)]
    for name, value in zip(names, independent, strict=True):
        _check_float(node, name, value)
    block = Block(arg_types=[value.type for value in independent])
    with node.lowering.writing(block):
        _function(node, block)
    try:
        with building_detached():
            gradients = node.lowering.differentiate(block)
    except PopgraphError:
        discard(block)
        raise
    return _moved(node, block, gradients)


def _function(node: Node, block: Block) -> None:
    """Lowers the function into a block that yields `y`."""
    graph = node.graph("function")
    made = node.lowering.place(graph, [*block.args, *node.inputs[len(block.args) :]])
    target = given_tensor(node, graph, made, 0)
    _check_float(node, node.text("y"), target)
    if any("stream" in op.properties for op in block.walk()):
        raise DifferentiationError(
            f"{node.text('y')!r} depends on random numbers, and its copy would draw others",
            hint="draw the numbers outside, and pass them in `zs`",
        )
    YieldOp([target])


def _check_float(node: Node, name: str, value: SSAValue) -> None:
    if not is_float(value):
        raise TypeMismatchError(
            f"Gradient-1 differentiates floats, but {name!r} is {describe(value.type)}",
            hint="list tensors of other types in `zs`",
        )


def _moved(node: Node, block: Block, gradients: Sequence[SSAValue]) -> list[SSAValue]:
    """Moves the block's operations to the insertion point; returns the gradients there."""
    values: dict[SSAValue, SSAValue] = dict(zip(block.args, node.inputs, strict=False))
    for argument, value in values.items():
        argument.replace_all_uses_with(value)
    end = block.last_op
    assert end is not None
    end.detach()
    end.erase()
    node.lowering.append(block)
    return [values.get(gradient, gradient) for gradient in gradients]
