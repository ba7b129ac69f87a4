"""Adds a loss such as `nll(y, labels)` to an existing onnx module."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, SSAValue

from popgraph.builder.pgraph.check.file_context import FileContext
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.statements import lower_statements
from popgraph.builder.pgraph.lower.training import LOSS, TRAINING_RULES, check_loss
from popgraph.builder.pgraph.syntax.parser import parse_expression
from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import Assignment, Name, Span, Target
from popgraph.dialects.onnx import Model, model_of
from popgraph.dialects.onnx.adoption import adopt
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.dialects.program import WeightStore

START = Span(1, 1, 1, 1)


def add_loss(
    module: ModuleOp, weights: WeightStore, loss: str, inputs: Mapping[str, Attribute]
) -> tuple[ModuleOp, str]:
    """
    Copies an onnx module with a loss as an additional output; returns the output's name, too.

    `loss` is an expression over the model's values and the new `inputs`; a value's name alone
    denotes that value. Errors are reported as in a text.
    """
    source = Source(loss, "<loss>")
    expression = parse_expression(source)
    model = model_of(module.clone())
    context = _continued(source, model, weights)
    for name, type_ in inputs.items():
        _define(context, name, context.writer.add_input(name, type_))
    if isinstance(expression, Name):
        name = expression.text
        value = _known(context, expression)
    else:
        name = context.writer.fresh_name(LOSS)
        named = Name(expression.span, name)
        target = Target(expression.span, named, None)
        lower_statements(context, [Assignment(expression.span, (target,), expression)])
        source.raise_mistakes()
        value = context.scope.value(named)
    check_loss(context, value, expression.span)
    source.raise_mistakes()
    outputs = [context.writer.value(one) for one in model.graph.output_names]
    context.writer.set_outputs(outputs if value in outputs else [*outputs, value])
    return context.writer.module(ir_version=model.ir_version.value.data), name


def _known(context: GraphContext, name: Name) -> SSAValue:
    try:
        return context.scope.value(name)
    except Failed:
        context.source.raise_mistakes()
        raise


def _continued(source: Source, model: Model, weights: WeightStore) -> GraphContext:
    """A lowering context that appends to a finished model."""
    opsets = dict(model.opset_versions)
    file = FileContext(source, opsets, weights, Scope(source))
    writer = GraphWriter(opsets, weights, name=model.graph.graph_name.text)
    context = GraphContext(file, writer, Scope(source, file.scope), TRAINING_RULES)
    for function in model.functions.values():
        function.detach()
        writer.add_function(function)
    for name, value in adopt(writer, model.graph, infer=True).items():
        _define(context, name, value)
    return context


def _define(context: GraphContext, name: str, value: SSAValue) -> None:
    context.scope.define(Name(START, name), value)
