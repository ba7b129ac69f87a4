"""Tests operators of onnxruntime: values against onnxruntime, types, gradients, refusals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import numpy_helper

import popgraph
from popgraph.dialects.onnx.containers import Function
from popgraph.dialects.onnx.custom import Custom
from popgraph.dialects.onnx.functions import function_of
from popgraph.operators.record import defined_operators
from popgraph.support.arrays import Array
from popgraph.support.errors import TypeMismatchError, UnsupportedError
from tests.dialects.contrib_decoding import decoding
from tests.dialects.contrib_generation import PAD, greedy, searches
from tests.dialects.contrib_networks import NETWORKS
from tests.dialects.contrib_sample import ORT, RANDOM, Sample, draw, draw_ints, ints, peer
from tests.dialects.test_onnx_contrib_quantized import CASES as QUANTIZED
from tests.passes.test_onnx_gradients import check
from tests.peer import SAFE

ONLY_ON_GPUS = {"BiasSoftmax", "BiasDropout", "NhwcConv", "NhwcFusedConv"}
"""Operators without an implementation for CPUs in onnxruntime."""


def activations() -> list[Sample]:
    x = draw(2, 3, 8)
    return [
        Sample("Gelu", [x]),
        Sample("BiasGelu", [x, draw(8)]),
        Sample("FastGelu", [x]),
        Sample("FastGelu", [x, draw(8)]),
        Sample("QuickGelu", [x]),
        Sample("QuickGelu", [x], attributes={"alpha": 0.5}),
    ]


def products() -> list[Sample]:
    def product(a: Array, b: Array, **attributes: Any) -> Sample:
        return Sample("FusedMatMul", [a, b], attributes=attributes)

    names = ["Relu", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "Elu", "Softsign", "Softplus"]
    names += ["Selu", "Celu", "ScaledTanh", "ParametricSoftplus"]
    numbers: dict[str, Any] = {
        "activation_alpha": 0.3,
        "activation_beta": 0.4,
        "activation_gamma": 1.5,
    }
    gemm: dict[str, Any] = {"transB": 1, "alpha": 0.5, "beta": 2.0, **numbers}
    return [
        product(draw(2, 3, 4), draw(2, 4, 5), alpha=0.5),
        product(draw(2, 4, 3), draw(2, 5, 4), transA=1, transB=1),
        product(draw(3, 2, 4), draw(2, 4, 5), transBatchA=1),
        product(draw(4, 2, 3), draw(4, 2, 5), transBatchA=1, transA=1, transBatchB=1),
        product(draw(3, 2, 6, 4), draw(2, 6, 4, 5), transBatchA=1),
        product(draw(4), draw(4, 5), transA=1),
        *(
            Sample(
                "FusedGemm", [draw(3, 4), draw(5, 4), draw(5)], ["y"], gemm | {"activation": one}
            )
            for one in [*names, "ThresholdedRelu"]
        ),
        Sample("FusedGemm", [draw(3, 4), draw(4, 5)], attributes={"activation": "Relu"}),
    ]


def convolutions() -> list[Sample]:
    window = {"pads": [1, 1, 1, 1], "kernel_shape": [3, 3]}
    rows = [
        ("Relu", []),
        ("LeakyRelu", [0.1]),
        ("Clip", [-0.2, 0.3]),
        ("HardSigmoid", [0.3, 0.4]),
        ("HardSwish", []),
        ("Tanh", []),
        ("Sigmoid", []),
    ]
    found = []
    for name, numbers in rows:
        attributes: dict[str, Any] = {"activation": name, "group": 2, **window}
        if numbers:
            attributes["activation_params"] = numbers
        inputs = [draw(1, 4, 5, 5), draw(6, 2, 3, 3), draw(6)]
        found.append(Sample("FusedConv", inputs, attributes=attributes))
    added = [draw(1, 4, 5, 5), draw(6, 4, 3, 3), None, draw(1, 6, 5, 5)]
    return [*found, Sample("FusedConv", added, attributes={"activation": "Relu", **window})]


def normalizations() -> list[Sample]:
    x, skip, gamma, beta = draw(2, 3, 8), draw(2, 3, 8), draw(8), draw(8)
    ids, kinds, words = draw_ints(10, 2, 4), draw_ints(2, 2, 4), draw(10, 8)
    mask = np.array([[1, 2, 1, 0], [1, 1, 0, 0]], np.int32)  # Only a mask of 1 keeps a key.
    places, segments = draw(6, 8), draw(2, 8)
    embedded = [ids, kinds, words, places, segments, gamma, beta]
    skipped, simplified = "SkipLayerNormalization", "SkipSimplifiedLayerNormalization"
    return [
        Sample(skipped, [x, skip, gamma, beta, draw(8)], ["y", "", "", "s"]),
        Sample(skipped, [x, draw(1, 3, 8), gamma], ["y"], {"epsilon": 0.1}),
        Sample(skipped, [x, draw(3, 8), gamma, beta]),
        Sample(simplified, [x, skip, gamma, draw(8)], ["y", "", "", "s"]),
        Sample("SimplifiedLayerNormalization", [x, gamma], ["y"], {"epsilon": 0.1}),
        Sample("SimplifiedLayerNormalization", [x, gamma], ["y", "i"], {"axis": -1}),
        Sample("EmbedLayerNormalization", [*embedded, mask], ["y", "m", "e"]),
        Sample("EmbedLayerNormalization", [*embedded, None, ids % 6], ["y", "m"]),
        Sample(
            "EmbedLayerNormalization", [ids, None, words, places, None, gamma, beta], ["y", "m"]
        ),
    ]


def few_bits() -> list[Sample]:
    found, rows = [], 5
    for bits, block, columns in [(4, 16, 32), (4, 32, 40), (8, 16, 32), (2, 16, 32)]:
        blocks = -(-columns // block)
        codes = draw_ints(256, rows, blocks, block * bits // 8, dtype=np.uint8)
        zeros = draw_ints(256, rows, -(-blocks * bits // 8), dtype=np.uint8)
        x, steps = draw(2, columns), draw(rows, blocks) / 8
        attributes = {"K": columns, "N": rows, "bits": bits, "block_size": block}
        for more in ([], [zeros, None, draw(rows)]):
            found.append(Sample("MatMulNBits", [x, codes, steps, *more], ["y"], attributes))
    owners = draw_ints(3, 48)
    grouped = {"K": 40, "N": rows, "bits": 4, "block_size": 16}
    for points in (None, draw(rows, 3)):
        given = [draw(2, 40), draw_ints(256, rows, 3, 8, dtype=np.uint8), draw(rows, 3), points]
        found.append(Sample("MatMulNBits", [*given, owners], ["y"], grouped))
    for kind in (0, 1):
        held = {"K": 32, "N": rows, "block_size": 16, "quant_type": kind}
        given = [draw(2, 32), draw_ints(256, rows * 16, dtype=np.uint8), abs(draw(rows * 2))]
        found.append(Sample("MatMulBnb4", given, ["y"], held))
    return found


def attentions() -> list[Sample]:
    batch, length, heads, size = 2, 3, 2, 4
    width = heads * size
    first = [draw(batch, length, 6), draw(6, 3 * width), draw(3 * width)]
    past, bias = draw(2, batch, heads, 2, size), draw(batch, heads, length, length)
    causal = {"unidirectional": 1}

    def attention(*more: Array | None, both: bool = False, **attributes: Any) -> Sample:
        outputs = ["y", "p"] if both else ["y"]
        return Sample("Attention", [*first, *more], outputs, {"num_heads": heads, **attributes})

    uneven = [first[0], draw(6, 2 * width + 6), draw(2 * width + 6)]
    sizes = {"num_heads": heads, "qkv_hidden_sizes": [width, width, 6]}
    pairs = draw_ints(2, batch, length, length + 2)
    return [
        attention(),
        attention(both=True, **causal),
        attention(None, past, both=True, **causal),
        attention(ints(2, 3)),
        attention(ints(2, 3, 1, 0), **causal),
        attention(np.array([[1, 1, 0], [0, 1, 1]], np.int32), mask_filter_value=-100.0),
        attention(pairs, past, both=True),
        attention(None, None, bias, scale=0.3),
        Sample("Attention", uneven, attributes=sizes),
    ]


def heads_of_several() -> list[Sample]:
    batch, length, other, heads, size = 2, 3, 5, 2, 4
    width = heads * size
    q, k, v = draw(batch, length, width), draw(batch, other, width), draw(batch, other, width)
    split = [draw(batch, heads, other, size), draw(batch, heads, other, size)]
    own = [draw(batch, length, width), draw(batch, length, width), draw(3 * width)]
    past = [draw(batch, heads, 2, size), draw(batch, heads, 2, size)]
    mask = draw_ints(2, batch, other)
    mask[:, 0] = 1  # With every key hidden, scores lose their digits to the mask's offset.
    buffers = [draw(batch, heads, 9, size), draw(batch, heads, 9, size)]
    buffered = [q, *own[:2], None, None, None, *buffers, ints(2)]

    def attention(*inputs: Array | None, **attributes: Any) -> Sample:
        outputs = ["y", "k", "v"] if len(inputs) > 6 else ["y"]
        return Sample("MultiHeadAttention", inputs, outputs, {"num_heads": heads, **attributes})

    return [
        attention(q, k, v),
        attention(q, k, v, draw(3 * width)),
        attention(q, k, draw(batch, other, 6), draw(2 * width + 6)),
        attention(q, *split),
        attention(q, k, v, None, ints(3, 5)),
        attention(q, k, v, None, mask, draw(1, heads, length, other), scale=0.4),
        attention(q, *own, None, None, *past, unidirectional=1),
        attention(q, k, v, None, ints(3, 5, 0, 3, 6, 0, 5, 10)),
        attention(*buffered),
        attention(*buffered, unidirectional=1),
        attention(*buffered[:4], mask, draw(1, heads, length, 5), *buffered[6:]),
    ]


def rotations() -> list[Sample]:
    places = np.array([[0, 2, 3], [1, 4, 5]], np.int64)
    angles, partial = [draw(8, 2), draw(8, 2)], {"num_heads": 2, "rotary_embedding_dim": 4}
    return [
        Sample("RotaryEmbedding", [x, at, *angles], ["y"], {"interleaved": way, **attributes})
        for way in (0, 1)
        for x, at, attributes in [
            (draw(2, 3, 8), places, {}),
            (draw(2, 3, 8), np.array([2], np.int64), {}),
            (draw(2, 2, 3, 4), places, {}),
            (draw(2, 3, 16), places, partial),
            (draw(2, 3, 8), places, {"scale": 0.5}),
        ]
    ]


def groups() -> list[Sample]:
    batch, length, heads, kept, size, before = 2, 3, 4, 2, 16, 5
    first = [draw(batch, length, heads * size)]
    first += [draw(batch, length, kept * size) for _ in "kv"]
    next_one = [array[:, :1] for array in first]
    past = [draw(batch, kept, before, size) for _ in "kv"]
    none, angles = [None, None], [draw(32, size // 2), draw(32, size // 2)]
    prompt = [ints(length - 1, length - 1), ints(length)]
    together = [draw(batch, length, (heads + 2 * kept) * size), None, None]
    bias = draw(batch, 1, length, length)

    def attention(*inputs: Array | None, slots: int | None = None, **attributes: Any) -> Sample:
        held = {"num_heads": heads, "kv_num_heads": kept, **attributes}
        return Sample("GroupQueryAttention", inputs, ["y", "k", "v"], held, slots)

    following = [ints(before, before), ints(before + 1)]
    uneven = [ints(before, before - 2), ints(before + 1)]
    shared = [ints(before - 2, before - 2), ints(before - 1)]
    return [
        attention(*first, *none, *prompt),
        attention(*first, *none, *prompt, *angles, do_rotary=1),
        attention(*together, *none, *prompt, *angles, do_rotary=1, rotary_interleaved=1),
        attention(*first, *none, *prompt, softcap=2.0, scale=0.2),
        attention(*first, *none, *prompt, local_window_size=1),
        attention(*first, *none, *prompt, smooth_softmax=1),
        attention(*first, *none, *prompt, *none, None, None, draw(heads)),
        attention(*first, *none, *prompt, *none, None, bias),
        attention(*next_one, *past, *following, *angles, do_rotary=1),
        attention(*next_one, *past, *uneven, *angles, slots=before - 1, local_window_size=2),
        attention(*next_one, *past, *shared, slots=before - 1),
    ]


def movements() -> list[Sample]:
    x, image = draw(3, 4), draw(2, 3, 5, 6)
    boxes = np.array([[0, 0, 1, 1], [0.1, 0.2, 0.9, 0.7], [-0.2, 0.3, 0.5, 1.4]], np.float32)
    cropped = [image, boxes, ints(0, 1, 0)]
    turned = draw(1, 2, 4, 5), draw(2, 3, 3, 3)
    pads = np.array([1, 0, 0, 2], np.int64)
    window = {"kernel_shape": [3, 3]}
    bytes_ = draw_ints(256, 2, 5, 6, 3, dtype=np.uint8)
    ids = np.array([[1, 2, 3, 1, 2], [4, 4, 4, 4, 4]], np.int64)
    return [
        Sample("SampleOp", [x]),
        *(Sample("ExpandDims", [x, np.array(axis, np.int32)]) for axis in (0, 1, -1)),
        Sample("GatherND", [x, ints(2, 1).reshape(1, 2)]),
        Sample("GatherND", [x, np.array([[2], [0]], np.int64)]),
        Sample("Trilu", [x], attributes={"upper": 0}),
        Sample("Trilu", [x, np.array(1, np.int64)]),
        Sample("TransposeMatMul", [draw(4, 3), draw(5, 4)], ["y"], {"transA": 1, "transB": 1}),
        *(Sample("UnfoldTensor", [draw(2, 7)], ["y"], {"size": 3, "step": n}) for n in (1, 2)),
        Sample("UnfoldTensor", [draw(2, 90)], ["y"], {"size": 3}),  # More than 1 KiB of indices.
        Sample("UnfoldTensor", [draw(2, 7, 3)], ["y"], {"size": 2, "dim": 1}),
        *(
            Sample("NGramRepeatBlock", [ids, draw(2, 6)], ["y"], {"ngram_size": n})
            for n in (1, 2, 3, 6)
        ),
        *(
            Sample("CDist", [x, draw(5, 4)], ["y"], {"metric": one})
            for one in ("sqeuclidean", "euclidean")
        ),
        *(
            Sample("GridSample", [image, draw(2, 4, 3, 2)], ["y"], {"mode": mode, **more})
            for mode in ("bilinear", "nearest", "bicubic")
            for more in ({}, {"align_corners": 1, "padding_mode": "reflection"})
        ),
        Sample("NhwcMaxPool", [bytes_], ["y"], window),
        Sample("NhwcMaxPool", [bytes_], ["y"], {**window, "strides": [2, 1], "pads": [1, 0, 1, 2]}),
        Sample("ConvTransposeWithDynamicPads", [*turned, pads]),
        Sample(
            "ConvTransposeWithDynamicPads",
            [*turned, pads, draw(3)],
            ["y"],
            {"strides": [2, 2], "output_padding": [1, 0]},
        ),
        *(
            Sample(
                "CropAndResize", [*given, size], ["y"], {"mode": mode, "extrapolation_value": 7.0}
            )
            for given in (cropped, [cropped[0][:1], cropped[1], 0 * cropped[2]])
            for mode in ("bilinear", "nearest")
            for size in (ints(4, 5), ints(1, 3))
        ),
        Sample("Pad", [x, np.array([1, 0, 2, 3], np.int64)]),
        Sample("Pad", [x, np.array([[1, 0, 2, 3]], np.int64), np.array([5], np.float32)]),
        Sample("Pad", [x, np.array([1, 0, 2, 3], np.int64)], ["y"], {"mode": "reflect"}),
        Sample("Range", [np.array(1, np.int32), np.array(7, np.int32), np.array(2, np.int32)]),
        Sample("Range", [np.array(0.5, np.float32), np.array(3, np.float32)]),
    ]


def of_bytes() -> list[Sample]:
    """Operators that take quantized numbers and return floats."""

    def whole(*shape: int, kind: Any = np.uint8) -> Array:
        return RANDOM.integers(-128, 128, shape).astype(np.int8).view(kind)

    def real(*values: float) -> Array:
        return np.array(values[0] if len(values) == 1 else values, np.float32)

    tables = [whole(10, 8), whole(6, 8), whole(2, 8), whole(8), whole(8)]
    scales, zeros = [real(0.2)] * 5, [np.array(120 + at, np.uint8) for at in range(5)]
    ids, kinds = draw_ints(10, 2, 4), draw_ints(2, 2, 4)
    plain = [[*many[:2], None, *many[3:]] for many in (tables, scales, zeros)]
    found = [
        Sample(
            "QEmbedLayerNormalization",
            [ids, kinds, *tables, draw_ints(2, 2, 4), *scales, *zeros],
            ["y", "m"],
        ),
        Sample(
            "QEmbedLayerNormalization",
            [ids, None, *plain[0], None, *plain[1], *plain[2]],
            ["y", "m"],
        ),
    ]
    for kind in (np.uint8, np.int8):
        weights = draw_ints(SAFE, 6, 24, dtype=kind)
        first = [whole(2, 3, 6), weights, draw(24), real(0.02), real(0.03)]
        each = [*first[:4], abs(draw(24)) / 9, ints(2, 3), zeros[0], whole(24, kind=kind)]
        past = [None, zeros[0], np.array(3, kind), draw(2, 2, 2, 4, 4)]
        held = {"num_heads": 2}
        found.append(Sample("QAttention", each, ["y"], held))
        found.append(
            Sample("QAttention", [*first, *past], ["y", "p"], held | {"unidirectional": 1})
        )
    for bits, points in ((4, whole(5, 1)), (8, whole(5, 2)), (4, None)):
        for indices in (ints(2, 0), np.array([[1, 3], [0, 2]], np.int64)):
            inputs = [whole(5, 4 * bits), indices, abs(draw(5, 2)), points]
            held = {"bits": bits, "block_size": 16}
            found.append(Sample("GatherBlockQuantized", inputs, ["y"], held))
    return found


def steps() -> list[Sample]:
    hidden, found = 5, []
    for kind in (np.uint8, np.int8):
        for way in ("forward", "reverse", "bidirectional"):
            count = 1 + (way == "bidirectional")
            each, one = (count, 4 * hidden), (count,)
            weights = [draw_ints(SAFE, count, size, 4 * hidden, dtype=kind) for size in (3, hidden)]
            state = [draw(count, 2, hidden), draw(count, 2, hidden), draw(count, 3 * hidden)]
            more = [draw(count, 8 * hidden), None, *state]
            for shape, given in ((one, [None] * 5), (each, more)):
                # onnxruntime requires zero points of 0 for scales per column.
                zero = 3 if shape == one else 0
                scales = [abs(draw(*shape)) / 99, np.full(shape, zero, kind)] * 2
                held = {"hidden_size": hidden, "direction": way}
                inputs = [draw(4, 2, 3), *weights, *given, *scales]
                found.append(Sample("DynamicQuantizeLSTM", inputs, ["y", "h", "c"], held))
    unit = np.eye(4, dtype=np.float32)
    turned = np.array([[0, 1], [1, 0]], np.float32)
    inverses = [draw(4, 4) + 3 * unit, draw(2, 2, 4, 4) + 3 * unit, turned]
    return [*found, *(Sample("Inverse", [one]) for one in inverses)]


SAMPLES = [
    *activations(),
    *movements(),
    *of_bytes(),
    *steps(),
    *products(),
    *convolutions(),
    *normalizations(),
    *few_bits(),
    *attentions(),
    *heads_of_several(),
    *rotations(),
    *groups(),
    *NETWORKS,
    *decoding(),
    *searches(),
]


@pytest.mark.budget(20)
@pytest.mark.parametrize("at", range(len(SAMPLES)), ids=lambda at: f"{SAMPLES[at].op}-{at}")
def test_contrib_values_are_those_of_onnxruntime(at: int) -> None:
    sample = SAMPLES[at]
    wanted = peer(sample)
    for backend in ("c", "reference"):
        for one, other in zip(wanted, sample.computed(backend), strict=True):
            if sample.slots is not None and one.ndim == 4:
                one, other = one[:, :, : sample.slots], other[:, :, : sample.slots]
            assert one.dtype == other.dtype
            loose = 2e-3 if one.dtype == np.float16 else 1e-4
            np.testing.assert_allclose(other, one, loose, loose)


def test_every_contrib_operator_has_a_sample() -> None:
    defined = {name for domain, name in defined_operators() if domain != "ai.graphcore"}
    tested = {sample.op for sample in SAMPLES} | ONLY_ON_GPUS
    assert defined == tested | {operator for operator, *_ in QUANTIZED}


NOT_SMOOTH = {
    *("RotaryEmbedding", "NhwcMaxPool", "Range", "NGramRepeatBlock"),
    *("Unique", "MurmurHash3", "NGramHashMapping", "MRotaryEmbedding", "QMoE"),
    *("VarlenNGramHashMapping", "DynamicTimeWarping", "BifurcationDetector"),
    *("GatherPacked", "GreedySearch"),
    *("DynamicQuantizeLSTM", "QAttention", "QEmbedLayerNormalization", "GatherBlockQuantized"),
}
"""
Samples without a gradient to check.

