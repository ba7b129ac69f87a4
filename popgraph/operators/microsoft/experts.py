"""Mixtures of experts of onnxruntime, and their routers."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from popgraph.operators.microsoft.body import Value, total
from popgraph.operators.microsoft.call import Call, defines
from popgraph.operators.microsoft.packed_weights import unpacked


def chosen(scores: Value, count: int, experts: int) -> Value:
    """The 0/1 mask of each row's `count` largest scores; ties go to the first."""
    _, places = scores.several("TopK", 2, [count], axis=-1)
    among = places.Unsqueeze([-1]).same(scores.body.counted(experts))
    return among.CastLike(scores).ReduceSum([-2], keepdims=0)


@defines("MoE",
         "input router_probs fc1_experts_weights fc1_experts_bias fc2_experts_weights "
         "fc2_experts_bias fc3_experts_weights fc3_experts_bias")  # fmt: skip
def mixture(call: Call) -> Value:
    """
    Every expert computes all rows; the gates of experts that the router did not choose are 0.

    More arithmetic than sorting rows by expert, but no more memory for weights.
    """
    return _mixed(call, call["fc1_experts_weights"], call["fc2_experts_weights"])


def _mixed(call: Call, first: Value, second: Value, always: bool = False) -> Value:
    """Weights are [experts, outputs, inputs]; `always` normalizes the gates to a sum of 1."""
    tokens = call["input"].reshaped(-1, call.size("input", -1))
    hidden = _layer(call, tokens.Unsqueeze([0]), first, 1)
    made = _layer(call, _activated(call, hidden), second, 2)
    gates = _gates(call, always).permuted(1, 0).Unsqueeze([2])
    return (made * gates.CastLike(made)).ReduceSum([0], keepdims=0).Reshape(call["input"].Shape())


def _layer(call: Call, rows: Value, weights: Value, place: int) -> Value:
    bias = call.get(f"fc{place}_experts_bias")
    return total(rows @ weights.permuted(0, 2, 1), bias and bias.Unsqueeze([1]))


def _gates(call: Call, always: bool) -> Value:
    """The gates of the chosen experts, [rows, experts]; 0 for others."""
    if call.integer("use_sparse_mixer"):
        raise call.refuse("use_sparse_mixer")
    logits, count = call.wide("router_probs"), call.integer("k", 1)
    kept = chosen(logits, count, call.size("router_probs", 1))
    if call.has("router_weights"):
        shares = call.wide("router_weights") * kept
    else:
        shares = logits.Softmax(axis=-1) * kept
    if always or call.integer("normalize_routing_weights"):
        return shares / shares.ReduceSum([-1])
    return shares


def _activated(call: Call, value: Value) -> Value:
    kind = call.one_of("activation_type", "relu", "gelu", "silu", "swiglu", "identity")
    fused = call.integer("swiglu_fusion")
    match kind:
        case "swiglu":
            return _gated(call, value, fused)
        case "relu":
            return value.Relu()
        case "gelu":
            return value.Gelu(approximate="tanh")
        case "silu":
            return value * value.Sigmoid()
    return value


def _gated(call: Call, value: Value, fused: int) -> Value:
    """SwiGLU: one half of the elements gates the other, interleaved (1) or in halves (2)."""
    if fused not in (1, 2):
        raise call.refuse(f"swiglu_fusion = {fused}", "use 1 or 2")
    if fused == 1:
        pairs = value.reshaped(0, 0, -1, 2)
        gate, linear = (pairs.part(at, at + 1, 3).Squeeze([3]) for at in (0, 1))
    else:
        gate, linear = value.several("Split", 2, axis=2, num_outputs=2)
    limit = call.copied("swiglu_limit").get("swiglu_limit")
    if limit is not None:
        gate = gate.Min(gate.number(limit))
        linear = linear.Min(linear.number(limit)).Max(linear.number(-limit))
    opened = gate * gate.scaled(call.real("activation_alpha", 1.0)).Sigmoid()
    return opened * (linear + call.real("activation_beta"))


