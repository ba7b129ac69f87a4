"""Samples of onnxruntime's operators for layers of recent networks."""

from __future__ import annotations

from typing import Any

import numpy as np

from popgraph.support.arrays import Array
from tests.dialects.contrib_sample import RANDOM, Sample, draw, draw_ints, ints


def gates() -> list[Sample]:
    x, half = draw(2, 3, 8), np.float16
    grouped = [(2, 3), (2, 3, 1), (2, 3, 8)]
    flattened = [(2, 3, 4), (2, 3, 4, 1), (2, 3, 4, 2)]
    four: dict[str, Any] = {"num_branches": 4}
    engram = [draw(2, 3, 4, 8), draw(2, 3, 4, 8), draw(2, 3, 8), draw(4, 8), draw(4, 8)]
    return [
        Sample("ScaledSiLU", [x], attributes={"alpha": 0.3}),
        Sample("ScaledSiLU", [x.astype(half), np.array(0.7, np.float32)]),
        Sample("GatedAdd", [x, draw(2, 3, 8), draw(2, 3, 1)]),
        *(
            Sample("GatedRMSNorm", [x, draw(4), draw(2, 3, 8)], attributes={"activation": kind})
            for kind in ("silu", "swish", "sigmoid")
        ),
        Sample("GatedRMSNorm", [x.astype(half), draw(8).astype(half), x.astype(half)]),
        Sample("BranchwiseRMSNorm", [x], attributes={"epsilon": 0.1}),
        *(Sample("BranchwiseRMSNorm", [x, draw(*shape)]) for shape in [(8,), (24,), (3, 8)]),
        *(
            Sample("BranchwiseRMSNorm", [x, draw(*shape)], ["y"], four)
            for shape in [(8,), (2,), (4, 2)]
        ),
        *(
            Sample("HyperConnectionPreMix", [x, draw(*shape)], ["y"], {"reduction_scale": 0.5})
            for shape in grouped
        ),
        *(
            Sample("HyperConnectionPreMix", [x, draw(*shape)], ["y"], four)
            for shape in [*flattened, (2, 3, 8)]
        ),
        *(
            Sample("HyperConnectionPostMix", [x, draw(2, 8), draw(*shape), draw(2, 3, 3)])
            for shape in grouped
        ),
        *(
            Sample("HyperConnectionPostMix", [x, draw(2, 3, 2), draw(*shape)], ["y"], four)
            for shape in flattened
        ),
        Sample(
            "HyperConnectionPostMix",
            [x, draw(2, 3, 2), draw(2, 3, 4), draw(2, 3, 4, 4)],
            ["y"],
            four,
        ),
        Sample("EngramGate", engram),
        Sample("EngramGate", [*engram, draw(4, 8)], ["y", "n"], {"epsilon": 0.1}),
        Sample("LinearAttentionGate", [draw(2, 3, 4), draw(4), draw(4)]),
        Sample("LinearAttentionGate", [draw(2, 3, 4), draw(4), draw(4), draw(2, 3, 4)], ["d", "b"]),
    ]


def with_states() -> list[Sample]:
    x, weight, bias = draw(2, 3, 6), draw(3, 1, 4), draw(3)
    turned, both = [draw(2, 6, 3, 1), weight, bias, draw(2, 3, 3, 1)], ["y", "s"]
    spread: dict[str, Any] = {"dilation": 2, "activation": "silu"}

    def attention(
        asking: int, heads: int, rule: str, keys: int = 0, parts: int = 1, one: int = 0, **more: Any
    ) -> Sample:
        keyed, gates = draw(2, 3, (keys or heads) * 4) / 3, one or heads
        inputs: list[Array | None] = [draw(2, 3, asking * 4), keyed, draw(2, 3, heads * 5)]
        inputs.append(draw(2, heads, 4, 5) if rule != "linear" else None)
        inputs.append(-abs(draw(2, 3, heads * parts)) if "gated" in rule else None)
        inputs.append(abs(draw(2, 3, gates)) / 5 if "delta" in rule else None)
        held = {"q_num_heads": asking, "kv_num_heads": heads, "update_rule": rule, **more}
        return Sample("LinearAttention", inputs, both, held)

    rules = ("linear", "gated", "delta", "gated_delta")
    return [
        Sample("CausalConvWithState", [x, weight, bias], both),
        Sample("CausalConvWithState", [x, weight[:, :, :1]], both),
        Sample("CausalConvWithState", [x, weight, None, draw(2, 3, 6)], both, spread),
        Sample("CausalConvWithState", turned, both, {"channels_last": 1}),
        *(attention(4, 2, rule) for rule in rules),
        attention(2, 4, "gated_delta"),
        attention(2, 4, "gated_delta", keys=2),
        attention(2, 2, "gated_delta", parts=4, one=1, scale=0.3),
    ]


