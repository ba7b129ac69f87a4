"""Normalizations of onnxruntime, with the sums and tables in front of them."""

from __future__ import annotations

from collections.abc import Sequence

from xdsl.dialects.builtin import AnyFloat, Float64Type

from popgraph.operators.microsoft.body import Value, total
from popgraph.operators.microsoft.call import Call, defines


def normalized(call: Call, value: Value, gamma: Value, beta: Value | None) -> list[Value]:
    """The value, its mean and the inverse of its deviation."""
    epsilon = call.real("epsilon", 1e-12)
    return value.several("LayerNormalization", 3, gamma, beta, axis=-1, epsilon=epsilon)


def wide(call: Call, value: Value, like: str) -> Value:
    """In the precision in which onnxruntime sums numbers of the type of an input, a float."""
    if not isinstance(call.element(like), AnyFloat):
        raise call.not_float(like)
    return value.typed("f64" if call.element(like) == Float64Type() else "f32")


def inverse_root(numbers: Value, epsilon: float) -> Value:
    """What numbers are multiplied by so that their mean square is 1."""
    moment = (numbers * numbers).ReduceMean([-1])
    return (moment + epsilon).Sqrt().Reciprocal()


def _simplified(
    call: Call, value: Value, like: str, scale: Value, epsilon: float
) -> tuple[Value, Value, Value]:
    """By the root of the mean square; of halves, in single precision, as onnxruntime does it."""
    numbers = wide(call, value, like)
    inverse = inverse_root(numbers, epsilon)
    return (numbers * inverse).CastLike(value) * scale, inverse, numbers


@defines("SkipLayerNormalization", "input skip gamma beta bias")
def skip_layer_normalization(call: Call) -> Sequence[Value]:
    value = total(call["input"], call["skip"], call.get("bias"))
    return *normalized(call, value, call["gamma"], call.get("beta")), value


@defines("SkipSimplifiedLayerNormalization", "input skip gamma bias")
def skip_simplified_layer_normalization(call: Call) -> Sequence[Value]:
    value = total(call["input"], call["skip"], call.get("bias"))
    epsilon = call.real("epsilon", 1e-12)
    made, inverse, numbers = _simplified(call, value, "input", call["gamma"], epsilon)
    return made, numbers.ReduceMean([-1]), inverse, value


@defines("SimplifiedLayerNormalization", "X scale", ignored="stash_type", domain="")
def simplified_layer_normalization(call: Call) -> Sequence[Value]:
    axis = call.integer("axis", -1)
    if axis != -1 and axis != call.rank("X") - 1:
        raise call.refuse(f"axis = {axis}", "the last axis is")
    return _simplified(call, call["X"], "X", call["scale"], call.real("epsilon", 1e-5))[:2]


@defines("EmbedLayerNormalization",
         "input_ids segment_ids words positions segments gamma beta mask position_ids")  # fmt: skip
def embed_layer_normalization(call: Call) -> Sequence[Value]:
    tables = call["words"], call["positions"], call.get("segments")
    value = embedded(call, *tables, call.get("position_ids"))
    made, *_ = normalized(call, value, call["gamma"], call["beta"])
    return made, counted_mask(call), value


def embedded(
    call: Call, words: Value, positions: Value, segments: Value | None, places: Value | None = None
) -> Value:
    """The sum of the rows of each token: of its word, its place and its segment."""
    ids, kinds = call["input_ids"], call.get("segment_ids")
    order = call.body.counted(ids.length(1)) if places is None else places
    return total(
        words.Gather(ids),
        positions.Gather(order),
        segments.Gather(kinds) if segments and kinds else None,
    )


def counted_mask(call: Call) -> Value:
    """How many numbers of each row of the mask are 1."""
    mask = call.get("mask")
    ids = call["input_ids"]
    numbers = (ids - ids if mask is None else mask).typed("i32")
    return numbers.same(1).typed("i32").ReduceSum([1], keepdims=0)
