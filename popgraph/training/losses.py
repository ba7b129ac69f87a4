"""Losses by name: what `mse` or `cross_entropy` stands for, as an expression of a text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from popgraph.support.errors import ModelError

ClassWeights: TypeAlias = Mapping[int, float] | Sequence[float]
"""How much a sample of each class counts; a mapping leaves the others at 1."""

LABELS, TARGET = "labels", "target"
"""What the input is called that a loss compares with, where the data have no name for it."""

_CLIPPED = "Clip({y}, 1e-7, 0.9999999)"


@dataclass(frozen=True)
class NamedLoss:
    """A loss of one output and what it should have been."""

    formula: str
    """With `{y}` for the output and `{t}` for the target."""
    weighted: str = ""
    """The same with `{w}`, the weights of classes, for losses of classes."""

    @property
    def target(self) -> str:
        return LABELS if self.weighted else TARGET


LOSSES: Mapping[str, NamedLoss] = {
    "nll": NamedLoss(
        "nll({y}, {t})",
        'ReduceSum(ai.graphcore.nllloss({y}, {t}, reduction="NoReduction") * Gather({w}, {t}),'
        " keepdims=0) / ReduceSum(Gather({w}, {t}), keepdims=0)",
    ),
    "cross_entropy": NamedLoss(
        "SoftmaxCrossEntropyLoss({y}, {t})", "SoftmaxCrossEntropyLoss({y}, {t}, {w})"
    ),
    "mse": NamedLoss("ReduceMean(({y} - {t}) * ({y} - {t}), keepdims=0)"),
    "l1": NamedLoss("ReduceMean(Abs({y} - {t}), keepdims=0)"),
    "bce": NamedLoss(
        f"-ReduceMean({{t}} * Log({_CLIPPED}) + (1 - {{t}}) * Log(1 - {_CLIPPED}), keepdims=0)"
    ),
    "bce_with_logits": NamedLoss("ReduceMean(Softplus({y}) - {y} * {t}, keepdims=0)"),
}
"""
`nll` is of probabilities, `cross_entropy` of the logits before a Softmax, both with the numbers of
the classes as labels; `bce` and `bce_with_logits` are of probabilities and of logits of yes or no.
"""


def expression_of(
    loss: NamedLoss, output: str, target: str, weights: Sequence[float] | None
) -> str:
    """The loss as a text; `weights` are one number for each class."""
    names = {"y": f"`{output}`", "t": f"`{target}`"}
    if weights is None:
        return loss.formula.format(**names)
    if not loss.weighted:
        raise ModelError(
            "class weights are for losses of classes",
            "class_weights",
            f"the losses {' and '.join(name for name, one in LOSSES.items() if one.weighted)}",
        )
    listed = f"[{', '.join(repr(float(weight)) for weight in weights)}]"
    return loss.weighted.format(**names, w=listed)


def weights_of_classes(given: ClassWeights, classes: int) -> list[float]:
    """One weight for each class."""
    found = dict(given) if isinstance(given, Mapping) else dict(enumerate(given))
    strange = [key for key in found if key not in range(classes)]
    if strange or (not isinstance(given, Mapping) and len(found) != classes):
        what = f"there is no class {strange[0]}" if strange else f"there are {len(found)} weights"
        raise ModelError(
            f"{what}, and the output has {classes} classes", "class_weights", "{3: 2.0} or a list"
        )
    if any(not 0 <= weight < float("inf") for weight in found.values()):
        raise ModelError("the weight of a class is a number from 0 on", "class_weights")
    return [float(found.get(number, 1.0)) for number in range(classes)]
