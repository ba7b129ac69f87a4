"""Normalizations of onnxruntime, with fused residual sums and embeddings, and gates."""

from __future__ import annotations

from collections.abc import Sequence

from popgraph.operators.microsoft.body import Value, total
from popgraph.operators.microsoft.call import Call, defines


def normalized(call: Call, value: Value, gamma: Value, beta: Value | None) -> list[Value]:
    """The normalized value, its mean and its inverse standard deviation."""
    epsilon = call.real("epsilon", 1e-12)
    return value.several("LayerNormalization", 3, gamma, beta, axis=-1, epsilon=epsilon)


def inverse_root(numbers: Value, epsilon: float) -> Value:
    """1 / sqrt(mean(x^2) + epsilon)"""
    moment = (numbers * numbers).ReduceMean([-1])
    return (moment + epsilon).Sqrt().Reciprocal()


def _simplified(
    call: Call, value: Value, like: str, scale: Value, epsilon: float
) -> tuple[Value, Value, Value]:
    """RMS normalization; f16 is computed in f32, as in onnxruntime."""
    numbers = call.wide(like, value)
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
        raise call.refuse(f"axis = {axis}", "normalize the last axis")
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
    """The sum of each token's word, position and segment embedding."""
    ids, kinds = call["input_ids"], call.get("segment_ids")
    order = call.body.counted(ids.length(1)) if places is None else places
    return total(
        words.Gather(ids),
        positions.Gather(order),
        segments.Gather(kinds) if segments and kinds else None,
    )


def counted_mask(call: Call) -> Value:
    """The number of ones in each row of the mask."""
    mask = call.get("mask")
    ids = call["input_ids"]
    numbers = (ids - ids if mask is None else mask).typed("i32")
    return numbers.same(1).typed("i32").ReduceSum([1], keepdims=0)


@defines("ScaledSiLU", "X scale")
def scaled_silu(call: Call) -> Value:
    """y = s * sigmoid(s) with s = scale * x; every step is rounded to the type of X."""
    numbers, scale = call.wide("X"), call.get("scale")
    if scale is None:
        numbers = numbers.scaled(call.real("alpha", 1.0))
    else:
        call.ignore("alpha")
        numbers = numbers * scale.reshaped().CastLike(numbers)
    rounded = numbers.CastLike(call["X"])
    return rounded * call.wide("X", rounded).Sigmoid().CastLike(rounded)


@defines("GatedAdd", "X Y gate gate_weight")
def gated_add(call: Call) -> Value:
    """x + y * gate. A projected gate (`gate_weight`) is refused: onnxruntime has none for CPUs."""
    return call["X"] + call["Y"] * call["gate"]


@defines("GatedRMSNorm", "X scale gate")
def gated_rms_norm(call: Call) -> Value:
    """RMS normalization over groups of the last axis, as long as the scale, times a gate."""
    kind = call.one_of("activation", "silu", "swish", "sigmoid")
    x, gate = (call.wide(name) for name in ("X", "gate"))
    width = call.size("scale", 0)
    rows = x.reshaped(*[0] * (call.rank("X") - 1), -1, width)
    normed = rows * inverse_root(rows, call.real("epsilon", 1e-5)) * call.wide("scale")
    opened = gate.Sigmoid() if kind == "sigmoid" else gate * gate.Sigmoid()
    return (normed.Reshape(x.Shape()) * opened).CastLike(call["X"])


@defines("LinearAttentionGate", "a dt_bias decay_scale b")
def linear_attention_gate(call: Call) -> Sequence[Value | None]:
    numbers = call.wide("a") + call.wide("dt_bias")
    decay = (numbers.Softplus() * call.wide("decay_scale")).CastLike(call["a"])
    if not call.has("b"):
        return decay, None
    return decay, call.wide("b").Sigmoid().CastLike(call["b"])


# Hyper-connections: residual streams of several branches


def _branches(call: Call, name: str) -> tuple[Value, int]:
    """An input [..., branches, width], unflattened if necessary, and its rank."""
    branches, value, rank = call.integer("num_branches"), call.wide(name), call.rank(name)
    if not branches:
        return value, rank
    return value.reshaped(*[0] * (rank - 1), branches, -1), rank + 1


def _per_branch(call: Call, name: str, rank: int, width: int) -> Value:
    """Gates per branch, or per branch and feature, shaped to broadcast over branches."""
    value, own = call.wide(name), call.rank(name)
    if own == rank:
        return value
    branches = call.integer("num_branches")
    is_flat = branches and call.size(name, -1) == branches * width and width != 1
    return value.reshaped(*[0] * (own - 1), branches, -1) if is_flat else value.Unsqueeze([-1])


@defines("BranchwiseRMSNorm", "X scale")
def branchwise_rms_norm(call: Call) -> Value:
    rows, _ = _branches(call, "X")
    normed = rows * inverse_root(rows, call.real("epsilon", 1e-5))
    if call.has("scale"):  # Per branch and feature, or per feature.
        branches, scale = call.integer("num_branches"), call.wide("scale")
        count = branches or call.size("X", -2)
        width = call.size("X", -1) // (branches or 1)
        if call.rank("scale") == 1 and call.size("scale", 0) == count * width:
            scale = scale.reshaped(count, width)
        normed = normed * scale
    return normed.Reshape(call["X"].Shape()).CastLike(call["X"])


@defines("HyperConnectionPreMix", "streams pre_mix")
def hyper_connection_pre_mix(call: Call) -> Value:
    """The sum of all branches, each times its gate."""
    streams, rank = _branches(call, "streams")
    width = call.size("streams", -1) // (call.integer("num_branches") or 1)
    mixed = streams * _per_branch(call, "pre_mix", rank, width)
    made = mixed.ReduceSum([-2], keepdims=0).scaled(call.real("reduction_scale", 1.0))
    return made.CastLike(call["streams"])


@defines("HyperConnectionPostMix", "streams block_output post_mix stream_mix")
def hyper_connection_post_mix(call: Call) -> Value:
    """Adds a block's gated output to each branch, after an optional mixing matrix."""
    streams, rank = _branches(call, "streams")
    width = call.size("block_output", -1)
    added = _per_branch(call, "post_mix", rank, width) * call.wide("block_output").Unsqueeze([-2])
    if call.has("stream_mix"):
        order = [*range(rank - 2), rank - 1, rank - 2]
        streams = call.wide("stream_mix").permuted(*order) @ streams
    return (streams + added).Reshape(call["streams"].Shape()).CastLike(call["streams"])


@defines("EngramGate",
         "key query value key_norm_scale query_norm_scale conv_norm_scale")  # fmt: skip
def engram_gate(call: Call) -> Sequence[Value | None]:
    """Gates the value by the similarity of normalized keys and queries."""
    epsilon, width = call.real("epsilon", 1e-5), call.size("key", -1)

    def normed(value: Value, scale: str) -> Value:
        return value * inverse_root(value, epsilon) * call.wide(scale)

    keys = normed(call.wide("key"), "key_norm_scale")
    queries = normed(call.wide("query"), "query_norm_scale")
    alike = (keys * queries).ReduceSum([-1]) / width**0.5
    gate = (alike.Sign() * alike.Abs().Max(alike.number(1e-6)).Sqrt()).Sigmoid()
    gated = gate * call.wide("value").Unsqueeze([2])
    made = gated.CastLike(call["value"])
    if not call.has("conv_norm_scale"):
        return made, None
    return made, normed(gated, "conv_norm_scale").CastLike(made)
