"""The table of losses by name, and the checks of scores and labels."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from xdsl.ir import Attribute

from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import Span
from popgraph.dialects.onnx.types import Dim, describe, dims
from popgraph.support import dtypes
from popgraph.support.names import Names

CLASS_NUMBERS, ONE_HOT, ALIKE = "class numbers", "one number for each class", "the same shape"
"""Kinds of targets."""

AXIS, CLASS_WEIGHTS = "axis", "class_weights"
"""Options of all classification losses."""

SAMPLE_WEIGHTS = "sample_weights"
"""Option of all losses with a target: `sum(weight * loss of the sample) / samples`."""

_CLIPPED = "Clip(y, 1e-7, 0.9999999)"
_OF_ONNX = {"ignore_index": "ignore_index", "reduction": "reduction"}
_OF_POPART = {"reduction": "reduction", "lambda": "lambda"}


@dataclass(frozen=True)
class Loss:
    """A loss as an expression of a text: `y` is the output of the model, `t` the target."""

    name: str
    about: str
    aliases: str
    """Other spellings, such as the names of Keras and PyTorch, separated by blanks."""
    formula: str
    """Empty for a loss without a target."""
    target: str = ALIKE
    class_axis: int = -1
    """The class axis that the formula expects, if there are more than two axes."""
    weighted: str = ""
    """The formula with class weights `w`."""
    elements: str = ""
    """The loss of each element, before the mean; sample weights multiply it."""
    steps: tuple[tuple[str, str], ...] = ()
    """Names that the formula uses, and their own formulas."""
    attributes: Mapping[str, str] = field(default_factory=dict)
    """Arguments passed on as attributes, with their names there."""
    settings: Mapping[str, float] = field(default_factory=dict)
    """Numbers in the formula that a call may set, with their defaults."""
    alone: str = ""
    """The formula of a call with one input."""

    @property
    def takes_target(self) -> bool:
        return bool(self.formula)

    @property
    def takes_classes(self) -> bool:
        return bool(self.weighted)

    @property
    def target_name(self) -> str:
        """The default name of the target input."""
        return "labels" if self.takes_classes else "target"

    @property
    def usage(self) -> str:
        """An example call."""
        return f"{self.name}(y, {self.target_name})" if self.takes_target else f"{self.name}(y)"

    @property
    def options(self) -> tuple[str, ...]:
        """The keywords of a call."""
        of_classes = (AXIS, CLASS_WEIGHTS) if self.takes_classes else ()
        of_samples = (SAMPLE_WEIGHTS,) if self.elements else ()
        return (*of_classes, *of_samples, *self.attributes, *self.settings)


_TABLE = (
    Loss(
        "cross_entropy",
        "of logits (scores before a Softmax) and class numbers",
        "softmax_cross_entropy CrossEntropyLoss SoftmaxCrossEntropyLoss",
        "SoftmaxCrossEntropyLoss(y, t)",
        CLASS_NUMBERS,
        1,
        "SoftmaxCrossEntropyLoss(y, t, w)",
        'SoftmaxCrossEntropyLoss(y, t, reduction="none")',
        attributes=_OF_ONNX,
    ),
    Loss(
        "nll",
        "of probabilities (of a Softmax) and class numbers",
        "sparse_categorical_crossentropy",
        "ai.graphcore.nllloss(y, t)",
        CLASS_NUMBERS,
        -1,
        'ReduceSum(ai.graphcore.nllloss(y, t, reduction="NoReduction") * Gather(w, t), keepdims=0)'
        " / ReduceSum(Gather(w, t), keepdims=0)",
        'ai.graphcore.nllloss(y, t, reduction="NoReduction")',
        attributes={
            "ignore_index": "ignoreIndex",
            "ignoreIndex": "ignoreIndex",
            "reduction": "reduction",
            "inputIsLogProbability": "inputIsLogProbability",
        },
    ),
    Loss(
        "nll_loss",
        "of logarithms of probabilities (of a LogSoftmax) and class numbers, as in PyTorch",
        "NLLLoss NegativeLogLikelihoodLoss",
        "NegativeLogLikelihoodLoss(y, t)",
        CLASS_NUMBERS,
        1,
        "NegativeLogLikelihoodLoss(y, t, w)",
        'NegativeLogLikelihoodLoss(y, t, reduction="none")',
        attributes=_OF_ONNX,
    ),
    Loss(
        "categorical_crossentropy",
        "of probabilities (of a Softmax) and one-hot labels, as in Keras",
        "CategoricalCrossentropy",
        f"-ReduceMean(t * Log({_CLIPPED}), keepdims=0) * classes",
        ONE_HOT,
        -1,
        f"-ReduceSum(t * w * Log({_CLIPPED}), keepdims=0) / ReduceSum(t * w, keepdims=0)",
        f"-(t * Log({_CLIPPED})) * classes",
    ),
    Loss(
        "bce",
        "of probabilities of yes (of a Sigmoid) and answers from 0 to 1",
        "binary_crossentropy BCELoss",
        f"-ReduceMean(t * Log({_CLIPPED}) + (1 - t) * Log(1 - {_CLIPPED}), keepdims=0)",
        elements=f"-(t * Log({_CLIPPED}) + (1 - t) * Log(1 - {_CLIPPED}))",
    ),
    Loss(
        "bce_with_logits",
        "of logits of yes (before a Sigmoid) and answers from 0 to 1",
        "binary_cross_entropy_with_logits BCEWithLogitsLoss",
        "ReduceMean(Softplus(y) - y * t, keepdims=0)",
        elements="Softplus(y) - y * t",
    ),
    Loss(
        "mse",
        "mean of squared differences",
        "mean_squared_error MSELoss",
        "ReduceMean(d * d, keepdims=0)",
        elements="d * d",
        steps=(("d", "y - t"),),
    ),
    Loss(
        "l1",
        "mean of absolute differences; `l1(x)` is PopART's: the mean of absolute values",
        "mae mean_absolute_error L1Loss",
        "ReduceMean(Abs(y - t), keepdims=0)",
        elements="Abs(y - t)",
        attributes=_OF_POPART,
        alone="ai.graphcore.l1loss(y)",
    ),
    Loss(
        "huber",
        "mean of d² / 2 where a difference is up to `delta`, of delta * (d - delta / 2) beyond",
        "huber_loss HuberLoss smooth_l1 smooth_l1_loss SmoothL1Loss",
        "ReduceMean(small * (d - 0.5 * small), keepdims=0)",
        elements="small * (d - 0.5 * small)",
        steps=(("d", "Abs(y - t)"), ("small", "Min(d, delta)")),
        settings={"delta": 1.0},
    ),
    Loss(
        "identity",
        "PopART's: the mean of its input, which is the loss itself",
        "",
        "",
        attributes={"reduction": "reduction"},
        alone="ai.graphcore.identityloss(y)",
    ),
)
LOSSES: Mapping[str, Loss] = {loss.name: loss for loss in _TABLE}
LOSS_NAMES = Names("loss", {loss.name: loss.aliases for loss in _TABLE}, "losses")


def loss_named(given: str) -> Loss | None:
    """The loss with this name, in any spelling."""
    name = LOSS_NAMES.find(given)
    return None if name is None else LOSSES[name]


def class_axis(
    source: Source, span: Span, loss: Loss, scores: Attribute, labels: Attribute
) -> int | None:
    """
    The class axis of `scores`, 1 or -1; fails if the labels do not fit.

    Labels of [N, T] fit scores of [N, T, V] along the last axis, and of [N, V, T] along axis 1.
    None if the axis is ambiguous because a rank is unknown.
    """
    rows, given = dims(scores), dims(labels)
    if loss.target == ONE_HOT:
        return _one_hot_axis(source, span, loss, scores, labels)
    if given is None or rows is None:
        small = (given is not None and len(given) < 2) or (rows is not None and len(rows) < 3)
        return -1 if small else None
    if len(rows) != len(given) + 1:
        raise _shape_error(source, span, loss, scores, labels)
    last = _common_axes(rows[:-1], given)
    second = _common_axes((rows[0], *rows[2:]), given) if len(rows) > 2 else -1
    if last < 0 and second < 0:
        raise _shape_error(source, span, loss, scores, labels)
    if len(rows) > 2 and last == second:
        source.mismatch(
            span,
            f"the classes of {describe(scores)} may be along the last axis or along axis 1: "
            f"labels {describe(labels)} fit both",
            f"`{loss.name}(y, labels, axis=-1)`, or `axis=1`",
        )
        raise Failed
    return -1 if last > second else 1


def _common_axes(one: Sequence[Dim], other: Sequence[Dim]) -> int:
    """
    The number of named dimensions that two shapes share; -1 if the shapes differ.

    Equal numbers do not count: a sequence length may equal the number of classes by chance.
    """
    pairs = list(zip(one, other, strict=True))
    if any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs):
        return -1
    return sum(isinstance(a, str) and a == b for a, b in pairs)


def _one_hot_axis(
    source: Source, span: Span, loss: Loss, scores: Attribute, labels: Attribute
) -> int:
    rows, given = dims(scores), dims(labels)
    if rows is not None and given is not None:
        if len(given) == len(rows) - 1:
            source.mismatch(
                span,
                f"{loss.name} takes one-hot labels, and {describe(labels)} are class numbers",
                "nll (sparse_categorical_crossentropy) takes probabilities and class numbers, "
                "cross_entropy logits and class numbers",
            )
            raise Failed
        if len(given) != len(rows) or _common_axes(rows, given) < 0:
            raise _shape_error(source, span, loss, scores, labels)
    return -1


def _shape_error(
    source: Source, span: Span, loss: Loss, scores: Attribute, labels: Attribute
) -> Failed:
    """Reports labels that do not fit scores, with their probable kind."""
    rows, given = dims(scores) or (), dims(labels) or ()
    what = f"labels of type {describe(labels)} do not fit {describe(scores)}"
    one_each = f"one for each row of {describe(scores)}"
    if loss.target == ONE_HOT:
        hint = "one-hot labels have the shape of the probabilities"
    elif len(given) == len(rows) > 0 and given[-1] == 1:
        what = f"{loss.name} takes class numbers, {one_each}, not {describe(labels)}"
        hint = "`labels[..., 0]`, without the last dimension"
    elif len(given) == len(rows) > 1 and _common_axes(rows, given) >= 0:
        what = f"{loss.name} takes class numbers, not one-hot labels {describe(labels)}"
        hint = (
            "`labels.argmax(-1)` in Python, `ArgMax(labels, axis=-1, keepdims=0)` in a text; "
            "categorical_crossentropy takes probabilities and one-hot labels"
        )
    else:
        hint = f"labels are class numbers, {one_each}"
    source.mismatch(span, what, hint)
    return Failed()


def check_class_numbers(source: Source, span: Span, loss: Loss, labels: Attribute) -> None:
    """Fails unless labels are integers."""
    dtype = _dtype(labels)
    if dtype is not None and not dtype.is_integer:
        source.mismatch(
            span,
            f"{loss.name} takes class numbers, which are integers, not {describe(labels)}",
            "`labels.astype('int64')` in Python, `Cast(labels, to=i64)` in a text",
        )
        raise Failed


def check_same_shape(
    source: Source, span: Span, loss: Loss, y: Attribute, target: Attribute
) -> None:
    """
    Fails unless the target is a scalar or has the shape of the output.

    Otherwise [N, 1] - [N] would broadcast to all pairs.
    """
    one, other = dims(y), dims(target)
    if one is None or other is None or not other:
        return
    if len(one) != len(other) or _common_axes(one, other) < 0:
        hint = f"{loss.name} compares elements one by one"
        if one == (*other, 1):
            hint += ": `target[..., None]` in Python, `target[..., _]` in a text"
        source.mismatch(
            span, f"a target of type {describe(target)} does not fit {describe(y)}", hint
        )
        raise Failed


def _dtype(type_: Attribute) -> dtypes.DType | None:
    return dtypes.BY_NAME.get(describe(type_).split("[")[0])