ONNX lacks a RotaryEmbedding and scales in f64, which finite differences need. Others take integers,
round, have infinite results, or decide sizes.
"""

SMOOTH = [
    at
    for at, sample in enumerate(SAMPLES)
    if sample.op not in NOT_SMOOTH and not sample.attributes.get("do_rotary")
]


@pytest.mark.parametrize("at", SMOOTH, ids=lambda at: f"{SAMPLES[at].op}-{at}")
def test_contrib_gradients_are_slopes(at: int) -> None:
    sample = SAMPLES[at]
    results = sample.computed("reference")
    model = sample.model(results)
    floats = {name: array for name, array in sample.given.items() if array.dtype.kind == "f"}
    for name in sample.given.keys() - floats.keys():
        model.graph.initializer.append(numpy_helper.from_array(sample.given[name], name))
    inputs = [one for one in model.graph.input if one.name in floats]
    del model.graph.input[:]
    model.graph.input.extend(inputs)
    assert check(model, list(floats.values()), results)


def test_blocks_by_group_index_have_packed_zero_points() -> None:
    """onnxruntime ignores packed zero points here; the operator's definition applies them."""
    a, codes, steps = draw(2, 32), draw_ints(256, 3, 2, 8, dtype=np.uint8), draw(3, 2)
    points, owners = draw_ints(256, 3, 1, dtype=np.uint8), draw_ints(2, 32)
    attributes = {"K": 32, "N": 3, "bits": 4, "block_size": 16}
    (found,) = Sample(
        "MatMulNBits", [a, codes, steps, points, owners], ["y"], attributes
    ).computed()
    numbers = np.stack([codes & 15, codes >> 4], -1).reshape(3, 32).astype(np.float32)
    middle = np.stack([points & 15, points >> 4], -1).reshape(3, 2)[:, owners]
    np.testing.assert_allclose(found, a @ ((numbers - middle) * steps[:, owners]).T, 1e-4, 1e-4)


