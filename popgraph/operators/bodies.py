"""Bodies of control flow: what they capture from outside, and what graphs inside nodes give."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from xdsl.builder import Builder, ImplicitBuilder
from xdsl.ir import Block, Operation, SSAValue
from xdsl.rewriter import InsertPoint, Rewriter

from popgraph.dialects.graphcore import ReshapeOp
from popgraph.dialects.graphcore.base import shape_of
from popgraph.dialects.onnx import Graph
from popgraph.dialects.onnx.types import describe, static_shape
from popgraph.dialects.program import ConstantOp
from popgraph.operators.elements import is_held
from popgraph.operators.node import Node
from popgraph.support.errors import TypeMismatchError, UnsupportedError
from popgraph.support.shapes import prod


def close(blocks: Sequence[Block]) -> list[SSAValue]:
    """
    Gives bodies, as last arguments, the outer values that any of them uses; these values.

    Outer constants are copied into the bodies instead. Bodies inside these are closed already:
    what they capture are operands here.
    """
    for block in blocks:
        drop_unused(block)
        _copy_constants(block)
    captured = list(dict.fromkeys(value for block in blocks for value in outer_values(block)))
    for block in blocks:
        for value in captured:
            argument = block.insert_arg(value.type, len(block.args))
            show_as(argument, value)
            _replace(block, value, argument)
    return captured


def show_as(new: SSAValue, old: SSAValue) -> None:
    """Gives a value the name in IR text that another one has, unless it has one."""
    if new.name_hint is None:
        new.name_hint = old.name_hint


def _replace(block: Block, old: SSAValue, new: SSAValue) -> None:
    """Lets the operations of a block use another value."""
    old.replace_uses_with_if(new, lambda use: use.operation.parent is block)


def outer_values(block: Block) -> Iterator[SSAValue]:
    """The values from outside that the operations of a block use, in order."""
    return (value for op in block.ops for value in op.operands if _home(value) is not block)


def _home(value: SSAValue) -> Block | None:
    """The block in which a value is defined."""
    return value.owner.parent if isinstance(value.owner, Operation) else value.owner


def _copy_constants(block: Block) -> None:
    first = block.first_op
    assert first is not None, "a body ends with pg.yield"
    for value in dict.fromkeys(outer_values(block)):
        if isinstance(value.owner, ConstantOp):
            with ImplicitBuilder(Builder(InsertPoint.before(first))):
                copy = value.owner.clone()
            _replace(block, value, copy.result)


def drop_unused(block: Block) -> None:
    """Weights and literals that were only looked at, and what only fed those."""
    for op in reversed(list(block.ops)):
        if op.results and not any(result.uses for result in op.results):
            Rewriter.erase_op(op)


def discard(block: Block) -> None:
    """Takes apart a body that is not to be: outer values forget that it used them."""
    for op in reversed(list(block.ops)):
        Rewriter.erase_op(op, safe_erase=False)


# Graphs inside nodes


def check_outputs(node: Node, graph: Graph, count: int) -> None:
    """An error unless a graph inside gives as much as the node has outputs."""
    if count < node.output_count:
        raise TypeMismatchError(
            f"{node.op.op_type} has {node.output_count} outputs, "
            f"but its graph {graph.graph_name.text!r} gives {count}"
        )


def given_tensor(node: Node, graph: Graph, made: Sequence[SSAValue | None], index: int) -> SSAValue:
    """An output of a graph inside; an error unless it is a tensor that can be computed."""
    value = made[index]
    if value is None:
        raise UnsupportedError(
            f"what the graph of {node.op.op_type} gives as {graph.output_names[index]!r}, "
            f"of type {describe(graph.yielded[index].type)}, cannot be computed",
            hint="PopGraph computes with dense tensors of numbers",
        )
    return value


def in_declared_shape(value: SSAValue, declared: SSAValue) -> SSAValue:
    """
    The value in the shape that the model says it has.

    The bodies by which ONNX defines activations make tensors of shape 1 out of scalars.
    """
    shape = static_shape(declared.type)
    if is_held(value) or shape is None or shape == shape_of(value):
        return value
    if not prod(shape) == prod(shape_of(value)) == 1:
        return value
    return ReshapeOp(value, shape=shape).result
