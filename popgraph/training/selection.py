"""Selects the weights to train and the active Dropout nodes, and records the reasons."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from xdsl.dialects.builtin import IntegerAttr, ModuleOp
from xdsl.ir import SSAValue

from popgraph.dialects.onnx import Graph, Initializer, OnnxOp, model_of
from popgraph.dialects.onnx.types import static_shape
from popgraph.dialects.onnx.weight_names import weights_by_name
from popgraph.dialects.program import WeightStore
from popgraph.dialects.values import backward_slice
from popgraph.passes.onnx.evaluate_constants import Constants
from popgraph.support.boxes import BadSlice, Box, selects, slice_of, split_slice
from popgraph.support.errors import ModelError
from popgraph.support.names import closest
from popgraph.support.shapes import Shape, prod
from popgraph.support.spelling import setting
from popgraph.support.tables import table
from popgraph.training.roles import Origin, Roles, adapter_names, is_float, shape_of

TRAINED, BATCH_UPDATED, UNTRAINED = "trained", "moved by every batch", "not trained"
"""Fates of a weight."""
STATISTICS = "running statistics"
RANGES = "ranges of quantized values"
FROZEN = "frozen"
BASE = "the model has LoRA adapters"
REST = "outside the slices of train_only"


@dataclass(frozen=True)
class Weight:
    """An initializer of a model, and what training does with it."""

    name: str
    shape: Shape
    fate: str
    reason: str = ""
    """Why the weight is not trained by its gradient."""
    is_float: bool = True
    box: Box | None = None
    """The only part of it that is trained; None for the whole."""

    @property
    def count(self) -> int:
        """The number of values that have its fate."""
        return prod(self.shape if self.box is None else self.box.sizes)


@dataclass(frozen=True)
class WeightPatterns:
    """
    The user's choice of weights to train, as name patterns (`fnmatch`).

    A pattern of `train_only` may end with a slice, such as `conv*.weight[:8]`.
    """

    freeze: tuple[str, ...] = ()
    """Weights that are not trained."""
    train_only: tuple[str, ...] = ()
    """The only weights that are trained."""

    @staticmethod
    def of(freeze: object, train_only: object) -> WeightPatterns:
        """From Python arguments: names or patterns; a single one may be a string."""
        return WeightPatterns(_patterns("freeze", freeze), _patterns("train_only", train_only))

    def __bool__(self) -> bool:
        return bool(self.freeze or self.train_only)

    def check(self, names: Sequence[str]) -> None:
        """ModelError if a pattern matches no weight, or if `freeze` has a slice."""
        for option in ("freeze", "train_only"):
            for pattern in getattr(self, option):
                if not any(selects(pattern, name) for name in names):
                    raise _unmatched_pattern(pattern, option, names)
        for pattern in self.freeze:
            if (sliced := split_slice(pattern))[1] and pattern not in names:
                raise ModelError(
                    f"{pattern!r} is a slice, but only whole weights are frozen",
                    "freeze",
                    f"train the other part: {setting('train_only', f'{sliced[0]}[...]')}",
                )

    def freezes(self, name: str) -> bool:
        return any(selects(pattern, name) for pattern in self.freeze)

    def excludes(self, name: str) -> bool:
        return bool(self.train_only) and not self.includes(name)

    def includes(self, name: str) -> bool:
        return any(selects(pattern, name) for pattern in self.train_only)

    def box(self, name: str, shape: Shape) -> tuple[Box | None, str]:
        """
        The only part of a weight that is trained, and its slice; None for the whole.

        ModelError for a slice that does not fit, or if another pattern selects the weight as well.
        """
        matching = [one for one in dict.fromkeys(self.train_only) if selects(one, name)]
        sliced = [one for one in matching if slice_of(one, name)]
        if not sliced:
            return None, ""
        if len(matching) > 1:
            raise ModelError(
                f"weight {name!r} is selected twice: {matching[0]!r} and {matching[1]!r}",
                "train_only",
                "one slice, or the whole weight",
            )
        slices = slice_of(sliced[0], name)
        return box_of(slices, name, shape), slices


def box_of(slices: str, name: str, shape: Shape) -> Box | None:
    """The box of a weight that a slice selects; None for all of it. ModelError if there is none."""
    try:
        box = Box.of(slices, shape)
    except BadSlice as error:
        raise ModelError(
            f"[{slices}] is not a slice of weight {name!r}: {error}",
            "train_only",
            f"ranges of its axes, such as {name}[0:{max(1, shape[0] // 2) if shape else 1}]",
        ) from error
    return None if box.covers(shape) else box


def _patterns(option: str, given: object) -> tuple[str, ...]:
    found = (given,) if isinstance(given, str) else tuple(given)  # type: ignore[arg-type]
    for pattern in found:
        if not isinstance(pattern, str):
            raise ModelError(
                f"{pattern!r} is not a name pattern", option, 'freeze=["conv1.*", "bn?.weight"]'
            )
    return found


def _unmatched_pattern(pattern: str, option: str, names: Sequence[str]) -> ModelError:
    close = closest(split_slice(pattern)[0], names, 0.5)
    listed = ", ".join(names[:8]) + (", ..." if len(names) > 8 else "")
    meant = f"did you mean {close!r}? " if close else ""
    hint = f"{meant}its weights are {listed or 'none'}"
    return ModelError(f"no weight matches the pattern {pattern!r}", option, hint)


@dataclass(frozen=True)
class Selection:
    """Fate of every weight: trained, updated by batch statistics, or frozen."""

    weights: tuple[Weight, ...] = ()
    dropouts: tuple[tuple[str, ...], ...] = ()
    """Rows about Dropout nodes for the table."""

    def names(self, fate: str) -> tuple[str, ...]:
        return tuple(weight.name for weight in self.weights if weight.fate == fate)

    @property
    def trained(self) -> tuple[str, ...]:
        return self.names(TRAINED)

    @property
    def boxes(self) -> dict[str, Box]:
        """The boxes of weights that are trained only in part, by name."""
        return {one.name: one.box for one in self.weights if one.box is not None}

    @property
    def statistics(self) -> tuple[str, ...]:
        """Running statistics, which every batch updates."""
        return self.names(BATCH_UPDATED)

    @property
    def frozen(self) -> tuple[str, ...]:
        """Floating-point weights that do not change."""
        floats = (weight for weight in self.weights if weight.is_float)
        return tuple(weight.name for weight in floats if weight.fate == UNTRAINED)

    def with_constants(self, module: ModuleOp, names: Sequence[str]) -> Selection:
        """Adds the weights that a text has frozen, which are constants of the model."""
        shapes = {
            op.output_names[0]: static_shape(op.results[0].type) or ()
            for op in model_of(module).graph.nodes
            if op.op_type == "Constant"
        }
        frozen = [Weight(name, shapes[name], UNTRAINED, FROZEN, is_float=False) for name in names]
        return replace(self, weights=(*self.weights, *frozen))

    def check(self) -> None:
        """ModelError if nothing is trained."""
        if not self.trained:
            reasons = [weight.reason for weight in self.weights]
            most = max(reasons, key=reasons.count) if reasons else "the model has no weights"
            raise ModelError(
                "no weights are left to train",
                "the weights of the model",
                f"the reason for most of them: {most}",
            )

    def rows(self) -> Iterator[tuple[str, ...]]:
        """Table rows: fate, number of tensors, number of values, reason; then Dropout."""
        for fate in (TRAINED, BATCH_UPDATED, UNTRAINED):
            reasons = dict.fromkeys(one.reason for one in self.weights if one.fate == fate)
            for reason in reasons:
                same = [one for one in self.weights if (one.fate, one.reason) == (fate, reason)]
                count = sum(one.count for one in same)
                yield fate, _counted(len(same), "tensor"), _counted(count, "value"), reason
        if cut := [one for one in self.weights if one.box is not None]:
            count = sum(prod(one.shape) - one.count for one in cut)
            yield UNTRAINED, _counted(len(cut), "tensor"), _counted(count, "value"), REST
        yield from self.dropouts

    def __str__(self) -> str:
        return table(list(self.rows()))


def _counted(number: int, what: str) -> str:
    return f"{number:,} {what}{'s' * (number != 1)}"


def summary_of(module: ModuleOp, selection: Selection | None) -> str:
    """A table of the weights of a model; with a selection, also what happens to each."""
    graph = model_of(module).graph
    known = {one.name: one for one in selection.weights} if selection else {}
    rows: list[tuple[str, ...]] = [("weight", "shape", "values", "in training")]
    totals: dict[str, int] = {}
    for name, one in weights_by_name(graph).items():
        shape = shape_of(one)
        fate, reason = (known[name].fate, known[name].reason) if name in known else ("", "")
        rows.append((name, str(list(shape)), f"{prod(shape):,}", f"{fate}: {reason}".strip(": ")))
        count = known[name].count if name in known else prod(shape)
        for what, number in ((fate, count), (UNTRAINED, prod(shape) - count)):
            if number or what == fate:
                totals[what] = totals.get(what, 0) + number
    sums = ", ".join(f"{count:,} {fate}" for fate, count in totals.items() if fate)
    whole = f"{sum(totals.values()):,} values"
    title = graph.graph_name.text or "model"
    if not known:  # Without data, the loss and its path to the weights are unknown.
        rows = [row[:3] for row in rows]
    return f"{title}\n{table(rows)}\n{whole}{f': {sums}' if sums else ''}"


def select(
    module: ModuleOp,
    loss: str,
    patterns: WeightPatterns | None = None,
    origin: Origin | None = None,
    slices: Mapping[str, str] | None = None,
) -> Selection:
    """
    Selects the weights of a model at the onnx level that `loss` trains.

    `origin` is that of the source model, if this module was derived from one. `slices` are those of
    a text. Floats on which the
    loss depends are trained, unless they are running statistics, settings of operators or constants
    of an exporter; of a model with LoRA adapters, only these. `train_only` overrides these rules.
    """
    graph, patterns = model_of(module).graph, patterns or WeightPatterns()
    weights, roles = weights_by_name(graph), Roles(module, origin or Origin.of(module))
    patterns.check(list(weights))
    slices = slices or {}
    on_path = backward_slice(_values_named(graph, loss), nested=True)
    adapters = frozenset[str]() if patterns.train_only else adapter_names(weights)
    found: list[Weight] = []
    for name, initializer in weights.items():
        fate, reason = _fate(initializer, name, roles, patterns, initializer.result in on_path)
        if adapters and name not in adapters and fate != UNTRAINED and reason != RANGES:
            fate, reason = UNTRAINED, BASE
        shape = shape_of(initializer)
        box, chosen = patterns.box(name, shape)
        if name in slices:
            box, chosen = _narrowed(name, shape, slices[name], box)
        if box is not None and fate == BATCH_UPDATED:
            raise ModelError(
                f"a slice of {name!r} cannot be trained: batches update its {reason}",
                "train_only",
                "the whole weight",
            )
        if box is not None and fate == TRAINED:
            reason = f"only [{chosen}]"
        else:
            box = None
        found.append(Weight(name, shape, fate, reason, is_float(initializer), box))
    return Selection(tuple(found))


def _narrowed(name: str, shape: Shape, slices: str, box: Box | None) -> tuple[Box | None, str]:
    """The slice of a weight that a text has; ModelError if the user's patterns have one, too."""
    if box is not None:
        raise ModelError(
            f"weight {name!r} is selected twice: the text trains {name}[{slices}]",
            "train_only",
            "change the slice in the text",
        )
    return box_of(slices, name, shape), slices


