"""Lowers `train` sections: the loss, the optimizer, the learning rate schedule, frozen weights."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.dialects.builtin import ModuleOp
from xdsl.ir import SSAValue

from popgraph.builder.pgraph.check.const_eval import folded
from popgraph.builder.pgraph.check.file_context import FileContext
from popgraph.builder.pgraph.check.loss_table import loss_named
from popgraph.builder.pgraph.check.scope import Scope
from popgraph.builder.pgraph.lower.context import GraphContext, Rules
from popgraph.builder.pgraph.lower.graphs import context_of_graph
from popgraph.builder.pgraph.lower.inputs_and_outputs import lower_inputs, result_named
from popgraph.builder.pgraph.lower.lower_losses import loss_of_call, lower_loss
from popgraph.builder.pgraph.lower.rules import lower_expression, lower_statement
from popgraph.builder.pgraph.lower.schedules import Schedule, schedule_of
from popgraph.builder.pgraph.lower.statements import lower_statements
from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import (
    Argument,
    Assignment,
    Call,
    Expression,
    Freeze,
    Graph,
    Missing,
    Name,
    Number,
    Span,
    Statement,
    Target,
    Text,
    Train,
    Truth,
    walk,
)
from popgraph.dialects.onnx.initializer import Initializer
from popgraph.dialects.onnx.op import OnnxOp
from popgraph.dialects.onnx.schemas import op_class
from popgraph.dialects.onnx.types import dims, static_shape
from popgraph.dialects.onnx.writer import GraphWriter
from popgraph.support.boxes import BadSlice, Box, selects, slice_of, split_slice
from popgraph.support.names import closest
from popgraph.support.shapes import Shape
from popgraph.support.step_options import STEP_OPTIONS

LOSS = "loss"


@dataclass(frozen=True)
class OptimizerCall:
    """`SGD(0.1, momentum=0.9)`, as data."""

    name: str
    arguments: dict[str, int | float | bool | str] = field(default_factory=dict)
    where: str = ""
    """The position in the text, for errors about the optimizer's name."""
    span: Span = field(default=Span(1, 1, 1, 2), compare=False)


@dataclass(frozen=True)
class TrainingSection:
    """
    A `train` section: the graph with its loss among the outputs, and the optimizer.

    `inputs` are additional inputs for training, such as labels. `terms` are the scalars that the
    loss is computed from, which are outputs, too. `frozen` are weights that are constants of this
    graph. Of the weights in `slices`, only a slice is trained, such as `:8`.
    """

    graph: str
    module: ModuleOp
    loss: str
    optimizer: OptimizerCall | None
    inputs: tuple[str, ...] = ()
    schedule: Schedule | None = None
    terms: tuple[str, ...] = ()
    frozen: tuple[str, ...] = ()
    slices: Mapping[str, str] = field(default_factory=dict)
    step_options: Mapping[str, object] = field(default_factory=dict)
    """Step options, see `support/step_options.py`."""


@dataclass
class _Settings:
    """The settings of a section, and the statements that belong to its graph."""

    optimizer: OptimizerCall | None = None
    schedule: Schedule | None = None
    step_options: dict[str, object] = field(default_factory=dict)
    frozen: list[Freeze] = field(default_factory=list)
    statements: list[Statement] = field(default_factory=list)


def lower_training_expression(
    context: GraphContext, expression: Expression, names: Sequence[str] | None
) -> list[SSAValue]:
    """Lowers an expression by kind; outside of subgraphs and templates, losses have short names."""
    outermost = not context.is_inner and not context.calls
    if outermost and isinstance(expression, Call):
        loss = loss_of_call(context, expression)
        if loss is not None:
            return lower_loss(context, expression, loss, names)
    if outermost and isinstance(expression, Name):
        _check_called(context, expression)
    return lower_expression(context, expression, names)


def _check_called(context: GraphContext, name: Name) -> None:
    """Fails on the name of a loss without arguments, unless a value has this name."""
    loss = None if context.scope.taken(name.text) else loss_named(name.text)
    if loss is not None:
        context.source.parse_error(
            name.span, f"`{name.text}` needs the value to compute the loss of", f"`{loss.usage}`"
        )
        raise Failed


TRAINING_RULES = Rules(lower_training_expression, lower_statement)


def check_loss(context: GraphContext, value: SSAValue, span: Span) -> None:
    """Reports a loss that cannot be a scalar."""
    sizes = dims(value.type)
    if sizes is not None and any(size not in (1, None) for size in sizes):
        context.source.mismatch(span, "the loss must be one number", "`ReduceMean(...)` makes one")


