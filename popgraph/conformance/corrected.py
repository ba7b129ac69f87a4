"""Tests of earlier ONNX releases that a later release corrected, with the reasons."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple


class Correction(NamedTuple):
    """An error in tests of certain releases."""

    names: str
    """Regular expression for the whole name."""
    releases: tuple[str, ...]
    """Releases with the wrong test, among those whose wheels were examined."""
    corrected: str
    """The first release with a corrected test."""
    reason: str


CORRECTIONS = (
    Correction(
        "test_resize_upsample_sizes_nearest_(ceil_half_pixel|floor_align_corners"
        "|round_prefer_ceil_asymmetric)",
        ("1.6.0",),
        "1.8.1",
        "its node lacks the nearest_mode of which it expects the elements",
    ),
    Correction(
        "test_unique_not_sorted_without_axis",
        ("1.6.0",),
        "1.8.1",
        "it expects sorted elements of a node that is not to sort",
    ),
    Correction(
        "test_sequence_insert_at_front",
        ("1.8.1",),
        "1.10.2",
        "it expects at the end what is inserted at the front",
    ),
    Correction(
        "test_castlike_(BFLOAT16_to_FLOAT|FLOAT_to_BFLOAT16)(_expanded)?",
        ("1.12.0", "1.14.1"),
        "1.16.2",
        "it feeds another shape than its model says",
    ),
    Correction(
        "test_averagepool_3d_dilations_large_count_include_pad_is_1_ceil_mode_is_True",
        ("1.16.2",),
        "1.18.0",
        "its windows count elements behind the padding",
    ),
    Correction(
        "test_cast_FLOAT(16)?_to_U?INT4",
        ("1.16.2", "1.18.0"),
        "1.20.1",
        "it expects the nearest number of what 4 bits do not hold, which is undefined",
    ),
    Correction(
        "test_cast_FLOAT(16)?_to_FLOAT4E2M1",
        ("1.18.0",),
        "1.20.1",
        "it expects 6 of NaN, which the type does not have",
    ),
    Correction(
        "test_qlinearmatmul_[23]D_int8_float(16|32)",
        ("1.16.2", "1.18.0", "1.20.1"),
        "1.22.0",
        "it expects numbers that wrap around at the ends of 8 bits, and not the ends",
    ),
    Correction(
        "test_rotary_embedding_(no_position_ids|with|with_interleaved)_rotary_dim",
        ("1.18.0",),
        "1.20.1",
        "its tables are not half as wide as rotary_embedding_dim",
    ),
    Correction(
        "test_attention_3d(?!.*_expanded).*",
        ("1.18.0",),
        "1.20.1",
        "it takes heads and positions of three-dimensional inputs for one another",
    ),
    Correction(
        "test_attention_4d_gqa(?!.*_expanded).*",
        ("1.18.0",),
        "1.20.1",
        "it gives queries the keys of other groups",
    ),
    Correction(
        "test_attention_[34]d_with_(past_and_present_)?qk_matmul_(softcap|bias.*)(?<!_expanded)",
        ("1.18.0", "1.20.1"),
        "1.22.0",
        "it expects the scores of another step than qk_matmul_output_mode says",
    ),
    Correction(
        "test_l2normalization_axis_0",
        ("1.20.1",),
        "1.22.0",
        "it expects NaN of what is 0 in all elements, and not 0",
    ),
)
"""
For each of them, onnxruntime and the reference of today's onnx contradict the test as PopGraph
does, or reject it. For types that onnxruntime lacks, only the reference was compared.
"""


def corrections_of(name: str, suites: Iterable[str]) -> str:
    """The error in a test of one of these suites; empty if there is none."""
    for found in CORRECTIONS:
        wrong = {f"onnx-{release}" for release in found.releases}
        if wrong.intersection(suites) and re.fullmatch(found.names, name):
            return f"{found.reason}; onnx {found.corrected} has another one"
    return ""