def test_packed_heads_compute_the_same() -> None:
    """onnxruntime packs heads on GPUs only."""
    packed = draw(2, 3, 2, 3, 4)
    bias, attributes = draw(24), {"num_heads": 2}
    parts = [packed[:, :, :, at].reshape(2, 3, 8) for at in range(3)]
    (wanted,) = peer(Sample("MultiHeadAttention", [*parts, bias], ["y"], attributes))
    together = Sample("MultiHeadAttention", [packed, None, None, bias], ["y"], attributes)
    pairs = Sample(
        "MultiHeadAttention",
        [parts[0], np.ascontiguousarray(packed[:, :, :, 1:]), None, bias],
        ["y"],
        attributes,
    )
    for sample in (together, pairs):
        np.testing.assert_allclose(sample.computed()[0], wanted, 1e-4, 1e-5)


def test_a_search_pads_finished_sequences() -> None:
    """After all sequences have ended, onnxruntime leaves the rest undefined."""
    sample = greedy(12, end=0)
    (found,), (wanted,) = sample.computed(), peer(sample)
    ends = [int(np.argmax(row[3:] == PAD)) + 3 for row in found]
    assert max(ends) < 11
    for row, end in zip(found, ends, strict=True):
        assert (row[end:] == PAD).all()
    np.testing.assert_array_equal(found[:, : max(ends) + 1], wanted[:, : max(ends) + 1])