def experts() -> list[Sample]:
    rows, count, width, inner = 5, 4, 32, 16
    x, scores, many = draw(rows, width), draw(rows, count), {"k": 2}
    first, second = draw(count, inner, width) / 5, draw(count, width, inner) / 5
    layers = [first, draw(count, inner), second, draw(count, width)]
    gated: dict[str, Any] = {"activation_type": "swiglu", "swiglu_fusion": 1, **many}
    gated |= {"swiglu_limit": 1.0, "activation_alpha": 1.7, "activation_beta": 1.0}
    wide = [draw(2, 3, width), draw(6, count), draw(count, 2 * inner, width) / 5, None, second]
    grouped, all_of_them = {"top_k": 3, "n_group": 4, "topk_group": 2}, ["", "a", "b"]
    projected = [draw(5, 256) / 9, draw(8), draw(8, 256) / 9]
    return [
        Sample("MoE", [x, scores, *layers]),
        *(
            Sample("MoE", [x, scores, *layers], ["y"], {"activation_type": kind, **many})
            for kind in ("relu", "gelu", "silu", "identity")
        ),
        Sample("MoE", [x, scores, *layers], ["y"], {"normalize_routing_weights": 1, **many}),
        Sample("MoE", wide, ["y"], gated),
        *(
            quantized_experts(x, scores, bits, block, has_points)
            for bits in (4, 8)
            for block in (0, 16)
            for has_points in (False, True)
        ),
        Sample("MoEGroupRouter", [draw(5, 8), draw(8)], ["y"], grouped),
        Sample("MoEGroupRouter", [draw(2, 5, 8), draw(8)], ["y"], {"top_k": 3}),
        Sample("MoEGroupRouter", projected, all_of_them, {"top_k": 3}),
    ]


