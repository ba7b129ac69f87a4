"""Parses the `loss` argument of `Trainer`: a loss by name, an expression, or a value."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from typing import TypeAlias

from xdsl.ir import Attribute

from popgraph.builder.pgraph.check.loss_table import (
    LOSS_NAMES,
    LOSSES,
    SAMPLE_WEIGHTS,
    Loss,
    class_axis,
    loss_named,
)
from popgraph.builder.pgraph.syntax.source import Failed, Source
from popgraph.builder.pgraph.syntax.tree import Span
from popgraph.dialects.onnx.types import dims
from popgraph.support.errors import ModelError
from popgraph.support.names import closest

ClassWeights: TypeAlias = Mapping[int, float] | Sequence[float]
"""Weight of the samples of each class; classes that a mapping omits have weight 1."""

_NAME = re.compile(r"[\w.:/-]+")


def checked_loss(loss: object, values: Collection[str], where: str) -> str:
    """
    Checks the name or expression of a loss; ModelError if it can be neither.

    `values` are the names that the model gives to its values.
    """
    if not isinstance(loss, str):
        raise _no_text(loss)
    parts = re.findall(r"\w+", loss)
    if loss in values or loss_named(loss) or not _NAME.fullmatch(loss):
        return loss
    if any(part in values for part in parts):  # `sum/2`
        return loss
    close = closest(loss, values, 0.5)
    hint = LOSS_NAMES.hint(loss)
    raise ModelError(
        f"there is no loss {loss!r}, and the model has no value of that name",
        where,
        f"did you mean the value {close!r}? {hint}" if close else hint,
    )


def _no_text(loss: object) -> ModelError:
    what = f"a loss is a name or an expression, not {type(loss).__name__}"
    known = loss_named(loss.__name__ if isinstance(loss, type) else type(loss).__name__)
    if known is not None:
        return ModelError(what, "loss", f"loss={known.name!r}")
    if hasattr(loss, "shape"):
        return ModelError(
            what, "loss", "pass all data as one argument: train(model, (x, labels), ...)"
        )
    return ModelError(what, "loss", f"loss='mse', or 'mse(y, target)'; {LOSS_NAMES.listed}")


def expression_of(
    loss: Loss, output: str, target: str, weights: Sequence[float] | None, of_samples: str = ""
) -> str:
    """
    The loss as an expression.

    `weights` has one number per class; `of_samples` is the input with the weights of samples.
    """
    given = [f"`{output}`", f"`{target}`"] if loss.takes_target else [f"`{output}`"]
    if weights is not None:
        given.append(f"class_weights=[{', '.join(repr(float(weight)) for weight in weights)}]")
    if of_samples:
        given.append(f"{SAMPLE_WEIGHTS}=`{of_samples}`")
    return f"{loss.name}({', '.join(given)})"


def weights_of_classes(
    loss: Loss, given: ClassWeights, scores: Attribute | None, labels: Attribute
) -> list[float]:
    """One weight per class."""
    if not loss.takes_classes:
        raise ModelError(
            f"{loss.name} is not a loss over classes, so it takes no class weights",
            "class_weights",
            f"the losses {', '.join(one.name for one in LOSSES.values() if one.takes_classes)}",
        )
    classes = _classes(loss, scores, labels)
    found = dict(given) if isinstance(given, Mapping) else dict(enumerate(given))
    strange = [key for key in found if key not in range(classes)]
    if strange or (not isinstance(given, Mapping) and len(found) != classes):
        what = f"there is no class {strange[0]}" if strange else f"there are {len(found)} weights"
        raise ModelError(
            f"{what}, and the output has {classes} classes", "class_weights", "{3: 2.0} or a list"
        )
    if any(not 0 <= weight < float("inf") for weight in found.values()):
        raise ModelError("a class weight must be a non-negative number", "class_weights")
    return [float(found.get(number, 1.0)) for number in range(classes)]


def _classes(loss: Loss, scores: Attribute | None, labels: Attribute) -> int:
    """The number of classes, from the type of the output."""
    sizes = None if scores is None else dims(scores)
    if scores is not None and sizes:
        source = Source(loss.usage, "<loss>")
        try:
            axis = class_axis(source, Span(1, 1, 1, 1 + len(loss.name)), loss, scores, labels)
        except Failed:
            source.raise_mistakes()
            raise
        if axis is not None and isinstance(sizes[axis], int):
            return int(sizes[axis])  # type: ignore[arg-type]
    raise ModelError("the number of classes of the model is unknown", "class_weights")