def lower_training(file: FileContext, graph: Graph, train: Train) -> TrainingSection | None:
    """Lowers a section; None if it has errors, which the source then holds."""
    said = _settings(file, train)
    assert graph.name is not None, "the grammar requires a name here"
    context = context_of_graph(file, graph, TRAINING_RULES)
    writer = context.writer
    lower_inputs(context, graph.inputs)
    lower_inputs(context, train.inputs)
    lower_statements(context, [*graph.body.statements, *said.statements])
    loss = _loss(context, train)
    frozen = frozen_weights(file.source, writer, said.frozen)
    slices = trained_slices(file.source, writer, said.frozen)
    if loss is None or file.source.mistakes:
        return None
    terms = _terms(context, said.statements)
    outputs: dict[str, SSAValue] = {}
    for name in [*_names(graph), *terms, LOSS]:
        outputs.setdefault(name, result_named(context, Name(train.span, name)))
    writer.set_outputs(list(outputs.values()))
    freeze(writer, frozen)
    return TrainingSection(
        graph.name.text,
        writer.module(),
        LOSS,
        said.optimizer,
        tuple(parameter.name.text for parameter in train.inputs),
        said.schedule,
        terms,
        frozen,
        slices,
        said.step_options,
    )


def _names(graph: Graph) -> list[str]:
    return [target.name.text for target in graph.outputs if isinstance(target.name, Name)]


def _settings(context: FileContext, train: Train) -> _Settings:
    """The optimizer and other settings, and the statements that belong to the graph."""
    found = _Settings()
    for statement in train.body.statements:
        try:
            match statement:
                case Assignment(targets=[Target(name=Name(text="optimizer"))], value=value):
                    found.optimizer = optimizer_call(context.source, value, context.scope)
                case Assignment(targets=[Target(name=Name(text="schedule"))], value=value):
                    found.schedule = schedule_of(context.source, value, context.scope)
                case Assignment(
                    targets=[Target(name=Name(text=name))], value=Number() | Text() as value
                ) if name in STEP_OPTIONS:
                    found.step_options[name] = _step_option(context.source, name, value)
                case Freeze():
                    found.frozen.append(statement)
                case _:
                    found.statements.append(statement)
        except Failed:
            continue
    return found


def _step_option(source: Source, name: str, value: Number | Text) -> object:
    option = STEP_OPTIONS[name]
    if not option.is_valid(value.value):
        source.parse_error(value.span, f"`{name}` is {option.requirement}", option.example)
        raise Failed
    return value.value


def _terms(context: GraphContext, statements: Sequence[Statement]) -> tuple[str, ...]:
    """The named scalars in the expression of the loss."""
    for statement in statements:
        match statement:
            case Assignment(targets=[Target(name=Name(text="loss"))], value=value):
                names = dict.fromkeys(one.text for one in walk(value) if isinstance(one, Name))
                return tuple(name for name in names if _is_term(context, name))
    return ()


def _is_term(context: GraphContext, name: str) -> bool:
    if not context.writer.has_value(name):
        return False
    value = context.writer.value(name)
    computed = isinstance(value.owner, OnnxOp) and value.owner.op_type != "Constant"
    sizes = dims(value.type)
    return computed and sizes is not None and all(size == 1 for size in sizes)


def _loss(context: GraphContext, train: Train) -> SSAValue | None:
    name = Name(train.span, LOSS)
    hint = "`loss = nll(y, labels)` defines the value to minimize"
    if not context.scope.taken(LOSS):
        context.source.parse_error(train.span, "training needs a `loss`", hint)
        return None
    if context.scope.known(name) is not None:
        span = context.scope.definition_span(LOSS)
        context.source.parse_error(span, "a loss of `let` depends on no weight", hint)
        return None
    try:
        value = context.scope.value(name)
    except Failed:
        return None
    check_loss(context, value, context.scope.definition_span(LOSS))
    return value


def optimizer_call(
    source: Source, expression: Expression, scope: Scope | None = None
) -> OptimizerCall:
    """Parses `SGD(0.1, momentum=0.9)`; the first argument may be the learning rate."""
    if isinstance(expression, Name):
        span = expression.span
        return OptimizerCall(expression.text, {}, source.where(span), span)
    if not isinstance(expression, Call) or len(expression.path.parts) != 1:
        source.parse_error(
            expression.span, "an optimizer is a name with arguments", "`SGD(0.1, momentum=0.9)`"
        )
        raise Failed
    arguments: dict[str, int | float | bool | str] = {}
    for index, argument in enumerate(expression.arguments):
        key = _key(source, argument, index)
        if key in arguments:
            source.parse_error(argument.span, f"`{key}` is given twice")
            raise Failed
        value = argument.value
        if scope is not None and not isinstance(value, Missing):
            value = folded(source, value, scope.known)
        if not isinstance(value, Number | Truth | Text):
            source.parse_error(value.span, f"`{key}` must be a number, `true`, `false` or a string")
            raise Failed
        arguments[key] = value.value
    span = expression.path.span
    return OptimizerCall(expression.path.text, arguments, source.where(span), span)


