"""Bounds of the index inputs of ONNX operators, and the checks that enforce them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from xdsl.dialects.builtin import DenseArrayBase, IntegerAttr, IntegerType, TensorType, i64
from xdsl.ir import Attribute, SSAValue

from popgraph.dialects.onnx.custom import CHECK_INDICES, Custom
from popgraph.dialects.onnx.inference import Inference
from popgraph.dialects.onnx.op import OnnxOp, Value
from popgraph.dialects.onnx.types import static_shape
from popgraph.dialects.program import BytesAttr, WeightStore
from popgraph.passes.analysis.replace import insert_made_for
from popgraph.support.shapes import Shape, prod, unpooled


@dataclass(frozen=True)
class Bounds:
    """What the indices of one input may be; one bound, or one for each column of the indices."""

    input: int
    what: str
    low: tuple[int, ...]
    last: tuple[int, ...]
    ignored: int | None = None
    """An index that stands for none."""


Attributes: TypeAlias = Mapping[str, Value]
Rule: TypeAlias = Callable[[Sequence[Shape | None], Attributes], Iterator[Bounds]]
"""From the shapes of an operator's inputs, those that are there, and its attributes."""


def bounds_of(op: OnnxOp, store: WeightStore) -> list[Bounds]:
    """The bounds of all indices that a node gets, as far as the shapes are known."""
    rule = RULES.get((op.domain, op.op_type))
    if rule is None:
        return []
    shapes = [_shape(value) for value in op.input_values()]
    return [
        bounds
        for bounds in rule(shapes, op.attribute_values(store))
        if bounds.input < len(shapes) and shapes[bounds.input] is not None
    ]


def insert_checks(op: OnnxOp, inference: Inference) -> bool:
    """Lets a node get its indices from nodes that know their bounds; whether it has indices."""
    found = bounds_of(op, inference.store)
    for bounds in found:
        value = op.input_values()[bounds.input]
        if value is not None and _holds_integers(value) and not _is_check(value.owner):
            number = sum(one is not None for one in op.input_values()[: bounds.input])
            op.operands[number] = _checked(op, value, bounds, inference)
    return bool(found)


def _holds_integers(value: SSAValue) -> bool:
    """Whether these can be indices: of others, the operator itself says what is wrong."""
    return isinstance(value.type, TensorType) and isinstance(value.type.element_type, IntegerType)


def _is_check(owner: object) -> bool:
    return isinstance(owner, Custom) and owner.is_check


def _checked(op: OnnxOp, value: SSAValue, bounds: Bounds, inference: Inference) -> SSAValue:
    name = f"{next(filter(None, op.output_names), '')}/{bounds.what} {bounds.input}"
    attributes: dict[str, Attribute] = {
        "what": BytesAttr.of(bounds.what),
        "place": BytesAttr.of(op.where()),
        "low": DenseArrayBase.from_list(i64, bounds.low),
        "last": DenseArrayBase.from_list(i64, bounds.last),
    }
    if bounds.ignored is not None:
        attributes["ignored"] = IntegerAttr(bounds.ignored, i64)
    made = Custom.make(*CHECK_INDICES, [value], attributes, [name], [value.type], {})
    insert_made_for(op, made)
    inference.take(made.values[0], value)
    return made.values[0]


def _shape(value: SSAValue | None) -> Shape | None:
    return None if value is None else static_shape(value.type)


def _number(attributes: Attributes, name: str, default: int) -> int:
    value = attributes.get(name, default)
    assert isinstance(value, int)
    return value


def _either_way(number: int, sizes: Sequence[int]) -> Bounds:
    """Indices into axes of these sizes, from the start or from the end."""
    lows = tuple(-size for size in sizes)
    return Bounds(number, "index", lows, tuple(size - 1 for size in sizes))


def _along_axis(shapes: Sequence[Shape | None], attributes: Attributes) -> Iterator[Bounds]:
    data, axis = shapes[0], _number(attributes, "axis", 0)
    if data is not None and -len(data) <= axis < len(data):
        yield _either_way(1, [data[axis]])


def _rows(shapes: Sequence[Shape | None], attributes: Attributes) -> Iterator[Bounds]:
    data, indices = shapes[:2]
    batch = _number(attributes, "batch_dims", 0)
    if data is not None and indices:
        yield _either_way(1, data[batch : batch + indices[-1]])