def test_decoders_of_other_forms_are_refused() -> None:
    with pytest.raises(UnsupportedError, match="model_type = 1 of GreedySearch"):
        greedy(9, model_type=1).computed()
    sample = greedy(9)
    sample.attributes["decoder"].input.add(name="past_sequence_length")
    with pytest.raises(UnsupportedError, match="a decoder of 5 inputs and 2 outputs"):
        sample.computed()
    with pytest.raises(UnsupportedError, match="the attribute init_decoder"):
        greedy(9, init_decoder=greedy(9).attributes["decoder"]).computed()


def test_decoder_attention_returns_its_scores() -> None:
    """onnxruntime returns the scores only if the model declares their type."""
    query, keys, values = draw(2, 1, 8), draw(2, 2, 6, 4), draw(2, 2, 6, 4)
    attributes = {"num_heads": 2, "output_qk": 1}
    sample = Sample(
        "DecoderMaskedMultiHeadAttention",
        [query, keys, values, draw_ints(2, 2, 6)],
        ["y", "", "", "qk"],
        {**attributes, "mask_filter_value": -3.0},
    )
    found = sample.computed()
    session = ORT.InferenceSession(sample.model(found).SerializeToString())
    for one, other in zip(session.run(None, sample.given), found, strict=True):
        np.testing.assert_allclose(other, one, 1e-5, 1e-5)