def _fate(
    initializer: Initializer, name: str, roles: Roles, patterns: WeightPatterns, affects_loss: bool
) -> tuple[str, str]:
    """The fate of an initializer, and the reason."""
    floats = is_float(initializer)
    if roles.ranges(initializer):
        return BATCH_UPDATED, RANGES
    if floats and patterns.freezes(name):
        return UNTRAINED, FROZEN
    if floats and patterns.excludes(name):
        return UNTRAINED, "not among train_only"
    if floats and roles.statistics(initializer):
        return BATCH_UPDATED, STATISTICS
    reason_against = roles.reason_against(initializer, name)
    if reason_against and not (floats and patterns.includes(name)):
        return UNTRAINED, reason_against
    return (TRAINED, "") if affects_loss else (UNTRAINED, "the loss does not depend on it")


def _values_named(graph: Graph, name: str) -> list[SSAValue]:
    """The value with this name: an output, or the result of a node."""
    outputs = dict(zip(graph.output_names, graph.yielded, strict=True))
    if name in outputs:
        return [outputs[name]]
    pairs = (zip(op.output_names, op.output_values(), strict=False) for op in graph.nodes)
    return [value for each in pairs for label, value in each if label == name and value is not None]


MODES: Mapping[tuple[str, str], int] = {
    ("", "Dropout"): 2,
    ("com.microsoft", "BiasDropout"): 4,
    ("ai.graphcore", "ShapedDropout"): 1,
}
"""Operators that drop elements -> index of their training-mode input."""
DROPS, KEEPS = "drops elements", "drops nothing"

