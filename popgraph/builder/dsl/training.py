"""What does a `train` section add to its graph?"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import Operation, SSAValue

from popgraph.builder.dsl.lower import GraphLowering
from popgraph.builder.dsl.operators import GRAPHCORE
from popgraph.builder.dsl.scope import Failed
from popgraph.builder.dsl.setting import Setting
from popgraph.builder.dsl.source import Source
from popgraph.builder.dsl.tree import (
    Argument,
    Assignment,
    Call,
    Expression,
    Graph,
    Name,
    Number,
    Path,
    Span,
    Statement,
    Text,
    Train,
    Truth,
)
from popgraph.dialects.onnx.types import describe, dims
from popgraph.dialects.onnx.writer import GraphWriter

LOSS = "loss"
OPTIMIZER = "optimizer"

LOSSES = {"nll": ("nllloss", 2), "l1": ("l1loss", 1), "identity": ("identityloss", 1)}
"""
PopART's losses under short names, and how many inputs they have.

Any other expression with one number as its value will do as well.
"""


@dataclass(frozen=True)
class OptimizerCall:
    """`SGD(0.1, momentum=0.9)`, as data."""

    name: str
    arguments: dict[str, int | float | bool | str] = field(default_factory=dict)
    where: str = ""
    """The place in the text, for whoever finds that there is no such optimizer."""


@dataclass(frozen=True)
class TrainingSection:
    """
    What a `train` section says: the graph with its loss among the outputs, and the optimizer.

    `inputs` are those that only training needs, such as labels.
    """

    graph: str
    module: ModuleOp
    loss: str
    optimizer: OptimizerCall | None
    inputs: tuple[str, ...] = ()


class TrainingLowering(GraphLowering):
    """A graph and what its `train` section adds."""

    def call(self, call: Call, names: Sequence[str] | None) -> list[SSAValue]:
        if len(call.path.parts) != 1 or call.path.text not in LOSSES:
            return super().call(call, names)
        values = super().call(self.loss(call), names)
        if call.path.text == "nll":
            self.check_labels(call.path.span, values[0])
        return values

    def loss(self, call: Call) -> Call:
        """`nll(y, labels)` under the full name of the operator."""
        method, inputs = LOSSES[call.path.text]
        if sum(argument.keyword is None for argument in call.arguments) != inputs:
            expected = "the probabilities and the labels" if inputs == 2 else "one tensor"
            self.source.parse_error(
                call.path.span, f"`{call.path.text}` takes {expected}", "`nll(y, labels)`, `l1(y)`"
            )
            raise Failed
        span = call.path.span
        parts = [Name(span, part) for part in (*GRAPHCORE.split("."), method)]
        return Call(call.span, Path(span, tuple(parts)), call.arguments)

    def check_labels(self, span: Span, loss: SSAValue) -> None:
        """Notes a mistake unless every row of probabilities has one label."""
        assert isinstance(loss.owner, Operation)
        probabilities, labels = (operand.type for operand in loss.owner.operands)
        rows, given = dims(probabilities), dims(labels)
        if rows is None or given is None:
            return
        pairs = zip(rows[:-1], given, strict=False)
        if len(rows) != len(given) + 1 or any(a != b for a, b in pairs if None not in (a, b)):
            self.source.mismatch(
                span,
                f"labels of type {describe(labels)} do not fit {describe(probabilities)}",
                "every row of probabilities, along the last axis, has one label",
            )

    def check_loss(self, value: SSAValue, span: Span) -> None:
        """Notes a mistake at `span` unless the loss may be a single number."""
        sizes = dims(value.type)
        if sizes is not None and any(size not in (1, None) for size in sizes):
            self.source.mismatch(span, "the loss must be one number", "`ReduceMean(...)` makes one")


def lower_training(setting: Setting, graph: Graph, train: Train) -> TrainingSection | None:
    """The section as data; None when something is wrong with it, which the source then knows."""
    optimizer, statements = _settings(setting.source, train)
    assert graph.name is not None, "the grammar wants a name here"
    writer = GraphWriter(
        setting.opsets, setting.store, name=graph.name.text, functions=setting.functions
    )
    lowering = TrainingLowering(setting, writer)
    lowering.inputs(graph.inputs)
    lowering.inputs(train.inputs)
    lowering.statements([*graph.body.statements, *statements])
    loss = _loss(lowering, train)
    if loss is None or setting.source.mistakes:
        return None
    values = [lowering.scope.value(target.name) for target in graph.outputs]  # type: ignore[arg-type]
    names = [target.name.text for target in graph.outputs]  # type: ignore[union-attr]
    lowering.writer.set_outputs(values if LOSS in names else [*values, loss])
    return TrainingSection(
        graph.name.text,
        lowering.writer.module(),
        LOSS,
        optimizer,
        tuple(parameter.name.text for parameter in train.inputs),
    )


def _settings(source: Source, train: Train) -> tuple[OptimizerCall | None, list[Statement]]:
    """The optimizer, and the statements that belong to the graph."""
    optimizer = None
    statements: list[Statement] = []
    for statement in train.body.statements:
        match statement:
            case Assignment(targets=[target]) if (
                isinstance(target.name, Name) and target.name.text == OPTIMIZER
            ):
                try:
                    optimizer = optimizer_call(source, statement.value)
                except Failed:
                    continue
            case _:
                statements.append(statement)
    return optimizer, statements


def _loss(lowering: TrainingLowering, train: Train) -> SSAValue | None:
    name = Name(train.span, LOSS)
    if not lowering.scope.taken(LOSS):
        lowering.source.parse_error(
            train.span, "training needs a `loss`", "`loss = nll(y, labels)` says what to make small"
        )
        return None
    try:
        value = lowering.scope.value(name)
    except Failed:
        return None
    lowering.check_loss(value, lowering.scope.place(LOSS))
    return value


def optimizer_call(source: Source, expression: Expression) -> OptimizerCall:
    """`SGD(0.1, momentum=0.9)`: the name and the arguments; the first may be the learning rate."""
    if isinstance(expression, Name):
        return OptimizerCall(expression.text, {}, source.where(expression.span))
    if not isinstance(expression, Call) or len(expression.path.parts) != 1:
        source.parse_error(
            expression.span, "an optimizer is a name with arguments", "`SGD(0.1, momentum=0.9)`"
        )
        raise Failed
    arguments: dict[str, int | float | bool | str] = {}
    for place, argument in enumerate(expression.arguments):
        key = _key(source, argument, place)
        if key in arguments:
            source.parse_error(argument.span, f"`{key}` is given twice")
            raise Failed
        if not isinstance(argument.value, Number | Truth | Text):
            source.parse_error(
                argument.value.span, f"`{key}` must be a number, `true`, `false` or a string"
            )
            raise Failed
        arguments[key] = argument.value.value
    return OptimizerCall(expression.path.text, arguments, source.where(expression.path.span))


def _key(source: Source, argument: Argument, place: int) -> str:
    if argument.keyword is not None:
        return argument.keyword.text
    if place == 0:
        return "learning_rate"
    source.parse_error(
        argument.span,
        "only the learning rate may stand without a name",
        "`SGD(0.1, momentum=0.9)`",
    )
    raise Failed