def test_operators_for_gpus_only() -> None:
    """Expected values follow the definitions in onnxruntime's documentation."""
    data, bias = draw(2, 3, 4, 5), draw(1, 3, 1, 5)
    scores = np.exp((data + bias).reshape(2, 3, 20))
    wanted = (scores / scores.sum(-1, keepdims=True)).reshape(data.shape)
    found = Sample("BiasSoftmax", [data, bias], ["y"], {"axis": 2, "is_inner_broadcast": 0})
    np.testing.assert_allclose(found.computed()[0], wanted, 1e-5)
    kept = Sample("BiasDropout", [data, draw(5), data], ["y", "m"])
    value, mask = kept.computed()
    assert kept.inputs[1] is not None
    np.testing.assert_allclose(value, data + kept.inputs[1] + data, 1e-6)
    assert mask.all()
    image, filters, more = draw(1, 5, 5, 4), draw(6, 4, 3, 3), draw(6)
    planes = np.ascontiguousarray(image.transpose(0, 3, 1, 2))
    (convolved,) = peer(Sample("FusedConv", [planes, filters, more], ["y"], {"activation": "Relu"}))
    last = Sample("NhwcFusedConv", [image, filters, more], ["y"], {"activation": "Relu"})
    np.testing.assert_allclose(last.computed()[0], convolved.transpose(0, 2, 3, 1), 1e-4, 1e-4)
    plain = Sample("NhwcConv", [image, filters, more]).computed()[0]
    np.testing.assert_allclose(np.maximum(plain, 0), last.computed()[0])


