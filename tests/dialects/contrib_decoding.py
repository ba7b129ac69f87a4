"""Samples of onnxruntime's operators for decoding text token by token."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from onnx import helper

from popgraph.operators.microsoft.packed_weights import PACKINGS
from popgraph.support.arrays import Array
from tests.dialects.contrib_sample import RANDOM, Sample, draw, draw_ints, ints

LIMITS = ints(0, 3, 7)
"""Row limits of two packed sequences, of 3 and 4 tokens."""


def of_one_token() -> list[Sample]:
    entries, heads, size, slots, before = 4, 2, 4, 8, 3
    new = [draw(entries, 1, heads * size) for _ in "qkv"]
    past = [draw(entries, heads, slots, size) for _ in "kv"]
    mask, beams = draw_ints(2, entries, before + 1), draw_ints(2, entries // 2, 2, slots)
    bias, more = draw(3 * heads * size), draw(1, heads, 1, before + 1)
    held: dict[str, Any] = {"num_heads": heads}
    stored = {**held, "past_present_share_buffer": 1}

    def attention(*given: Array | None, **attributes: Any) -> Sample:
        behind = [*given, *[None] * (2 - len(given))][:2]
        inputs = [*new, *behind, *past, ints(before), *given[2:]]
        overwritten = {"k": "i5", "v": "i6"}
        return Sample(
            "DecoderMaskedMultiHeadAttention",
            inputs,
            ["y", "k", "v"],
            {**stored, **attributes},
            None,
            overwritten,
        )

    crossed = [new[0], *past]
    return [
        attention(),
        attention(mask, more, scale=0.3),
        attention(None, None, None, None, bias),
        attention(None, None, ints(2), beams),
        attention(mask, more, ints(2), beams, bias),
        Sample("DecoderMaskedMultiHeadAttention", crossed, ["y"], held),
        Sample(
            "DecoderMaskedMultiHeadAttention",
            [*crossed, draw_ints(2, entries, slots)],
            ["y"],
            {**held, "mask_filter_value": -3.0},
        ),
    ]


def packed_convolutions() -> list[Sample]:
    found, half = [], np.float16
    for taps, spread in ((4, 1), (2, 3), (1, 1)):
        x, weight, state = draw(7, 3), draw(3, 1, taps), draw(2, 3, (taps - 1) * spread)
        inputs = [x, weight, LIMITS, None, state]
        held: dict[str, Any] = {"dilation": spread}
        found.append(Sample("VarlenCausalConvWithState", inputs, ["y", "s"], held))
        inputs = [x, weight, LIMITS, draw(3), state, ints(2, 5)]
        held = {**held, "state_update_capacity": 3, "activation": "silu"}
        found.append(Sample("VarlenCausalConvWithState", inputs, ["y", "s", "u"], held))
    halves = [one.astype(half) for one in (draw(7, 3), draw(3, 1, 4), draw(3), draw(2, 3, 3))]
    inputs = [*halves[:2], LIMITS, *halves[2:]]
    return [*found, Sample("VarlenCausalConvWithState", inputs, ["y", "s"])]


def delta_nets() -> list[Sample]:
    found = []
    for rule in ("linear", "gated", "delta", "gated_delta"):
        held: dict[str, Any] = {"update_rule": rule}
        for by_key in (False, True)[: 1 + ("gated" in rule)]:
            found += _of_rule(rule, by_key, held)
    for kind in ("softplus", "qwen", "sigmoid", "kda"):
        given = _net("gated_delta", kind != "kda", 7)
        rates = [draw(4), draw(4, 4) if kind == "softplus" else draw(4)]
        held = {"gate_activation": kind, "beta_activation": "sigmoid", "gate_lower_bound": -3.0}
        inputs = [*given[:3], LIMITS, *given[3:], draw(2, 4, 5, 4), *rates]
        found.append(Sample("GatedDeltaNet", inputs, ["y", "s"], held))
    return found


def _net(rule: str, by_key: bool, *tokens: int) -> list[Array | None]:
    """Queries, keys, values, decays and update rates of a delta net."""
    decay = -abs(draw(*tokens, 4, 4) if by_key else draw(*tokens, 4))
    return [
        draw(*tokens, 2, 4),
        draw(*tokens, 2, 4) / 3,
        draw(*tokens, 4, 5),
        decay if "gated" in rule else None,
        abs(draw(*tokens, 4)) if "delta" in rule else None,
    ]


def _of_rule(rule: str, by_key: bool, held: Mapping[str, Any]) -> list[Sample]:
    state, given = draw(2, 4, 5, 4), _net(rule, by_key, 7)
    both, limits, some = ["y", "s"], LIMITS, {"state_update_capacity": 2}
    every = [*given[:3], limits, *given[3:], state]
    even, squared = _net(rule, by_key, 8), _net(rule, by_key, 2, 3)
    together = np.concatenate([one.reshape(7, -1) for one in given[:3] if one is not None], 1)
    single: list[Array | None] = [one if one is None else one[:1] for one in given]
    return [
        Sample("GatedDeltaNet", every, both, held),
        Sample("GatedDeltaNet", every[:-1], both, {**held, "qk_l2_norm": 1}),
        Sample(
            "GatedDeltaNet",
            [*every, None, None, ints(1, 3)],
            [*both, "u"],
            {**held, **some},
        ),
        Sample(
            "GatedDeltaNet",
            [*every, None, None, ints(1, 3), ints(0)],
            [*both, "u"],
            {**held, **some},
        ),
        Sample(
            "GatedDeltaNet",
            [*even[:3], None, *even[3:], state, None, None, ints(1, 3)],
            [*both, "u"],
            {**held, **some, "scale": 0.3},
        ),
        Sample("GatedDeltaNet", [*squared[:3], None, *squared[3:]], both, held),
        Sample("GatedDeltaNet", [together, None, None, *every[3:]], both, held),
        Sample("GatedDeltaNet", [*single[:3], None, *single[3:], state[:1]], both, held),
    ]


def packed_hashes() -> list[Sample]:
    found = []
    for whole in (np.int32, np.int64):
        for limits in (LIMITS, ints(0, 1, 7)):
            ids, before = draw_ints(5, 7, dtype=whole), draw_ints(5, 2, 3, dtype=whole)
            factors, end = np.array([3, -5, 7, 1000003], whole), np.array(1, whole)
            sizes = np.array([11, 13, 17, 19, 23, 29], whole)
            parts, old = np.sort(draw_ints(3, 7)), draw_ints(2, 2, 3)
            held = {"max_ngram_size": 4, "n_head_per_ngram": 2, "pad_id": 2}
            for more, outputs, attributes in (
                ([], "h p", {}),
                ([before, sizes], "h p", {}),
                ([before, None, end], "h p", {"reset_on_eos": 1}),
                ([None, None, end], "h p", {}),
                ([before, None, None, parts], "h p s", {}),
                ([None, None, None, parts], "h p s", {}),
                ([before, None, end, parts, old], "h p s", {"reset_on_eos": 1}),
                (
                    [before, None, end, parts, old, ints(2, 9)],
                    "h p s u",
                    {"state_update_capacity": 5},
                ),
            ):
                inputs = [ids, factors, sizes, limits, *more]
                found.append(
                    Sample(
                        "VarlenNGramHashMapping", inputs, outputs.split(), {**held, **attributes}
                    )
                )
    return found


def alignments() -> list[Sample]:
    found = [
        Sample("DynamicTimeWarping", [draw(*shape)])
        for shape in ((4, 6), (1, 6, 4), (1, 1), (3, 1), (1, 5))
    ]
    found.append(Sample("DynamicTimeWarping", [np.zeros((3, 4), np.float32)]))
    for at in range(8):
        length, before = 4 + at, at % 4
        source, current = (draw_ints(3, size, dtype=np.int64) for size in (length, 1 + at % 3))
        predicted = draw_ints(3, length + 1 - before, dtype=np.int64)
        alike = int(RANDOM.integers(0, length + 1 - before))
        predicted[:alike] = source[before : before + alike]
        inputs = [source, current, np.array([before, before][at % 2 :], np.int64)[:1], predicted]
        held = {"min_ngram_size": 1 + at % 2, "max_ngram_size": 2 + at % 3}
        found.append(Sample("BifurcationDetector", inputs[: 3 + (at > 1)], ["t", "i"], held))
    return found


def packed_rows() -> list[Sample]:
    """Rows of random bytes; the scales in each block are small f16 numbers."""
    found = []
    for kind, packing in PACKINGS.items():
        size = 2 * max(packing.elements, 32)
        shape = (5, size // packing.elements, packing.bytes)
        blocks = draw_ints(256, *shape, dtype=np.uint8)
        for at in {0: [2], 13: [0, 2], 14: [208]}.get(kind, [0]):
            scales = draw(*shape[:2], 1).astype(np.float16)
            blocks[:, :, at : at + 2] = scales.view(np.uint8)
        for result, index in ((np.float32, np.int32), (np.float16, np.int64)):
            held = {"packed_type": kind, "K": size}
            held["output_dtype"] = helper.np_dtype_to_tensor_dtype(np.dtype(result))
            places = np.array([[1, -1], [4, 7]], index)
            found.append(Sample("GatherPacked", [blocks.reshape(5, -1), places], ["y"], held))
    return found


def attentive_loops() -> list[Sample]:
    entries, hidden, depth, inner, made = 2, 4, 5, 3, 2
    found = []
    for way, mixes, lengths in (
        ("forward", False, None),
        ("reverse", True, ints(3, 6)),
        ("bidirectional", True, None),
        ("bidirectional", False, ints(1, 4)),
    ):
        count, told = 1 + (way == "bidirectional"), made if mixes else depth
        weights = [draw(count, 4 * hidden, size) / 2 for size in (3 + told, hidden)]
        state = [draw(count, entries, hidden) for _ in "hc"] + [draw(count, 3 * hidden)]
        looks = [draw(count, hidden, inner), draw(count, depth, inner), draw(count, inner)]
        inputs = [draw(3, entries, 3), *weights, draw(count, 8 * hidden), None]
        inputs += [*(state if mixes else [None] * 3), *looks, draw(entries, 6, depth), lengths]
        inputs += [draw(count, depth + hidden, made)] if mixes else []
        held = {"hidden_size": hidden, "direction": way}
        found.append(Sample("AttnLSTM", inputs, ["y", "h", "c"], held))
    return found


def decoding() -> list[Sample]:
    return [
        *of_one_token(),
        *packed_convolutions(),
        *delta_nets(),
        *packed_hashes(),
        *alignments(),
        *packed_rows(),
        *attentive_loops(),
    ]