def _columns(shapes: Sequence[Shape | None], attributes: Attributes) -> Iterator[Bounds]:
    """Places along the last axis, counted from the start alone."""
    data = shapes[0]
    if data:
        yield Bounds(1, "index", (0,), (data[-1] - 1,))


ANY_LABEL = "any_label"
"""The attribute of a loss for which labels that are no class mean something, too."""


def _labels(axis: int, ignored: str) -> Rule:
    """Labels of classes that lie along an axis of the first input."""

    def rule(shapes: Sequence[Shape | None], attributes: Attributes) -> Iterator[Bounds]:
        scores: Any = shapes[0]
        if attributes.get(ANY_LABEL):
            return
        if scores is not None and len(scores) > max(axis, 0):
            given = attributes.get(ignored)
            skipped = given if isinstance(given, int) else None
            yield Bounds(1, "label", (0,), (scores[axis] - 1,), skipped)

    return rule


def _collected(shapes: Sequence[Shape | None], attributes: Attributes) -> Iterator[Bounds]:
    """Of PopART's scatter: places of the initial values, or as many as the node says."""
    initial = shapes[2] if len(shapes) > 2 else None
    axis = _number(attributes, "axis", -1)
    size = _number(attributes, "axis_size", 1)
    if initial is not None and -len(initial) <= axis < len(initial):
        size = initial[axis]
    if size > 0:
        yield Bounds(1, "index", (0,), (size - 1,))


def _starts(shapes: Sequence[Shape | None], attributes: Attributes) -> Iterator[Bounds]:
    """Where updates of a cache begin, so that they end in it; of a circular one, anywhere."""
    cache, update = shapes[:2]
    axis = _number(attributes, "axis", -2)
    if len(shapes) > 2 and cache and update and attributes.get("mode") != "circular":
        yield Bounds(2, "index", (-cache[axis],), (cache[axis] - update[axis],))


def _positions(shapes: Sequence[Shape | None], attributes: Attributes) -> Iterator[Bounds]:
    if len(shapes) > 3 and shapes[1]:
        yield Bounds(3, "position", (0,), (shapes[1][0] - 1,))


def _sequences(shapes: Sequence[Shape | None], attributes: Attributes) -> Iterator[Bounds]:
    data, time = shapes[0], _number(attributes, "time_axis", 0)
    if data is not None and 0 <= time < len(data):
        yield Bounds(1, "length", (0,), (data[time],))


def _lengths(shapes: Sequence[Shape | None], attributes: Attributes) -> Iterator[Bounds]:
    keys = shapes[1]
    if len(shapes) > 6 and keys is not None and len(keys) > 2:
        yield Bounds(6, "length", (0,), (keys[-2],))


def _in_unpooled(shapes: Sequence[Shape | None], attributes: Attributes) -> Iterator[Bounds]:
    x: Any = shapes[0]
    if x is not None:
        windows: Any = (attributes.get(name, []) for name in ("kernel_shape", "strides", "pads"))
        count = prod(x[:2]) * prod(unpooled(x[2:], *windows))
        yield Bounds(1, "index", (0,), (count - 1,))


def _images(shapes: Sequence[Shape | None], attributes: Attributes) -> Iterator[Bounds]:
    x = shapes[0]
    if x:
        yield Bounds(2, "image", (0,), (x[0] - 1,))


RULES: Mapping[tuple[str, str], Rule] = {
    ("", "Gather"): _along_axis,
    ("", "GatherElements"): _along_axis,
    ("", "GatherND"): _rows,
    ("", "MaxUnpool"): _in_unpooled,
    ("", "ReverseSequence"): _sequences,
    ("", "Scatter"): _along_axis,
    ("", "ScatterElements"): _along_axis,
    ("", "ScatterND"): _rows,
    ("", "TensorScatter"): _starts,
    ("", "NegativeLogLikelihoodLoss"): _labels(1, "ignore_index"),
    ("", "SoftmaxCrossEntropyLoss"): _labels(1, "ignore_index"),
    ("", "RoiAlign"): _images,
    ("", "RotaryEmbedding"): _positions,
    ("", "Attention"): _lengths,
    ("ai.onnx.ml", "ArrayFeatureExtractor"): _columns,
    ("ai.graphcore", "Nll"): _labels(-1, "ignoreIndex"),
    ("ai.graphcore", "ScatterReduce"): _collected,
}
"""
The operators that take indices from data, by domain and name.

OneHot is none: an index out of its range is legal, and gives a row without a one.
"""
