"""Adds a loss such as `nll(y, labels)` to an existing onnx module."""

from __future__ import annotations

from collections.abc import Mapping

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Attribute, SSAValue

from popgraph.builder.pgraph.check.file_context import FileContext
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.lower import GraphLowering
from popgraph.builder.pgraph.lower.training import LOSS, TrainingLowering
from popgraph.builder.pgraph.syntax.parser import parse_expression
from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import Assignment, Name, Span, Target
from popgraph.dialects.onnx import Initializer, Model, OnnxOp, model_of, value_name
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.dialects.program import WeightStore

START = Span(1, 1, 1, 1)


def add_loss(
    module: ModuleOp, weights: WeightStore, loss: str, inputs: Mapping[str, Attribute]
) -> tuple[ModuleOp, str]:
    """
    A copy of an onnx module that gives a loss as well, and the name of that output.

    `loss` is an expression over the model's values and `inputs`, which are new; the name of a
    value alone means that value. The same mistakes are reported as in a text.
    """
    source = Source(loss, "<loss>")
    expression = parse_expression(source)
    model = model_of(module.clone())
    lowering = _Continued(source, model, weights)
    for name, type_ in inputs.items():
        lowering.add_input(name, type_)
    if isinstance(expression, Name):
        name = expression.text
        value = _known(lowering, expression)
    else:
        name = lowering.writer.fresh_name(LOSS)
        named = Name(expression.span, name)
        target = Target(expression.span, named, None)
        lowering.statements([Assignment(expression.span, (target,), expression)])
        source.raise_mistakes()
        value = lowering.scope.value(named)
    lowering.check_loss(value, expression.span)
    source.raise_mistakes()
    outputs = [lowering.writer.value(one) for one in model.graph.output_names]
    lowering.writer.set_outputs(outputs if value in outputs else [*outputs, value])
    return lowering.writer.module(ir_version=model.ir_version.value.data), name


def _known(lowering: GraphLowering, name: Name) -> SSAValue:
    try:
        return lowering.scope.value(name)
    except Failed:
        lowering.source.raise_mistakes()
        raise


class _Continued(TrainingLowering):
    """A lowering that goes on where a finished model ends."""

    def __init__(self, source: Source, model: Model, weights: WeightStore) -> None:
        opsets = dict(model.opset_versions)
        context = FileContext(source, opsets, weights, Scope(source))
        name = model.graph.graph_name.text
        super().__init__(context, GraphWriter(opsets, weights, name=name))
        for function in model.functions.values():
            function.detach()
            self.writer.add_function(function)
        self._take(model)

    def add_input(self, name: str, type_: Attribute) -> None:
        self._know(name, self.writer.add_input(name, type_))

    def _know(self, name: str, value: SSAValue) -> None:
        self.scope.define(Name(START, name), value)

    def _take(self, model: Model) -> None:
        """Moves everything that the graph holds into the writer."""
        graph = model.graph
        for info, argument in zip(graph.inputs, list(graph.block.args), strict=True):
            taken = self.writer.add_input(info.text, argument.type, info=info)
            argument.replace_all_uses_with(taken)
            self._know(info.text, taken)
        for op in list(graph.block.ops):
            if isinstance(op, Initializer):
                place = op.place.value.data if op.place is not None else 0
                name = op.value_name.text
                taken = self.writer.add_initializer(name, op.value, input=op.input, place=place)
                op.result.replace_all_uses_with(taken)
                self._know(name, taken)
            elif isinstance(op, OnnxOp):
                op.detach()
                for result in self.writer.add_op(op):
                    self._know(value_name(result), result)