def quantized_experts(x: Array, scores: Array, bits: int, block: int, has_points: bool) -> Sample:
    (rows, width), count, inner, packed = x.shape, scores.shape[1], 16, 8 // bits

    def layer(results: int, arguments: int) -> tuple[Array, Array, Array]:
        parts = arguments // block if block else 1
        codes = draw_ints(256, count, results, arguments // packed, dtype=np.uint8)
        steps = abs(draw(count, results, parts)) / 99
        if block:
            shape: tuple[int, ...] = (count, results, -(-parts // packed))
        else:
            steps, shape = steps[:, :, 0], (count, -(-results // packed))
        return codes, steps, draw_ints(256, *shape, dtype=np.uint8)

    first, second = layer(inner, width), layer(width, inner)
    inputs = [x, scores, *first[:2], draw(count, inner), *second[:2], None, None, None, None]
    if has_points:
        inputs += [first[2], second[2], None, abs(draw(rows, count))]
    held = {"k": 2, "activation_type": "silu", "expert_weight_bits": bits}
    return Sample("QMoE", inputs, ["y"], held | ({"block_size": block} if block else {}))


def tokens() -> list[Sample]:
    words = np.array([[1, 2, 3, 0, 0], [4, 5, 0, 0, 0], [1, 2, 3, 4, 5], [3, 0, 2, 0, 1]], np.int32)
    found = [
        Sample("Unique", [np.array([2, 1, 1, 3, 4, 3], np.float32)], ["y", "i", "c"]),
        Sample("WordConvEmbedding", [words, draw(3, 1, 3, 2), draw(3), draw(8, 2)]),
    ]
    for kind in (np.int32, np.uint32, np.int64, np.uint64):
        numbers = RANDOM.integers(0, np.iinfo(kind).max, (3, 2), dtype=kind)
        numbers[0] = ~numbers[0]
        for attributes in ({"seed": 7}, {"positive": 0}):
            found.append(Sample("MurmurHash3", [numbers], ["y"], attributes))
    for whole in (np.int32, np.int64):
        ids, before = (draw_ints(6, 2, length, dtype=whole) for length in (7, 3))
        parts = np.sort(draw_ints(3, 2, 7), axis=1)
        factors = np.array([3, -5, 7, 1000003], whole)
        sizes, end = np.array([11, 13, 17, 19, 23, 29], whole), np.array(1, whole)
        held = {"max_ngram_size": 4, "n_head_per_ngram": 2, "pad_id": 2}
        for more, reset in (
            ([], 0),
            ([before, sizes], 0),
            ([before, None, end], 1),
            ([None, None, end], 0),
            ([before, None, None, parts], 0),
            ([before, None, end, parts], 1),
        ):
            inputs = [ids, factors, sizes, *more]
            attributes = {**held, "reset_on_eos": reset}
            found.append(Sample("NGramHashMapping", inputs, ["y", "p"], attributes))
    return found


def places() -> list[Sample]:
    found = []
    for shape in ((1, 2, 8), (2, 2, 6, 7), (1, 2, 4, 4, 5)):
        count, mask = len(shape) - 2, draw_ints(4, 1, 1, *shape[2:])
        pads = [*[1, 0, 1][:count], *[1, 1, 0][:count]]
        held = {"kernel_shape": [3, 2, 2][:count], "pads": pads, "strides": [2, 1, 1][:count]}
        for first in (0, 1):
            mask.flat[0] = first
            found.append(Sample("MaxpoolWithMask", [draw(*shape), mask.copy()], ["y"], held))
    at, angles = draw_ints(8, 3, 2, 3, dtype=np.int64), [draw(8, 8), draw(8, 8)]
    for layout, sections in enumerate([[2, 3, 3], [4, 2, 2]]):
        for way in (0, 1):
            each: dict[str, Any] = {"mrope_section": sections, "mrope_layout": layout}
            each |= {"interleaved": way}
            some = {**each, "num_heads": 2, "rotary_embedding_dim": 16}
            found += [
                Sample(
                    "MRotaryEmbedding",
                    [draw(2, 3, 32), at, *angles],
                    ["y"],
                    {**each, "num_heads": 2},
                ),
                Sample("MRotaryEmbedding", [draw(2, 2, 3, 16), at, *angles], ["y"], each),
                Sample("MRotaryEmbedding", [draw(2, 3, 48), at, *angles], ["y"], some),
            ]
    return found


def sparse() -> list[Sample]:
    batch, heads, kept, size, slots = 2, 4, 2, 16, 64
    rows = np.array([[0, 1, 3, 5, 8], [0, 1, 3, 6, 9]], np.int32)
    columns = np.array([[0, 0, 1, 1, 2, 1, 2, 3, -1], [0, 0, 1, 0, 1, 2, 0, 2, 3]], np.int32)
    angles, turned = [draw(slots, size // 2), draw(slots, size // 2)], {"do_rotary": 1}

    def attention(length: int, ends: Array, *more: Array, **attributes: Any) -> Sample:
        every = [draw(batch, length, one * size) for one in (heads, kept, kept)]
        past = [draw(batch, kept, slots, size) for _ in "kv"]
        held = {"num_heads": heads, "kv_num_heads": kept, "sparse_block_size": 16, **attributes}
        inputs = [*every, *past, rows, columns, ints(int(ends.max())), ends, *more]
        overwritten = {"k": "i3", "v": "i4"}
        return Sample("SparseAttention", inputs, ["y", "k", "v"], held, None, overwritten)

    return [
        attention(32, ints(32, 32)),
        attention(32, ints(32, 32), *angles, scale=0.3, **turned),
        attention(1, ints(61, 61), *angles, **turned),
    ]


NETWORKS = [
    *gates(),
    *with_states(),
    *experts(),
    *tokens(),
    *places(),
    *sparse(),
]