def test_a_definition_leaves_the_model_unchanged() -> None:
    model = SAMPLES[1].model()
    node = popgraph.compiler.load(model)[0]
    assert "BiasGelu" in str(node) and "tensor<2x3x8xf32>" in str(node)


def _function(sample: Sample, *, exact: bool = False) -> Function:
    module = popgraph.compiler.load(sample.model())[0]
    (node,) = (op for op in module.walk() if isinstance(op, Custom))
    function = function_of(node, {}, exact=exact)
    assert function is not None
    return function


def test_equal_nodes_share_a_function() -> None:
    """Only differences that a definition can see make another function."""
    given = [draw(2, 3, 8), draw(8)]
    first = _function(Sample("BiasGelu", given))
    assert _function(Sample("BiasGelu", [draw(2, 3, 8), draw(8)], ["z"])) is first
    others = [
        _function(Sample("BiasGelu", [draw(4, 8), draw(8)])),
        _function(Sample("FastGelu", given)),
        _function(Sample("QuickGelu", given[:1], attributes={"alpha": 0.5})),
        _function(Sample("QuickGelu", given[:1], attributes={"alpha": 0.25})),
        _function(Sample("BiasGelu", given), exact=True),
    ]
    assert len({id(one) for one in (first, *others)}) == 6