def _key(source: Source, argument: Argument, index: int) -> str:
    if argument.keyword is not None:
        return argument.keyword.text
    if index == 0:
        return "learning_rate"
    source.parse_error(
        argument.span,
        "only the learning rate may be positional",
        "`SGD(0.1, momentum=0.9)`",
    )
    raise Failed


def frozen_weights(
    source: Source, writer: GraphWriter, statements: Sequence[Freeze]
) -> tuple[str, ...]:
    """The names of frozen weights; a pattern that matches no weight is an error."""
    weights = [op.value_name.text for op in writer.block.ops if isinstance(op, Initializer)]
    named = {
        others: _matched(source, weights, [one for one in statements if one.others is others])
        for others in (False, True)
    }
    left_out = set(weights) - {*named[True]} if any(one.others for one in statements) else set()
    found = tuple(name for name in weights if name in left_out or name in named[False])
    if weights and len(found) == len(weights):
        span = statements[0].patterns[0].span
        source.parse_error(span, "no weights are left to train", "freeze fewer weights")
    return found


def _matched(
    source: Source, weights: Sequence[str], statements: Sequence[Freeze]
) -> Collection[str]:
    """The weights that the patterns of statements match."""
    found: dict[str, None] = {}
    for pattern in (pattern for one in statements for pattern in one.patterns):
        matched = [weight for weight in weights if _matches(pattern, weight)]
        found.update(dict.fromkeys(matched))
        if matched:
            continue
        text = pattern.text if isinstance(pattern, Name) else pattern.value
        close = closest(split_slice(text)[0], weights, 0.5)
        source.parse_error(
            pattern.span,
            f"there is no weight `{text}`",
            f"did you mean `{close}`?" if close else "",
        )
    return found


def _matches(pattern: Name | Text, weight: str) -> bool:
    """
    A name matches a weight or a prefix of its path; a string is an fnmatch pattern.

    A string may end with a slice.
    """
    if isinstance(pattern, Name):
        return weight == pattern.text or weight.startswith(f"{pattern.text}/")
    return selects(pattern.value, weight)


def trained_slices(
    source: Source, writer: GraphWriter, statements: Sequence[Freeze]
) -> dict[str, str]:
    """The slice of each weight that `train_only` selects only in part; reports wrong ones."""
    weights = [op for op in writer.block.ops if isinstance(op, Initializer)]
    found = dict[str, str]()
    for weight in weights:
        name, shape = weight.value_name.text, static_shape(weight.result.type)
        matching = [
            (one, pattern)
            for one in statements
            for pattern in one.patterns
            if _matches(pattern, name)
        ]
        for one, pattern in matching:
            slices = "" if isinstance(pattern, Name) else slice_of(pattern.value, name)
            if not slices:
                continue
            if not one.others:
                source.parse_error(
                    pattern.span,
                    "only whole weights are frozen",
                    f'`train_only "{name}[...]"` trains the other part',
                )
            elif sum(other.others for other, _ in matching) > 1:
                source.parse_error(
                    pattern.span, f"weight `{name}` is selected twice", "one slice, or the name"
                )
            elif shape is not None and (mistake := _mistake(slices, shape)):
                source.parse_error(
                    pattern.span, f"[{slices}] is not a slice of `{name}`: {mistake}", ""
                )
            else:
                found[name] = slices
    return found


def _mistake(slices: str, shape: Shape) -> str:
    """The reason why a slice selects no box of a shape; "" if it does."""
    try:
        Box.of(slices, shape)
    except BadSlice as error:
        return str(error)
    return ""


def freeze(writer: GraphWriter, weights: Collection[str]) -> None:
    """Converts weights to constants, which training does not change."""
    constant = op_class("Constant", writer.opsets[""], "")
    for op in list(writer.block.ops):
        if not isinstance(op, Initializer) or op.value_name.text not in weights:
            continue
        name = op.value_name.text
        made = constant.make([], {"value": op.value}, {}, [name], [op.result.type], {})
        made.location = op.location
        writer.block.insert_op_before(made, op)
        op.result.replace_all_uses_with(made.results[0])
        writer.block.erase_op(op)
        writer.capture({name: made.results[0]})
