"""Lowers `weight`, `const` and `let`."""

from __future__ import annotations

from xdsl.ir import Attribute, SSAValue

from popgraph.builder.pgraph.check.annotations import Notes
from popgraph.builder.pgraph.check.declared_types import declared_type, type_of
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.expressions import known
from popgraph.builder.pgraph.lower.initial_values import initial_value
from popgraph.builder.pgraph.lower.nodes import add_constant, describe_node, locate
from popgraph.builder.pgraph.lower.value_names import full_name
from popgraph.builder.pgraph.syntax.tree import Constant, Static, Weight
from popgraph.dialects.onnx.attributes import SparseTensorAttr
from popgraph.dialects.onnx.metadata import declared, with_tensor_metadata
from popgraph.dialects.onnx.tensorproto import from_value
from popgraph.dialects.onnx.types import UNKNOWN


def lower_weight(context: GraphContext, weight: Weight, notes: Notes) -> None:
    """`weight w: f32[3, 4] = zeros`: an initializer."""
    context.scope.define(weight.name, _initializer(context, weight, notes), "weight")


def _initializer(context: GraphContext, weight: Weight, notes: Notes) -> SSAValue:
    full, info = full_name(context, weight.name.text), None
    found = initial_value(context.file, weight, context.scope, full)
    held: Attribute = found if isinstance(found, SparseTensorAttr) else UNKNOWN
    if not isinstance(found, SparseTensorAttr):
        held = with_tensor_metadata(from_value(found, context.file.store), notes.about)
    if notes.place is not None:
        listed = type_of(notes.declared) if notes.declared else weight.type
        assert listed is not None, "the annotation was checked"
        info = declared(full, declared_type(context.source, listed, context.scope))
    value = context.writer.add_initializer(full, held, input=info, place=notes.place or 0)
    locate(context, full, weight.name.span)
    return value


def lower_constant(context: GraphContext, constant: Constant, notes: Notes) -> None:
    """`const axes = i64([-1])`: a Constant."""
    name = constant.name
    full = full_name(context, name.text)
    tensor = initial_value(context.file, constant, context.scope, full)
    assert not isinstance(tensor, SparseTensorAttr), "only weights are sparse"
    value = add_constant(context, tensor, full, name.span)
    context.scope.define(name, value, "constant")
    describe_node(context, [value], notes)


def lower_let(context: GraphContext, statement: Static) -> None:
    """`let heads = width / 64`: defines a constant without a node."""
    context.scope.define(statement.name, known(context, statement.value), "name")