Row = tuple[str, str, str, str]
"""A row of the table that `Selection` prints."""


def dropout_rows(module: ModuleOp, weights: WeightStore, *, dropout: bool) -> tuple[Row, ...]:
    """Counts the Dropout nodes that drop elements in a step, and the ones that keep all."""
    model = model_of(module)
    constants = Constants(model, weights, trained=True)
    nodes = (op for op in model.walk() if isinstance(op, OnnxOp))
    fates = (
        _dropout_fate(op, constants, dropout) for op in nodes if (op.domain, op.op_type) in MODES
    )
    found = Counter(fate for fate in fates if fate is not None)
    return tuple(
        (does, f"{count:,} node{'s' * (count != 1)}", "", why)
        for (does, why), count in found.items()
    )


def _dropout_fate(op: OnnxOp, constants: Constants, dropout: bool) -> tuple[str, str] | None:
    """Whether a node drops elements in a step, and why; None if it never does."""
    inputs = op.input_values()
    index = MODES[op.domain, op.op_type]
    mode = inputs[index] if len(inputs) > index else None
    if mode is not None:
        held = constants.of(mode)
        says_no = held is not None and not np.any(held)
        return None if says_no else (DROPS, "Dropout with training_mode")
    tested = op.onnx_attributes().get("is_test")
    if isinstance(tested, IntegerAttr) and tested.value.data:
        return None
    switch = setting("dropout", False)
    if not dropout:
        return KEEPS, f"Dropout without training_mode, by {switch}"
    return DROPS, f"Dropout without training_mode; {switch} turns it off"
