"""Fuzzes operators of recent networks against onnxruntime, and in half precision."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from popgraph.operators.record import MICROSOFT
from popgraph.support.arrays import Array
from tests.dialects.contrib_networks import quantized_experts
from tests.dialects.contrib_sample import ORT, Sample, draw, draw_ints, peer
from tests.dialects.test_onnx_contrib import SAMPLES
from tests.sampling import examples

Draw = st.DrawFn


def flag(take: Draw) -> bool:
    return take(st.booleans())


def number(take: Draw, low: int, high: int) -> int:
    return take(st.integers(low, high))


def one_of(take: Draw, *choices: Any) -> Any:
    return take(st.sampled_from(choices))


@st.composite
def experts(take: Draw) -> Sample:
    rows, count = number(take, 1, 6), number(take, 1, 5)
    width, inner = number(take, 1, 9), number(take, 1, 7)
    kind = one_of(take, "relu", "gelu", "silu", "identity", "swiglu")
    held: dict[str, Any] = {"activation_type": kind, "k": number(take, 1, min(count, 3))}
    held["normalize_routing_weights"] = int(flag(take))
    if kind == "swiglu":
        held |= {"swiglu_fusion": one_of(take, 1, 2), "activation_alpha": 1.3}
        held |= {"activation_beta": 0.5} | ({"swiglu_limit": 0.7} if flag(take) else {})
    before = 2 * inner if kind == "swiglu" else inner
    biases = [draw(count, before), draw(count, width)] if flag(take) else [None, None]
    layers = [draw(count, before, width), biases[0], draw(count, width, inner), biases[1]]
    shape = (rows, width) if flag(take) else (1, rows, width)
    return Sample("MoE", [draw(*shape), draw(rows, count), *layers], ["y"], held)


@st.composite
def whole_experts(take: Draw) -> Sample:
    rows, count = number(take, 1, 5), number(take, 2, 5)
    bits, block = one_of(take, 4, 8), one_of(take, 0, 16)
    x, scores = draw(rows, 16 * number(take, 1, 3)), draw(rows, count)
    return quantized_experts(x, scores, bits, block, flag(take))


@st.composite
def routers(take: Draw) -> Sample:
    groups, each = one_of(take, (1, 7), (2, 3), (4, 2), (3, 4))
    kept, experts = number(take, 1, groups), groups * each
    held = {"n_group": groups, "topk_group": kept, "top_k": number(take, 1, kept * each)}
    held["group_topk"] = number(take, 1, min(each, 3))
    outputs = one_of(take, ["y"], ["", "a", "b"]) if groups == 1 else ["y"]
    return Sample(
        "MoEGroupRouter", [draw(number(take, 1, 5), experts), draw(experts)], outputs, held
    )


@st.composite
def linear_attentions(take: Draw) -> Sample:
    batch, length, kept = number(take, 1, 2), number(take, 1, 5), number(take, 1, 3)
    asking, keys, values = kept * number(take, 1, 2), number(take, 1, 6), number(take, 1, 6)
    rule = one_of(take, "linear", "gated", "delta", "gated_delta")
    each = one_of(take, 1, keys)
    inputs: list[Array | None] = [draw(batch, length, asking * keys)]
    inputs += [draw(batch, length, kept * keys) / 3, draw(batch, length, kept * values)]
    inputs.append(draw(batch, kept, keys, values) if flag(take) else None)
    inputs.append(-abs(draw(batch, length, kept * each)) if "gated" in rule else None)
    shared = one_of(take, 1, kept)
    inputs.append(abs(draw(batch, length, shared)) / 5 if "delta" in rule else None)
    held = {"q_num_heads": asking, "kv_num_heads": kept, "update_rule": rule}
    return Sample("LinearAttention", inputs, ["y", "s"], held)


@st.composite
def causal_convolutions(take: Draw) -> Sample:
    batch, channels, length = number(take, 1, 3), number(take, 1, 5), number(take, 1, 7)
    taps, dilation = number(take, 1, 4), number(take, 1, 3)
    inputs = [draw(batch, channels, length), draw(channels, 1, taps)]
    state = draw(batch, channels, (taps - 1) * dilation) if flag(take) and taps > 1 else None
    more = [draw(channels) if flag(take) else None, state]
    held = {"dilation": dilation, "activation": one_of(take, "none", "silu", "swish")}
    return Sample("CausalConvWithState", [*inputs, *more], ["y", "s"], held)


@st.composite
def normalizations(take: Draw) -> Sample:
    rows, groups, size = number(take, 1, 4), number(take, 1, 4), number(take, 1, 5)
    x = draw(rows, groups * size)
    if flag(take):
        kind = one_of(take, "silu", "swish", "sigmoid")
        gate, held = draw(rows, groups * size), {"activation": kind}
        return Sample("GatedRMSNorm", [x, draw(size), gate], ["y"], held)
    weight = one_of(take, (size,), (groups, size))
    held = {"num_branches": groups, "epsilon": 0.01}
    return Sample("BranchwiseRMSNorm", [x, draw(*weight)], ["y"], held)


@st.composite
def connections(take: Draw) -> Sample:
    batch, rows, branches = number(take, 1, 2), number(take, 1, 3), number(take, 2, 4)
    size = number(take, 1, 5)
    held = {"num_branches": branches}
    x = draw(batch, rows, branches * size)
    if flag(take):
        return Sample("HyperConnectionPreMix", [x, draw(batch, rows, branches)], ["y"], held)
    inputs = [x, draw(batch, rows, size), draw(batch, rows, branches)]
    if flag(take):
        inputs.append(draw(batch, rows, branches, branches))
    return Sample("HyperConnectionPostMix", inputs, ["y"], held)


@st.composite
def turned(take: Draw) -> Sample:
    batch, length, heads = number(take, 1, 3), number(take, 1, 4), number(take, 1, 3)
    sections = [number(take, 1, 3) for _ in range(3)]
    half = sum(sections)
    places = draw_ints(8, 3, batch, length, dtype=np.int64)
    held = {"mrope_section": sections, "mrope_layout": 0, "interleaved": number(take, 0, 1)}
    inputs = [draw(batch, heads, length, 2 * half), places, draw(8, half), draw(8, half)]
    return Sample("MRotaryEmbedding", inputs, ["y"], held)


@st.composite
def hashes(take: Draw) -> Sample:
    whole = one_of(take, np.int32, np.int64)
    batch, length, longest = number(take, 1, 3), number(take, 1, 6), number(take, 2, 4)
    heads = number(take, 1, 3)
    ids = draw_ints(6, batch, length, dtype=whole)
    factors = draw_ints(100003, longest, dtype=whole) - 50001
    sizes = draw_ints(50, heads * (longest - 1), dtype=whole) + 2
    before = draw_ints(6, batch, longest - 1, dtype=whole) if flag(take) else None
    held = {"max_ngram_size": longest, "n_head_per_ngram": heads, "pad_id": number(take, 0, 3)}
    return Sample("NGramHashMapping", [ids, factors, sizes, before], ["y", "p"], held)


NEWER = [
    experts(),
    whole_experts(),
    routers(),
    linear_attentions(),
    causal_convolutions(),
    normalizations(),
    connections(),
    turned(),
    hashes(),
]


@settings(max_examples=examples(40), deadline=None)
@given(sample=st.one_of(NEWER))
def test_fuzz_contrib_operators(sample: Sample) -> None:
    for wanted, found in zip(peer(sample), sample.computed(), strict=True):
        assert wanted.dtype == found.dtype
        np.testing.assert_allclose(found, wanted, 1e-4, 1e-4)


@cache
def _admits_halves() -> dict[str, Sequence[bool]]:
    """Names of inputs that may be in half precision."""
    found: dict[str, Sequence[bool]] = {}
    for schema in ORT.capi.onnxruntime_pybind11_state.get_all_operator_schema():
        if schema.domain == MICROSOFT and schema.inputs:
            kinds = {one.type_param_str: one.allowed_type_strs for one in schema.type_constraints}
            given = [one.typeStr for one in schema.inputs]
            found[schema.name] = ["tensor(float16)" in kinds.get(one, ()) for one in given]
    return found


def _in_halves(sample: Sample, kind: Any) -> Sample:
    """The node with its numbers rounded to half precision, and typed so where admitted."""
    admitted = [*_admits_halves().get(sample.op, ()), *[False] * len(sample.inputs)]
    inputs = [
        array.astype(np.float16).astype(kind)
        if array is not None and array.dtype == np.float32 and may_be
        else array
        for array, may_be in zip(sample.inputs, admitted, strict=False)
    ]
    return replace(sample, inputs=inputs)


IN_HALVES = [
    at
    for at, sample in enumerate(SAMPLES)
    if any(
        one is not None and one.dtype == np.float16 for one in _in_halves(sample, np.float16).inputs
    )
]


@pytest.mark.budget(10)
@pytest.mark.parametrize("at", IN_HALVES, ids=lambda at: f"{SAMPLES[at].op}-{at}")
def test_contrib_operators_in_half_precision_are_near_floats(at: int) -> None:
    wanted = _in_halves(SAMPLES[at], np.float32).computed()
    for one, found in zip(wanted, _in_halves(SAMPLES[at], np.float16).computed(), strict=True):
        largest = max(1.0, float(np.abs(one).max(initial=0))) if one.dtype.kind == "f" else 0
        np.testing.assert_allclose(found.astype(one.dtype), one, 1e-2, 5e-3 * largest)