@defines("MoEGroupRouter", "logits expert_bias projection_weight")
def group_router(call: Call) -> Sequence[Value | None]:
    """Logits that route to the best experts of the best groups, and the scores of all experts."""
    logits = call.wide("logits").reshaped(-1, call.size("logits", -1))
    bias, experts = call["expert_bias"], call.size("expert_bias", 0)
    if call.has("projection_weight"):
        weights = call.wide("projection_weight")
        logits = logits @ weights.permuted(1, 0)
    scores = logits.Sigmoid()
    selection = scores + bias
    count = call.needs("top_k")
    groups, kept = call.integer("n_group", 1), call.integer("topk_group", 1)
    each = min(call.integer("group_topk", 2), experts // groups)
    candidates = selection
    if groups > 1:
        by_group = selection.reshaped(0, groups, -1)
        best, _ = by_group.several("TopK", 2, [each], axis=-1)
        active = chosen(best.ReduceSum([-1], keepdims=0), kept, groups).Unsqueeze([2])
        lowest = by_group.number(-float("inf"))
        candidates = (active > 0).Where(by_group, lowest).reshaped(0, -1)
    routed = chosen(candidates, count, experts) > 0
    sentinel = call.real("router_sentinel", -10000.0)
    made = routed.Where(scores.Max(scores.number(1e-20)).Log(), scores.number(sentinel))
    return made.CastLike(call["logits"]), selection, scores


@defines("QMoE",
         "input router_probs fc1_experts_weights fc1_scales fc1_experts_bias "
         "fc2_experts_weights fc2_scales fc2_experts_bias "
         "fc3_experts_weights fc3_scales fc3_experts_bias "
         "fc1_zero_points fc2_zero_points fc3_zero_points router_weights "
         "fc1_global_scale fc2_global_scale fc1_act_scale fc2_act_scale "
         "fc1_act_block_scale fc2_act_block_scale",
         ignored="accuracy_level")  # fmt: skip
def quantized_mixture(call: Call) -> Value:
    """
    MoE with weights of 2, 4 or 8 bits, and a scale for each row or block.

    Gates from a router are always normalized to a sum of 1, as in onnxruntime.
    """
    if call.text("quant_type", "int") != "int":
        raise call.refuse(f"quant_type = {call.text('quant_type')!r}", "use int")
    if call.integer("weights_prepacked", 0) > 0:
        raise call.refuse("weights_prepacked = 1", "use 0 or -1")
    always = not call.has("router_weights")
    call.ignore("normalize_routing_weights")
    return _mixed(call, _weights(call, 1), _weights(call, 2), always)


def _weights(call: Call, place: int) -> Value:
    """The dequantized weights of a layer, in the type of the input."""
    bits = call.integer(f"fc{place}_expert_weight_bits") or call.integer("expert_weight_bits", 4)
    if bits not in (2, 4, 8):
        raise call.refuse(f"weights of {bits} bits", "use 2, 4 or 8")
    name, block = f"fc{place}_experts_weights", call.integer("block_size")
    experts, rows, width = (call.size(name, axis) for axis in range(3))
    columns = width * (8 // bits)
    parts = columns // block if block > 0 else 1
    codes = unpacked(call[name], bits).reshaped(experts, rows, parts, -1)
    steps = call[f"fc{place}_scales"].reshaped(experts, rows, parts, 1)
    points = _points(call, place, bits, (experts, rows, parts), block > 0)
    made = (codes.CastLike(steps) - points.CastLike(steps)) * steps
    return made.reshaped(experts, rows, columns).CastLike(call["input"])


def _points(call: Call, place: int, bits: int, sizes: tuple[int, int, int], blocked: bool) -> Value:
    """The zero points, packed along blocks if there are any, else along rows."""
    experts, rows, parts = sizes
    given = call.get(f"fc{place}_zero_points")
    if given is None:
        return call.body.constant(np.array(1 << (bits - 1), np.int32))
    numbers = unpacked(given, bits)
    if blocked:
        return numbers.reshaped(experts, rows, -1).part(0, parts, 2).Unsqueeze([3])
    return numbers.reshaped(experts, -1).part(0, rows, 1).reshaped(experts, rows, 1, 1)