def test_nodes_with_graphs_have_functions_of_their_own() -> None:
    """Nodes whose graphs differ may be equal in all other attributes."""
    (sample, *_) = searches()
    assert _function(sample) is not _function(sample)


def test_unsupported_attributes_of_definitions_are_named() -> None:
    sample = Sample("FusedGemm", [draw(2, 2), draw(2, 2)], attributes={"activation": "Swish"})
    with pytest.raises(UnsupportedError) as caught:
        sample.computed()
    assert caught.value.what == "the activation 'Swish' of FusedGemm is not supported"
    assert "node 'y'" in caught.value.where and caught.value.hint
    with pytest.raises(TypeMismatchError, match="needs the attribute 'num_heads'"):
        Sample("MultiHeadAttention", [draw(1, 2, 4)] * 3).computed()
    with pytest.raises(TypeMismatchError, match="takes at most 1 inputs, not 2"):
        Sample("Gelu", [draw(1), draw(1)]).computed()
    with pytest.raises(TypeMismatchError, match=r"input 'X' of \w+ must be floats, not"):
        Sample("BranchwiseRMSNorm", [ints(1, 2)]).computed()
    with pytest.raises(UnsupportedError, match="activation = 'tanh' of GatedRMSNorm"):
        attributes = {"activation": "tanh"}
        Sample("GatedRMSNorm", [draw(2, 4), draw(4), draw(2, 4)], ["y"], attributes).computed()
    with pytest.raises(UnsupportedError, match="the input 'sequence_lens'"):
        inputs = [draw(3, 2, 3), draw(1, 16, 8), draw(1, 16, 4), None, ints(3, 2), *[None] * 3]
        looks = [draw(1, 4, 3), draw(1, 5, 3), draw(1, 3), draw(2, 6, 5)]
        Sample("AttnLSTM", [*inputs, *looks], ["y"], {"hidden_size": 4}).computed()
    with pytest.raises(UnsupportedError, match="packed_type = 16 of GatherPacked"):
        rows = draw_ints(256, 2, 66, dtype=np.uint8)
        Sample("GatherPacked", [rows, ints(0)], ["y"], {"packed_type": 16, "K": 256}).computed()
    with pytest.raises(UnsupportedError, match="the input 'gate_weight'"):
        Sample("GatedAdd", [draw(2, 4), draw(2, 4), draw(2, 3), draw(3, 1)]).computed()


