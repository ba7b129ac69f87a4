"""Lowers losses by name, `cross_entropy(y, labels)`, to the nodes of their formulas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache

from xdsl.ir import SSAValue

from popgraph.builder.pgraph.check.const_eval import folded
from popgraph.builder.pgraph.check.loss_table import (
    ALIKE,
    AXIS,
    CLASS_NUMBERS,
    CLASS_WEIGHTS,
    LOSS_NAMES,
    ONE_HOT,
    SAMPLE_WEIGHTS,
    Loss,
    check_class_numbers,
    check_same_shape,
    class_axis,
    loss_named,
)
from popgraph.builder.pgraph.check.operators import is_operator
from popgraph.builder.pgraph.lower.context import GraphContext
from popgraph.builder.pgraph.lower.expressions import fold, lower_value
from popgraph.builder.pgraph.lower.tensor_literals import dtype_of
from popgraph.builder.pgraph.syntax.literals import is_literal
from popgraph.builder.pgraph.syntax.parser import parse_expression
from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import (
    Argument,
    Call,
    Computed,
    Expression,
    Missing,
    Name,
    Node,
    Number,
    Path,
    Span,
)
from popgraph.dialects.onnx.types import describe, dims
from popgraph.support.names import closest

_Meanings = Mapping[str, Expression]


def loss_of_call(context: GraphContext, call: Call) -> Loss | None:
    """The loss that a call names; definitions of the text and operators take precedence."""
    path = call.path
    if len(path.parts) > 1 or is_operator(path.text) or _is_defined(context, path):
        return None
    loss = loss_named(path.text)
    if loss is None:
        _check_spelling(context, path)
    return loss


def _is_defined(context: GraphContext, path: Path) -> bool:
    functions = any(key[:2] == ("", path.text) for key in context.file.calls)
    known = context.scope.known(path.parts[0]) is not None
    return functions or known or context.file.template(path) is not None


def _check_spelling(context: GraphContext, path: Path) -> None:
    """
    Fails on a misspelt loss, unless a `def` is more similar.

    Names of operators begin with a capital letter.
    """
    close = LOSS_NAMES.closest(path.text)
    if closest(path.text, context.file.definitions, 0.7):
        return
    if path.text[:1].islower() or (close and closest(path.text, [close], 0.8)):
        context.source.parse_error(path.span, *LOSS_NAMES.unknown(path.text))
        raise Failed


def lower_loss(
    context: GraphContext, call: Call, loss: Loss, names: Sequence[str] | None
) -> list[SSAValue]:
    """Lowers a loss; the last node has the names of the results."""
    span = call.path.span
    inputs, options = _arguments(context, call, loss)
    meanings: dict[str, Expression] = {
        name: options.get(name, Number(span, default)) for name, default in loss.settings.items()
    }
    formula = loss.formula if len(inputs) == 2 else loss.alone
    y = lower_value(context, inputs[0])
    if len(inputs) == 2 and loss.target == ALIKE:
        meanings["t"] = _target(context, loss, inputs[1], y, span)
    elif len(inputs) == 2:
        y, meanings["t"] = _of_classes(context, loss, y, inputs[1], options.get(AXIS), span)
    meanings["y"] = Computed(span, y)
    if CLASS_WEIGHTS in options:
        formula, meanings["w"] = loss.weighted, options[CLASS_WEIGHTS]
    elif loss.target == ONE_HOT:
        meanings["classes"] = _classes(context, y, span)
    for name, step in loss.steps:
        meanings[name] = _value(context, step, meanings, span)
    given = [(name, value) for name, value in options.items() if name in loss.attributes]
    if SAMPLE_WEIGHTS in options:
        _check_only_samples(context, loss, options, span)
        formula = _weigh_samples(context, loss, options[SAMPLE_WEIGHTS], meanings, inputs[-1], span)
    expression = _placed(_parsed(formula), meanings, span)
    if given:
        if not isinstance(expression, Call) or (loss.alone and len(inputs) == 2):
            raise _unused_options(context, loss, [name for name, _ in given], span)
        expression = _with_attributes(expression, loss, dict(given))
    return context.rules.expression(context, fold(context, expression), names)


def _check_only_samples(
    context: GraphContext, loss: Loss, options: Mapping[str, Expression], span: Span
) -> None:
    """Fails on options that change the mean, which sample weights define already."""
    other = [name for name in options if name == CLASS_WEIGHTS or name in loss.attributes]
    if other:
        context.source.parse_error(
            span,
            f"`{loss.name}` does not take {other[0]!r} and {SAMPLE_WEIGHTS!r} together",
            "multiply the weight of a sample by that of its class, 0 for an ignored one",
        )
        raise Failed


def _weigh_samples(
    context: GraphContext,
    loss: Loss,
    weights: Expression,
    meanings: dict[str, Expression],
    target: Expression,
    span: Span,
) -> str:
    """
    The formula `mean(elements * weights)`; sets the meanings of its names.

    Weights of [N] are aligned with the first axis of elements of [N, ...].
    """
    given = lower_value(context, weights)
    rank = dims(given.type)
    elements = _value(context, loss.elements, meanings, span)
    if loss.target == CLASS_NUMBERS:
        # The elements of flattened rows get the shape of the labels again.
        labels = lower_value(context, target)
        shape = dims(labels.type)
        meanings |= {"e": elements, "labels": Computed(span, labels)}
        if shape is None or len(shape) > 1:
            elements = _value(context, "Reshape(e, Shape(labels))", meanings, span)
    else:
        shape = dims(_computed(elements).type)
    if rank is None or shape is None or len(rank) > len(shape):
        context.source.mismatch(
            span,
            f"sample weights of type {describe(given.type)} do not fit a loss with "
            + ("unknown axes" if shape is None else f"{len(shape)} axes"),
            "one weight for each sample: f32[N]",
        )
        raise Failed
    scale = _converted(context, given, dtype_of(_computed(elements)), span)
    if missing := len(shape) - len(rank):
        axes = ", ".join("_" * missing)
        scale = _value(context, f"s[..., {axes}]", {"s": scale}, span)
    meanings |= {"e": elements, "s": scale}
    return "ReduceMean(e * s, keepdims=0)"


def _arguments(
    context: GraphContext, call: Call, loss: Loss
) -> tuple[list[Expression], dict[str, Expression]]:
    """The inputs, and the options by name."""
    source = context.source
    inputs: list[Expression] = []
    options: dict[str, Expression] = {}
    for argument in call.arguments:
        keyword, value = argument.keyword, argument.value
        if isinstance(value, Missing):
            source.parse_error(value.span, "a loss takes values, and options that are given")
            raise Failed
        if keyword is None:
            inputs.append(value)
        elif keyword.text not in loss.options or keyword.text in options:
            known = ", ".join(loss.options) or "no options"
            source.parse_error(
                argument.span, f"`{loss.name}` does not take this", f"it takes {known}"
            )
            raise Failed
        else:
            options[keyword.text] = value
    counts = [count for count, text in ((2, loss.formula), (1, loss.alone)) if text]
    if len(inputs) not in counts:
        expected = "one tensor" if 2 not in counts else f"two tensors, y and {loss.target_name}"
        source.parse_error(
            call.path.span, f"`{call.path.text}` takes {expected}", f"`{loss.usage}`"
        )
        raise Failed
    return inputs, options


def _target(
    context: GraphContext, loss: Loss, given: Expression, y: SSAValue, span: Span
) -> Expression:
    """The target of an elementwise loss, cast to the element type of the output."""
    if is_literal(found := fold(context, given)):
        return found
    target = lower_value(context, found)
    check_same_shape(context.source, span, loss, y.type, target.type)
    return _converted(context, target, dtype_of(y), span)


def _of_classes(
    context: GraphContext,
    loss: Loss,
    y: SSAValue,
    labels: Expression,
    axis: Expression | None,
    span: Span,
) -> tuple[SSAValue, Expression]:
    """Scores and labels, with classes on the axis that the formula expects."""
    target = lower_value(context, labels)
    found = _given_axis(context, loss, axis, y, target)
    if found is None:
        found = class_axis(context.source, span, loss, y.type, target.type)
    wanted = dtype_of(y)
    if loss.target == CLASS_NUMBERS:
        check_class_numbers(context.source, span, loss, target.type)
        wide = dtype_of(target) in ("i64", "u32", "u64")
        wanted = "i64" if wide else "i32"
    labels = _converted(context, target, wanted, span)
    rank = _rank(y, target, loss)
    if rank is None or rank < 3 or found in (None, loss.class_axis):
        return y, labels
    return _moved(context, loss, y, labels, rank, span)


def _moved(
    context: GraphContext, loss: Loss, y: SSAValue, labels: Expression, rank: int, span: Span
) -> tuple[SSAValue, Expression]:
    """Moves the classes to the axis that the formula expects."""
    meanings: dict[str, Expression] = {"y": Computed(span, y), "t": labels}
    if loss.class_axis == 1:  # Rows of scores: a view, where a Transpose would copy.
        rows = _value(context, f"Flatten(y, axis={rank - 1})", meanings, span)
        return _computed(rows), _value(context, "Reshape(t, [-1])", meanings, span)
    order = [0, *range(2, rank), 1]
    moved = _value(context, f"Transpose(y, perm={order})", meanings, span)
    if loss.target == ONE_HOT:
        labels = _value(context, f"Transpose(t, perm={order})", meanings, span)
    return _computed(moved), labels


def _given_axis(
    context: GraphContext, loss: Loss, axis: Expression | None, y: SSAValue, labels: SSAValue
) -> int | None:
    """The class axis that a call requests: 1, or -1 for the last one."""
    if axis is None:
        return None
    rank = _rank(y, labels, loss)
    match folded(context.source, axis, context.scope.known):
        case Number(value=int() as number) if number in (-1, 1):
            return -1 if rank == 2 else number
        case Number(value=int() as number) if rank is not None and number == rank - 1:
            return -1
    context.source.parse_error(
        axis.span, "the classes are along axis 1 or along the last one", "`axis=1` or `axis=-1`"
    )
    raise Failed


def _rank(y: SSAValue, labels: SSAValue, loss: Loss) -> int | None:
    """The rank of scores, if known."""
    rows, given = dims(y.type), dims(labels.type)
    if rows is not None:
        return len(rows)
    return None if given is None else len(given) + (loss.target == CLASS_NUMBERS)


def _classes(context: GraphContext, y: SSAValue, span: Span) -> Number:
    sizes = dims(y.type)
    if not sizes or not isinstance(sizes[-1], int):
        context.source.mismatch(
            span, "the number of classes is unknown", "declare it in the type of the output"
        )
        raise Failed
    return Number(span, float(sizes[-1]))


def _converted(context: GraphContext, value: SSAValue, dtype: str, span: Span) -> Expression:
    """A value, cast to an element type."""
    found = Computed(span, value)
    if not dtype or dtype_of(value) in ("", dtype):
        return found
    return _value(context, f"Cast(t, to={dtype})", {"t": found}, span)


def _with_attributes(operator: Call, loss: Loss, options: Mapping[str, Expression]) -> Call:
    """Adds attributes of the call to the operator of a formula."""
    more = [
        Argument(value.span, Name(value.span, loss.attributes[name]), value)
        for name, value in options.items()
    ]
    return replace(operator, arguments=(*operator.arguments, *more))


def _unused_options(
    context: GraphContext, loss: Loss, options: Sequence[str], span: Span
) -> Failed:
    """Reports options that the formula has no operator for."""
    context.source.parse_error(
        span,
        f"`{loss.name}` does not take {' and '.join(map(repr, options))} here",
        f"`{loss.name}(y)` does" if loss.alone else f"leave out {CLASS_WEIGHTS}",
    )
    return Failed()


def _value(context: GraphContext, formula: str, meanings: _Meanings, span: Span) -> Computed:
    """Lowers a formula to a value, which may be used more than once."""
    return Computed(span, lower_value(context, _placed(_parsed(formula), meanings, span)))


def _computed(expression: Computed) -> SSAValue:
    assert isinstance(expression.value, SSAValue)
    return expression.value


@cache
def _parsed(formula: str) -> Expression:
    return parse_expression(Source(formula, "<formula of a loss>"))


def _placed(expression: Expression, meanings: _Meanings, span: Span) -> Expression:
    """Substitutes names in a formula, with the position of the call."""

    def of(node: object) -> object:
        match node:
            case Name(text=text) if text in meanings:
                return meanings[text]
            case Path(parts=parts):
                return Path(span, tuple(replace(part, span=span) for part in parts))
            case Argument(keyword=keyword, value=value):
                name = keyword and replace(keyword, span=span)
                return Argument(span, name, of(value))  # type: ignore[arg-type]
            case Node():
                inside = {key: of(value) for key, value in vars(node).items() if key != "span"}
                return replace(node, span=span, **inside)
            case tuple():
                return tuple(map(of, node))
        return node

    return of(expression)  # type: ignore[return-value]
