"""Bodies of control flow: captured outer values, and checks of inner graphs' outputs."""

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
    Turns the outer values that any of the bodies uses into trailing arguments; returns them.

    Outer constants are copied into the bodies instead. Nested bodies are closed already, so
    their captured values are operands here.
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
    """Copies the name of `old` in IR text to `new`, unless `new` has one."""
    if new.name_hint is None:
        new.name_hint = old.name_hint


def _replace(block: Block, old: SSAValue, new: SSAValue) -> None:
    """Replaces a value in the operands of a block's operations."""
    old.replace_uses_with_if(new, lambda use: use.operation.parent is block)


def outer_values(block: Block) -> Iterator[SSAValue]:
    """The outer values that the operations of a block use, in order."""
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
    """Erases operations without uses: weights and literals that only served a lookup."""
    for op in reversed(list(block.ops)):
        if op.results and not any(result.uses for result in op.results):
            Rewriter.erase_op(op)


def discard(block: Block) -> None:
    """Erases all operations of an abandoned body, so that outer values lose these uses."""
    for op in reversed(list(block.ops)):
        Rewriter.erase_op(op, safe_erase=False)


# Graphs inside nodes


def check_outputs(node: Node, graph: Graph, count: int) -> None:
    """Raises an error unless an inner graph yields at least as many values as the node has."""
    if count < node.output_count:
        raise TypeMismatchError(
            f"{node.op.op_type} has {node.output_count} outputs, "
            f"but its graph {graph.graph_name.text!r} gives {count}"
        )


def given_tensor(node: Node, graph: Graph, made: Sequence[SSAValue | None], index: int) -> SSAValue:
    """An output of an inner graph; an error unless it is a tensor that can be computed."""
    value = made[index]
    if value is None:
        raise UnsupportedError(
            f"output {graph.output_names[index]!r} of the graph of {node.op.op_type} has type "
            f"{describe(graph.yielded[index].type)}, which cannot be computed",
            hint="PopGraph computes with dense tensors of numbers",
        )
    return value


def in_declared_shape(value: SSAValue, declared: SSAValue) -> SSAValue:
    """
    The value, reshaped to its declared shape if both have one element.

    The function bodies in which ONNX defines activations reshape scalars to [1].
    """
    shape = static_shape(declared.type)
    if is_held(value) or shape is None or shape == shape_of(value):
        return value
    if not prod(shape) == prod(shape_of(value)) == 1:
        return value
    return ReshapeOp(value, shape=shape).result