def test_ignored_inputs_and_outputs_of_definitions_are_named() -> None:
    past = [draw(1, 2, 4, 2), draw(1, 2, 4, 2), ints(2), ints(0, 0, 0, 0).reshape(1, 1, 4)]
    inputs = [draw(1, 2, 4)] * 3 + [None] * 3 + past
    with pytest.raises(UnsupportedError, match="the input 'cache_indirection'"):
        Sample("MultiHeadAttention", inputs, ["y", "k", "v"], {"num_heads": 2}).computed()
    with pytest.raises(UnsupportedError, match="the attribute do_rotary = 1 of Attention"):
        attributes = {"num_heads": 2, "do_rotary": 1}
        Sample("Attention", [draw(1, 2, 4), draw(4, 12)], attributes=attributes).computed()
    with pytest.raises(UnsupportedError, match="output 3 of MultiHeadAttention"):
        attributes = {"num_heads": 2}
        outputs = ["y", "k", "v", "qk"]
        Sample("MultiHeadAttention", inputs[:3], outputs, attributes).computed()


def test_contrib_operators_with_unknown_shapes() -> None:
    sample = heads_of_several()[0]
    model = sample.model()
    model.graph.input[1].type.tensor_type.shape.dim[1].dim_param = "L"
    model.graph.input[2].type.tensor_type.shape.dim[1].dim_param = "L"
    found = popgraph.compile(model)(sample.given)["y"]
    np.testing.assert_allclose(found, peer(sample)[0], 1e-4, 1e-5)
    constant = numpy_helper.from_array(draw(8), "i1")
    small = SAMPLES[1].model()
    small.graph.initializer.append(constant)
    del small.graph.input[1]
    assert popgraph.compile(small)({"i0": draw(2, 3, 8)})["y"].shape == (2, 3, 8)
