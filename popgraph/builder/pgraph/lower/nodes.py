"""Creates nodes of onnx IR with names, locations and annotations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from xdsl.dialects.builtin import FileLineColLoc, IntAttr, NameLoc, StringAttr
from xdsl.ir import Attribute, SSAValue

from popgraph.builder.budget import NODE
from popgraph.builder.pgraph.check.annotations import Notes
from popgraph.builder.pgraph.check.operators import Operator, newest, operator_of
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.value_names import next_step
from popgraph.builder.pgraph.syntax.source import Failed
from popgraph.builder.pgraph.syntax.tree import Name, Path, Span
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.support.arrays import Array
from popgraph.support.errors import PopgraphError


def add_node(
    context: GraphContext,
    op_type: str,
    operands: Sequence[SSAValue | None],
    names: Sequence[str],
    span: Span,
    attributes: Mapping[str, object] | None = None,
    domain: str = "",
    types: Sequence[Attribute] | None = None,
    overload: str = "",
) -> list[SSAValue]:
    """
    Writes a node; returns its results, without unnamed ones.

    Errors of the writer are reported at `span`.
    """
    unfolded = context.file.unfolded.get((domain, op_type, overload), 1)
    context.source.spend(span, NODE * unfolded)
    if types is not None:
        types = [type_ for name, type_ in zip(names, types, strict=False) if name]
    context.writer.import_opset(domain, newest().get(domain, 1))
    first = next(filter(None, names), "")
    label = context.node_names.next(op_type, first)
    try:
        context.writer.add_node(
            op_type,
            operands,
            attributes,
            domain=domain,
            outputs=list(names),
            name=label,
            overload=overload,
            result_types=types,
        )
    except PopgraphError as error:
        context.source.note(span, error)
        raise Failed from error
    locate(context, label or first, span)
    written = context.writer.block.last_op
    assert isinstance(written, OnnxOp)
    context.notes.put(written, context.file.store)
    results = zip(written.output_names, written.output_values(), strict=False)
    return [value for name, value in results if name and value is not None]


def add_step(
    context: GraphContext,
    op_type: str,
    operands: Sequence[SSAValue | None],
    name: str | None,
    span: Span,
    attributes: Mapping[str, object] | None = None,
) -> SSAValue:
    """A node with one result; without a `name`, it is an intermediate value."""
    return add_node(context, op_type, operands, [name or next_step(context)], span, attributes)[0]


def add_constant(context: GraphContext, array: Array, name: str, span: Span) -> SSAValue:
    return add_node(context, "Constant", [], [name], span, {"value": array})[0]


def integers(context: GraphContext, given: SSAValue | int | list[int], span: Span) -> SSAValue:
    """A value, or numbers as an i64 constant."""
    if isinstance(given, SSAValue):
        return given
    return add_constant(context, np.array(given, np.int64), next_step(context), span)


def locate(context: GraphContext, label: str, span: Span) -> None:
    """Sets the source location of the last node."""
    written = context.writer.block.last_op
    assert written is not None
    location = FileLineColLoc(
        StringAttr(context.source.filename), IntAttr(span.line), IntAttr(span.column)
    )
    written.location = NameLoc(StringAttr(label), location)


def operator_named(context: GraphContext, op_type: str, span: Span) -> Operator:
    """An ONNX operator in the opset version of the text."""
    path = Path(span, (Name(span, op_type),))
    return operator_of(context.source, path, context.writer.opsets)


def describe_node(context: GraphContext, values: Sequence[SSAValue], notes: Notes) -> None:
    """Attaches the statement's own annotations to the node that computes `values`."""
    op = values[0].owner if values else context.writer.block.last_op
    if isinstance(op, OnnxOp) and op.parent_block() is context.writer.block:
        notes.put(op, context.file.store)
